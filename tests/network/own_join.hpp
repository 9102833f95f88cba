// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A join of a user's, with parameters, a member, and a backward pass that reads what it has read: a bilinear gate.

#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/layers/concept.hpp"
#include "lockstep/parallel/loop.hpp"

namespace support {

/// y = a x0 + b scale x0 x1 for each feature, with a and b learned.
template <lockstep::tensor::Shape S>
struct gate_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "gate";
    static constexpr std::array parameters{
        lockstep::tensor::parameter{.name = "a", .columns = S::size, .initial = lockstep::tensor::start::ones},
        lockstep::tensor::parameter{.name = "b", .columns = S::size, .initial = lockstep::tensor::start::ones}};
    static constexpr double flops = 4.0 * S::size;
    static constexpr lockstep::layer_api::traits traits{.inputs = 2, .needs_y = false, .in_place = true};
    double scale = 1;

    void forward(const auto& pass) const noexcept {
        for (std::size_t row = 0; row < pass.y.rows; ++row)
            for (std::size_t i = 0, at = row * S::size; i < S::size; ++i, ++at)
                pass.y.data[at] = pass.x[0][at] * (pass.w[0][i] + factor(pass, i) * pass.x[1][at]);
    }
    void backward(const auto& pass) const noexcept {
        using T = typename std::remove_cvref_t<decltype(pass)>::value_type;
        pass.each_lane([&](lockstep::parallel::block rows, const auto& g) {
            for (std::size_t i = 0; i < S::size; ++i) {
                g[0][i] = g[1][i] = 0;
                for (std::size_t row = rows.first; row < rows.last; ++row) {
                    const std::size_t at = row * S::size + i;
                    g[0][i] += pass.dy.data[at] * pass.x[0][at];
                    g[1][i] += pass.dy.data[at] * static_cast<T>(scale) * pass.x[0][at] * pass.x[1][at];
                }
            }
        });
        for (std::size_t row = 0; row < pass.dy.rows; ++row)
            for (std::size_t i = 0, at = row * S::size; i < S::size; ++i, ++at) {
                const T dy = pass.dy.data[at];  // dx of the first value may be the memory of dy
                if (pass.dx[0] != nullptr) pass.dx[0][at] = dy * (pass.w[0][i] + factor(pass, i) * pass.x[1][at]);
                if (pass.dx[1] != nullptr) pass.dx[1][at] = dy * factor(pass, i) * pass.x[0][at];
            }
    }

private:
    [[nodiscard]] auto factor(const auto& pass, std::size_t i) const noexcept {
        using T = typename std::remove_cvref_t<decltype(pass)>::value_type;
        return static_cast<T>(scale) * pass.w[1][i];
    }
};

struct gate {
    double scale = 1;
    template <class S>
    constexpr auto on(S, S) const {
        return gate_layer<S>{.scale = scale};
    }
};

}  // namespace support
