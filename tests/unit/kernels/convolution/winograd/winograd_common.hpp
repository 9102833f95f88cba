// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of the Winograd kernels share: the transforms as dense matrices in double, built from their
// definition, and error bounds.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "lockstep/kernels/convolution/winograd/winograd_transform.hpp"
#include "unit/kernels/common.hpp"

namespace kernel_test {

using kernels::convolution;

/// Type and output tile of a test case.
template <class T, std::size_t Edge>
struct kind {
    using type = T;
    static constexpr std::size_t edge = Edge;
};
using float_2 = kind<float, 2>;
using float_4 = kind<float, 4>;
using float_6 = kind<float, 6>;
using double_2 = kind<double, 2>;
using double_4 = kind<double, 4>;
using double_6 = kind<double, 6>;

/// Root mean square of the error in units of u = eps/2 and of the root mean square of what is wanted.
template <class T>
double relative_error(const array<T>& got, const std::vector<double>& want) {
    double errors = 0, squares = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        errors += std::pow(static_cast<double>(got[i]) - want[i], 2);
        squares += want[i] * want[i];
    }
    return std::sqrt(errors / squares) / (static_cast<double>(std::numeric_limits<T>::epsilon()) / 2);
}

struct matrix {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::vector<double> values = std::vector<double>(rows * columns);

    double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
    double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

inline matrix transposed(const matrix& a) {
    matrix out{a.columns, a.rows};
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
    return out;
}
inline matrix operator*(const matrix& a, const matrix& b) {
    matrix out{a.rows, b.columns};
    for (std::size_t i = 0; i < a.rows; ++i)
        for (std::size_t k = 0; k < a.columns; ++k)
            for (std::size_t j = 0; j < b.columns; ++j) out(i, j) += a(i, k) * b(k, j);
    return out;
}
inline matrix absolute(matrix a) {
    for (double& value : a.values) value = std::abs(value);
    return a;
}

/// A^T, G and B^T of F(m, 3): the products of two polynomials at m + 2 points, the last at infinity, transposed.
struct winograd_matrices {
    matrix output, filter, input;

    winograd_matrices(std::size_t m, const std::vector<double>& magnitudes)
        : output{m, m + 2}, filter{m + 2, 3}, input{m + 2, m + 2} {
        std::vector<double> points{0};
        for (const double p : magnitudes) points.insert(points.end(), {p, -p});
        const std::size_t last = m + 1;
        for (std::size_t p = 0; p < last; ++p) {
            // Row of B^T: coefficients of the product of (x - q) over all other points; N is its value at p.
            std::vector<double> product{1};
            double scale = 1;
            for (std::size_t q = 0; q < last; ++q) {
                if (q == p) continue;
                product.push_back(0);
                for (std::size_t i = product.size(); i-- > 0;)
                    product[i] = (i > 0 ? product[i - 1] : 0) - points[q] * product[i];
                scale *= points[p] - points[q];
            }
            for (std::size_t i = 0; i < product.size(); ++i) input(p, i) = product[i];
            for (std::size_t t = 0; t < 3; ++t) filter(p, t) = std::pow(points[p], static_cast<double>(t)) / scale;
            for (std::size_t i = 0; i < m; ++i) output(i, p) = std::pow(points[p], static_cast<double>(i));
        }
        std::vector<double> all{1};
        for (const double q : points) {
            all.push_back(0);
            for (std::size_t i = all.size(); i-- > 0;) all[i] = (i > 0 ? all[i - 1] : 0) - q * all[i];
        }
        for (std::size_t i = 0; i < all.size(); ++i) input(last, i) = all[i];
        filter(last, 2) = 1;
        output(m - 1, last) = 1;
    }
};

template <std::size_t M>
winograd_matrices matrices_of() {
    const auto& points = kernels::detail::winograd_points<M>;
    return {M, {points.begin(), points.end()}};
}

/// Relative error of a Winograd convolution of random numbers, as a multiple of that of one sum of as many products as
/// there are channels: the mean over the outputs of a tile of sum (A^T)^2 |G|^2 |B^T|^2 / 3 along one dimension; it is
/// the square of the factor of that dimension, and there are two of them. The errors of the products are independent,
/// and in proportion to the sizes of the transformed operands.
inline double amplification(const winograd_matrices& w) {
    double mean = 0;
    for (std::size_t i = 0; i < w.output.rows; ++i)
        for (std::size_t p = 0; p < w.output.columns; ++p) {
            double g = 0, b = 0;
            for (std::size_t t = 0; t < 3; ++t) g += w.filter(p, t) * w.filter(p, t);
            for (std::size_t s = 0; s < w.input.columns; ++s) b += w.input(p, s) * w.input(p, s);
            mean += w.output(i, p) * w.output(i, p) * g * b / static_cast<double>(w.output.rows);
        }
    return mean / 3;
}

/// Any entry of an image, zero outside.
template <class T>
double pixel(const array<T>& x, std::size_t rows, std::size_t columns, std::size_t depth, std::size_t sample,
             std::ptrdiff_t r, std::ptrdiff_t c, std::size_t channel) {
    if (r < 0 || c < 0 || r >= static_cast<std::ptrdiff_t>(rows) || c >= static_cast<std::ptrdiff_t>(columns)) return 0;
    return static_cast<double>(
        x[((sample * rows + static_cast<std::size_t>(r)) * columns + static_cast<std::size_t>(c)) * depth + channel]);
}

/// |A^T| (sum over channels of (|G| |g| |G|^T) . (|B^T| |d| |B|)) |A| for every output: every rounding of the algorithm
/// errs by at most u = eps/2 times a part of this. Correlates x, whose windows begin at (origin_r, origin_c), with
/// weight(tap row, tap column, channel, output).
template <class T, class Weight>
std::vector<double> magnitudes(const winograd_matrices& w, std::size_t batch, const array<T>& x, std::size_t rows,
                               std::size_t columns, std::size_t depth, std::ptrdiff_t origin_r, std::ptrdiff_t origin_c,
                               std::size_t out_rows, std::size_t out_columns, std::size_t n, Weight&& weight) {
    const std::size_t m = w.output.rows;
    const std::size_t edge = m + 2;
    const matrix a = absolute(w.output), g = absolute(w.filter), b = absolute(w.input);
    std::vector<matrix> filters;
    for (std::size_t c = 0; c < depth; ++c)
        for (std::size_t f = 0; f < n; ++f) {
            matrix taps{3, 3};
            for (std::size_t i = 0; i < 9; ++i) taps(i / 3, i % 3) = std::abs(weight(i / 3, i % 3, c, f));
            filters.push_back(g * taps * transposed(g));
        }
    std::vector<double> out(batch * out_rows * out_columns * n);
    for (std::size_t s = 0; s < batch; ++s)
        for (std::size_t row = 0; row < out_rows; row += m)
            for (std::size_t column = 0; column < out_columns; column += m) {
                std::vector<matrix> sums(n, matrix{edge, edge});
                for (std::size_t c = 0; c < depth; ++c) {
                    matrix d{edge, edge};
                    for (std::size_t i = 0; i < edge; ++i)
                        for (std::size_t j = 0; j < edge; ++j)
                            d(i, j) = std::abs(pixel(x, rows, columns, depth, s,
                                                     origin_r + static_cast<std::ptrdiff_t>(row + i),
                                                     origin_c + static_cast<std::ptrdiff_t>(column + j), c));
                    const matrix v = b * d * transposed(b);
                    for (std::size_t f = 0; f < n; ++f)
                        for (std::size_t p = 0; p < edge * edge; ++p)
                            sums[f].values[p] += v.values[p] * filters[c * n + f].values[p];
                }
                for (std::size_t f = 0; f < n; ++f) {
                    const matrix y = a * sums[f] * transposed(a);
                    for (std::size_t i = 0; i < std::min(m, out_rows - row); ++i)
                        for (std::size_t j = 0; j < std::min(m, out_columns - column); ++j)
                            out[((s * out_rows + row + i) * out_columns + column + j) * n + f] = y(i, j);
                }
            }
    return out;
}

/// The same for a weight gradient: |G|^T (sum over tiles of (|A| |dy| |A|^T) . (|B^T| |x| |B|)) |G|.
template <class T>
std::vector<double> magnitudes_of_weights(const winograd_matrices& w, const convolution& g, std::size_t batch,
                                          const array<T>& x, const array<T>& dy) {
    const std::size_t m = w.output.rows;
    const std::size_t edge = m + 2;
    const matrix a = transposed(absolute(w.output)), taps = transposed(absolute(w.filter)), b = absolute(w.input);
    std::vector<matrix> sums(g.channels * g.filters, matrix{edge, edge});
    for (std::size_t s = 0; s < batch; ++s)
        for (std::size_t row = 0; row < g.out_rows(); row += m)
            for (std::size_t column = 0; column < g.out_columns(); column += m) {
                std::vector<matrix> outs;
                for (std::size_t f = 0; f < g.filters; ++f) {
                    matrix y{m, m};
                    for (std::size_t i = 0; i < m; ++i)
                        for (std::size_t j = 0; j < m; ++j)
                            y(i, j) = std::abs(pixel(dy, g.out_rows(), g.out_columns(), g.filters, s,
                                                     static_cast<std::ptrdiff_t>(row + i),
                                                     static_cast<std::ptrdiff_t>(column + j), f));
                    outs.push_back(a * y * transposed(a));
                }
                for (std::size_t c = 0; c < g.channels; ++c) {
                    matrix d{edge, edge};
                    for (std::size_t i = 0; i < edge; ++i)
                        for (std::size_t j = 0; j < edge; ++j)
                            d(i, j) = std::abs(pixel(
                                x, g.rows, g.columns, g.channels, s,
                                static_cast<std::ptrdiff_t>(row + i) - static_cast<std::ptrdiff_t>(g.pad_top),
                                static_cast<std::ptrdiff_t>(column + j) - static_cast<std::ptrdiff_t>(g.pad_left), c));
                    const matrix v = b * d * transposed(b);
                    for (std::size_t f = 0; f < g.filters; ++f)
                        for (std::size_t p = 0; p < edge * edge; ++p)
                            sums[c * g.filters + f].values[p] += v.values[p] * outs[f].values[p];
                }
            }
    std::vector<double> out(g.weight_count());
    for (std::size_t i = 0; i < g.channels * g.filters; ++i) {
        const matrix dw = taps * sums[i] * transposed(taps);
        for (std::size_t tap = 0; tap < 9; ++tap) out[tap * g.channels * g.filters + i] = dw(tap / 3, tap % 3);
    }
    return out;
}

/// Whether every number is within n u / (1 - n u) times its magnitude of what is wanted (Higham, Accuracy and Stability
/// of Numerical Algorithms, section 3.1). n counts the roundings on the way of a term into the result: `links` in the
/// chain, at most pairs + 4 in each of the six transforms (two dimensions of two operands and the result; constants
/// that are not exact count), one for a bias; `direct` links of the reference in double.
template <std::size_t M, class T>
bool within_bound(const array<T>& got, const std::vector<double>& want, const std::vector<double>& size,
                  std::size_t links, std::size_t direct) {
    constexpr double u = std::numeric_limits<T>::epsilon() / 2;
    const double n = (static_cast<double>(links + 6 * (M / 2 + 4) + 1)) * u +
                     static_cast<double>(direct + 1) * std::numeric_limits<double>::epsilon() / 2;
    if (got.size() != want.size()) return false;
    for (std::size_t i = 0; i < got.size(); ++i)
        if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= n / (1 - n) * size[i])) return false;
    return true;
}

inline convolution three_by_three(std::size_t rows, std::size_t columns, std::size_t channels, std::size_t filters,
                                  std::size_t pad = 1) {
    return {.rows = rows,
            .columns = columns,
            .channels = channels,
            .filters = filters,
            .kernel_rows = 3,
            .kernel_columns = 3,
            .pad_top = pad,
            .pad_bottom = pad,
            .pad_left = pad,
            .pad_right = pad};
}

/// Shapes of every kind: no padding and more than the kernel, windows larger than the image, empty batches; `wide`
/// channels at most.
inline std::vector<std::pair<convolution, std::size_t>> winograd_shapes(std::size_t count, std::size_t wide) {
    const core::random_stream random{4, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<std::pair<convolution, std::size_t>> out;
    for (std::size_t i = 0; i < count; ++i) {
        convolution g = three_by_three(draw(1, 15), draw(1, 15), i % 3 == 0 ? draw(wide / 2, wide) : draw(1, 5),
                                       i % 2 == 0 ? draw(wide / 2, wide) : draw(1, 9));
        g.pad_top = draw(0, 3);
        g.pad_bottom = draw(0, 3);
        g.pad_left = draw(0, 3);
        g.pad_right = draw(0, 3);
        out.emplace_back(g, draw(0, 3));
    }
    return out;
}

inline std::string describe_winograd(const convolution& g, std::size_t batch) {
    return core::text("batch ", batch, ", ", g.rows, "x", g.columns, "x", g.channels, " -> ", g.filters, ", padding ",
                      g.pad_top, " ", g.pad_bottom, " ", g.pad_left, " ", g.pad_right);
}

/// One sample of several.
template <class T>
array<T> part(const array<T>& from, std::size_t size, std::size_t sample) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(sample * size);
    return array<T>(first, first + static_cast<std::ptrdiff_t>(size));
}

}  // namespace kernel_test
