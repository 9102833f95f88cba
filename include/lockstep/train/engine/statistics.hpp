// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Statistics of layers (means of a normalisation, say): the running values, and what the lanes of a step observe, added
// over all ranks.
// Tested by tests/equivalence/statistics.cpp.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/sum_rule.hpp"
#include "lockstep/reduce/tree_sum.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::train {

/// Where the forward walk finds the running values of all layers, and where it writes what the lanes observe.
template <class T>
struct statistics_place {
    const T* running = nullptr;
    T* sums = nullptr;  ///< node s of the lane tree at sums + s stride
    std::size_t stride = 0;
};

/// One sum for all layers together, never compressed, by the algorithm of the plan: every rank gets the same bits, and
/// over the lane tree for any number of ranks. Memory: the running values, and one set of sums for each node of the
/// rank's lanes. Sends nothing for a network without statistics.
template <class T, class Network>
class statistics {
    static constexpr std::size_t n = Network::statistics;

public:
    [[gnu::cold]] statistics(const partition::grid& on, const comm::group& all, reduce::sum_rule& rule,
                             parallel::team team, tensor::arena& arena)
        : ranks_{all} {
        if constexpr (n > 0) {
            reduce::bucket of{.ranks = all, .runs = {}, .lanes = on.lanes, .n = n, .team = team};
            for (std::size_t rank = 0; rank < on.ranks; ++rank) of.runs.push_back(on.lanes_of(rank));
            rule.choose(of, sizeof(T), 0);
            running_ = arena.reserve<T>(n);
            sums_ = arena.reserve<T>(core::checked_product(
                "numbers of statistics", std::size_t{n}, std::max<std::size_t>(1, on.nodes_of(on.own_lanes()).size())));
            own_ = on.own_lanes();
            lanes_ = on.lanes;
            worker_lanes_ = on.worker_lanes();
            sum_.emplace(of, arena);
        }
    }

    void bind(const tensor::arena& arena) {
        arena_ = &arena;
        if constexpr (n > 0) sum_->bind(arena);
    }

    /// The running values before the first step.
    template <class Rule>
    [[gnu::cold]] void initialise(std::uint64_t seed, const Rule& rule) {
        for (std::size_t layer = 0; layer < Network::size; ++layer) {
            const model::layer_facts& fact = Network::facts[layer];
            std::size_t at = fact.statistics_offset, number = fact.tensors.size();
            for (const auto& one : fact.observed) {
                model::initialise(one, running().subspan(at, one.size()), 0, one.columns, seed, layer, number++, rule);
                at += one.size();
            }
        }
    }

    /// `node`: the first of the tree that is written there.
    [[nodiscard]] statistics_place<T> place(std::size_t node = 0) const noexcept {
        if constexpr (n > 0) return {running().data(), (*arena_)[sums_].data() + node * n, n};
        return {};
    }
    /// The running values of all layers, equal on all ranks.
    [[nodiscard]] std::span<T> running() const noexcept { return (*arena_)[running_]; }

    /// Forward is over: the sum may travel while backward runs.
    void start() {
        if constexpr (n > 0) {
            if (worker_lanes_ > 0) reduce::add_workers((*arena_)[sums_], n, own_, lanes_, worker_lanes_);
            sum_->start((*arena_)[sums_], 0);
        }
    }
    void poll() {
        if constexpr (n > 0) (void)sum_->poll();
    }
    /// Waits for the sums and makes them means over `rows` samples. False, on all ranks alike, if one of them is not
    /// finite.
    [[nodiscard]] bool finish(std::size_t rows) {
        if constexpr (n > 0) {
            const std::span<T> means = (*arena_)[sums_].first(n);
            wait_for_sum();
            sum_->share(means);
            wait_for_sum();
            for (T& one : means) one /= static_cast<T>(rows);
            return kernels::first_non_finite(std::span<const T>{means}) == n;
        }
        return true;
    }
    /// Hands the means to the layers, of which these are here.
    template <class Net>
    void absorb(const Net& net, parallel::block layers = {0, Network::size}) {
        if constexpr (n > 0) {
            const std::span<T> means = (*arena_)[sums_].first(n);
            core::for_each_index<Network::size>([&](auto index) {
                constexpr std::size_t at = Network::facts[index].statistics_offset,
                                      count = Network::facts[index].statistics;
                if constexpr (count > 0)
                    if (index >= layers.first && index < layers.last)
                        Network::template at<index>::make(net).absorb(running().subspan(at, count),
                                                                      std::span<const T>{means.subspan(at, count)});
            });
        }
    }

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        if constexpr (n > 0) return sum_->bytes_per_step();
        return 0;
    }

private:
    /// A rank with all the means may have refused them before this one has them, which then does the same.
    void wait_for_sum() {
        comm::wait_through(ranks_.aborts(), sum_->pending(), [&] { return sum_->progress(); });
    }

    comm::group ranks_;
    tensor::slice<T> running_;
    tensor::slice<T> sums_;
    std::optional<reduce::tree_sum<T>> sum_;
    parallel::block own_{};  // lanes
    std::size_t lanes_ = 0;
    std::size_t worker_lanes_ = 0;
    const tensor::arena* arena_ = nullptr;
};

}  // namespace lockstep::train
