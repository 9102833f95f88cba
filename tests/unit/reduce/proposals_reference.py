#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Writes proposals_reference.hpp: deep gradient compression and 1-bit Adam, number by number, as published.
# Run it as `proposals_reference.py > proposals_reference.hpp`. Needs nothing but Python.
import math

WORKERS, BIAS, MATRIX, STEPS = 2, 2, 12, 7
N = BIAS + MATRIX


def gradient(worker, i, step):
    """Of a worker's own samples. A linear congruential generator: no two magnitudes are equal."""
    x = (7919 * (worker + 1) + 104729 * i + 1299709 * step) % 2**31
    for _ in range(3):
        x = (1103515245 * x + 12345) % 2**31
    return x / 2**30 - 1


def largest(values, count):
    return sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:count]


def deep_gradient(momentum, nesterov, clip, masks, count):
    """Lin et al. 2018, algorithm 4, with local clipping of each tensor. Tensors of one extent: momentum alone."""
    u = [[0.0] * N for _ in range(WORKERS)]
    v = [[0.0] * N for _ in range(WORKERS)]
    means = []
    for step in range(STEPS):
        mean = [0.0] * N
        for k in range(WORKERS):
            g = [gradient(k, i, step) for i in range(N)]
            for first, last in ((0, BIAS), (BIAS, N)):
                if clip > 0:
                    norm = math.sqrt(sum(x * x for x in g[first:last]))
                    scale = min(1.0, clip * WORKERS**-0.5 / norm)
                    for i in range(first, last):
                        g[i] *= scale
                for i in range(first, last):
                    if nesterov:
                        u[k][i] = momentum * (u[k][i] + g[i])
                        v[k][i] += u[k][i] + g[i]
                    else:
                        u[k][i] = momentum * u[k][i] + g[i]
                        v[k][i] += u[k][i]
            sent = list(range(BIAS)) + [BIAS + i for i in largest(v[k][BIAS:], count)]
            for i in sent:
                mean[i] += v[k][i] / WORKERS
                v[k][i] = 0.0
                if masks and i >= BIAS:
                    u[k][i] = 0.0
        means.append(mean)
    return means, [[x / WORKERS for x in worker] for worker in u], [[x / WORKERS for x in worker] for worker in v]


def one_bit_adam(beta1, beta2, epsilon, warm_up, rate, count):
    """Tang et al. 2021, algorithm 1, without the compression on the way back. Number N-1 has no gradient in the warm-up."""
    w = [0.25 * i - 1 for i in range(N)]
    m, v = [0.0] * N, [0.0] * N
    error = [[0.0] * N for _ in range(WORKERS)]
    history = []
    for step in range(STEPS):
        g = [[gradient(k, i, step) if step >= warm_up or i < N - 1 else 0.0 for i in range(N)] for k in range(WORKERS)]
        if step < warm_up:
            for i in range(N):
                mean = sum(one[i] for one in g) / WORKERS
                m[i] = beta1 * m[i] + (1 - beta1) * mean
                v[i] = beta2 * v[i] + (1 - beta2) * mean * mean
        else:
            total = [0.0] * N
            for k in range(WORKERS):
                p = [beta1 * m[i] + (1 - beta1) * g[k][i] + error[k][i] for i in range(N)]
                sent = set(range(BIAS)) | {BIAS + i for i in largest(p[BIAS:], count)}
                for i in range(N):
                    error[k][i] = 0.0 if i in sent else p[i]
                    total[i] += p[i] / WORKERS if i in sent else 0.0
            m = [total[i] if v[i] > 0 else 0.0 for i in range(N)]
        t = step + 1
        for i in range(N):
            v_hat = v[i] / (1 - beta2 ** min(t, warm_up))
            w[i] -= rate * (m[i] / (1 - beta1**t)) / (math.sqrt(v_hat) + epsilon)
        history.append(list(w))
    return history


def array(name, rows):
    print(f"inline constexpr double {name}[{len(rows)}][{len(rows[0])}] = {{")
    for row in rows:
        print("    {" + ", ".join(repr(x) for x in row) + "},")
    print("};")


print("// SPDX-License-Identifier: BSD-3-Clause")
print("#pragma once")
print("// Written by proposals_reference.py.")
print()
print("// clang-format off")
print("namespace proposals_reference {")
for name, settings in (("plain", (0.9, False, 0, True, 2)), ("nesterov", (0.9, True, 0, True, 3)),
                       ("clipped", (0.8, False, 1.5, True, 2)), ("unmasked", (0.9, False, 0, False, 2))):
    means, u, v = deep_gradient(*settings)
    array(f"{name}_means", means)
    array(f"{name}_momentum", u)
    array(f"{name}_residual", v)
array("one_bit_weights", one_bit_adam(0.9, 0.99, 1e-8, 3, 0.01, 3))
print("}  // namespace proposals_reference")
print("// clang-format on")
