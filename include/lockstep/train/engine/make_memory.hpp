// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory that the ranks of a trainer share.
// Tested by tests/equivalence/local_sgd.cpp.

#include <cstddef>
#include <type_traits>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/sync/buckets.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/train/plan.hpp"

namespace lockstep::train {

/// Where workers have weights of their own, their means go through it; `by_messages`: only when weights are looked at.
/// Ranks that share a worker add its gradients by messages: of a single worker there is nothing that shared memory
/// could be for. Throws core::error, on all ranks alike, where the plan asks for it then.
[[nodiscard, gnu::cold]] reduce::node_memory make_memory_of_means(const comm::group& ranks, const partition::grid& on,
                                                                  transport wanted, std::size_t bytes,
                                                                  tensor::arena& arena, bool by_messages);

/// For what is made before it: peers, grid, least bucket, arena. Collective; throws core::error on all ranks alike.
template <class Engine>
[[nodiscard, gnu::cold]] typename Engine::method::memory make_memory(Engine& of) {
    using T = typename Engine::T;
    using network = typename Engine::network;
    using strategy = typename Engine::strategy_type;
    const transport wanted = Engine::has_stages || asks_for_messages(of.plan) ? transport::messages : of.plan.transport;
    if (Engine::has_stages && of.plan.transport == transport::shared_memory)
        core::fail("the plan asks for shared memory, and the stages of a pipeline exchange messages",
                   "leave transport out");
    if constexpr (std::is_same_v<typename Engine::method::memory, reduce::worker_memory>)
        return {of.peers,
                of.sharing,
                of.grid.workers,
                wanted,
                sync::inside_bytes<T, network>(of.plan.compressor, of.stage, of.least_bucket, strategy::gradient_sets),
                of.arena};
    else if constexpr (Engine::has_stages)
        return reduce::node_memory{of.ranks.size() == 1 ? "none: one rank" : "messages: stages share no memory"};
    else if constexpr (Engine::has_worker_weights)
        return make_memory_of_means(
            of.ranks, of.grid, wanted, strategy::shared_bytes(of.grid), of.arena,
            requires { requires strategy::exchanges_by_messages; });
    else
        return {of.peers, wanted,
                sync::shared_bytes<T, network>(of.plan.compressor, of.stage, of.least_bucket, strategy::gradient_sets),
                of.arena};
}

/// Weights of the whole network, or of each worker; a stage writes to those of its layers alone.
template <class Engine>
[[nodiscard, gnu::cold]] tensor::slice<typename Engine::T> reserve_weights(Engine& of) {
    using T = typename Engine::T;
    constexpr std::size_t parameters = Engine::network::parameters_here;
    if constexpr (Engine::has_stages)
        of.arena.share_untouched(parameters * sizeof(T), "the weights of all stages, of which one is used",
                                 "use fewer ranks on this machine; see ulimit -v");
    if (!Engine::has_stages && (Engine::has_worker_weights || of.memory.parts() == nullptr))
        return of.arena.template reserve<T>(core::checked_product("weights of workers", of.walks.count(), parameters));
    return of.arena.template reserve_shared<T>(parameters);
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION reduce::node_memory make_memory_of_means(const comm::group& ranks, const partition::grid& on,
                                                           transport wanted, std::size_t bytes, tensor::arena& arena,
                                                           bool by_messages) {
    const bool are_shared = on.ranks > on.workers;
    if (are_shared && on.workers == 1 && wanted != transport::messages) {
        if (wanted == transport::shared_memory)
            core::fail(core::text("the plan asks for shared memory, and for one worker with weights of its own, which ",
                                  on.ranks, " ranks share: they add its gradients by messages, and there is no mean"),
                       "leave transport out, or set workers to at least 2");
        return reduce::node_memory{"messages: the ranks of the one worker add its gradients by them"};
    }
    return {ranks,
            wanted,
            bytes,
            arena,
            node::shared_segment::free_bytes(),
            by_messages  ? "messages between workers, shared memory for looks at their mean and for synchronous steps"
            : are_shared ? "shared memory for the means of workers, messages inside of each"
                         : "shared memory"};
}

#endif

}  // namespace lockstep::train
