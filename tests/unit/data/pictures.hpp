// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pictures whose every number is different, and the random numbers of one sample.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/data/concept.hpp"

namespace lockstep::test {

/// 1, 2, 3 .. in memory order: zero is no pixel of it.
template <class T>
struct numbered {
    std::size_t rows, columns, channels;
    std::vector<T> numbers;

    numbered(std::size_t height, std::size_t width, std::size_t depth)
        : rows{height}, columns{width}, channels{depth}, numbers(height * width * depth) {
        std::iota(numbers.begin(), numbers.end(), T{1});
    }
    [[nodiscard]] data::picture<T> view() { return {numbers.data(), rows, columns, channels}; }
    [[nodiscard]] T at(std::size_t row, std::size_t column, std::size_t channel) const {
        return numbers[(row * columns + column) * channels + channel];
    }
};

[[nodiscard]] inline data::draws draws_of(std::uint64_t sample, std::uint64_t epoch = 0, std::uint64_t seed = 1,
                                          std::uint32_t place = 0) {
    return {{seed, epoch, place}, sample};
}

/// Sum of (found - expected)^2 / expected over equally likely outcomes.
[[nodiscard]] inline double chi_square(const std::vector<std::size_t>& found) {
    const double expected = static_cast<double>(std::accumulate(found.begin(), found.end(), std::size_t{0})) /
                            static_cast<double>(found.size());
    double out = 0;
    for (const std::size_t one : found)
        out += (static_cast<double>(one) - expected) * (static_cast<double>(one) - expected) / expected;
    return out;
}

}  // namespace lockstep::test
