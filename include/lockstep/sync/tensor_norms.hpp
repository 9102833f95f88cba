// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Norms of all tensors before the first update of a step: for clipping, and for optimizers that need them.
// Tested by tests/equivalence/norms.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/sum_of_squares.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/scaled_gradient.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/sync/buckets.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/norm_tree.hpp"
#include "lockstep/tensor/lanes.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::sync {

// No templates, so that a program of many trainers compiles vectors of them once.
namespace detail {

/// Tensors as norms see them: each shard is one of its own.
struct norm_tensors {
    std::vector<std::size_t> sizes;
    std::vector<std::size_t> offsets;  // among the parameters of its rank
    std::vector<std::size_t> shards;   // 0: on all ranks; else 1 + which shard
    std::vector<bool> decays;
    std::vector<optim::tensor_place> places;
};
/// What a thread adds at once.
struct norm_task {
    std::size_t first;  // parameter on this rank
    std::size_t count;
    bool decays;
    optim::tensor_place place;
};
/// The tasks of a node of this rank, and where its sum goes.
struct norm_node {
    std::size_t first;
    std::size_t tasks;
    std::size_t slot;
};
/// What is there only where the plan asks for norms. MPI reads and writes `values`, which come before their operation.
struct running_norms {
    norm_tree tree;
    comm::buffer<double> values{};
    std::optional<comm::operation<double>> gather{};
};

/// What a rank owns of one of its buckets.
struct owned_bucket {
    std::size_t first, count;  // parameters of its rank
    bool is_sharded;
    parallel::block owned;
};
/// Those of each rank. Collective.
[[nodiscard, gnu::cold]] std::vector<std::vector<owned_bucket>> of_all_ranks(const comm::group& ranks,
                                                                             const std::vector<owned_bucket>& mine);

}  // namespace detail

/// Every rank adds the squares of its strips, one all-gather brings the sums of all strips to all ranks, and each
/// finishes the norms of all tensors: squares in double over the tree of a tensor's numbers, then over shards, then
/// over tensors in order (see norm_tree). So they have the same bits for any number of ranks and threads and any
/// buckets; shards are part of the recipe. An optimizer that HasNormRule has norms of what its rule makes of gradients,
/// weights and slots, computed here and, alike, once more in its update. Memory: the slots of all ranks. Cost for each
/// rank and step: its strips are read once, with weights where the optimizer needs_norms; an all-gather of at most 16
/// log2(strip) bytes for each tensor of each strip, twice that with weights.
template <class Types>
class tensor_norms {
    using T = typename Types::value_type;
    using network = typename Types::network;
    using optimizer = typename Types::optimizer;
    using clip_type = typename Types::clip;
    static constexpr std::size_t numbers = optim::needs_norms<optimizer> ? 2 : 1;  // of a slot: gradients, weights
    static constexpr bool has_rule = optim::HasNormRule<optimizer, T>;
    static constexpr bool asks_optimizer = has_rule || optim::has_frozen_tensors<optimizer>;

public:
    /// Collective. `queue`: its buckets say what each rank owns.
    template <class Plan, class Queue>
    [[gnu::cold]] tensor_norms(const setup<Plan>& from, const Queue& queue)
        : clip_{from.plan.clip}, optimizer_{from.plan.optimizer}, team_{from.team} {
        if (!measures_norms<Types>(from.plan)) return;
        const detail::norm_tensors all = make_layout();
        const norm_tree& tree =
            run_.emplace(detail::running_norms{norm_tree{all.sizes, strips_of_ranks(from, queue, all)}}).tree;
        // A node is cut into tasks, equal subtrees, so that threads share it.
        for (std::size_t bucket = 0; bucket < queue.size(); ++bucket) {
            const bucket_range& range = queue[bucket].range;
            const std::size_t first = tasks_.size();
            for (const auto& node : tree.nodes(from.everyone().rank())) {
                const std::size_t begin = all.offsets[node.part.tensor] + node.part.numbers.first,
                                  count = node.part.numbers.size();
                if (begin < range.first || begin >= range.first + range.count) continue;
                nodes_.push_back({tasks_.size(), (count + longest - 1) / longest, node.slot});
                for (std::size_t at = 0; at < count; at += longest)
                    tasks_.push_back({begin + at, std::min(longest, count - at), all.decays[node.part.tensor],
                                      all.places[node.part.tensor].from(node.part.numbers.first + at)});
            }
            tasks_of_.push_back({first, tasks_.size()});
        }
        sums_.resize(tasks_.size() * numbers);
        norms_.resize(tensor_count<network>());
        std::vector<parallel::block> parts;
        for (const parallel::block& slots : tree.slots())
            parts.push_back({slots.first * numbers, slots.last * numbers});
        run_->values.resize(parts.back().last);
        run_->gather.emplace(from.everyone().named("norms"), collectives::all_gather(from.everyone().rank(), parts));
    }

    [[nodiscard]] bool is_active() const noexcept { return run_.has_value(); }

    /// Steps count from 0.
    void begin(std::uint64_t step) noexcept { step_ = step; }

    /// The sum of this rank's strip of a bucket is there. `gradient`, `weights`: those of the whole bucket, whose first
    /// parameter on this rank is `first`. `slots`: the optimizer's, from parameter `owned` of the bucket on.
    void add(std::size_t bucket, std::size_t first, std::span<const T> gradient, std::span<const T> weights,
             [[maybe_unused]] const tensor::slots<T>& slots, [[maybe_unused]] std::size_t owned) noexcept {
        const parallel::block tasks = tasks_of_[bucket];
        const auto one = [&](std::size_t index) noexcept {
            const auto& [begin, count, decays, place] = tasks_[tasks.first + index];
            const std::size_t at = begin - first;
            double* const sums = sums_.data() + (tasks.first + index) * numbers;
            if constexpr (has_rule) {
                optim::update_pass<T> pass;
                pass.step = step_;
                pass.decays = decays;
                pass.tensor = place;
                sums[0] = squares_by_rule(optimizer_.norm_rule(pass), weights.subspan(at, count), gradient.data() + at,
                                          slots.part(at - owned, count));
            } else {
                sums[0] = kernels::sum_of_squares(gradient.subspan(at, count));
            }
            if constexpr (numbers == 2) sums[1] = kernels::sum_of_squares(weights.subspan(at, count));
        };
        // Threads cost more than they gain on a few thousand numbers.
        const bool is_short = gradient.size() < longest;
        parallel::for_each(is_short ? parallel::team{} : team_, tasks.size(), one);
    }
    /// All buckets have been added: sends the sums of this rank.
    void start() {
        // The tasks of a node are equal subtrees but for the last one: added as a binary counter carries, they are the
        // node.
        for (const auto& node : nodes_)
            for (std::size_t which = 0; which < numbers; ++which) {
                std::array<double, 64> partials{};
                tensor::walk(
                    node.tasks,
                    [&](std::size_t at, std::size_t level) {
                        partials[level] = sums_[(node.first + at) * numbers + which];
                    },
                    [&](std::size_t level) { partials[level] += partials[level + 1]; });
                run_->values[node.slot * numbers + which] = partials[0];
            }
        run_->gather->start(run_->values, {});
    }
    /// Moves the sums on without a look for failures; true when those of all ranks are here.
    bool progress() { return run_->gather->progress(); }
    [[nodiscard]] comm::pending_operation pending() const noexcept { return run_->gather->pending(); }
    /// All sums have arrived. The first tensor with which a norm is not finite; the number of tensors if all are.
    [[nodiscard]] std::size_t finish() {
        run_->gather->finish();
        std::size_t tensor = 0, first = 0, bad = norms_.size();
        double total = 0;
        for (std::size_t layer = 0; layer < network::size; ++layer) {
            const model::layer_facts& fact = network::facts[layer];
            const std::size_t shards = fact.segment == model::segment::sharded ? network::shards : 1;
            for (std::size_t i = 0; i < fact.tensors.size(); ++i, ++tensor, first += shards) {
                std::array<double, 2> squares{};
                for (std::size_t shard = 0; shard < shards; ++shard)
                    for (std::size_t which = 0; which < numbers; ++which)
                        squares[which] += run_->tree.sum(first + shard, run_->values.data() + which, numbers);
                double frozen = 0;
                if constexpr (optim::has_frozen_tensors<optimizer>)
                    if (const auto& one = fact.tensors[i];
                        !optimizer_.trains({.layer = layer, .number = i, .rows = one.rows, .columns = one.columns}))
                        frozen = std::exchange(squares[0], 0);
                total += squares[0];
                if (!std::isfinite(total + frozen + squares[1])) bad = std::min(bad, tensor);
                norms_[tensor] = {.weights = std::sqrt(squares[1]), .gradient = std::sqrt(squares[0])};
            }
        }
        // An optimizer that needs norms sees those of the gradient that it gets: the clipped one.
        factor_ = 1;
        total_ = std::sqrt(total);
        if constexpr (clips<clip_type>)
            if (bad == norms_.size()) factor_ = static_cast<double>(clip_.factor(total_));
        for (optim::tensor_norms& one : norms_) one.gradient *= factor_;
        return bad;
    }

    /// Whether the factor of the clipping is one that gradients can have: on all ranks alike.
    [[nodiscard]] bool has_factor() const noexcept { return factor_ >= 0 && factor_ <= most_factor; }
    [[noreturn, gnu::cold]] void refuse_factor() const {
        core::fail(core::text("plan::clip, ", clip_type::name, ", gives the factor ", factor_,
                              " for gradients of the norm ", total_, " in step ", step_ + 1),
                   core::text("make factor(norm) return a number from 0 to ", most_factor));
    }

    /// An update of weights of one tensor, with its norms and the clipped gradient; whether all numbers are finite.
    [[nodiscard]] bool update(const optimizer& with, optim::update_pass<T> pass, std::size_t tensor) const noexcept {
        if constexpr (optim::needs_norms<optimizer>) pass.norms = norms_[tensor];
        if constexpr (clips<clip_type>)
            return optim::update_checked(optim::scaled_gradient<optimizer>{&with, factor_}, pass);
        else
            return optim::update_checked(with, pass);
    }

    /// What this rank sends in a step.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return is_active() ? run_->gather->program().sent().elements * sizeof(double) : 0;
    }

private:
    static constexpr double most_factor = std::numeric_limits<T>::max();
    static constexpr std::size_t longest = std::size_t{1} << 14U;  // numbers of a task

    /// Where norms are those of all gradients.
    struct no_optimizer {
        explicit no_optimizer(const auto&) noexcept {}
    };

    /// Of what a rule makes of these numbers: block by block, so that it stays in the first-level cache.
    template <class Rule>
    [[nodiscard]] static double squares_by_rule(const Rule& rule, std::span<const T> weights, const T* gradient,
                                                const tensor::slots<T>& slots) noexcept {
        return [&]<std::size_t... Slot>(std::index_sequence<Slot...>) {
            const auto fill = [&](std::size_t first, std::size_t count, T* out) {
                simd::map(
                    count, [&rule](auto& norm_of, const auto&... inputs) { norm_of = rule(inputs...); }, out,
                    weights.data() + first, gradient + first, static_cast<const T*>(slots[Slot].data() + first)...);
            };
            return kernels::sum_of_squares_of<T>(weights.size(), fill);
        }
        (std::make_index_sequence<optimizer::slot_count>{});
    }

    [[nodiscard, gnu::cold]] static detail::norm_tensors make_layout() {
        detail::norm_tensors out;
        for (std::size_t layer = 0; layer < network::size; ++layer) {
            const bool sharded = network::facts[layer].segment == model::segment::sharded;
            std::size_t at = network::offset(layer), number = 0;
            for (const auto& parameter : network::facts[layer].tensors) {
                for (std::size_t shard = 0; shard < (sharded ? network::shards : 1); ++shard) {
                    out.sizes.push_back(parameter.size());
                    out.offsets.push_back(at);
                    out.shards.push_back(sharded ? 1 + shard : 0);
                    out.decays.push_back(parameter.decays);
                    out.places.push_back({layer, number, parameter.rows, parameter.columns, 0});
                }
                at += parameter.size();
                ++number;
            }
        }
        return out;
    }

    /// What each rank adds: its strips of all buckets, cut where tensors begin and end. Ranks of other stages have
    /// other buckets. Collective.
    template <class Plan, class Queue>
    [[nodiscard, gnu::cold]] static std::vector<std::vector<norm_strip>> strips_of_ranks(
        const setup<Plan>& from, const Queue& queue, const detail::norm_tensors& all) {
        std::vector<detail::owned_bucket> mine;
        for (std::size_t bucket = 0; bucket < queue.size(); ++bucket)
            mine.push_back({queue[bucket].range.first, queue[bucket].range.count,
                            queue[bucket].range.segment == model::segment::sharded, queue[bucket].reducer.owned()});
        const auto buckets = detail::of_all_ranks(from.everyone(), mine);
        std::vector<std::vector<norm_strip>> out(buckets.size());
        for (std::size_t stage = 0; stage < from.stages; ++stage)
            for (std::size_t bucket = 0; bucket < buckets[stage].size(); ++bucket) {
                const detail::owned_bucket& range = buckets[stage][bucket];
                // A bucket of sharded layers is summed once for each shard, by the ranks that have it.
                const std::size_t groups = range.is_sharded ? from.grid.shards : 1, stride = from.stages * groups;
                for (std::size_t group = 0; group < groups; ++group) {
                    std::vector<parallel::block> members;
                    for (std::size_t rank = stage + group; rank < buckets.size(); rank += stride)
                        members.push_back(buckets[rank][bucket].owned);
                    const auto strips = distinct_strips(std::move(members), range.count);
                    for (std::size_t tensor = 0; tensor < all.sizes.size(); ++tensor) {
                        // Replicated tensors stand in buckets of all ranks, shards in those of their group.
                        if (groups > 1 ? all.shards[tensor] != 1 + group : all.shards[tensor] > 1) continue;
                        for (std::size_t member = 0; member < strips.size(); ++member) {
                            const std::size_t begin = std::max(range.first + strips[member].first, all.offsets[tensor]);
                            const std::size_t end =
                                std::min(range.first + strips[member].last, all.offsets[tensor] + all.sizes[tensor]);
                            if (begin < end)
                                out[stage + group + member * stride].push_back(
                                    {tensor, {begin - all.offsets[tensor], end - all.offsets[tensor]}});
                        }
                    }
                }
            }
        return out;
    }

    clip_type clip_;
    [[no_unique_address]] std::conditional_t<asks_optimizer, optimizer, no_optimizer> optimizer_;
    std::uint64_t step_ = 0;
    parallel::team team_;
    std::optional<detail::running_norms> run_;
    std::vector<detail::norm_task> tasks_;
    std::vector<parallel::block> tasks_of_;  // each bucket
    std::vector<detail::norm_node> nodes_;
    std::vector<double> sums_;  // of each task
    std::vector<optim::tensor_norms> norms_;
    double factor_ = 1;
    double total_ = 0;  // the norm that it is for
};

/// Stands where nothing asks for norms.
struct no_norms {
    template <class Plan, class Queue>
    no_norms(const setup<Plan>&, const Queue&) noexcept {}
    [[nodiscard]] static std::size_t bytes_per_step() noexcept { return 0; }
};

template <class Types>
using norms_for = std::conditional_t<Types::has_norms, tensor_norms<Types>, no_norms>;

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::vector<std::vector<detail::owned_bucket>> detail::of_all_ranks(
    const comm::group& ranks, const std::vector<owned_bucket>& mine) {
    std::vector<std::vector<owned_bucket>> out;
    const std::string_view bytes{reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(owned_bucket)};
    for (const std::string& one : ranks.gather_all(bytes)) {
        out.emplace_back(one.size() / sizeof(owned_bucket));
        if (!one.empty()) std::memcpy(out.back().data(), one.data(), one.size());
    }
    return out;
}

#endif

}  // namespace lockstep::sync
