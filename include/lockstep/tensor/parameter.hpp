// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a layer declares of its parameters: names, sizes and how they start. The trainer owns the numbers.

#include <array>
#include <cstddef>
#include <string_view>

namespace lockstep::tensor {

/// How a parameter is filled before the first step. `random` follows the rule that the plan names (He, Glorot);
/// `constant` is the value that the parameter names.
enum class start { random, zeros, ones, constant };

/// A matrix of parameters in row-major order. Columns are output features: they are what a model partition splits.
struct parameter {
    std::string_view name;
    std::size_t rows = 1;
    std::size_t columns = 1;
    std::size_t fan_in = 1;
    std::size_t fan_out = 1;
    start initial = start::random;
    bool decays = true;      ///< weight decay applies: true for weights, false for biases and scales
    std::size_t window = 0;  ///< of a convolution's weights: positions of its window; 0: of none
    bool is_square = false;  ///< no number is below 0: variances
    double value = 0;        ///< of each number, where `initial` is start::constant

    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// Numbers in all the parameters of a layer, laid out one after the other.
template <std::size_t Count>
[[nodiscard]] constexpr std::size_t total_size(const std::array<parameter, Count>& all) noexcept {
    std::size_t sum = 0;
    for (const auto& one : all) sum += one.size();
    return sum;
}

/// Where parameter `index` starts among its layer's numbers.
template <std::size_t Count>
[[nodiscard]] constexpr std::size_t offset_of(const std::array<parameter, Count>& all, std::size_t index) noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < index; ++i) sum += all[i].size();
    return sum;
}

}  // namespace lockstep::tensor
