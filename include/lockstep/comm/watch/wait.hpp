// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One wait for other ranks: for whom, for how long, and how long it may last.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/comm/watch/call_site.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// The longest wait without progress before a rank gives up, where the plan says nothing: LOCKSTEP_TIMEOUT in seconds,
/// or 60 s. 0: for ever. Throws core::error if the environment says no such number.
[[nodiscard, gnu::cold]] std::chrono::duration<double> default_timeout();

/// Whether it is such a wait: from 0 to below 1e9 s.
[[nodiscard]] constexpr bool is_timeout(std::chrono::duration<double> timeout) noexcept {
    return timeout.count() >= 0 && timeout.count() < 1e9;
}
/// Throws core::error where it is none.
[[gnu::cold]] void require_timeout(std::chrono::duration<double> timeout);

/// A wait has no end where what this rank waits for, run 17 of a collective,
/// - is another collective on the other rank: other kind, size or type (their messages never meet, because tags
///   differ);
/// - has not begun on the other rank, which waits in one that has not begun here: collectives are finished in one
///   order on all ranks;
/// - was destroyed on the other rank before run 17.
/// A rank that has waited for 20 ms tells those it waits for where it is; they compare. It gives up a quarter of a
/// second later in these cases, else after the timeout, asks all ranks where they are, and the lowest rank that gives
/// up speaks for all.
/// Thrown by a rank that gives up waiting for others: the cause may be elsewhere. what() says where all ranks are, one
/// line for each call site.
class stalled : public core::error {
public:
    using core::error::error;
};

class watch;

/// One wait for other ranks. Costs nothing before the first look at the clock, which its loop has now and then.
class wait {
public:
    /// Whom it waits for, numbered in `in`: writes them to out and returns how many.
    using peers = std::size_t (*)(const void* self, std::span<std::size_t> out);
    /// Takes back what this rank has agreed to; false if it is too late, because all ranks have agreed.
    using withdrawal = bool (*)(void* agreement);

    wait() = default;
    wait(const collective* what, const group_record* in, const void* self, peers whom, withdrawal withdraw = nullptr,
         void* agreement = nullptr) noexcept
        : what_{what}, in_{in}, self_{self}, peers_{whom}, withdraw_{withdraw}, agreement_{agreement} {}
    wait(const wait&) = delete;
    wait& operator=(const wait&) = delete;
    ~wait() {
        if (watch_ != nullptr) ended_(*this);
    }

    /// A wait that goes on where nothing came begins anew where something did.
    [[gnu::cold]] void look(std::uint64_t progress) noexcept {
        const auto now = std::chrono::steady_clock::now();
        // A process that was stopped, or waited for a core, has not waited for the others meanwhile.
        if (looks_++ > 0)
            waited_ += std::min<std::chrono::steady_clock::duration>(now - last_, std::chrono::milliseconds{100});
        last_ = now;
        if (progress == progress_) return;
        progress_ = progress;
        waited_ = {};
        told_ = false;
    }
    [[nodiscard]] std::chrono::steady_clock::duration waited() const noexcept { return waited_; }
    /// Whether this rank may still give up. False, once at most, if all ranks have agreed meanwhile: the wait begins
    /// anew.
    [[nodiscard, gnu::cold]] bool may_give_up() {
        if (withdraw_ == nullptr || withdraw_(agreement_)) return true;
        withdraw_ = nullptr;
        waited_ = {};
        told_ = false;
        return false;
    }
    [[nodiscard]] ticket now() const noexcept { return what_ == nullptr ? ticket{} : what_->now(); }

private:
    friend class watch;

    const collective* what_ = nullptr;
    const group_record* in_ = nullptr;
    const void* self_ = nullptr;
    peers peers_ = nullptr;
    withdrawal withdraw_ = nullptr;
    void* agreement_ = nullptr;
    watch* watch_ = nullptr;                   // that knows of it,
    void (*ended_)(wait&) noexcept = nullptr;  // and wants to know when it ends
    wait* outer_ = nullptr;
    std::chrono::steady_clock::time_point last_{};
    std::chrono::steady_clock::duration waited_{};
    std::uint64_t progress_ = 0;
    std::size_t looks_ = 0;
    bool told_ = false;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::chrono::duration<double> default_timeout() {
    const char* text = std::getenv("LOCKSTEP_TIMEOUT");
    if (text == nullptr || *text == 0) return std::chrono::seconds{60};
    const std::string_view given{text};
    double seconds = -1;
    const auto [end, problem] =
        std::from_chars(given.data(), given.data() + given.size(), seconds);  // a point in every locale
    if (!(problem == std::errc{} && end == given.data() + given.size() &&
          is_timeout(std::chrono::duration<double>{seconds})))
        core::fail(core::text("LOCKSTEP_TIMEOUT is '", text, "'"),
                   "give seconds, fewer than 1e9, or 0 to wait for ever");
    return std::chrono::duration<double>{seconds};
}

LOCKSTEP_FUNCTION void require_timeout(std::chrono::duration<double> timeout) {
    if (!is_timeout(timeout))
        core::fail(core::text("the timeout is ", timeout.count(), " s"),
                   "set timeout to the longest wait for another rank, below 1e9 s, or to 0 to wait for ever");
}

#endif

}  // namespace lockstep::comm
