// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sufficient factors of a dense layer: rows of x and dy side by side, and any strip of the gradient that they give.

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/kernels/elementwise/column_sums.hpp"
#include "lockstep/kernels/matrix/gemm_lanes.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

/// Copies x (rows x inputs) and dy (rows x outputs) into `to` (rows x (inputs + outputs)): each row of x, then that of
/// dy.
template <class T>
void put_factors(std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* dy, T* to,
                 parallel::team team) noexcept {
    constexpr std::size_t grain = 8;
    parallel::for_blocks(team, rows, grain, [=](parallel::block mine) {
        for (std::size_t row = mine.first; row < mine.last; ++row) {
            T* const at = to + row * (inputs + outputs);
            std::copy_n(x + row * inputs, inputs, at);
            std::copy_n(dy + row * outputs, outputs, at + inputs);
        }
    });
}

/// Numbers strip.first .. strip.last - 1 of a gradient [dW (inputs x outputs), db (outputs)], and the rows of dW
/// around:
///     rows.first ->  . . . x x x x   <- strip.first
///                    x x x x x x x
///     rows.last  ->  x x x . . . .   <- strip.last, or the numbers of db follow
struct gradient_strip {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    parallel::block strip;  ///< of the gradient
    parallel::block rows;   ///< of dW
    parallel::block bias;   ///< of db

    gradient_strip(std::size_t in, std::size_t out, parallel::block of) noexcept : inputs{in}, outputs{out}, strip{of} {
        const std::size_t weights = inputs * outputs;
        const parallel::block here{std::min(strip.first, weights), std::min(strip.last, weights)};
        if (!here.empty()) rows = {here.first / outputs, (here.last + outputs - 1) / outputs};
        if (strip.last > weights) bias = {std::max(strip.first, weights) - weights, strip.last - weights};
    }

    /// Elements that form_gradient() writes.
    [[nodiscard]] std::size_t size() const noexcept { return rows.size() * outputs + bias.size(); }
    /// The first of them that belongs to the strip; from there on all do, up to the end of it.
    [[nodiscard]] std::size_t begin() const noexcept { return rows.empty() ? 0 : strip.first - rows.first * outputs; }
};

/// Elements of scratch of form_gradient(), for at most so many lanes and rows in all of them.
template <class T>
[[nodiscard]] std::size_t form_gradient_scratch(std::size_t lanes, std::size_t rows, const gradient_strip& of,
                                                parallel::team team) noexcept {
    return std::max(gemm_lanes_scratch<T>(lanes, rows, of.rows.size(), of.outputs, team),
                    column_sums_lanes_scratch<T>(lanes, of.bias.size(), team));
}

/// to[of.begin() + i] = number i of the strip of the gradient over these lanes, added over their tree. `factors`: as
/// put_factors() lays them, the lanes are consecutive runs of their rows. The bits are those of gemm_lanes() and
/// column_sums_lanes() for the whole layer: no element depends on its neighbours.
/// Cost: 2 rows outputs FLOPs for each row of dW that the strip touches.
template <class T>
void form_gradient(std::span<const parallel::block> lanes, const gradient_strip& of, const T* factors, T* to,
                   resources<T> use) noexcept {
    const std::size_t stride = of.inputs + of.outputs;
    const T* const dy = factors + of.inputs;
    if (!of.rows.empty())
        gemm_lanes<T>(lanes, of.rows.size(), of.outputs, factors + of.rows.first, stride, dy, stride, to, of.outputs,
                      use);
    if (!of.bias.empty())
        column_sums_lanes<T>(lanes, of.bias.size(), dy + of.bias.first, stride, to + of.rows.size() * of.outputs, use);
}

}  // namespace lockstep::kernels
