// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sizes that cannot wrap: products and sums of numbers that come from outside, for start-up.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// The most bytes that an object can have. Rounding a size up to a cache line or a page cannot wrap below it.
inline constexpr std::size_t largest_size = PTRDIFF_MAX;

/// A count that may be a factor or a summand.
template <class N>
concept Count = std::unsigned_integral<N> && !std::same_as<N, bool> && sizeof(N) <= sizeof(std::size_t);

namespace detail {

[[nodiscard]] constexpr bool multiply_within(std::size_t& product, std::size_t by) noexcept {
    return !__builtin_mul_overflow(product, by, &product) && product <= largest_size;
}
[[nodiscard]] constexpr bool add_within(std::size_t& sum, std::size_t more) noexcept {
    return !__builtin_add_overflow(sum, more, &sum) && sum <= largest_size;
}

/// Names the numbers and what they were to make.
[[noreturn, gnu::cold]] void fail_size(std::string_view what, std::string_view sign,
                                       std::initializer_list<std::size_t> numbers);

}  // namespace detail

/// The product of these numbers. Throws core::error above largest_size: `what` says what it was to be. A factor of 0
/// makes it 0.
template <Count... Numbers>
[[nodiscard]] constexpr std::size_t checked_product(std::string_view what, Numbers... numbers) {
    std::size_t product = 1;
    if (((numbers == 0) || ...)) return 0;
    if (!(detail::multiply_within(product, numbers) && ...)) detail::fail_size(what, " x ", {numbers...});
    return product;
}

/// The sum of these numbers. Throws core::error above largest_size: `what` says what it was to be.
template <Count... Numbers>
[[nodiscard]] constexpr std::size_t checked_sum(std::string_view what, Numbers... numbers) {
    std::size_t sum = 0;
    if (!(detail::add_within(sum, numbers) && ...)) detail::fail_size(what, " + ", {numbers...});
    return sum;
}

#if LOCKSTEP_BODIES

[[gnu::noinline]] LOCKSTEP_FUNCTION void detail::fail_size(std::string_view what, std::string_view sign,
                                                           std::initializer_list<std::size_t> numbers) {
    std::string formula;
    for (const std::size_t number : numbers) formula += text(formula.empty() ? "" : sign, number);
    fail(text(what, ": ", formula, " is more than the ", largest_size, " that a program can have"),
         "use smaller numbers");
}

#endif

}  // namespace lockstep::core
