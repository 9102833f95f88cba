#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Casts to 16 bits by NumPy (binary16) and by exact fractions (bfloat16, which NumPy has not); prints half_reference.hpp.

Needs NumPy. Usage: tests/unit/simd/half_reference.py > tests/unit/simd/half_reference.hpp
"""
import bisect
import random
import struct
from fractions import Fraction

import numpy


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def single(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


# All finite bfloat16 numbers that are not negative, in order: their bit patterns count up. The one after them is 2^128.
GRID = [Fraction(single(b << 16)) for b in range(0x7F80)] + [Fraction(2) ** 128]


def bfloat16(bits):
    sign, size = bits >> 31 << 15, bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return sign | 0x7FC0
    if size == 0x7F800000:
        return sign | 0x7F80
    x = Fraction(single(size))
    at = bisect.bisect_left(GRID, x)
    if GRID[at] == x:
        return sign | at
    low, high = x - GRID[at - 1], GRID[at] - x
    return sign | (at - 1 if low < high or (low == high and (at - 1) % 2 == 0) else at)


def cases():
    out = []
    # Mantissas that are ties, and one bit above and below them, for either format.
    for exponent in (0, 1, 2, 9, 60, *range(100, 115), 126, 127, 128, *range(139, 144), 200, 253, 254, 255):
        for mantissa in (0, 1, 0x7FFFFF, 0x1000, 0xFFF, 0x1001, 0x3000, 0x8000, 0x7FFF, 0x8001, 0x18000, 0x400000, 0x7FF000, 0x7FEFFF, 0x7F8000, 0x7F7FFF):
            out.append(exponent << 23 | mantissa)
    # Ties of the multiples of 2^-24 below 2^-14.
    for step in (0, 1, 2, 3, 500, 511, 512, 1022, 1023):
        for nudge in (-1, 0, 1):
            out.append(bits_of((step + 0.5) * 2.0**-24) + nudge)
    rng = random.Random(20)
    out += [rng.getrandbits(32) for _ in range(150)]
    out += [0x80000000 | one for one in out[::7]]
    return out


def listed(values):
    text = ", ".join(f"0x{v:x}" for v in values)
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 115:
            lines.append(line.rstrip())
            line = ""
        line += word + " "
    return "{" + "\n    ".join(lines + [line.rstrip()]) + "}"


numpy.seterr(all="ignore")
inputs = cases()
floats = numpy.array(inputs, dtype=numpy.uint32).view(numpy.float32)
halves = floats.astype(numpy.float16).view(numpy.uint16)
rng = numpy.random.default_rng(20)
doubles = numpy.concatenate([
    # Ties of binary16 and of bfloat16, and doubles beside them that a float cannot tell from the tie.
    [(1 + 2.0**-11) * (1 + k * 2.0**-40) for k in (-1, 0, 1)],
    [(1 + 3 * 2.0**-11) * (1 + k * 2.0**-40) for k in (-1, 0, 1)],
    [65520 * (1 + k * 2.0**-40) for k in (-1, 0, 1)],
    [1e-300, -1e-300, 1e300, -1e300, 5e-324, 0.0, -0.0],
    [2.0**-25 * (1 + k * 2.0**-40) for k in (-1, 0, 1)],
    rng.standard_normal(40) * 10.0 ** rng.integers(-9, 5, 40),
])
print("""// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Written by half_reference.py: casts by NumPy and by exact fractions.
// clang-format off

#include <cstdint>
#include <vector>

namespace reference {

inline const std::vector<std::uint32_t> floats%s;
inline const std::vector<std::uint16_t> float16%s;
inline const std::vector<std::uint16_t> bfloat16%s;
inline const std::vector<std::uint64_t> doubles%s;
inline const std::vector<std::uint16_t> float16_of_doubles%s;

}  // namespace reference""" % (
    listed(inputs), listed(map(int, halves)), listed(map(bfloat16, inputs)),
    listed(map(int, doubles.view(numpy.uint64))), listed(map(int, doubles.astype(numpy.float16).view(numpy.uint16)))))
