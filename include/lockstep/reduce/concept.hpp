// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concept Reducer: the gradients of one bucket, from the sums of each rank's lanes to new weights on every rank.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/comm/algorithm_table.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/lane_sum.hpp"
#include "lockstep/comm/send_order.hpp"
#include "lockstep/comm/shared_parts.hpp"
#include "lockstep/comm/shared_strips.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::reduce {

/// Who adds up what: n numbers for each node of this rank's lanes, of `lanes` lanes in all. `runs[r]` are the lanes of rank r of the group.
struct bucket {
    comm::group ranks;
    std::vector<parallel::block> runs;
    std::size_t lanes = 1;
    std::size_t n = 0;
    parallel::team team;
    comm::shared_parts* memory = nullptr;                       ///< shared by all ranks of the trainer, if they do
    std::vector<std::size_t> parts{};                           ///< which part of it each rank of the group has
    comm::sum_algorithm algorithm = comm::sum_algorithm::tree;  ///< of sums without a compressor,
    comm::sum_family sums = comm::lane_sums;                    ///< one of these
    std::vector<std::size_t> on{};                              ///< the host of each rank, as from comm::group::hosts(), for those that ask
    comm::urgency sum{};                                        ///< of its messages: how soon they are needed,
    comm::urgency share{};                                      ///< and the new weights
    comm::shared_adding adding{};  ///< through shared memory: whether somebody has time to add before the update
};

/// Arrays of n that a rank reserves for the sums of its lanes: in shared memory all ranks reserve alike.
[[nodiscard, gnu::cold]] std::size_t gradient_vectors(const bucket& of);

/// A reducer reserves its memory on construction and takes it with `bind`. `start(gradient)` begins the sum over all lanes of
/// gradient (one array of n for each node). When it is over, this rank makes weights[owned()] new: `update(weights, change)` calls
/// change(part, sum) for parts that together are owned(), on the threads of the team; `sum` has the numbers of `part` alone, and is gone
/// behind the call, which must not throw. `share(weights)` then begins to bring all of them up to date on every rank; what update() has
/// handed out already is there sooner. `poll` makes progress without waiting and says whether what was begun is over; `progress` is a
/// `poll` that does not look for failures; `finish` waits; `awaited` says for whom. `bytes_per_step` is what this rank sends for both.
template <class R, class T = float>
concept Reducer = requires(R& reducer, const R& fixed, const tensor::arena& arena, std::span<T> numbers, core::random_stream random,
                           void (*change)(parallel::block, std::span<const T>) noexcept) {
    reducer.bind(arena);
    { fixed.owned() } -> std::same_as<parallel::block>;
    reducer.start(numbers, random);
    reducer.update(numbers, change);
    reducer.share(numbers);
    { reducer.poll() } -> std::same_as<bool>;
    { reducer.progress() } -> std::same_as<bool>;
    reducer.finish();
    { fixed.awaited() } -> std::same_as<comm::awaited>;
    { fixed.bytes_per_step() } -> std::convertible_to<std::size_t>;
};

/// Calls change(part, sum[part]) for the part of each thread, where the sums of all that is owned lie in an array.
template <class T, class F>
void change_blocks(parallel::team team, parallel::block owned, std::span<const T> sum, const F& change) noexcept {
    parallel::for_blocks(team, owned.size(), 4096, [&](parallel::block mine) {
        const parallel::block part{owned.first + mine.first, owned.first + mine.last};
        change(part, sum.subspan(part.first, part.size()));
    });
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::size_t gradient_vectors(const bucket& of) {
    std::size_t most = 1;
    for (std::size_t rank = 0; rank < of.runs.size(); ++rank)
        if (of.memory != nullptr || rank == of.ranks.rank()) most = std::max(most, tensor::cover(of.runs[rank], of.lanes).size());
    return most;
}

#endif

}  // namespace lockstep::reduce
