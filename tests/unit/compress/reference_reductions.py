#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Computes TernGrad and PowerSGD from their formulas with exact sums and prints reference_reductions.hpp.

Shares nothing with the library: the counter-based generator, the addresses of random words and the methods are written down once more.
Needs no packages. Usage: tests/unit/compress/reference_reductions.py > tests/unit/compress/reference_reductions.hpp
"""
import math
import struct

SEED, TENSOR, WORKERS = 42, 5, 3
ROUNDING, REDUCTION = 3, 7


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def block(what, series, step, index):
    return philox((index & 0xFFFFFFFF, index >> 32, step, (what << 24) ^ series), (SEED & 0xFFFFFFFF, SEED >> 32))


def normal(series, step, index):
    a, b, c, d = block(REDUCTION, series, step, index)
    u, v = (((a << 21) ^ (b >> 11)) + 1) / 2.0**53, ((c << 21) ^ (d >> 11)) / 2.0**53
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def number(i):
    """Exact in float; every 19th is an outlier."""
    x = ((37 * i + 11) % 101) / 64 - 50 / 64
    return 8 * x if i % 19 == 3 else x


def terngrad(values, clip, step):
    """In float where the library computes in it: a quotient of doubles, rounded again, is the quotient of floats."""
    n = len(values[0])
    most = []
    for v in values:
        mean = math.fsum(v) / n
        sigma = math.sqrt(math.fsum((x - mean) ** 2 for x in v) / n)
        largest = max(map(abs, v))
        most.append(min(largest, single(clip * sigma)) if clip and sigma else largest)
    scale = max(most)
    sent = []
    for w, v in enumerate(values):
        signs = []
        for i, x in enumerate(v):
            def word(k):
                return block(ROUNDING, TENSOR * WORKERS + w, step, k // 4)[k % 4]
            draw = (word(i // 2) >> 16 * (i % 2) & 0xFFFF) << 15 | word(2**48 + i) >> 17
            chance = single(min(abs(x), most[w]) / scale)
            signs.append((-1 if x < 0 else 1) if draw < int(chance * 2**31) else 0)
        sent.append(signs)
    return most, scale, [sum(column) for column in zip(*sent)], sent


def product(a, b):
    return [[math.fsum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def added(*matrices):
    return [[math.fsum(cells) for cells in zip(*rows)] for rows in zip(*matrices)]


def orthonormal(p):
    columns = []
    for column in transposed(p):
        for _ in range(2):
            for other in columns:
                length = math.fsum(x * y for x, y in zip(column, other))
                column = [x - length * y for x, y in zip(column, other)]
        norm = math.sqrt(math.fsum(x * x for x in column))
        columns.append([x / norm for x in column])
    return transposed(columns)


def power_sgd(rows, columns, rank, steps):
    q = transposed([[normal(TENSOR, 0xFFFFFFFF, k * columns + j) for j in range(columns)] for k in range(rank)])
    residual = [[[0.0] * columns for _ in range(rows)] for _ in range(WORKERS)]
    means = []
    for step in range(steps):
        m = []
        for w in range(WORKERS):
            first = (step * WORKERS + w) * rows * columns
            m.append(added(residual[w], [[number(first + i * columns + j) for j in range(columns)] for i in range(rows)]))
        p = orthonormal(product(added(*m), q))
        q = product(transposed(added(*m)), p)
        means.append(product(p, transposed(q)))
        for w in range(WORKERS):
            own = product(p, transposed(product(transposed(m[w]), p)))
            residual[w] = [[x - y for x, y in zip(*pair)] for pair in zip(m[w], own)]
    return means, residual


def flat(matrix):
    return [x for row in matrix for x in row]


def listed(values):
    lines, line = [], ""
    for text in map(repr, values):
        if len(line) + len(text) > 125:
            lines.append(line.rstrip())
            line = ""
        line += text + ", "
    return "{" + "\n        ".join(lines + [line.rstrip(", ")]) + "}"


print("""// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Written by reference_reductions.py, which computes these from their formulas without the library.
// clang-format off

#include <cstddef>
#include <vector>

namespace reference {

/// Values are number(first), number(first + 1), .. with first = (step x workers + worker) x rows x columns.
inline constexpr std::size_t workers = 3, seed = 42, tensor = 5;

/// Three workers with 6 x 7 numbers each, at step 9.
struct terngrad {
    double clip = 0;
    std::vector<double> largest{};  ///< of each worker behind clipping
    double scale = 0;
    std::vector<int> sums{};
    std::vector<int> own{};         ///< of worker 1
};
""")
for name, clip in (("clipped", 2.5), ("whole", 0)):
    data = [[number((9 * WORKERS + w) * 42 + i) for i in range(42)] for w in range(WORKERS)]
    most, scale, sums, sent = terngrad(data, clip, 9)
    print(f"inline const terngrad {name}{{\n    .clip = {clip},\n    .largest = {listed(most)},\n    .scale = {scale!r},")
    print(f"    .sums = {listed(sums)},\n    .own = {listed(sent[1])},\n}};\n")
print("""/// Steps 0, 1 and 2 with error feedback.
struct power_sgd {
    std::size_t rows = 0, columns = 0, rank = 0;
    std::vector<std::vector<double>> means{};      ///< of each step
    std::vector<double> residual{};                ///< of worker 1 behind the last one
};
""")
for name, rows, columns, rank in (("first", 9, 7, 1), ("second", 12, 10, 2), ("third", 6, 20, 3), ("fourth", 11, 9, 4)):
    means, residual = power_sgd(rows, columns, rank, 3)
    print(f"inline const power_sgd {name}{{\n    .rows = {rows}, .columns = {columns}, .rank = {rank},")
    print("    .means = {" + ",\n        ".join(listed(flat(one)) for one in means) + "},")
    print(f"    .residual = {listed(flat(residual[1]))},\n}};\n")
print("}  // namespace reference")
