// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How weights start: He and Glorot rules. Each number is a function of (seed, layer, parameter, index in the whole
// layer), so a shard starts as its part of the whole.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/parameter.hpp"

namespace lockstep::model {

/// Normal with variance 2 / fan_in: for relu (He et al. 2015).
struct he {
    static constexpr std::string_view name = "he";
    [[nodiscard]] static double value(const tensor::parameter& of, const core::random_stream& random,
                                      std::uint64_t index) noexcept {
        return random.normal(index) * std::sqrt(2.0 / static_cast<double>(of.fan_in));
    }
};

/// Uniform in +- sqrt(6 / (fan_in + fan_out)): for tanh (Glorot, Bengio 2010). Both are those of one group of a
/// convolution.
struct glorot {
    static constexpr std::string_view name = "glorot";
    [[nodiscard]] static double value(const tensor::parameter& of, const core::random_stream& random,
                                      std::uint64_t index) noexcept {
        const double bound = std::sqrt(6.0 / static_cast<double>(of.fan_in + of.fan_out));
        return (2.0 * static_cast<double>(random.uniform(index)) - 1.0) * bound;
    }
};

/// Whether three arguments are enough for a rule.
template <class Rule>
inline constexpr bool knows_no_layers = requires(const Rule& rule, const tensor::parameter& of,
                                                 const core::random_stream& random, std::uint64_t index) {
    static_cast<double>(rule.value(of, random, index));
};
/// A rule has `value(parameter, random, index)`: number `index` of that parameter, in memory order. Rules by depth have
/// `value(parameter, random, index, layer)`, with the number of the layer. What it throws is an error of the trainer.
template <class Rule>
concept Initialisation = knows_no_layers<Rule> ||
    requires(const Rule& rule, const tensor::parameter& of, const core::random_stream& random, std::uint64_t index,
             std::size_t layer) {
    static_cast<double>(rule.value(of, random, index, layer));
};
/// What the rule says for a layer.
template <Initialisation Rule>
[[nodiscard]] double start_value(const Rule& rule, const tensor::parameter& of, const core::random_stream& random,
                                 std::uint64_t index, [[maybe_unused]] std::size_t layer) {
    if constexpr (knows_no_layers<Rule>)
        return static_cast<double>(rule.value(of, random, index));
    else
        return static_cast<double>(rule.value(of, random, index, layer));
}

/// Fills one parameter of a layer. `first_column` and `whole_columns` say which part of the uncut parameter this is.
template <class T, class Rule>
void initialise(const tensor::parameter& of, std::span<T> weights, std::size_t first_column, std::size_t whole_columns,
                std::uint64_t seed, std::size_t layer, std::size_t number, const Rule& rule) {
    const core::random_stream random{seed, core::purpose::initialise, static_cast<std::uint32_t>(layer),
                                     static_cast<std::uint32_t>(number)};
    for (std::size_t row = 0; row < of.rows; ++row)
        for (std::size_t column = 0; column < of.columns; ++column) {
            T& weight = weights[row * of.columns + column];
            if (of.initial == tensor::start::random)
                weight =
                    static_cast<T>(start_value(rule, of, random, row * whole_columns + first_column + column, layer));
            else
                weight = of.initial == tensor::start::constant ? static_cast<T>(of.value)
                         : of.initial == tensor::start::ones   ? T{1}
                                                               : T{0};
        }
}
LOCKSTEP_TEMPLATE(initialise<float, he>);
LOCKSTEP_TEMPLATE(initialise<double, he>);
LOCKSTEP_TEMPLATE(initialise<float, glorot>);
LOCKSTEP_TEMPLATE(initialise<double, glorot>);

}  // namespace lockstep::model
