// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that the ranks of a node share, as one of them sees it, and how a rank waits for signals that others leave
// there.
// Tested by tests/mpi/comm_shared.cpp.

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/watch/abort_channel.hpp"
#include "lockstep/comm/watch/watched_collective.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::node {

/// Bytes between what different ranks write: two cache lines, because processors fetch lines in pairs.
inline constexpr std::size_t shared_line = 128;

/// A number that one rank raises and the others watch: alone on its cache lines. Zero bytes are a signal of 0.
class shared_signal {
public:
    /// What was written before raise() can be read after a reached() that is true.
    void raise(std::uint64_t value) noexcept { number().store(value, std::memory_order_release); }
    [[nodiscard]] bool reached(std::uint64_t value) noexcept {
        return number().load(std::memory_order_acquire) >= value;
    }
    /// A value beside it, written before the first raise().
    std::uint64_t mark;

private:
    // Lock-free atomics are address-free: they work between processes.
    [[nodiscard]] std::atomic_ref<std::uint64_t> number() noexcept { return std::atomic_ref<std::uint64_t>{number_}; }
    static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
    alignas(8) std::uint64_t number_;
    std::byte rest_[shared_line - 2 * sizeof(std::uint64_t)];
};
static_assert(sizeof(shared_signal) == shared_line && std::is_trivial_v<shared_signal>);

/// How a rank waits for a signal: it spins for some microseconds, then offers its core to others, then sleeps with
/// pauses that grow to 1 ms and stay below an eighth of the time waited. Looks for aborts once it no longer spins.
class shared_backoff {
public:
    /// Where ranks have to share cores, none spins for long: the rank that is waited for may need this core.
    explicit shared_backoff(bool crowded) noexcept : spins_{crowded ? 32U : 4096U} {}

    shared_backoff(bool crowded, const comm::pending_operation& what) noexcept
        : spins_{crowded ? 32U : 4096U}, wait_{what.what, what.in, what.self, what.peers}, what_{what} {}

    /// After a look that found nothing. Throws remote_failure, and core::error where the wait has no end or lasts too
    /// long.
    void wait(comm::abort_channel* aborts) {
        if (++looks_ <= spins_) {
#if defined(__x86_64__) || defined(__i386__)
            _mm_pause();
#endif
            return;
        }
        if (aborts != nullptr && looks_ % yielding_interval == 0) aborts->check(wait_, what_.came());
        if (looks_ <= spins_ + yields) {
            std::this_thread::yield();
            return;
        }
        if (aborts != nullptr) aborts->check(wait_, what_.came());
        std::this_thread::sleep_for(pause_);
        if (pause_ < std::chrono::milliseconds{1}) pause_ += pause_ / 8;
    }

    static constexpr std::size_t check_interval = 64;

private:
    static constexpr std::size_t yields = 1024;
    static constexpr std::size_t yielding_interval = 8;  // each may take as long as others like
    std::size_t spins_;
    std::size_t looks_ = 0;
    std::chrono::nanoseconds pause_ = std::chrono::microseconds{20};
    comm::wait wait_;
    comm::pending_operation what_;
};

/// One signal of each rank of a group: how far the ranks are in what they do together, again and again.
class shared_signals {
public:
    /// `own`: this rank's. `ranks`: the number of each one in the group of all parts.
    [[gnu::cold]] shared_signals(std::vector<shared_signal*> all, shared_signal* own, std::vector<std::size_t> ranks,
                                 comm::abort_channel* aborts, comm::group_record* in, bool crowded)
        : all_{std::move(all)}, own_{own}, ranks_{std::move(ranks)}, aborts_{aborts}, in_{in}, crowded_{crowded} {}

    /// What the signals are for, for those who wait too long. `made`: without its numbers.
    [[gnu::cold]] void name(comm::collective made);
    /// What is named begins once more.
    void begins(const std::source_location& where) noexcept {
        if (!what_) return;
        ++(*what_)->runs;
        (*what_)->where = where;
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return {.what = what_ ? &**what_ : nullptr,
                .in = in_,
                .self = this,
                .peers = missing,
                .progress = reached,
                .of = this};
    }

    /// The others are waited for until they have raised theirs as high.
    void raise(std::uint64_t value) noexcept {
        raised_ = value;
        own_->raise(value);
    }
    [[nodiscard]] bool all_reached(std::uint64_t value) const noexcept {
        for (shared_signal* signal : all_)
            if (!signal->reached(value)) return false;
        return true;
    }
    [[nodiscard]] shared_signal& of(std::size_t rank) const noexcept { return *all_[rank]; }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

    /// After a look that found nothing, by who does not wait: now and then looks for a failure. Throws remote_failure.
    void polled() {
        if (aborts_ != nullptr && ++polls_ % shared_backoff::check_interval == 0) aborts_->check();
    }
    /// Waits until advance(of) is true. Throws remote_failure.
    void wait(bool (*advance)(void*), void* self);

private:
    [[gnu::cold]] static std::uint64_t reached(const void* self) {
        const auto& signals = *static_cast<const shared_signals*>(self);
        std::uint64_t count = signals.raised_;
        for (shared_signal* signal : signals.all_) count += signal->reached(signals.raised_);
        return count;
    }
    /// The ranks whose signals have not come.
    [[gnu::cold]] static std::size_t missing(const void* self, std::span<std::size_t> out) {
        const auto& signals = *static_cast<const shared_signals*>(self);
        std::size_t count = 0;
        for (std::size_t i = 0; i < signals.all_.size() && count < out.size(); ++i)
            if (!signals.all_[i]->reached(signals.raised_)) out[count++] = signals.ranks_[i];
        return count;
    }

    std::vector<shared_signal*> all_;
    shared_signal* own_;
    std::vector<std::size_t> ranks_;
    comm::abort_channel* aborts_;
    comm::group_record* in_;
    std::optional<comm::watched_collective> what_;
    std::uint64_t raised_ = 0;
    std::size_t polls_ = 0;
    bool crowded_;
};

/// Equal parts, one for each rank: what is reserved lies at the same offset in each of them. All parts are zero at
/// first.
class shared_parts {
public:
    /// `crowded`: there are more ranks than cores. `aborts`: where failures are told, if ranks are processes.
    shared_parts(std::size_t rank, std::vector<std::byte*> parts, std::size_t bytes, bool crowded = false,
                 comm::abort_channel* aborts = nullptr)
        : parts_{std::move(parts)}, rank_{rank}, bytes_{bytes}, aborts_{aborts}, crowded_{crowded} {}

    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
    [[nodiscard]] bool crowded() const noexcept { return crowded_; }
    [[nodiscard]] comm::abort_channel* aborts() const noexcept { return aborts_; }
    /// The group whose ranks have these parts, if they are processes.
    [[nodiscard]] comm::group_record* group() const noexcept { return group_; }
    void belongs_to(comm::group_record& group) noexcept { group_ = &group; }
    /// Bytes of a part, and those that are not reserved yet.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t left() const noexcept { return bytes_ - used_; }

    /// Bytes of a part that an array takes.
    [[nodiscard]] static constexpr std::size_t footprint(std::size_t bytes) noexcept {
        return (bytes + shared_line - 1) / shared_line * shared_line;
    }

    /// `count` elements in every part. All ranks reserve the same in the same order. Throws core::error where there is
    /// no room.
    template <class T>
    [[nodiscard]] tensor::slice<T> reserve(std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain numbers");
        return {take(core::checked_product("bytes of a shared array", count, sizeof(T))), count};
    }
    /// The array of a rank.
    template <class T>
    [[nodiscard]] std::span<T> of(std::size_t rank, tensor::slice<T> where) const noexcept {
        return {reinterpret_cast<T*>(parts_[rank] + where.offset), where.count};
    }
    template <class T>
    [[nodiscard]] std::span<T> mine(tensor::slice<T> where) const noexcept {
        return of(rank_, where);
    }

private:
    [[gnu::cold]] std::size_t take(std::size_t bytes) {
        const std::size_t needed = footprint(bytes);
        if (needed > left())
            core::fail(
                core::text("shared memory of ", bytes_, " bytes for each rank has ", left(), " left, of ", needed),
                "make the window larger");
        const std::size_t at = used_;
        used_ += needed;
        return at;
    }

    std::vector<std::byte*> parts_;
    std::size_t rank_;
    std::size_t bytes_;
    std::size_t used_ = 0;
    comm::abort_channel* aborts_;
    comm::group_record* group_ = nullptr;
    bool crowded_;
};

/// Throws core::error where strips are no partition of the elements 0 .. n-1: an element that no rank writes, or two
/// ranks at once.
[[gnu::cold]] void check_strips(std::span<const parallel::block> strips, std::size_t n);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void shared_signals::name(comm::collective made) {
    if (in_ == nullptr) return;
    made.group = in_->id;
    made.number = ++in_->last_shared;
    what_.emplace(aborts_->watched_by(), made);
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void shared_signals::wait(bool (*advance)(void*), void* self) {
    for (shared_backoff waiting{crowded_, pending()}; !advance(self);) waiting.wait(aborts_);
}

LOCKSTEP_FUNCTION void check_strips(std::span<const parallel::block> strips, std::size_t n) {
    std::vector<parallel::block> in_order;
    for (const parallel::block& strip : strips)
        if (strip.first != strip.last) in_order.push_back(strip);
    core::sort(in_order, [](const parallel::block& a, const parallel::block& b) { return a.first < b.first; });
    in_order.push_back({n, n});
    std::size_t at = 0;
    for (const parallel::block& strip : in_order) {
        if (strip.first != at || strip.first > strip.last)
            core::fail(core::text("strips of ", n, " elements: one from ", strip.first, " to ", strip.last,
                                  " follows what ends at ", at),
                       "give each element to exactly one rank");
        at = strip.last;
    }
}

#endif

}  // namespace lockstep::node
