// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A group of ranks: the application's communicator, duplicated, with failure notices. The only header that includes Boost.MPI.

#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "lockstep/comm/notice.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// How a wait loop spends its time: it polls, looks for failure notices now and then, and soon leaves the core to others.
class patience {
public:
    static constexpr std::size_t spins = 512;
    static constexpr std::size_t notice_interval = 64;

    /// After a poll that found nothing. Throws remote_failure.
    void wait(notice_board& notices) {
        if (++polls_ % notice_interval == 0) notices.check();
        if (polls_ > spins) std::this_thread::yield();
    }

private:
    std::size_t polls_ = 0;
};

/// Copies are the same group. All ranks make the same groups and operations in the same order.
class group {
public:
    /// One rank, without MPI: nothing needs to be initialised.
    group() : state_{std::make_shared<state>(std::nullopt, nullptr)} {}

    /// Duplicates the communicator, so no message can meet one of the application's. Collective. With MPI initialised but no mpirun, the world
    /// is one rank.
    explicit group(const boost::mpi::communicator& communicator) : group{} {
        core::require(
            boost::mpi::environment::initialized() && !boost::mpi::environment::finalized(),
            [] { return std::string{"a group of ranks was made while MPI is not running"}; },
            [] { return std::string{"keep a boost::mpi::environment alive around it, or make a group of one rank with group{}"}; });
        core::require(
            static_cast<bool>(communicator),
            [] { return std::string{"a group was made of a communicator that this rank does not belong to"}; },
            [] { return std::string{"make it only on the ranks of the communicator"}; });
        state_ = std::make_shared<state>(boost::mpi::communicator{communicator, boost::mpi::comm_duplicate}, nullptr);
    }

    group(const group&) = default;
    group(group&&) noexcept = default;
    group& operator=(const group&) = default;
    group& operator=(group&&) noexcept = default;
    [[gnu::noinline]] ~group() {}  // of which there is one copy

    [[nodiscard]] std::size_t rank() const noexcept { return state_->over.rank(); }
    [[nodiscard]] std::size_t size() const noexcept { return state_->over.size(); }
    [[nodiscard]] const transport& over() const noexcept { return state_->over; }
    [[nodiscard]] notice_board& notices() const noexcept { return state_->notices(); }

    /// The ranks with an equal color, ordered by key, then by rank. Collective. Shares the failure notices of this group.
    [[nodiscard]] group split(std::size_t color, std::size_t key) const {
        if (!state_->communicator) return *this;
        // Nobody enters MPI's own, blocking split before all ranks have arrived.
        (void)gather_all(color);
        return group{std::make_shared<state>(state_->communicator->split(static_cast<int>(color), static_cast<int>(key)),
                                             state_->root ? state_->root : state_)};
    }

    /// The value of each rank, in the order of ranks, on all of them. For setup: allocates. log2(p) messages (Bruck et al. 1997).
    template <class T>
        requires std::is_trivially_copyable_v<T>
    [[nodiscard, gnu::cold]] std::vector<T> gather_all(const T& value) const {
        struct cell {  // a vector<bool> has no elements to send
            T value;
        };
        std::vector<cell> turned(size(), cell{value});  // turned[k] is the value of rank + k
        const auto part = [&](std::size_t first, std::size_t count) {
            return std::as_writable_bytes(std::span{turned}.subspan(first, count));
        };
        requests under_way;
        for (std::size_t have = 1; have < size(); have *= 2) {
            const std::size_t count = std::min(have, size() - have);
            under_way.receive(over(), (rank() + have) % size(), setup_tag, part(have, count));
            under_way.send(over(), (rank() + size() - have) % size(), setup_tag, part(0, count));
            for (patience waiting; !under_way.test();) waiting.wait(notices());
        }
        std::vector<T> out(size());
        for (std::size_t k = 0; k < size(); ++k) out[(rank() + k) % size()] = turned[k].value;
        return out;
    }

    [[nodiscard, gnu::cold]] std::vector<std::string> gather_all(std::string_view text) const {
        constexpr std::size_t size_of_part = 64;
        struct piece {
            char letters[size_of_part];
        };
        const auto lengths = gather_all(text.size());
        const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
        std::vector<std::string> out(size());
        for (std::size_t at = 0; at < longest; at += size_of_part) {
            piece mine{};
            if (at < text.size()) text.copy(mine.letters, size_of_part, at);
            const auto pieces = gather_all(mine);
            for (std::size_t other = 0; other < size(); ++other)
                if (at < lengths[other]) out[other].append(pieces[other].letters, std::min(size_of_part, lengths[other] - at));
        }
        return out;
    }

    /// For each rank the lowest rank on the same machine: equal numbers share memory.
    [[nodiscard]] std::vector<std::size_t> hosts() const {
        if (!state_->communicator) return {0};
        const auto names = gather_all(std::string_view{boost::mpi::environment::processor_name()});
        std::vector<std::size_t> out(names.size());
        for (std::size_t other = 0; other < names.size(); ++other)
            out[other] = static_cast<std::size_t>(std::find(names.begin(), names.end(), names[other]) - names.begin());
        return out;
    }

    /// Tells all ranks, also those outside this part of a split group, that this one has failed. Does not wait for them; the first call counts.
    void announce(std::string_view text) const { notices().announce(text); }

    /// Looks once for a notice of failure. Throws remote_failure.
    void check() const { notices().check(); }

    /// The tag of the next operation: equal on all ranks that make their operations in the same order.
    [[nodiscard]] int next_tag() const noexcept {
        state_->tag = state_->tag >= state_->over.tags() ? first_tag : state_->tag + 1;
        return state_->tag;
    }

private:
    static constexpr int setup_tag = notice_board::tag + 1;
    static constexpr int first_tag = setup_tag + 1;

    struct state {
        state(std::optional<boost::mpi::communicator> made, std::shared_ptr<state> top)
            : communicator{std::move(made)}, over{communicator ? transport{*communicator} : transport{}}, root{std::move(top)}, own{over} {}

        state(const state&) = delete;
        state& operator=(const state&) = delete;
        /// After a failure messages may still be on their way, and MPI would deliver them to the next communicator that gets this one's number:
        /// it is not given back.
        ~state() {
            if (communicator && notices().failed()) keep(*communicator);
        }

        [[nodiscard]] notice_board& notices() noexcept { return root ? root->own : own; }

        std::optional<boost::mpi::communicator> communicator;
        transport over;
        std::shared_ptr<state> root;  // keeps the communicator of the notices alive
        notice_board own;
        int tag = first_tag - 1;
    };

    explicit group(std::shared_ptr<state> made) : state_{std::move(made)} {}

    std::shared_ptr<state> state_;
};

}  // namespace lockstep::comm
