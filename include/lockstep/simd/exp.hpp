// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The exponential where nothing can overflow: what sigmoids and softmax need, in half of the library's operations and
// with the same bits on every instruction set that has fused multiply-adds.

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

namespace detail {

/// exp(r) = 1 + r + r^2 q(r) for |r| <= ln(2) / 2: coefficients of q from the highest one on.
template <class T>
struct exp_numbers;
template <>
struct exp_numbers<float> {
    using integer = std::int32_t;
    static constexpr int fraction_bits = 23;
    static constexpr float shift = 0x1.8p23F + 127;
    static constexpr float lowest = -0x1.5d589ep6F;
    static constexpr float ln2[] = {0x1.62e430p-1F, -0x1.05c610p-29F};
    static constexpr float q[] = {0x1.6a2434p-10F, 0x1.1239e2p-7F, 0x1.5558f2p-5F, 0x1.555492p-3F,
                                  0x1.fffffcp-2F};  // errs by 2^-28
};
template <>
struct exp_numbers<double> {
    using integer = std::int64_t;
    static constexpr int fraction_bits = 52;
    static constexpr double shift = 0x1.8p52 + 1023;
    static constexpr double lowest = -0x1.6232bdd7abcd2p9;
    static constexpr double ln2[] = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
    static constexpr double q[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                   1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                   1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
};

}  // namespace detail

/// exp(x) for x <= 0; a NaN stays. Errs by at most 1.01 units in the last place, and is 0 where exp(x) is below the
/// smallest normal number. x = k ln 2 + r with a whole k and |r| <= ln(2) / 2. Without fused multiply-adds, the
/// library's exponential, which errs by less than two units where it was tried.
template <class T>
[[nodiscard]] inline batch<T> exp_below_zero(const batch<T>& x) noexcept {
    using numbers = detail::exp_numbers<T>;
    const auto down_to_normal = [&](const batch<T>& power) {
        return select(x < batch<T>(numbers::lowest), batch<T>(T{0}), power);
    };
    if constexpr (!fma_rounds_once) {
        return down_to_normal(exp(x));
    } else {
        // Adding it leaves k, plus the bias of exponents, in the lowest bits of the sum.
        const batch<T> shift(numbers::shift);
        const batch<T> sum = fma(x, batch<T>(T(1.4426950408889634074)), shift);
        const batch<T> k = sum - shift;
        const batch<T> r = fma(k, batch<T>(-numbers::ln2[1]), fma(k, batch<T>(-numbers::ln2[0]), x));
        batch<T> q(numbers::q[0]);
        for (std::size_t i = 1; i < std::size(numbers::q); ++i) q = fma(q, r, batch<T>(numbers::q[i]));
        const auto power = bits_as<T>(bits_as<typename numbers::integer>(sum) << numbers::fraction_bits);
        return down_to_normal(fma(power, fma(q, r * r, r), power));
    }
}

}  // namespace lockstep::simd
