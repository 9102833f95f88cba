// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Dropout (Srivastava et al. 2014). Models LayerSpec. Its mask is a function of (seed, layer, step, sample, feature):
// nothing is stored.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::layer_api {

/// Training: y = x / (1 - rate) with probability 1 - rate, else 0. Inference: y = x.
/// Cost per element and pass: a quarter of a Philox call, about 2 ns.
template <tensor::Shape S>
struct dropout_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "dropout";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = static_cast<double>(S::size);
    static constexpr layer_api::traits traits{
        .is_elementwise = true, .needs_x = false, .needs_y = false, .in_place = true};

    double rate = 0.5;

    void forward(const auto& pass) const noexcept {
        if (pass.mode == mode::inference && pass.x.data == pass.y.data) return;
        if (pass.mode == mode::inference)
            parallel::for_blocks(pass.use.team, pass.x.size(), 4096, [&](parallel::block part) {
                std::copy(pass.x.data + part.first, pass.x.data + part.last, pass.y.data + part.first);
            });
        else
            masked(pass, pass.x, pass.y);
    }
    void backward(const auto& pass) const noexcept {
        if (pass.wants_dx()) masked(pass, pass.dy, pass.dx);
    }

private:
    template <class T>
    void masked(const auto& pass, tensor::batch<const T, S> from, tensor::batch<T, S> to) const noexcept {
        const auto dropped_below = static_cast<std::uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
        const auto scale = static_cast<T>(1.0 / (1.0 - rate));
        parallel::for_blocks(pass.use.team, from.rows, 1, [&](parallel::block rows) {
            std::array<std::uint32_t, 256> words;
            for (std::size_t row = rows.first; row < rows.last; ++row) {
                const std::size_t first = (pass.first_row + row) * pass.features.total + pass.features.first;
                for (std::size_t at = 0; at < S::size; at += words.size()) {
                    const std::size_t count = std::min(words.size(), S::size - at);
                    pass.random.words(first + at, {words.data(), count});
                    const T* x = from.data + row * S::size + at;
                    T* y = to.data + row * S::size + at;
                    for (std::size_t i = 0; i < count; ++i) y[i] = words[i] < dropped_below ? T{0} : x[i] * scale;
                }
            }
        });
    }
};

}  // namespace lockstep::layer_api

namespace lockstep::layers {

/// dropout{.rate = 0.5}: the probability that an element becomes 0 in training.
struct dropout {
    double rate = 0.5;

    [[nodiscard]] std::string settings() const { return core::text("rate=", rate); }
    void check() const {
        if (!(rate >= 0 && rate < 1))
            core::fail(core::text("dropout rate is ", rate), "use a probability of at least 0 and below 1");
        // Draws have 32 bits: what is kept more seldom is not as rare as it should be for its scale.
        if (rate > 1 - 0x1p-20)
            core::fail(core::text("dropout rate is 1 - ", 1 - rate), "use a rate of at most 1 - 2^-20 = 0.999999");
    }

    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer_api::dropout_layer<Input>{.rate = rate};
    }
};

}  // namespace lockstep::layers
