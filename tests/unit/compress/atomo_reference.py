#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Writes atomo_reference.hpp: singular values by NumPy, and the chances of atoms by a program that tries all numbers of sure ones.
# Run it as `atomo_reference.py > atomo_reference.hpp`.
import numpy as np


def number(i, seed):
    """As in atomo.cpp: a linear congruential generator."""
    x = (7919 * (seed + 1) + 104729 * i) % 2**31
    for _ in range(3):
        x = (1103515245 * x + 12345) % 2**31
    return x / 2**30 - 1


def matrix(rows, columns, seed):
    """Row i is scaled by 2^-(i % 5), so singular values differ."""
    return np.array([[number(i * columns + j, seed) * 2.0 ** -(i % 5) for j in range(columns)] for i in range(rows)])


def chances(singular, atoms):
    """Of all choices of sure atoms the first one whose other chances are at most 1."""
    for sure in range(len(singular) + 1):
        rest = sum(singular[sure:])
        out = [1.0] * sure + [(atoms - sure) * s / rest if rest > 0 else 0.0 for s in singular[sure:]]
        if all(p <= 1 for p in out):
            return out
    raise ValueError("no such chances")


def variance(singular, p):
    return sum(s * s * (1 / q - 1) for s, q in zip(singular, p) if q > 0)


def array(name, values):
    print(f"inline constexpr double {name}[] = {{" + ", ".join(repr(float(x)) for x in values) + "};")


print("// SPDX-License-Identifier: BSD-3-Clause")
print("#pragma once")
print("// Written by atomo_reference.py.")
print()
print("// clang-format off")
print("namespace atomo_reference {")
for name, (rows, columns, seed) in {"tall": (150, 9, 1), "wide": (6, 200, 2), "square": (64, 64, 3)}.items():
    a = matrix(rows, columns, seed)
    singular = np.linalg.svd(a, compute_uv=False)
    array(f"{name}_singular", singular)
    for atoms in (1, 3, 5):
        p = chances(list(singular), atoms)
        array(f"{name}_chances_{atoms}", p)
        print(f"inline constexpr double {name}_variance_{atoms} = {variance(singular, p)!r};")
# 70 x 100 is wider than 64 both ways: 7,000 numbers are read as 110 rows of 64, the last one filled up.
a = np.zeros(110 * 64)
a[: 70 * 100] = matrix(70, 100, 4).reshape(-1)
array("cut_singular", np.linalg.svd(a.reshape(110, 64), compute_uv=False))
print("}  // namespace atomo_reference")
print("// clang-format on")
