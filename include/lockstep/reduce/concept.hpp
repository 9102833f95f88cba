// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concept Reducer: the gradients of one bucket, from the sums of each rank's lanes to new weights on every rank.
// Tested by tests/unit/reduce/choose.cpp.

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/send_order.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/node/shared_strips.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/lanes.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::reduce {

/// What a compressor sees: a whole tensor, or one segment of it. Of the recipe alone: buckets, strips and ranks change
/// nothing.
struct piece {
    std::size_t first = 0;  ///< of its numbers in the bucket
    std::size_t count = 0;
    std::size_t tensor =
        0;  ///< number of the tensor among all of the network; in a model partition each shard is one of its own
    std::size_t offset = 0;  ///< of its numbers in the tensor
    std::size_t rows = 1;    ///< of the tensor
    std::size_t columns = 1;
    std::size_t window = 0;  ///< of a convolution's weights: positions of its window

    /// A tensor of one extent: a bias, a scale.
    [[nodiscard]] constexpr bool is_vector() const noexcept { return from().is_vector(); }
    [[nodiscard]] constexpr compress::origin from() const noexcept { return {tensor, rows, columns, window, offset}; }
};

/// Which of some pieces to try: of about `most` numbers together, spread over all of them, so that large ones are among
/// them.
class sample_of_pieces {
public:
    /// Of `pieces` pieces with `all` numbers.
    sample_of_pieces(std::size_t all, std::size_t pieces, std::size_t most) noexcept
        : stride_{all <= most ? 0 : std::min(all / most + 1, pieces) * ((all + pieces - 1) / pieces)} {}
    /// Of the next one, whether it is tried.
    [[nodiscard]] bool takes(std::size_t count) noexcept {
        const std::size_t before = std::exchange(seen_, seen_ + count);
        return stride_ == 0 || (before + stride_ / 2) / stride_ != (seen_ + stride_ / 2) / stride_;
    }

private:
    std::size_t stride_;  // numbers from one to the next; 0: all are
    std::size_t seen_ = 0;
};

/// Which workers are whose, for what keeps state for each of them.
struct worker_deal {
    std::size_t workers = 0;                  ///< in all; 0: nothing is kept for each
    std::size_t lanes = 0;                    ///< of each
    parallel::block own{};                    ///< of this rank, or the one that it shares
    std::vector<parallel::block> messages{};  ///< for each rank of the bucket, the workers whose messages it sends
    comm::group sharing{};                    ///< the ranks that share a worker with this one
    std::vector<parallel::block> lanes_of{};  ///< of each of them: its lanes of the worker,
    node::shared_parts* memory = nullptr;     ///< arrays that they share, if they do,
    std::vector<std::size_t> parts{};         ///< and which part each of them has
    std::vector<piece> pieces{};              ///< of the bucket
    std::span<const std::size_t> lengths{};   ///< rows of each lane of all in the step that runs
    std::uint64_t seed = 0;

    /// Of the ranks that share a worker, the first one sends its messages.
    [[nodiscard]] bool sends(std::size_t rank) const noexcept {
        return rank < messages.size() && !messages[rank].empty();
    }
    [[nodiscard]] bool is_shared() const noexcept { return lanes_of.size() > 1; }
};

/// A dense layer whose rows of x and dy travel in place of its gradient [dW (inputs x outputs), db (outputs)].
/// 0 outputs: there is none.
struct factor_layer {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    std::size_t rows = 0;                    ///< for which each rank has room
    std::span<const std::size_t> lengths{};  ///< rows of each lane in the step: what it views changes from step to step

    /// Numbers of each rank.
    [[nodiscard]] constexpr std::size_t numbers() const noexcept { return rows * (inputs + outputs); }
};

/// Who adds up what: n numbers for each node of this rank's lanes, of `lanes` lanes in all. `runs[r]` are the lanes of
/// rank r of the group.
struct bucket {
    comm::group ranks;
    std::vector<parallel::block> runs;
    std::size_t lanes = 1;
    std::size_t n = 0;
    parallel::team team;
    worker_deal deal{};
    node::shared_parts* memory = nullptr;  ///< shared by all ranks of the trainer, if they do
    std::vector<std::size_t> parts{};      ///< which part of it each rank of the group has
    collectives::sum_algorithm algorithm = collectives::sum_algorithm::tree;  ///< of sums without a compressor,
    collectives::sum_family sums = collectives::lane_tree_sums;               ///< one of these
    std::vector<std::size_t> on{};  ///< the host of each rank, as from comm::group::hosts(), for those that ask
    comm::urgency sum{};            ///< of its messages: how soon they are needed,
    comm::urgency share{};          ///< and the new weights
    node::shared_adding adding{};   ///< through shared memory: whether somebody has time to add before the update
    factor_layer factors{};
    collectives::cost_model costs{};  ///< measured, where the compressor's sum depends on them
};

/// Arrays of n that a rank reserves for the sums of its lanes: in shared memory all ranks reserve alike.
[[nodiscard, gnu::cold]] std::size_t gradient_vectors(const bucket& of);

/// A reducer reserves its memory on construction and takes it with `bind`. `start(gradient, step)` begins the sum over
/// all lanes of gradient (one array of n for each node). When it is over, this rank makes weights[owned()] new:
/// `update(weights, change)` calls change(part, sum) for parts that together are owned(), on the threads of the team;
/// `sum` has the numbers of `part` alone, and is gone after the call, which must not throw. `share(weights)` then
/// begins to bring all of them up to date on every rank; what update() has handed out already is there sooner. `poll`
/// makes progress without waiting and says whether what was begun is over; `progress` is a `poll` that does not look
/// for failures; `finish` waits, and may be called once more: after it `sums` are those of owned(), where they travel
/// as messages or are added ahead; `pending` says for whom. `bytes_per_step` is what this rank sends for both.
/// `replicates`: every rank owns all of the bucket. `visit_state(visitor, set)` shows what outlives a step
/// (tensor/state.hpp).
template <class R, class T = float>
concept Reducer = requires(R& reducer, const R& fixed, const tensor::arena& arena, std::span<T> numbers,
                           std::uint64_t step, void (*change)(parallel::block, std::span<const T>) noexcept) {
    reducer.bind(arena);
    { fixed.owned() } -> std::same_as<parallel::block>;
    reducer.start(numbers, step);
    reducer.update(numbers, change);
    reducer.share(numbers);
    { reducer.poll() } -> std::same_as<bool>;
    { reducer.progress() } -> std::same_as<bool>;
    reducer.finish();
    { fixed.pending() } -> std::same_as<comm::pending_operation>;
    { fixed.bytes_per_step() } -> std::convertible_to<std::size_t>;
    { reducer.sums() } -> std::same_as<std::span<T>>;
    { fixed.replicates() } -> std::same_as<bool>;
    fixed.visit_state([](const tensor::state_part<T>&) {}, std::size_t{0});
};

/// Shows a visitor what a reducer keeps for each worker of this rank, as `role`: `slots` arrays of n numbers side by
/// side, of which `one` has its part.
template <class T, class Visitor>
void visit_worker_state(Visitor&& visit, const worker_deal& of, const piece& one, std::span<T> state, std::size_t slots,
                        std::size_t n, std::size_t set, bool speaks, std::string_view role = "compressor") {
    for (std::size_t worker = 0; worker < of.own.size(); ++worker)
        for (std::size_t slot = 0; slot < slots; ++slot)
            visit(tensor::state_part<T>{.role = role,
                                        .slot = slot,
                                        .set = set,
                                        .tensor = one.tensor,
                                        .segment = one.offset,
                                        .worker = of.own.first + worker,
                                        .numbers = state.subspan((worker * slots + slot) * n + one.first, one.count),
                                        .speaks = speaks});
}

/// Adds the sums of workers that one rank holds, arrays of n side by side, along the tree over workers: what is left is
/// one array for each node of tensor::cover(run, lanes).
template <class T>
void add_workers(std::span<T> sums, std::size_t n, parallel::block run, std::size_t lanes,
                 std::size_t worker_lanes) noexcept {
    const auto array = [&](std::size_t which) { return sums.subspan(which * n, n); };
    // The sum of arrays first .. first + count - 1 in the first of them: both halves of a node, the left one a power of
    // two.
    const auto add = [&](const auto& self, std::size_t first, std::size_t count) -> void {
        if (count <= 1) return;
        const std::size_t left = std::bit_ceil(count) / 2;
        self(self, first, left);
        self(self, first + left, count - left);
        kernels::add(std::span<const T>{array(first + left)}, array(first));
    };
    std::size_t from = 0, to = 0;
    tensor::each_node(run, lanes, 0, [&](const tensor::subtree& node) {
        const std::size_t count = std::max<std::size_t>(1, node.count / worker_lanes);
        add(add, from, count);
        if (from != to) std::ranges::copy(array(from), array(to).begin());
        from += count;
        ++to;
    });
}

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
        if (of.memory != nullptr || of.deal.memory != nullptr || rank == of.ranks.rank())
            most = std::max(most, tensor::cover(of.runs[rank], of.lanes, of.deal.lanes).size());
    return most;
}

#endif

}  // namespace lockstep::reduce
