// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that the ranks of a node share, as one of them sees it, and how a rank waits for signals that others leave there.

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/notice.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::comm {

/// Bytes between what different ranks write: two cache lines, because processors fetch lines in pairs.
inline constexpr std::size_t shared_line = 128;

/// A number that one rank raises and the others watch: alone on its cache lines. Zero bytes are a signal of 0.
class shared_signal {
public:
    /// What was written before raise() can be read after a reached() that is true.
    void raise(std::uint64_t value) noexcept { number().store(value, std::memory_order_release); }
    [[nodiscard]] bool reached(std::uint64_t value) noexcept { return number().load(std::memory_order_acquire) >= value; }
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

/// How a rank waits for a signal: it spins for some microseconds, then offers its core to others, then sleeps with pauses that grow to 1 ms and
/// stay below an eighth of the time waited. Looks for failure notices once it no longer spins.
class shared_patience {
public:
    /// Where ranks have to share cores nobody spins for long: the one that is waited for may need this core.
    explicit shared_patience(bool crowded) noexcept : spins_{crowded ? 32U : 4096U} {}

    /// After a look that found nothing. Throws remote_failure.
    void wait(notice_board* notices) {
        if (++looks_ <= spins_) {
#if defined(__x86_64__) || defined(__i386__)
            _mm_pause();
#endif
            return;
        }
        if (notices != nullptr && looks_ % notice_interval == 0) notices->check();
        if (looks_ <= spins_ + yields) {
            std::this_thread::yield();
            return;
        }
        if (notices != nullptr) notices->check();
        std::this_thread::sleep_for(pause_);
        if (pause_ < std::chrono::milliseconds{1}) pause_ += pause_ / 8;
    }

    static constexpr std::size_t notice_interval = 64;

private:
    static constexpr std::size_t yields = 1024;
    std::size_t spins_;
    std::size_t looks_ = 0;
    std::chrono::nanoseconds pause_ = std::chrono::microseconds{20};
};

/// Equal parts, one for each rank: what is reserved lies at the same place of each of them. All parts are zero at first.
class shared_parts {
public:
    /// `crowded`: there are more ranks than cores. `notices`: where failures are told, if ranks are processes.
    shared_parts(std::size_t rank, std::vector<std::byte*> parts, std::size_t bytes, bool crowded = false, notice_board* notices = nullptr)
        : parts_{std::move(parts)}, rank_{rank}, bytes_{bytes}, notices_{notices}, crowded_{crowded} {}

    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }
    [[nodiscard]] bool crowded() const noexcept { return crowded_; }
    [[nodiscard]] notice_board* notices() const noexcept { return notices_; }
    /// Bytes of a part, and those that are not reserved yet.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t left() const noexcept { return bytes_ - used_; }

    /// Bytes of a part that an array takes.
    [[nodiscard]] static constexpr std::size_t footprint(std::size_t bytes) noexcept {
        return (bytes + shared_line - 1) / shared_line * shared_line;
    }

    /// `count` elements in every part. All ranks reserve the same in the same order. Throws core::error where there is no room.
    template <class T>
    [[nodiscard]] tensor::slice<T> reserve(std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain numbers");
        return {take(count * sizeof(T)), count};
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
        core::require(
            needed <= left(),
            [&] { return core::text("shared memory of ", bytes_, " bytes for each rank has ", left(), " left, of ", needed); },
            [] { return std::string{"make the window larger"}; });
        const std::size_t at = used_;
        used_ += needed;
        return at;
    }

    std::vector<std::byte*> parts_;
    std::size_t rank_;
    std::size_t bytes_;
    std::size_t used_ = 0;
    notice_board* notices_;
    bool crowded_;
};

}  // namespace lockstep::comm
