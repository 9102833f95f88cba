// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arithmetic as it is written: refuses flags of the compiler that change it, as far as they can be seen.

#if __cplusplus < 202002L
#error lockstep: it needs C++20; compile with -std=c++20 or later
#endif

#include <cfenv>
#include <limits>
#include <string_view>

// Every part of -ffast-math: without infinities and NaN the checks for them are removed, and the others change bits.
// g++ says with
// __GCC_IEC_559 whether arithmetic is that of IEC 60559. -fno-math-errno and -fno-trapping-math change no number.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0) ||        \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__) || \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error lockstep: -ffast-math, -Ofast and their parts remove the checks for NaN and change the bits of \
weights; compile without them
#endif

namespace lockstep::core {

static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559,
              "lockstep: float and double are those of IEC 60559; use another compiler, or other flags");

/// Whether the compiler fuses a product and a sum that are written apart. No macro tells of -ffp-contract: this
/// compares what it makes of one expression, for the flags of the unit that calls it, and for the machine.
[[nodiscard, gnu::always_inline]] inline bool fuses_products() noexcept {
    volatile float number = 1 + 0x1p-12F, other = -1 - 0x1p-11F;
    volatile float product = number * number;  // read anew: a product with two readers is not fused
    return number * number + other != product + other;
}

/// How this thread computes: the direction of rounding, and whether numbers below the smallest normal one count as
/// zero. A library that was linked with -ffast-math switches to that when it is loaded.
[[nodiscard]] inline std::string_view arithmetic_mode() noexcept {
    volatile float smallest = std::numeric_limits<float>::min();
    const bool flushes = smallest / 2 == 0;
    if (std::fegetround() != FE_TONEAREST)
        return flushes ? "rounds in a direction, flushes to zero" : "rounds in a direction";
    return flushes ? "flushes to zero" : "as usual";
}

/// Whether a number lies in [0, 1), as a float too: one above 0.99999997 rounds to 1.
[[nodiscard]] constexpr bool is_fraction_as_float(double number) noexcept {
    return number >= 0 && number < 1 && static_cast<float>(number) < 1;
}

}  // namespace lockstep::core
