// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums of -1, 0 and 1 over workers in fields of 32-bit words, which add without a carry from one to the next.
// Tested by tests/unit/compress/sign_vote.cpp.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/parallel/loop.hpp"

namespace lockstep::compress {

/// A field has b = ceil(log2(2W + 1)) bits and holds the number of a worker plus 1, so the sum of W of them plus W; a
/// word has f = floor(32 / b) fields, the lowest bits first.
class ternary_fields {
public:
    constexpr explicit ternary_fields(std::size_t workers) noexcept
        : bits_{static_cast<std::size_t>(std::bit_width(2 * workers))}, each_{32 / bits_} {}

    [[nodiscard]] constexpr std::size_t bits() const noexcept { return bits_; }
    /// Fields of a word.
    [[nodiscard]] constexpr std::size_t each() const noexcept { return each_; }
    [[nodiscard]] constexpr std::size_t words(std::size_t n) const noexcept { return (n + each_ - 1) / each_; }

    /// Calls f(i, field) for fields 0 .. n - 1 of these words, on the threads of the team.
    template <class F>
    void read(parallel::team team, std::span<const std::uint32_t> words, std::size_t n, const F& f) const noexcept {
        const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits_) - 1);
        parallel::for_blocks(team, words.size(), 1024, [&](parallel::block part) {
            for (std::size_t at = part.first; at < part.last; ++at)
                for (std::size_t i = at * each_, end = std::min(n, i + each_), shift = 0; i < end; ++i, shift += bits_)
                    f(i, (words[at] >> shift) & mask);
        });
    }
    /// Writes f(i), one of 0, 1, 2, to fields 0 .. n - 1.
    template <class F>
    void write(parallel::team team, std::size_t n, std::span<std::uint32_t> words, const F& f) const noexcept {
        parallel::for_blocks(team, words.size(), 1024, [&](parallel::block part) {
            for (std::size_t at = part.first; at < part.last; ++at) {
                std::uint32_t word = 0;
                for (std::size_t i = at * each_, end = std::min(n, i + each_), shift = 0; i < end; ++i, shift += bits_)
                    word |= std::uint32_t{f(i)} << shift;
                words[at] = word;
            }
        });
    }

private:
    std::size_t bits_;
    std::size_t each_;
};

}  // namespace lockstep::compress
