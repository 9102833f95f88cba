// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One decision of all ranks that share memory: all have agreed, or one has withdrawn first. Atomic: never both.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/node/shared_parts.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::node {

/// Decisions in turns, counted from 1. A rank agrees when it has done all that can fail on it; a turn is decided when
/// all ranks have agreed. A rank that gives up withdraws first: then this turn and all later ones stay undecided, on
/// every rank alike. One word in the part of rank 0 counts the agreements of all turns; its highest bit says that a
/// rank has withdrawn. Cost of a turn: one atomic operation of each rank. Without shared memory every turn is decided
/// at once, and no rank can withdraw.
class shared_gate {
public:
    shared_gate() = default;
    /// `word`: reserved at the same offset of every part. All ranks of `memory` take part.
    shared_gate(shared_parts& memory, tensor::slice<shared_signal> word) noexcept
        : word_{&memory.of(0, word).front().mark}, ranks_{memory.size()} {}

    [[nodiscard]] bool is_shared() const noexcept { return word_ != nullptr; }

    /// Begins the next turn and agrees to it. False: another rank has withdrawn, and the turn stays undecided.
    [[nodiscard]] bool agree() noexcept {
        ++turn_;
        if (word_ == nullptr) return true;
        std::uint64_t found = word().load(std::memory_order_relaxed);
        while ((found & withdrawn) == 0)
            if (word().compare_exchange_weak(found, found + 1, std::memory_order_acq_rel)) return true;
        return false;
    }
    /// Whether all ranks have agreed to this turn.
    [[nodiscard]] bool is_decided() const noexcept {
        return word_ == nullptr || (word().load(std::memory_order_acquire) & ~withdrawn) >= turn_ * ranks_;
    }
    /// True: no rank will find this turn decided. False: it is decided.
    [[gnu::cold]] bool withdraw() noexcept {
        if (word_ == nullptr) return true;
        std::uint64_t found = word().load(std::memory_order_acquire);
        while ((found & withdrawn) == 0) {
            if (found >= turn_ * ranks_) return false;
            if (word().compare_exchange_weak(found, found | withdrawn, std::memory_order_acq_rel)) return true;
        }
        return !is_decided();
    }

private:
    static constexpr std::uint64_t withdrawn = std::uint64_t{1} << 63U;
    [[nodiscard]] std::atomic_ref<std::uint64_t> word() const noexcept {
        return std::atomic_ref<std::uint64_t>{*word_};
    }

    std::uint64_t* word_ = nullptr;
    std::uint64_t ranks_ = 1;
    std::uint64_t turn_ = 0;
};

}  // namespace lockstep::node
