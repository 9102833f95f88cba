// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where gradients and weights lie: in memory that ranks of a node share, or in each rank's own; and the reason.
// Tested by tests/mpi/reduce_memory.cpp.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/node/shared_window.hpp"
#include "lockstep/reduce/transport.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// For reducers that send messages between workers: a window over the ranks that share one, where `wanted` and the
/// machine permit it. The arena uses it for what reserve_shared() reserves.
class worker_memory {
public:
    /// `sharing`: the ranks that share one of the workers with this one, neighbours by number; it may be alone where
    /// others share. `bytes`: equal on these; 0: nothing is to be shared. `room`: as for node_memory, for all windows
    /// of a node. Collective, and the same text or error on all ranks.
    [[gnu::cold]] worker_memory(const comm::group& ranks, const comm::group& sharing, std::size_t workers,
                                transport wanted, std::size_t bytes, tensor::arena& arena,
                                std::size_t room = node::shared_segment::free_bytes());

    /// Those of all ranks.
    [[nodiscard]] static node::shared_parts* parts() noexcept { return nullptr; }
    /// Those of the ranks that share a worker with this one. Null where they have none.
    [[nodiscard]] node::shared_parts* inside() noexcept { return window_ ? &window_->memory() : nullptr; }
    /// Of all ranks.
    [[nodiscard]] static bool is_shared() noexcept { return false; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::optional<node::shared_window> window_;
    std::string text_;
};

/// A window over the ranks of the node, which the arena uses for what reserve_shared() reserves, where `wanted` and the
/// machine permit it.
class node_memory {
public:
    /// `bytes`: those of each rank, equal on all. `room`: what shared memory can hold. Collective, and the same outcome
    /// on all ranks. Throws core::error where shared memory is asked for and cannot be had. `shared`: the text where
    /// there is a window.
    [[gnu::cold]] node_memory(const comm::group& ranks, transport wanted, std::size_t bytes, tensor::arena& arena,
                              std::size_t room = node::shared_segment::free_bytes(),
                              std::string_view shared = "shared memory");
    /// Messages alone, for the reason that the text says.
    [[gnu::cold]] explicit node_memory(std::string text) : text_{std::move(text)} {}

    [[nodiscard]] bool is_shared() const noexcept { return window_.has_value(); }
    /// Null where there are only messages.
    [[nodiscard]] node::shared_parts* parts() noexcept { return window_ ? &window_->memory() : nullptr; }
    [[nodiscard]] static node::shared_parts* inside() noexcept { return nullptr; }
    /// What is used, and where it may surprise, why.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::optional<node::shared_window> window_;
    std::string text_;
};

#if LOCKSTEP_BODIES

namespace detail {

/// Makes the window. Empty, or why there is none. Collective.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string open_window(std::optional<node::shared_window>& window,
                                                                   const comm::group& ranks, std::size_t bytes,
                                                                   std::size_t room) {
    try {
        window.emplace(ranks, bytes, room);
    } catch (const comm::remote_failure&) {
        throw;
    } catch (const core::error& failure) {
        if (ranks.aborts().failed()) throw;
        return std::string{failure.without_head()};
    }
    return {};
}
/// Throws core::error with a text of open_window().
[[noreturn, gnu::cold]] LOCKSTEP_FUNCTION void fail_window(const std::string& why) {
    const std::size_t cut = why.rfind("; ");
    core::fail(why.substr(0, cut), cut == std::string::npos ? "" : why.substr(cut + 2));
}
/// For what the arena reserves in shared memory.
[[gnu::cold]] LOCKSTEP_FUNCTION void lend(const node::shared_window& window, tensor::arena& arena) {
    const node::shared_parts& all = window.memory();
    arena.share(all.mine(tensor::slice<std::byte>{0, all.bytes()}));
}

/// Where ranks that share a worker have a window, alike on all ranks.
struct worker_windows {
    struct facts {
        std::size_t size, index, bytes, room, promised;  // the first two: of the ranks that share
    };
    std::vector<facts> ranks;
    std::vector<bool> have;  // of each rank
    std::string why{};       // not all
    [[nodiscard]] bool wants(std::size_t rank) const { return ranks[rank].size > 1 && ranks[rank].bytes > 0; }
};

/// Windows of one host share its room. Collective.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION worker_windows plan_windows(const comm::group& all,
                                                                       const comm::group& sharing, std::size_t bytes,
                                                                       std::size_t room) {
    const auto hosts = all.hosts();
    worker_windows out{all.gather_all(worker_windows::facts{sharing.size(), sharing.rank(), bytes, room,
                                                            node::shared_segment::promised_bytes()}),
                       std::vector<bool>(all.size())};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (!out.wants(rank)) continue;
        const std::size_t first = rank - out.ranks[rank].index, last = first + out.ranks[rank].size - 1;
        out.have[rank] = true;
        for (std::size_t other = first; other <= last; ++other)
            if (hosts[other] != hosts[first]) out.have[rank] = false;
        if (!out.have[rank])
            out.why = core::text("ranks ", first, " to ", last,
                                 " share a worker and are on several nodes; start neighbours on one node");
    }
    for (std::size_t host = 0; host < all.size(); ++host) {
        std::size_t ranks = 0, most = 0, promised = 0, left = std::numeric_limits<std::size_t>::max();
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            if (hosts[rank] != host) continue;
            left = std::min(left, out.ranks[rank].room);
            promised = std::max(promised, out.ranks[rank].promised);
            if (!out.have[rank]) continue;
            ++ranks;
            most = std::max(most, out.ranks[rank].bytes);
        }
        if (ranks == 0) continue;
        const auto demand = node::shared_window::demand_of(ranks, most, promised);
        if (demand.fits(left)) continue;
        for (std::size_t rank = 0; rank < all.size(); ++rank)
            if (hosts[rank] == host) out.have[rank] = false;
        out.why = core::text("shared windows of ", ranks, " x ", most, " bytes and ", demand.spare,
                             " to spare, but /dev/shm has ", left,
                             " left; enlarge it (mount -o remount,size=.. /dev/shm, docker --shm-size), or do without "
                             "shared memory");
    }
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION worker_memory::worker_memory(const comm::group& ranks, const comm::group& sharing,
                                               std::size_t workers, transport wanted, std::size_t bytes,
                                               tensor::arena& arena, std::size_t room) {
    if (ranks.size() == 1) {
        text_ = "none: one rank";
    } else if (ranks.size() <= workers) {
        text_ = "messages: those of a compressor go to every rank";
    } else if (wanted == transport::messages) {
        text_ = "messages, as the plan says";
    } else {
        auto windows = detail::plan_windows(ranks, sharing, bytes, room);
        // What was decided on for all of them is not asked again for each.
        constexpr std::size_t decided = std::numeric_limits<std::size_t>::max();
        std::string problem;
        if (windows.have[ranks.rank()]) problem = detail::open_window(window_, sharing, bytes, decided);
        const auto problems = ranks.gather_all(std::string_view{problem});
        std::size_t shared = 0, all = 0;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            if (!problems[rank].empty()) windows.why = problems[rank];
            if (!windows.wants(rank) || windows.ranks[rank].index != 0) continue;
            ++all;
            if (windows.have[rank] && problems[rank].empty()) ++shared;
        }
        if (shared < all && wanted == transport::shared_memory) detail::fail_window(windows.why);
        if (window_) detail::lend(*window_, arena);
        text_ = all == 0        ? "messages: those of a compressor go to every rank"
                : shared == all ? "messages between workers, shared memory inside of each"
                : shared == 0   ? "messages: " + windows.why
                                : core::text("messages between workers, shared memory inside of ", shared, " of the ",
                                             all, " that ranks share: ", windows.why);
    }
}

LOCKSTEP_FUNCTION node_memory::node_memory(const comm::group& ranks, transport wanted, std::size_t bytes,
                                           tensor::arena& arena, std::size_t room, std::string_view shared) {
    if (ranks.size() == 1) {
        text_ = "none: one rank";
    } else if (wanted == transport::messages) {
        text_ = "messages, as the plan says";
    } else if (!node::on_one_node(ranks)) {
        if (wanted != transport::automatic)
            core::fail(
                core::text("the plan asks for shared memory, but the ", ranks.size(), " ranks are not on one node"),
                "set transport to automatic or messages, or start all ranks on one node");
        text_ = "messages: the ranks are on several nodes";
    } else {
        const std::string why = detail::open_window(window_, ranks, bytes, room);
        if (!why.empty() && wanted == transport::shared_memory) detail::fail_window(why);
        if (window_) detail::lend(*window_, arena);
        text_ = why.empty() ? std::string{shared} : "messages: " + why;
    }
}

#endif

}  // namespace lockstep::reduce
