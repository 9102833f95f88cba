// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where gradients and weights lie: in memory that the ranks of a node share, or in each rank's own; and the reason.
// Tested by tests/mpi/reduce_memory.cpp.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/node/shared_window.hpp"
#include "lockstep/reduce/transport.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// For reducers that need messages, whatever the ranks share. Throws core::error where shared memory is asked for.
class own_memory {
public:
    own_memory(const comm::group& ranks, transport wanted, std::size_t, tensor::arena&);

    [[nodiscard]] static node::shared_parts* parts() noexcept { return nullptr; }
    [[nodiscard]] static bool is_shared() noexcept { return false; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

/// A window over the ranks of the node, which the arena uses for what reserve_shared() reserves, where `wanted` and the
/// machine permit it.
class node_memory {
public:
    /// `bytes`: those of each rank, equal on all. `room`: what shared memory can hold. Collective, and the same outcome
    /// on all ranks. Throws core::error where shared memory is asked for and cannot be had.
    [[gnu::cold]] node_memory(const comm::group& ranks, transport wanted, std::size_t bytes, tensor::arena& arena,
                              std::size_t room = node::shared_segment::free_bytes());

    [[nodiscard]] bool is_shared() const noexcept { return window_.has_value(); }
    /// Null where there are only messages.
    [[nodiscard]] node::shared_parts* parts() noexcept { return window_ ? &window_->memory() : nullptr; }
    /// What is used, and where it may surprise, why.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    [[gnu::cold]] void share(const comm::group& ranks, transport wanted, std::size_t bytes, tensor::arena& arena,
                             std::size_t room);

    std::optional<node::shared_window> window_;
    std::string text_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION own_memory::own_memory(const comm::group& ranks, transport wanted, std::size_t, tensor::arena&) {
    if (wanted == transport::shared_memory && ranks.size() > 1)
        core::fail("compressed gradients cannot go through shared memory",
                   "set transport to automatic or messages, or use compress::none");
    text_ = ranks.size() == 1 ? "none: one rank" : "messages: those of a compressor go to every rank";
}

LOCKSTEP_FUNCTION node_memory::node_memory(const comm::group& ranks, transport wanted, std::size_t bytes,
                                           tensor::arena& arena, std::size_t room) {
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
        share(ranks, wanted, bytes, arena, room);
    }
}

LOCKSTEP_FUNCTION void node_memory::share(const comm::group& ranks, transport wanted, std::size_t bytes,
                                          tensor::arena& arena, std::size_t room) {
    try {
        window_.emplace(ranks, bytes, room);
        text_ = "shared memory";
    } catch (const comm::remote_failure&) {
        throw;
    } catch (const core::error& failure) {
        if (wanted == transport::shared_memory || ranks.aborts().failed()) throw;
        std::string_view why = failure.what();
        constexpr std::string_view head = "lockstep: ";
        if (why.substr(0, head.size()) == head) why.remove_prefix(head.size());
        text_ = core::text("messages: ", why);
        return;
    }
    const node::shared_parts& all = window_->memory();
    arena.share(all.mine(tensor::slice<std::byte>{0, all.bytes()}));
}

#endif

}  // namespace lockstep::reduce
