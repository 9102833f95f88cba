// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Orders of an epoch, models of Sampler: a new permutation for each epoch, or the stored order.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::data {

namespace detail {
inline void number(std::uint64_t n, std::span<std::uint64_t> out) {
    if (out.size() != n)
        core::fail(core::text("the order of ", n, " samples was asked for, with room for ", out.size()),
                   core::text("pass a span of ", n, " numbers"));
    for (std::uint64_t i = 0; i < n; ++i) out[i] = i;
}
}  // namespace detail

/// A uniform permutation for each (seed, epoch): Fisher-Yates, from the last position to the second.
/// Cost: one block of Philox per sample, about 25 ns.
struct shuffled {
    static constexpr std::string_view name = "shuffled";
    static constexpr bool is_pure(std::type_identity<shuffled>) noexcept { return true; }

    void order(std::uint64_t n, std::uint64_t epoch, std::uint64_t seed, std::span<std::uint64_t> out) const {
        detail::number(n, out);
        const core::random_stream stream{seed, core::purpose::shuffle,
                                         static_cast<std::uint32_t>(epoch >> 32) & 0xffffffU,
                                         static_cast<std::uint32_t>(epoch)};
        for (std::uint64_t left = n; left > 1; --left) std::swap(out[left - 1], out[stream.below(left, left)]);
    }
};

/// 0, 1, 2 ..: for evaluation, and for data that is in random order already.
struct ordered {
    static constexpr std::string_view name = "ordered";
    static constexpr bool is_pure(std::type_identity<ordered>) noexcept { return true; }

    void order(std::uint64_t n, std::uint64_t, std::uint64_t, std::span<std::uint64_t> out) const {
        detail::number(n, out);
    }
};

}  // namespace lockstep::data
