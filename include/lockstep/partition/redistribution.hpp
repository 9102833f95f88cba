// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the ranks of a model group exchange between two layers, forward and backward (Das et al. 2016, arXiv:1602.06709:
// model and hybrid parallelism).

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/all_to_all.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/model/binding.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::partition {

/// The samples of each rank of a model group: rows of the group's part of the minibatch.
using row_blocks = std::vector<parallel::block>;

/// Copies between rows of `blocks * width` features and `blocks` matrices of rows x width, one after the other.
template <class T>
void join_features(std::size_t rows, std::size_t blocks, std::size_t width, const T* cut, T* whole) noexcept {
    for (std::size_t block = 0; block < blocks; ++block)
        for (std::size_t row = 0; row < rows; ++row)
            std::copy_n(cut + (block * rows + row) * width, width, whole + (row * blocks + block) * width);
}
template <class T>
void cut_features(std::size_t rows, std::size_t blocks, std::size_t width, const T* whole, T* cut) noexcept {
    for (std::size_t block = 0; block < blocks; ++block)
        for (std::size_t row = 0; row < rows; ++row)
            std::copy_n(whole + (row * blocks + block) * width, width, cut + (block * rows + row) * width);
}

/// Memory that all redistributions of a trainer share: they run one after the other.
template <class T>
struct redistribution_memory {
    std::span<T> staging;  ///< 2 x rows of the group x features
    std::span<T> work;     ///< rows of the group x features

    /// Throw core::error where the numbers exceed core::largest_size.
    [[nodiscard]] static constexpr std::size_t staging_size(std::size_t rows, std::size_t features) {
        return core::checked_product("numbers of a redistribution", 2U, rows, features);
    }
    [[nodiscard]] static constexpr std::size_t work_size(std::size_t rows, std::size_t features) {
        return core::checked_product("numbers of a redistribution", rows, features);
    }
};

/// One redistribution before a layer whose whole input has `features` features; M ranks, b samples in the group, s
/// bytes a number.
///     gather_samples    own samples -> all samples                                  all-gather, back a reduce-scatter
///     gather_features   own features -> all features                                all-gather, back a reduce-scatter
///     to_samples        own features of all samples -> all features of own samples  all-to-all both ways
/// Elements sent per rank: gather_samples, gather_features: b features (M-1)/M each way. to_samples: b features
/// (M-1)/M^2 each way. Sums in backward run over the fixed tree of shards. Blocking: what follows needs the result.
template <class T>
class redistribution {
public:
    [[gnu::cold]] redistribution(lockstep::model::redistribution kind, comm::group group, std::size_t features)
        : kind_{kind}, group_{std::move(group)}, features_{features}, width_{features / group_.size()} {}

    /// Writes the schedules for these samples. Allocates where they differ from the last ones. The same calls on all
    /// ranks of the group.
    void prepare(const row_blocks& rows) {
        if (rows != rows_) write(rows);
    }

    /// `from`: what the layer before gave on this rank. `to`: what the next layer takes.
    [[gnu::noinline]] void forward(const T* from, T* to, redistribution_memory<T> memory) {
        const std::size_t own = own_rows().size(), all = all_rows();
        T* staging = memory.staging.data();
        switch (kind_) {
            case lockstep::model::redistribution::none:
                return;
            case lockstep::model::redistribution::gather_samples:
                std::copy_n(from, own * features_, to + own_rows().first * features_);
                forward_->run({to, all * features_}, memory.work);
                return;
            case lockstep::model::redistribution::gather_features:
                std::copy_n(from, all * width_, staging + group_.rank() * all * width_);
                forward_->run({staging, all * features_}, memory.work);
                join_features(all, group_.size(), width_, staging, to);
                return;
            case lockstep::model::redistribution::to_samples:
                std::copy_n(from, all * width_, staging);
                forward_->run(memory.staging, memory.work);
                join_features(own, group_.size(), width_, staging + all * width_, to);
                return;
        }
    }

    /// `from`: this rank's share of the gradient after the redistribution, used up. `to`: the gradient before it.
    [[gnu::noinline]] void backward(T* from, T* to, redistribution_memory<T> memory) {
        const std::size_t own = own_rows().size(), all = all_rows();
        T* staging = memory.staging.data();
        switch (kind_) {
            case lockstep::model::redistribution::none:
                return;
            case lockstep::model::redistribution::gather_samples:
                backward_->run({from, all * features_}, memory.work);
                std::copy_n(from + own_rows().first * features_, own * features_, to);
                return;
            case lockstep::model::redistribution::gather_features:
                cut_features(all, group_.size(), width_, from, staging);
                backward_->run({staging, all * features_}, memory.work);
                std::copy_n(staging + group_.rank() * all * width_, all * width_, to);
                return;
            case lockstep::model::redistribution::to_samples:
                cut_features(own, group_.size(), width_, from, staging);
                backward_->run(memory.staging, memory.work);
                std::copy_n(staging + own * features_, all * width_, to);
                return;
        }
    }

    /// Sent by this rank for the samples of the last prepare().
    [[nodiscard]] std::size_t forward_bytes() const noexcept {
        return forward_ ? forward_->program().sent().elements * sizeof(T) : 0;
    }
    [[nodiscard]] std::size_t backward_bytes() const noexcept {
        return backward_ ? backward_->program().sent().elements * sizeof(T) : 0;
    }

private:
    [[gnu::cold]] void write(const row_blocks& rows) {
        rows_ = rows;
        const std::size_t me = group_.rank(), ranks = group_.size();
        const std::vector<parallel::block> lanes = collectives::deal_lanes(ranks, ranks);
        if (kind_ == lockstep::model::redistribution::to_samples) {
            std::vector<std::size_t> there(ranks * ranks), back(ranks * ranks);
            for (std::size_t from = 0; from < ranks; ++from)
                for (std::size_t to = 0; to < ranks; ++to) {
                    there[from * ranks + to] = rows[to].size() * width_;
                    back[from * ranks + to] = rows[from].size() * width_;
                }
            forward_.emplace(group_, collectives::all_to_all(me, ranks, there));
            backward_.emplace(group_, collectives::all_to_all(me, ranks, back));
            return;
        }
        std::vector<parallel::block> strips(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::size_t each = all_rows() * width_;
            strips[rank] = kind_ == lockstep::model::redistribution::gather_samples
                               ? parallel::block{rows[rank].first * features_, rows[rank].last * features_}
                               : parallel::block{rank * each, (rank + 1) * each};
        }
        forward_.emplace(group_, collectives::all_gather(me, strips));
        backward_.emplace(group_, collectives::tree_reduce_scatter(me, lanes, all_rows() * features_, strips));
    }

    [[nodiscard]] parallel::block own_rows() const noexcept { return rows_[group_.rank()]; }
    [[nodiscard]] std::size_t all_rows() const noexcept { return rows_.back().last; }

    lockstep::model::redistribution kind_;
    comm::group group_;
    std::size_t features_;
    std::size_t width_;
    row_blocks rows_;
    std::optional<comm::operation<T>> forward_;
    std::optional<comm::operation<T>> backward_;
};

}  // namespace lockstep::partition
