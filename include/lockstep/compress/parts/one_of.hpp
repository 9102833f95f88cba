// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One of several compressors, another one from step to step. Models Compressor. What compress::adaptive is made of.
// Tested by tests/unit/compress/adaptive.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// candidates[0] is none. A message is that of candidates[chosen], or of none for a tensor that this leaves dense, and
/// a byte with the number of its candidate. They keep no state, so error_feedback around this has one residual, which
/// all of them share: it stays when another one is chosen, and none empties it. changes() and max_bytes(n, which, from)
/// tell the room of each candidate as if its number were a step.
struct one_of {
    std::vector<any> candidates{};
    std::size_t chosen = 0;

    static constexpr std::string_view name = "one_of";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const {
        std::string out;
        for (const any& one : candidates) out += core::text(out.empty() ? "" : ", ", one.settings());
        return out;
    }
    [[nodiscard]] std::vector<std::uint64_t> changes() const {
        std::vector<std::uint64_t> out;
        for (std::size_t which = 1; which < candidates.size(); ++which) out.push_back(which);
        return out;
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        std::size_t most = 0;
        for (const any& one : candidates) most = std::max(most, one.template max_bytes<T>(n));
        return 1 + most;
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t which, const origin& from) const {
        return 1 + candidates.at(sending(which, from)).template max_bytes<T>(n, 0, from);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        std::size_t most = 0;
        for (const any& one : candidates) most = std::max(most, one.template scratch_size<T>(n));
        return most;
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t which = sending(chosen, in.from);
        return detail::encode_as(which, candidates[which], in);
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        const std::size_t which = sending(chosen, in.from);
        return detail::encode_snapped_as(which, candidates[which], in, p);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        candidates[detail::which_of(message)].decode_add(message.first(message.size() - 1), scale, sum);
    }

private:
    /// Which candidate writes the message of that tensor where this one is chosen.
    [[nodiscard]] std::size_t sending(std::size_t which, const origin& from) const {
        return candidates[which].is_dense({from.rows, from.columns}) ? 0 : which;
    }
};

static_assert(Compressor<one_of> && Compressor<one_of, double>);

}  // namespace lockstep::compress
