// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What workers with weights of their own send through a compressor: how far each has come since all were alike.
// Tested by tests/equivalence/compressed_local_sgd.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "lockstep/compress/none.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/report/recorder.hpp"
#include "lockstep/sync/bucket_queue.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/sync/whole_state.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// A plan whose gradients are added exactly, whatever its compressor.
template <class Plan>
struct exact_plan : Plan {
    compress::none compressor{};  ///< in place of that of the plan
};

/// to = (from - what) by, number by number.
template <class T>
void subtract(parallel::team team, std::span<const T> from, std::span<const T> what, T by, std::span<T> to) noexcept {
    parallel::for_blocks(team, to.size(), 4096, [&](parallel::block part) noexcept {
        for (std::size_t i = part.first; i < part.last; ++i) to[i] = (from[i] - what[i]) * by;
    });
}

/// w = w0 - sum over workers k of C(p_k (w0 - w_k)): w0 are the weights that all workers had, p_k the part of worker k
/// in the mean, C the compressor of the plan with its state for each worker. With error feedback this is
/// Qsparse-local-SGD (Basu, Data, Karakus, Diggavi, NeurIPS 2019, arXiv:1906.02367). Of all ranks, by messages; buckets
/// and segments are those of gradients. Memory: w0, an array of all parameters for each worker of the rank, and that of
/// the reducers.
template <class Types>
class difference_sum {
    using T = typename Types::value_type;
    using network = typename Types::network;
    static constexpr std::size_t n = network::parameters_here;

public:
    /// Collective. `sharing`: the ranks that share a worker with this one. It and `times` outlive this.
    template <class Plan>
    [[gnu::cold]] difference_sum(const setup<Plan>& from, const comm::group& sharing, step_times& times)
        : team_{from.team},
          part_{from.grid.part_of(from.grid.rank)},
          is_first_{from.grid.rank == 0},
          times_{&times},
          queue_{setup<Plan>{from.plan, from.grid, from.all, from.all, sharing, from.least_bucket, from.rule, from.team,
                             from.arena, nullptr, nullptr, from.change},
                 times},
          start_{from.arena.template reserve<T>(n)} {}

    /// Memory is there: once, before the first step.
    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        queue_.bind(arena);
        std::ranges::fill(start(), T{0});
    }
    /// All workers go on from these weights.
    void begin_at(std::span<const T> weights) const noexcept { parallel::copy(team_, weights.first(n), start()); }
    /// The weights w of all ranks, from those of each worker of this one; part_of(set) is its part in the mean.
    /// Collective. What it returns may be changed until begin_at().
    template <class Part>
    [[nodiscard]] std::span<T> add(std::span<const T> weights, std::uint64_t step, const Part& part_of) {
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) {
            const auto& range = queue_[bucket].range;
            const std::span<T> all = (*arena_)[queue_[bucket].gradient];
            for (std::size_t set = 0; set * range.count < all.size(); ++set) {
                const std::span<T> to = all.subspan(set * range.count, range.count);
                // Of a worker that several ranks share, the first one speaks. x + -0.0 is x in every bit.
                if (part_.index == 0 && set < part_.workers.size())
                    subtract<T>(team_, start().subspan(range.first, range.count),
                                weights.subspan(set * n + range.first), part_of(set), to);
                else
                    std::ranges::fill(to, T{-0.0});
            }
        }
        queue_.start_all(step);
        times_->note(report::activity::polling);
        queue_.wait_for_sums();
        for (const std::size_t bucket : queue_.needed()) {
            auto& one = queue_[bucket];
            const std::span<T> here = start().subspan(one.range.first, one.range.count);
            one.reducer.finish();
            one.reducer.update(here, [&](parallel::block part, std::span<const T> sum) noexcept {
                for (std::size_t i = 0; i < sum.size(); ++i) here[part.first + i] -= sum[i];
            });
            queue_.share(bucket, start());
            times_->note(report::activity::update, queue_.first() + bucket);
        }
        queue_.wait_all();
        return start();
    }
    /// After a failure.
    [[gnu::cold]] void abandon() noexcept { queue_.abandon(); }

    /// What reducers keep for workers, and w0.
    template <class Visitor>
    void visit_state(Visitor&& visit) const {
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket) queue_[bucket].reducer.visit_state(visit, 0);
        visit_whole<network>(visit, "start of the period", 0, start(), is_first_);
    }
    /// Tells a recorder its buckets, after those of the queues before.
    [[gnu::cold]] void record(report::recorder& to) const {
        for (std::size_t bucket = 0; bucket < queue_.size(); ++bucket)
            to.buckets.push_back({queue_[bucket].range.lowest_layer, queue_[bucket].range.highest_layer,
                                  queue_[bucket].reducer.bytes_per_step()});
    }

    /// Sent by this rank for one sum.
    [[nodiscard]] std::size_t bytes() const noexcept { return queue_.bytes_per_step(); }
    /// Differences of this rank, in numbers.
    [[nodiscard]] std::size_t gradient_numbers() const noexcept { return queue_.gradient_numbers(); }
    /// Memory of the reducers on this rank.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return queue_.message_bytes(); }

private:
    [[nodiscard]] std::span<T> start() const noexcept { return (*arena_)[start_]; }

    parallel::team team_;
    partition::worker_part part_;
    bool is_first_;
    step_times* times_;
    bucket_queue<Types> queue_;
    tensor::slice<T> start_;
    const tensor::arena* arena_ = nullptr;
};

/// A difference_sum where the plan has a compressor and there are several workers; else nothing, which keeps and sends
/// nothing.
template <class Types>
class differences {
    static constexpr bool are_sent = !std::is_same_v<typename Types::compressor, compress::none>;

public:
    /// At most once. Collective.
    template <class Plan>
    [[gnu::cold]] void make(const setup<Plan>& from, const comm::group& sharing, step_times& times) {
        if constexpr (are_sent)
            if (from.grid.workers > 1) sum_.emplace(from, sharing, times);
    }
    [[nodiscard]] explicit operator bool() const noexcept {
        if constexpr (are_sent)
            return sum_.has_value();
        else
            return false;
    }
    /// f(the sum), where there is one.
    template <class F>
    void with(const F& f) {
        if constexpr (are_sent)
            if (sum_) f(*sum_);
    }
    /// f(the sum), or 0.
    template <class F>
    [[nodiscard]] std::size_t number(const F& f) const noexcept {
        if constexpr (are_sent)
            if (sum_) return f(*sum_);
        return 0;
    }

private:
    struct nothing {};
    [[no_unique_address]] std::conditional_t<are_sent, std::optional<difference_sum<Types>>, nothing> sum_{};
};

}  // namespace lockstep::sync
