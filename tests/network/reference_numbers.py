#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Computes two tiny networks from their definitions, in double precision with exact sums, and prints reference_numbers.hpp.

Shares nothing with the library: the counter-based generator, the rules of initialisation, the layers, the losses and their derivatives are
written down once more. Usage: tests/network/reference_numbers.py > tests/network/reference_numbers.hpp
"""
import math
from itertools import product

SEED, ROWS = 42, 5
INITIALISE, DROPOUT = 0, 2


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def block(what, series, step, index):
    return philox((index & 0xFFFFFFFF, index >> 32, step, (what << 24) ^ series), (SEED & 0xFFFFFFFF, SEED >> 32))


def word(what, series, step, index):
    return block(what, series, step, index // 4)[index % 4]


def he(fan_in, fan_out, layer, index):
    a, b, c, d = block(INITIALISE, layer, 0, index)
    u, v = (((a << 21) ^ (b >> 11)) + 1) / 2.0**53, ((c << 21) ^ (d >> 11)) / 2.0**53
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v) * math.sqrt(2 / fan_in)


def glorot(fan_in, fan_out, layer, index):
    return (2 * ((word(INITIALISE, layer, 0, index) >> 8) / 2.0**24) - 1) * math.sqrt(6 / (fan_in + fan_out))


margin = math.inf  # to the next kink of relu or other winner of a maximum


class Linear:
    """y_o = b_f + sum over (i, w) of taps(o): conv and dense. Weights, then biases."""

    def __init__(self, inputs, outputs, filters, taps, count, fan_in, fan_out, rule, layer):
        self.inputs, self.outputs, self.filters, self.taps, self.terms = inputs, outputs, filters, taps, fan_in + 3
        self.w = [rule(fan_in, fan_out, layer, i) for i in range(count)] + [0.0] * filters

    def forward(self, x, size=False):
        f = abs if size else float
        bias = len(self.w) - self.filters
        return [math.fsum([x[i] * f(self.w[w]) for i, w in self.taps(o)] + [f(self.w[bias + o % self.filters])]) for o in range(self.outputs)]

    def backward(self, x, y, dy, size=False):
        f = abs if size else float
        dx, dw = [[] for _ in range(self.inputs)], [[] for _ in self.w]
        for o in range(self.outputs):
            dw[len(self.w) - self.filters + o % self.filters].append(dy[o])
            for i, w in self.taps(o):
                dx[i].append(dy[o] * f(self.w[w]))
                dw[w].append(dy[o] * x[i])
        return [math.fsum(s) for s in dx], [math.fsum(s) for s in dw]


def dense(inputs, outputs, rule, layer):
    return Linear(inputs, outputs, outputs, lambda o: [(i, i * outputs + o) for i in range(inputs)], inputs * outputs, inputs, outputs, rule, layer)


def windows(rows, columns, channels, kernel, stride, padding):
    """For each output pixel: (kernel position, first channel of the input pixel) of what lies inside."""
    out_rows, out_columns = ((n + 2 * padding - kernel) // stride + 1 for n in (rows, columns))
    out = []
    for r, c in product(range(out_rows), range(out_columns)):
        inside = []
        for kr, kc in product(range(kernel), range(kernel)):
            row, column = r * stride + kr - padding, c * stride + kc - padding
            if 0 <= row < rows and 0 <= column < columns:
                inside.append((kr * kernel + kc, (row * columns + column) * channels))
        out.append(inside)
    return out


def conv(rows, columns, channels, filters, kernel, stride, padding, rule, layer):
    at = windows(rows, columns, channels, kernel, stride, padding)

    def taps(o):
        return [(x + c, (k * channels + c) * filters + o % filters) for k, x in at[o // filters] for c in range(channels)]

    fan = kernel * kernel * channels
    return Linear(rows * columns * channels, len(at) * filters, filters, taps, fan * filters, fan, kernel * kernel * filters, rule, layer)


class Pool:
    w, terms = [], 3

    def __init__(self, rows, columns, channels, kernel, stride, mean):
        self.inputs, self.mean = rows * columns * channels, mean
        self.at = [[x + c for _, x in w] for w in windows(rows, columns, channels, kernel, stride, 0) for c in range(channels)]

    def forward(self, x, size=False):
        global margin
        if self.mean:
            return [math.fsum(x[i] for i in w) / len(w) for w in self.at]
        if not size:
            for w in self.at:
                first, second = sorted((x[i] for i in w), reverse=True)[:2]
                if first > 0:  # after relu: equal zeros have no gradient
                    margin = min(margin, first - second)
        return [max(x[i] for i in w) for w in self.at]

    def backward(self, x, y, dy, size=False):
        dx = [0.0] * self.inputs
        for o, w in enumerate(self.at):
            if self.mean:
                for i in w:
                    dx[i] += dy[o] / len(w)
            else:
                dx[max(w, key=lambda i: x[i])] += dy[o]
        return dx, []


class Relu:
    w, terms = [], 0

    def forward(self, x, size=False):
        global margin
        if not size:
            margin = min([margin] + [abs(v) for v in x])
        return [max(v, 0.0) for v in x]

    def backward(self, x, y, dy, size=False):
        return [g if v > 0 else 0.0 for v, g in zip(y, dy)], []


class Tanh:
    w, terms = [], 4

    def forward(self, x, size=False):
        return [min(v, 1.0) if size else math.tanh(v) for v in x]

    def backward(self, x, y, dy, size=False):
        return [g if size else g * (1 - v * v) for v, g in zip(y, dy)], []


class Dropout:
    w, terms = [], 2

    def __init__(self, features, rate, layer):
        self.features, self.rate, self.layer = features, rate, layer
        self.row, self.training = 0, True

    def forward(self, x, size=False):
        if not self.training:
            return x
        limit = int(self.rate * 2**32)
        return [0.0 if word(DROPOUT, self.layer, 0, self.row * self.features + i) < limit else v / (1 - self.rate) for i, v in enumerate(x)]

    def backward(self, x, y, dy, size=False):
        return self.forward(dy), []


def cross_entropy(y, label):
    most = max(y)
    total = math.fsum(math.exp(v - most) for v in y)
    return math.log(total) + most - y[label], [math.exp(v - most) / total - (i == label) for i, v in enumerate(y)]


def squares(y, target):
    return math.fsum((v - t) ** 2 for v, t in zip(y, target)) / len(y), [2 * (v - t) / len(y) for v, t in zip(y, target)]


def number(i):
    return ((37 * i + 11) % 101 - 50) / 64


def run(name, layers, inputs, loss, targets, derivative):
    """`derivative`: the largest derivative of the loss, given the size of an output."""
    def walk(x, size=False):
        xs = [x]
        for layer in layers:
            xs.append(layer.forward(xs[-1], size))
        return xs

    def back(xs, dy, magnitudes=None):
        """With the magnitudes of all numbers: the same path through relu and maxima, no sign, and 1 for the derivative of tanh."""
        out = []
        for i in reversed(range(len(layers))):
            x = magnitudes[i] if magnitudes and isinstance(layers[i], Linear) else xs[i]
            dy, dw = layers[i].backward(x, xs[i + 1], dy, magnitudes is not None)
            out = dw + out
        return out

    outputs, losses, gradients, sizes, most = [], [], [], [], 0.0
    for row in range(ROWS):
        x = [number(row * inputs + i) for i in range(inputs)]
        for layer in layers:
            layer.row, layer.training = row, False
        outputs += walk(x)[-1]
        for layer in layers:
            layer.training = True
        xs = walk(x)
        value, dy = loss(xs[-1], targets[row])
        losses.append(value)
        gradients.append(back(xs, [g / ROWS for g in dy]))
        magnitudes = walk([abs(v) for v in x], True)
        most = max([most] + magnitudes[-1])
        sizes.append(back(xs, [derivative(max(magnitudes[-1])) / ROWS] * len(dy), magnitudes))
    gradient = [math.fsum(g) for g in zip(*gradients)]
    size = [math.fsum(g) for g in zip(*sizes)]
    weights = [w for layer in layers for w in layer.w]
    rounded = 2 * sum(layer.terms for layer in layers)
    chosen = range(0, len(weights), 6)

    def table(member, numbers):
        lines = [", ".join(f"{v!r}" for v in numbers[i:i + 6]) for i in range(0, len(numbers), 6)]
        print(f"    .{member} = {{" + ",\n        ".join(lines) + "},")

    print(f"inline const expected {name}{{")
    table("outputs", outputs)
    print(f"    .loss = {math.fsum(losses) / ROWS!r},")
    table("weights", [weights[i] for i in chosen])
    table("gradient", [gradient[i] for i in chosen])
    table("magnitudes", [float(f"{size[i]:.3g}") for i in chosen])
    print(f"    .every = 6,\n    .parameters = {len(weights)},\n    .roundings = {rounded},")
    print(f"    .largest_output = {most:.3g},\n}};\n")


print("""// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Written by reference_numbers.py, which computes these networks from their definitions without the library.
// clang-format off

#include <cstddef>
#include <vector>

namespace network_test {

/// What a network gives for the first 5 rows of number(i), and its first step.
struct expected {
    std::vector<double> outputs{};   ///< inference, all rows
    double loss = 0;                 ///< training, mean of the rows
    std::vector<double> weights{};   ///< at the start: parameters 0, every, 2 every, ..
    std::vector<double> gradient{};  ///< of the loss with respect to these
    std::vector<double> magnitudes{};  ///< bounds: their sums with the magnitudes of all terms
    std::size_t every = 1;
    std::size_t parameters = 0;
    double roundings = 0;            ///< on the longest way from a sample to a gradient
    double largest_output = 0;       ///< a bound: the sums with the magnitudes of all terms
};
""")
run("classifier",
    [conv(6, 6, 2, 3, 3, 1, 1, he, 0), Relu(), Pool(6, 6, 3, 2, 2, False), dense(27, 5, he, 4), Tanh(), dense(5, 4, he, 6)],
    72, cross_entropy, [0, 3, 1, 2, 3], lambda size: 1.0)
run("regression",
    [conv(7, 8, 1, 2, 2, 2, 1, glorot, 0), Tanh(), Pool(4, 5, 2, 3, 1, True), Dropout(12, 0.4, 4), dense(12, 3, glorot, 5)],
    56, squares, [[number(1000 + 3 * row + i) for i in range(3)] for row in range(ROWS)], lambda size: 2 * (size + 1) / 3)
print(f"/// No relu is nearer to its kink, and no maximum to another winner.\ninline constexpr double margin = {margin:.3g};\n")
print("}  // namespace network_test")
