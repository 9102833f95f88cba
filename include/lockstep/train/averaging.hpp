// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// From the gradients of each rank's lanes to new weights on every rank: buckets, their reducers, and the owners' updates.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/train/buckets.hpp"
#include "lockstep/train/events.hpp"
#include "lockstep/train/network_run.hpp"

namespace lockstep::train {

/// Gradients of replicated layers are averaged over all ranks, those of a shard over the ranks with the same shard.
/// Memory: one gradient for each node of the rank's lanes; optimizer slots for the strips that it owns.
template <class T, class Network, class Optimizer, class Compressor>
class averaging {
public:
    [[gnu::cold]] averaging(const partition::grid& on, const comm::group& all, const comm::group& replicas, const Optimizer& optimizer,
                            const Compressor& compressor, std::size_t least, std::uint64_t seed, parallel::team team, tensor::arena& arena)
        : optimizer_{optimizer}, team_{team}, seed_{seed}, layer_bucket_(Network::size) {
        const std::size_t before = arena.bytes();
        const auto ranges = make_buckets<Network>(least);
        buckets_.reserve(ranges.size());
        for (const auto& range : ranges) {
            const bool sharded = range.segment == model::segment::sharded;
            reduce::bucket of{.ranks = sharded ? replicas : all, .runs = {}, .lanes = on.lanes, .n = range.count, .team = team};
            for (std::size_t rank = 0; rank < of.ranks.size(); ++rank)
                of.runs.push_back(sharded ? on.lanes_of_replica(rank) : on.lanes_of(rank));
            const auto mine = of.runs[of.ranks.rank()];
            const std::size_t nodes = std::max<std::size_t>(1, tensor::cover(mine, on.lanes).size());
            const auto series = static_cast<std::uint32_t>(buckets_.size() * on.lanes + mine.first);
            buckets_.push_back(
                {range, reduce::make_reducer<T>(of, compressor, arena), arena.template reserve<T>(nodes * range.count), {}, {}, series});
            auto& made = buckets_.back();
            const auto owned = made.reducer.owned();
            made.slots = arena.template reserve<T>(Optimizer::slot_count * owned.size());
            made.runs = make_runs<Network>(range.first + owned.first, owned.size());
            for (std::size_t layer = 0; layer < Network::size; ++layer)
                if (Network::facts[layer].parameters_here > 0 && Network::offset(layer) >= range.first &&
                    Network::offset(layer) < range.first + range.count)
                    layer_bucket_[layer] = buckets_.size() - 1;
        }
        message_bytes_ = arena.bytes() - before - (gradient_numbers() + slot_numbers()) * sizeof(T);
    }

    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        for (auto& one : buckets_) one.reducer.bind(arena);
    }

    [[nodiscard]] gradient_place<T> place(std::size_t layer) const noexcept {
        if (Network::facts[layer].parameters_here == 0) return {};
        const auto& in = buckets_[layer_bucket_[layer]];
        return {(*arena_)[in.gradient].data() + (Network::offset(layer) - in.range.first), in.range.count};
    }

    /// Backward has finished a layer: starts what is complete and moves on what is under way.
    void done(std::size_t layer, std::uint64_t step) {
        for (auto& one : buckets_)
            if (one.range.lowest_layer == layer) {
                if (!in_flight_) since_ = std::chrono::steady_clock::now();
                in_flight_ = true;
                one.reducer.start((*arena_)[one.gradient],
                                  core::random_stream{seed_, core::purpose::rounding, one.series, static_cast<std::uint32_t>(step)});
                one.started = true;
            }
        bool all = true;
        for (auto& one : buckets_)
            if (one.started) all = one.reducer.poll() && all;
        if (in_flight_ && all) land();
    }

    /// Backward is over: what is not hidden by now is exposed.
    void backward_over() noexcept {
        if (in_flight_) land();
    }

    /// Waits for the sums, updates the strips of this rank, and brings the weights up to date everywhere.
    void finish(std::span<T> weights, double rate, std::uint64_t step) {
        for (auto& one : buckets_) {
            waiting([&] { one.reducer.finish(); });
            one.started = false;
            const auto begin = std::chrono::steady_clock::now();
            update(one, weights, rate, step);
            update_seconds_ += since(begin);
            waiting([&] { one.reducer.share(weights.subspan(one.range.first, one.range.count)); });
        }
        waiting([&] {
            for (auto& one : buckets_) one.reducer.finish();
        });
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.reducer.bytes_per_step();
        return sum;
    }
    /// Optimizer state on this rank, in numbers.
    [[nodiscard]] std::size_t slot_numbers() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.slots.count;
        return sum;
    }
    /// Sums of gradients on this rank, in numbers.
    [[nodiscard]] std::size_t gradient_numbers() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : buckets_) sum += one.gradient.count;
        return sum;
    }
    /// Memory of the reducers: partial sums on their way, messages, states of the compressor.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
    [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
    [[nodiscard]] double update_seconds() const noexcept { return update_seconds_; }
    /// While backward ran on.
    [[nodiscard]] double hidden_seconds() const noexcept { return hidden_seconds_; }
    /// While this rank did nothing else.
    [[nodiscard]] double exposed_seconds() const noexcept { return exposed_seconds_; }

private:
    struct entry {
        bucket_range range;
        reduce::reducer_for<T, Compressor> reducer;
        tensor::slice<T> gradient;
        tensor::slice<T> slots;
        std::vector<update_run> runs;
        std::uint32_t series = 0;
        bool started = false;
    };

    [[nodiscard]] static double since(std::chrono::steady_clock::time_point begin) noexcept {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    void land() noexcept {
        hidden_seconds_ += since(since_);
        in_flight_ = false;
    }
    template <class F>
    void waiting(F&& f) {
        const auto begin = std::chrono::steady_clock::now();
        f();
        exposed_seconds_ += since(begin);
    }

    void update(const entry& one, std::span<T> weights, double rate, std::uint64_t step) const noexcept {
        const auto owned = one.reducer.owned();
        const std::size_t begin = one.range.first + owned.first;
        const std::span<const T> gradient = (*arena_)[one.gradient];
        const tensor::slots<T> slots{(*arena_)[one.slots].data(), Optimizer::slot_count, owned.size(), owned.size()};
        for (const auto& run : one.runs) {
            const optim::update_pass<T> pass{.weights = weights.subspan(run.first, run.count),
                                             .gradient = gradient.subspan(run.first - one.range.first, run.count),
                                             .slots = slots.part(run.first - begin, run.count),
                                             .rate = rate,
                                             .step = step,
                                             .decays = run.decays};
            parallel::for_blocks(team_, run.count, 4096,
                                 [&](parallel::block part) { optimizer_.update(pass.part(part.first, part.size())); });
        }
    }

    Optimizer optimizer_;
    parallel::team team_;
    std::uint64_t seed_;
    std::vector<std::size_t> layer_bucket_;
    std::vector<entry> buckets_;
    std::size_t message_bytes_ = 0;
    const tensor::arena* arena_ = nullptr;
    bool in_flight_ = false;
    std::chrono::steady_clock::time_point since_{};
    double update_seconds_ = 0;
    double hidden_seconds_ = 0;
    double exposed_seconds_ = 0;
};

}  // namespace lockstep::train
