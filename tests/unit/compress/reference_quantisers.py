#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Computes QSGD, 1-bit SGD, scaled signs and votes from their formulas, number by number, and prints reference_quantisers.hpp.

Shares nothing with the library. Needs no packages. Usage: reference_quantisers.py > reference_quantisers.hpp
"""
import math

SEED, SERIES, STEP = 42, 5, 9
ROWS, COLUMNS, WORKERS, STEPS = 6, 7, 3, 4


def number(i):
    x = ((37 * i + 11) % 101) / 64 - 50 / 64
    return 8 * x if i % 19 == 3 else x


def word(i):
    c, k = [i // 4 & 0xFFFFFFFF, i // 4 >> 32, STEP, (3 << 24) ^ SERIES], [SEED, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[i % 4]


def draw(i):
    """31 bits: half of a word, and the upper bits of another word."""
    return (word(i // 2) >> 16 * (i % 2) & 0xFFFF) << 15 | word(2**48 + i) >> 17


def qsgd(values, levels, bucket, euclidean):
    """Steps, and signed levels."""
    steps, out = [], []
    for first in range(0, len(values), bucket):
        v = values[first:first + bucket]
        norm = math.sqrt(math.fsum(x * x for x in v)) if euclidean else max(map(abs, v))
        grid = 2.0 ** (math.floor(math.log2(norm)) - 51)
        step = math.ceil(math.ceil(norm / grid) / levels) * grid
        for i, x in enumerate(v, first):
            below = math.floor(abs(x) / step)
            up = draw(i) < math.floor((abs(x) / step - below) * 2**31)
            out.append((-1 if x < 0 else 1) * (below + up))
        steps.append(step)
    return steps, out


def omega(k):
    code = "0"
    while k > 1:
        code, k = bin(k)[2:] + code, len(bin(k)) - 3
    return code


def elias(levels, most, bucket):
    text = ""
    width = math.ceil(math.log2(2 * most + 1))
    for first in range(0, len(levels), bucket):
        q = levels[first:first + bucket]
        plain = "".join(bin((x + most) | 1 << width)[3:][::-1] for x in q)  # the lowest bit first
        dense = "".join(omega(abs(x) + 1) + ("" if x == 0 else "1" if x < 0 else "0") for x in q)
        at = [i for i, x in enumerate(q) if x]
        gaps = [i - j for i, j in zip(at, [-1] + at)]
        sparse = omega(len(at) + 1) + "".join(omega(g) + ("1" if q[i] < 0 else "0") + omega(abs(q[i])) for g, i in zip(gaps, at))
        if min(len(sparse), len(dense)) >= len(plain):
            text += "00" + plain
        else:
            text += "01" + sparse if len(sparse) <= len(dense) else "10" + dense
    text += "0" * (-len(text) % 8)
    return [int(text[i:i + 8][::-1], 2) for i in range(0, len(text), 8)]


def one_bit(p):
    """Of a matrix: each number becomes the mean of those of its sign in its column."""
    out = [[0.0] * COLUMNS for _ in range(ROWS)]
    for j in range(COLUMNS):
        for chosen in (lambda x: x >= 0, lambda x: x < 0):
            those = [p[i][j] for i in range(ROWS) if chosen(p[i][j])]
            for i in range(ROWS):
                if chosen(p[i][j]):
                    out[i][j] = math.fsum(those) / len(those)
    return out


def scaled_sign(p):
    scale = math.fsum(abs(x) for row in p for x in row) / (ROWS * COLUMNS)
    return [[scale if x >= 0 else -scale for x in row] for row in p]


def gradients(step):
    n = ROWS * COLUMNS
    return [[[number((step * WORKERS + w) * n + i * COLUMNS + j) for j in range(COLUMNS)] for i in range(ROWS)] for w in range(WORKERS)]


def combined(a, b, sign=1):
    return [[x + sign * y for x, y in zip(*rows)] for rows in zip(a, b)]


def with_feedback(method, both):
    zero = [[0.0] * COLUMNS for _ in range(ROWS)]
    residual, back, sums = [zero] * WORKERS, zero, []
    for step in range(STEPS):
        total = zero
        for w, g in enumerate(gradients(step)):
            p = combined(g, residual[w])
            sent = method(p)
            residual[w], total = combined(p, sent, -1), combined(total, sent)
        if both:
            p = combined(total, back)
            total = method(p)
            back = combined(p, total, -1)
        sums.append(total)
    return sums, residual[1], back


def votes(momentum):
    means, out = [[[0.0] * COLUMNS for _ in range(ROWS)]] * WORKERS, []
    for step in range(STEPS):
        count = [[0] * COLUMNS for _ in range(ROWS)]
        for w, g in enumerate(gradients(step)):
            means[w] = [[momentum * m + (1 - momentum) * x for m, x in zip(*rows)] for rows in zip(means[w], g)]
            count = combined(count, [[(x > 0) - (x < 0) for x in row] for row in means[w]])
        out.append([[(x > 0) - (x < 0) for x in row] for row in count])
    return out


def flat(matrix):
    return [x for row in matrix for x in row]


def listed(values):
    lines, line = [], ""
    for text in map(repr, values):
        if len(line) + len(text) > 115:
            lines.append(line.rstrip())
            line = ""
        line += text + ", "
    return "{" + "\n        ".join(lines + [line.rstrip(", ")]) + "}"


print("""// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Written by reference_quantisers.py, which computes these from their formulas without the library.
// clang-format off

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reference {

struct quantised {
    std::size_t n = 0, levels = 0, bucket = 0;
    bool euclidean = false;
    std::vector<double> steps{};
    std::vector<int> signed_levels{};
    std::vector<int> elias{};  ///< bytes after the steps
};
""")
names = []
for n, levels, bucket, euclidean in ((61, 7, 20, True), (61, 1, 61, True), (90, 127, 30, False), (50, 3, 512, False), (200, 5, 64, True)):
    steps, out = qsgd([number(i) for i in range(n)], levels, bucket, euclidean)
    names.append(f"{{.n = {n}, .levels = {levels}, .bucket = {bucket}, .euclidean = {'true' if euclidean else 'false'},\n    .steps = {listed(steps)},\n"
                 f"    .signed_levels = {listed(out)},\n    .elias = {listed(elias(out, levels, bucket))}}}")
print("inline const std::vector<quantised> of_numbers{" + ",\n    ".join(names) + "};\n")
print(f"""inline constexpr std::size_t rows = {ROWS}, columns = {COLUMNS}, voters = {WORKERS};

struct fed_back {{
    std::vector<std::vector<double>> sums{{}};  ///< of each step
    std::vector<double> residual{{}};           ///< of worker 1 after the last one
    std::vector<double> back{{}};               ///< of the sum
}};
""")
for name, method, both in (("one_bit", one_bit, False), ("one_bit_both_ways", one_bit, True), ("scaled_sign", scaled_sign, False)):
    sums, residual, back = with_feedback(method, both)
    print(f"inline const fed_back {name}{{\n    .sums = {{" + ",\n        ".join(listed(flat(one)) for one in sums) + "},")
    print(f"    .residual = {listed(flat(residual))},\n    .back = {listed(flat(back))}}};\n")
for name, momentum in (("votes", 0.0), ("votes_of_momenta", 0.875)):
    print(f"inline const std::vector<std::vector<int>> {name}{{" + ",\n    ".join(listed(flat(one)) for one in votes(momentum)) + "};\n")
print("}  // namespace reference")
