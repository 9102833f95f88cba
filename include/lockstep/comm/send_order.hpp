// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which of several operations in flight may hand messages to MPI: the more urgent ones first. Knows no MPI.

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::comm {

/// The operations of one rank that share its links, by urgency: 0 is needed first. One that is in flight beside a more
/// urgent one yields: it hands over no piece that would leave more than `limit` bytes of itself and the more urgent
/// ones under way, and each piece counts until its receiver has it; one piece of each stream may go beyond. What is
/// more urgent does not see the others, and without it none is held back.
///
/// Priorities order what is handed over, they block no operation: each stream (a direction of a pair of ranks) of each
/// operation may always have one piece under way, receives are posted as without an order, and no rank waits for
/// another to hand something over. So every operation that is polled moves on, whatever else is in flight here or
/// there, also where ranks start in different orders or give different urgencies. Owned by the thread that has the turn
/// to call MPI, and outlives its operations. Not ordered: redistributions, losses and statistics. Not overtaken: what
/// the system has taken, over TCP up to 4 MB for each peer (btl_tcp_sndbuf). Pieces are acknowledged only beside
/// something more urgent: acknowledgements come when the receiver polls, and with 4 ms between polls they cost a third
/// of the bandwidth.
class send_order {
public:
    /// What a link of 1 Gbit/s carries in 8 ms: covers the pauses between two polls of the receiver.
    static constexpr std::size_t usual_limit = std::size_t{1} << 20U;

    explicit send_order(std::size_t limit = usual_limit) noexcept : limit_{limit} {}
    send_order(const send_order&) = delete;
    send_order& operator=(const send_order&) = delete;

    /// Whether something more urgent is in flight.
    [[nodiscard]] bool yields(std::size_t urgency) const noexcept {
        for (std::size_t level = 0; level < urgency; ++level)
            if (running_[level] > 0) return true;
        return false;
    }
    /// Whether one that yields may hand over so many bytes more.
    [[nodiscard]] bool admits(std::size_t urgency, std::size_t bytes) const noexcept {
        for (std::size_t level = 0; level <= urgency; ++level) bytes += under_way_[level];
        return bytes <= limit_;
    }

private:
    friend class send_entry;

    std::size_t limit_;
    std::vector<std::size_t> running_;    // operations of each urgency
    std::vector<std::size_t> under_way_;  // bytes of them
};

/// What an operation is to be sent among, and how soon it is needed; without an order it is not held back.
struct urgency {
    send_order* among = nullptr;
    std::size_t level = 0;
};

/// The entry of one operation in an order.
class send_entry {
public:
    [[gnu::cold]] explicit send_entry(urgency priority) : priority_{priority} {
        if (priority.among == nullptr || priority.among->running_.size() > priority.level) return;
        priority.among->under_way_.resize(priority.level + 1);
        priority.among->running_.resize(priority.level + 1);  // last: its size says that both have room
    }
    send_entry(send_entry&& other) noexcept
        : priority_{other.priority_},
          running_{std::exchange(other.running_, false)},
          bytes_{std::exchange(other.bytes_, 0)} {}
    send_entry& operator=(send_entry&&) = delete;
    ~send_entry() { leave(); }

    void enter() noexcept {
        if (priority_.among == nullptr || running_) return;
        running_ = true;
        ++priority_.among->running_[priority_.level];
    }
    /// Whatever is still under way counts no more.
    void leave() noexcept {
        if (!running_) return;
        received(bytes_);
        running_ = false;
        --priority_.among->running_[priority_.level];
    }
    [[nodiscard]] bool yields() const noexcept {
        return priority_.among != nullptr && priority_.among->yields(priority_.level);
    }
    [[nodiscard]] bool admits(std::size_t bytes) const noexcept {
        return priority_.among->admits(priority_.level, bytes);
    }
    void handed_over(std::size_t bytes) noexcept {
        if (!running_) return;
        bytes_ += bytes;
        priority_.among->under_way_[priority_.level] += bytes;
    }
    void received(std::size_t bytes) noexcept {
        if (!running_) return;
        bytes_ -= bytes;
        priority_.among->under_way_[priority_.level] -= bytes;
    }

private:
    urgency priority_;
    bool running_ = false;
    std::size_t bytes_ = 0;
};

}  // namespace lockstep::comm
