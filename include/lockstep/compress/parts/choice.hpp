// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One of several compressors for each message, which says by its last byte whose it is: what by_layer, warm_up and
// one_of share.
// Tested by tests/unit/compress/by_layer.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/compress/concept.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress::detail {

/// For describing a compressor inside another one.
template <class C>
[[nodiscard, gnu::cold]] std::string describe(const C& one) {
    const std::string settings{one.settings()};
    return settings.empty() ? std::string{C::name} : core::text(C::name, "(", settings, ")");
}

template <class C>
void check(const C& one) {
    core::check_inner_part(one);
}
template <class C>
void check_feedback(const C& one) {
    constexpr bool is_called = requires { one.check_feedback(); };
    static_assert(
        is_called || !requires(C & changing) { changing.check_feedback(); },
        "lockstep: the check_feedback() of a compressor is const");
    if constexpr (requires { one.check_feedback(); }) one.check_feedback();
}

/// Throws core::error if a part of `around` changes the sum, which it would not do there: what is_outermost refuses,
/// held by compress::any.
template <class C>
void refuse_seal(std::string_view around, const C& part) {
    if (seals(part))
        core::fail(core::text(around, " goes around ", describe(part), ", whose sum would not be compressed"),
                   "write two_sided once, around all other combinators");
}

/// Steps in ascending order, each once; 0 is no change.
[[nodiscard, gnu::cold]] inline std::vector<std::uint64_t> changes(std::vector<std::uint64_t> steps) {
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    if (!steps.empty() && steps.front() == 0) steps.erase(steps.begin());
    return steps;
}

/// The message of `one`, then the byte `which`.
template <class T, class C>
std::size_t encode_as(std::size_t which, const C& one, const encoding<T>& in) noexcept {
    auto inside = in;
    inside.state = in.state.from(0, slots_of(one));
    const std::size_t length = one.encode(inside);
    in.message[length] = static_cast<std::byte>(which);
    return length + 1;
}
template <class T, class C>
std::size_t encode_snapped_as(std::size_t which, const C& one, const encoding<T>& in, std::span<T> p) noexcept {
    auto inside = in;
    inside.state = in.state.from(0, slots_of(one));
    const std::size_t length = encode_snapped(one, inside, p);
    in.message[length] = static_cast<std::byte>(which);
    return length + 1;
}
/// Whose message it is.
[[nodiscard]] inline std::size_t which_of(std::span<const std::byte> message) noexcept {
    return std::to_integer<std::size_t>(message.back());
}

}  // namespace lockstep::compress::detail
