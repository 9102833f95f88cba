// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The logarithm of what is at least 1, such as the sums of softmax: of as many numbers at once as a vector has, with
// the same bits on every instruction set that has fused multiply-adds.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "lockstep/simd/batch.hpp"

namespace lockstep::simd {

namespace detail {

/// (log(1 + f) - f + h) / s - h = z p(z), where h = f^2 / 2, s = f / (2 + f) and z = s^2: coefficients of p from the
/// highest one on. They err by 2^-60 of the logarithm for 1 + f within a factor sqrt(2) of 1.
inline constexpr double log_numbers[] = {0x1.0c04595972ab8p-3, 0x1.0fbe83c2cbcf3p-3, 0x1.3b1c360763b8ap-3,
                                         0x1.745cf901605f7p-3, 0x1.c71c720160b47p-3, 0x1.2492492476c87p-2,
                                         0x1.9999999999a38p-2, 0x1.5555555555555p-1};
/// The first part has so few digits that every exponent times it is exact.
inline constexpr double log_ln2[] = {0x1.62e42fefa3800p-1, 0x1.ef35793c76730p-45};

}  // namespace detail

/// log(x) for finite x >= 1; a NaN stays. Errs by at most 0.65 units in the last place.
/// x = 2^k (1 + f); what was lost in f - f^2 / 2 and in the sum with k ln 2 is added with the smaller terms. Without
/// fused multiply-adds, the library's logarithm of one number after the other.
[[nodiscard]] inline batch<double> log_above_one(const batch<double>& x) noexcept {
    if constexpr (!fma_rounds_once) {
        std::array<double, width<double>> each;
        simd::store(each.data(), x);
        for (double& one : each) one = std::log(one);
        return load(each.data());
    } else {
        using vector = batch<double>;
        using integers = batch<std::uint64_t>;
        const integers bits = bits_as<std::uint64_t>(x);
        const integers exponent = (bits - integers(0x3fe6a09e667f3bcd)) >> 52;
        const vector k = bits_as<double>(exponent | integers(0x4330000000000000)) - vector(0x1p52);
        const vector f = bits_as<double>(bits - (exponent << 52)) - vector(1.0);

        const vector half = vector(0.5) * f;
        const vector h = half * f;
        const vector s = f / (vector(2.0) + f);
        const vector z = s * s;
        vector p(detail::log_numbers[0]);
        for (std::size_t i = 1; i < std::size(detail::log_numbers); ++i) p = fma(p, z, vector(detail::log_numbers[i]));

        const vector first = f - h;
        const vector whole = k * vector(detail::log_ln2[0]);
        const vector sum = whole + first;
        const vector lost = ((f - first) - h) - fma(half, f, -h) + (first - (sum - whole));
        const vector rest = fma(k, vector(detail::log_ln2[1]), fma(s, fma(z, p, h), lost));
        return select(x == x, sum + rest, x);
    }
}

}  // namespace lockstep::simd
