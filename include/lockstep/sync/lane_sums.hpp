// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A few numbers for each lane (its loss, how many were right), added over the lane tree on every rank: equal bits for
// any number of ranks. And how many rows each rank brings.
// Tested by tests/equivalence/same_bits.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::sync {

/// `Numbers` doubles for each lane. Cost per rank: one all-gather of 8 Numbers lanes bytes.
template <std::size_t Numbers>
class lane_sums {
public:
    using numbers = std::array<double, Numbers>;

    [[gnu::cold]] lane_sums(const partition::grid& on, const comm::group& ranks)
        : own_{on.own_lanes()},
          values_(on.lanes * Numbers),
          partials_(tensor::tree_depth(on.lanes) + 1),
          gather_{ranks, gathering(on)} {}

    void clear() noexcept { std::fill(values_.begin(), values_.end(), 0.0); }
    /// Number `which` of own lane `lane`.
    [[nodiscard]] double& operator()(std::size_t lane, std::size_t which) noexcept {
        return values_[(own_.first + lane) * Numbers + which];
    }

    /// The same number for all own lanes; and the largest of any lane, when all are there.
    void fill(std::size_t which, double value) noexcept {
        for (std::size_t lane = own_.first; lane < own_.last; ++lane) values_[lane * Numbers + which] = value;
    }
    /// The first lane whose number is not that of lane 0, bit for bit; the number of lanes if all are alike.
    [[nodiscard]] std::size_t first_other(std::size_t which) const noexcept {
        std::size_t lane = own_.size() * Numbers == values_.size() ? own_.size() : 1;  // on one rank nothing can differ
        const auto bits = [&](std::size_t of) { return std::bit_cast<std::uint64_t>(at(of, which)); };
        while (lane * Numbers < values_.size() && bits(lane) == bits(0)) ++lane;
        return lane;
    }
    [[nodiscard]] double at(std::size_t lane, std::size_t which) const noexcept {
        return values_[lane * Numbers + which];
    }
    [[nodiscard]] double largest(std::size_t which) const noexcept {
        double out = values_[which];
        for (std::size_t at = which; at < values_.size(); at += Numbers) out = std::max(out, values_[at]);
        return out;
    }

    void start() { gather_.start(values_, {}); }
    /// Makes progress; true when all numbers are there. Does not look for failures.
    bool progress() { return gather_.progress(); }
    [[nodiscard]] comm::pending_operation pending() const noexcept { return gather_.pending(); }
    /// The sums of the first `Summed` numbers over all lanes.
    template <std::size_t Summed = Numbers>
    [[nodiscard]] std::array<double, Summed> finish() {
        gather_.finish();
        tensor::walk(
            values_.size() / Numbers,
            [&](std::size_t lane, std::size_t level) {
                std::copy_n(values_.data() + lane * Numbers, Summed, partials_[level].begin());
            },
            [&](std::size_t level) {
                for (std::size_t i = 0; i < Summed; ++i) partials_[level][i] += partials_[level + 1][i];
            });
        std::array<double, Summed> out;
        std::copy_n(partials_[0].begin(), Summed, out.begin());
        return out;
    }
    [[nodiscard]] std::size_t bytes_sent() const noexcept { return gather_.program().sent().elements * sizeof(double); }

private:
    [[gnu::cold]] static collectives::schedule gathering(const partition::grid& on) {
        std::vector<parallel::block> strips;
        for (std::size_t rank = 0; rank < on.ranks; ++rank)
            strips.push_back({on.lanes_of(rank).first * Numbers, on.lanes_of(rank).last * Numbers});
        return collectives::all_gather(on.rank, strips);
    }

    parallel::block own_;
    comm::buffer<double> values_;
    std::vector<numbers> partials_;
    comm::operation<double> gather_;
};

/// What a step tells of each lane: its loss, how long its rank has worked, with which learning rate it goes on, and the
/// signal that asks it to stop.
using step_sums = lane_sums<4>;

/// How many rows each rank brings to a step. Cost per rank: one all-gather of 8 bytes from each.
class row_counts {
public:
    [[gnu::cold]] row_counts(const partition::grid& on, const comm::group& ranks);

    /// `declines`: what rank 0 tells the others with its number, which is below 2^63.
    [[nodiscard]] std::span<const std::size_t> gather(std::size_t mine, bool declines = false) {
        counts_[rank_] = mine + (declines ? sign : 0);
        gather_.run(counts_, {});
        declined_ = counts_[0] >= sign;
        counts_[0] %= sign;
        return counts_;
    }
    [[nodiscard]] bool first_declines() const noexcept { return declined_; }

private:
    static constexpr std::size_t sign = std::size_t{1} << 63;

    std::size_t rank_;
    bool declined_ = false;
    comm::buffer<std::size_t> counts_;
    comm::operation<std::size_t> gather_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION row_counts::row_counts(const partition::grid& on, const comm::group& ranks)
    : rank_{on.rank},
      counts_(on.ranks),
      gather_{ranks, collectives::all_gather(on.rank, collectives::equal_strips(on.ranks, 1))} {}

#endif

}  // namespace lockstep::sync
