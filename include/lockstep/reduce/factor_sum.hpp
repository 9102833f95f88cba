// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exact averaging of a dense layer: ranks gather rows of x and dy, owners form their strips of its gradient. Models
// Reducer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/kernels/matrix/factors.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/either.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/reduce/tree_sum.hpp"

namespace lockstep::reduce {

/// dW = x^T dy over all rows of the minibatch, so rows of x and dy say as much as dW: sufficient factors (Xie et al.
/// 2015, Zhang et al. 2017). Each rank brings them in place of a gradient; start(rows, step) gathers those of all
/// ranks, update() forms the gradient of this rank's strip over all lanes and their tree, which gives the bits of
/// tree_sum. Only whole rows of dW are formed, those that the strip touches.
/// Cost per rank: p-1 times its room for rows x (m + q) numbers (log2(p) messages on a power of two of ranks), as many
/// FLOPs as the gradient of its own rows, in update(); new weights travel as after a tree_sum. Memory: the rows of all
/// ranks, and one strip.
template <class T>
class factor_sum {
public:
    [[gnu::cold]] factor_sum(const bucket& of, tensor::arena& arena)
        : runs_{of.runs},
          layer_{of.factors},
          team_{of.team},
          owned_{collectives::tree_strips(of.runs, of.n)[of.ranks.rank()]},
          strip_{layer_.inputs, layer_.outputs, owned_},
          lanes_(of.lanes),
          rank_{of.ranks.rank()},
          messages_{std::make_unique<messages>(of)} {
        const std::size_t rows = of.ranks.size() * layer_.rows;
        formed_ = arena.reserve<T>(strip_.size());
        scratch_ = arena.reserve<T>(kernels::form_gradient_scratch<T>(of.lanes, rows, strip_, of.team));
    }

    void bind(const tensor::arena& arena) noexcept { arena_ = &arena; }
    [[nodiscard]] parallel::block owned() const noexcept { return owned_; }
    /// Where this rank puts its rows, in the array of all ranks.
    [[nodiscard]] std::span<T> own_factors(std::span<T> all) const noexcept {
        return all.subspan(rank_ * layer_.numbers(), layer_.numbers());
    }

    void start(std::span<T> rows, std::uint64_t) {
        rows_ = rows;
        is_formed_ = false;
        std::size_t at = 0;
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
            lanes_[lane] = {at, at + layer_.lengths[lane]};
            at = lanes_[lane].last;
        }
        run(messages_->gather, rows);
    }
    bool poll() { return running_ == nullptr || running_->poll(); }
    bool progress() { return running_ == nullptr || running_->progress(); }
    void finish() {
        if (running_ != nullptr) running_->finish();
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return running_ == nullptr ? comm::pending_operation{} : running_->pending();
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        const std::span<const T> sum = sums();
        parallel::for_blocks(team_, owned_.size(), 4096, [&](parallel::block mine) {
            change(parallel::block{owned_.first + mine.first, owned_.first + mine.last},
                   sum.subspan(mine.first, mine.size()));
        });
    }
    void share(std::span<T> weights) { run(messages_->share, weights); }

    [[nodiscard]] std::span<T> sums() noexcept {
        const std::span<T> formed = (*arena_)[formed_];
        if (!std::exchange(is_formed_, true)) {
            close_gaps();
            kernels::form_gradient<T>(lanes_, strip_, rows_.data(), formed.data(), {team_, (*arena_)[scratch_]});
        }
        return formed.subspan(strip_.begin(), owned_.size());
    }
    [[nodiscard]] static bool replicates() noexcept { return false; }
    /// Nothing outlives a step.
    template <class Visitor>
    void visit_state(Visitor&&, std::size_t) const noexcept {}

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return (messages_->gather.program().sent().elements + messages_->share.program().sent().elements) * sizeof(T);
    }

private:
    struct messages {
        comm::operation<T> gather;
        comm::operation<T> share;
        [[gnu::cold]] explicit messages(const bucket& of)
            : gather{of.ranks,
                     collectives::all_gather(of.ranks.rank(),
                                             collectives::equal_strips(of.ranks.size(), of.factors.numbers())),
                     of.team, comm::flow::usual_piece, of.sum},
              share{of.ranks, collectives::all_gather(of.ranks.rank(), collectives::tree_strips(of.runs, of.n)),
                    of.team, comm::flow::usual_piece, of.share} {}
    };

    void run(comm::operation<T>& next, std::span<T> data) {
        running_ = &next;
        next.start(data, {});
    }
    /// Ranks have room for equally many rows, and may have brought fewer: moves rows together, so that lanes follow
    /// each other.
    void close_gaps() noexcept {
        const std::size_t width = layer_.inputs + layer_.outputs;
        for (std::size_t rank = 1; rank < runs_.size(); ++rank) {
            const parallel::block lanes = runs_[rank];
            if (lanes.empty()) continue;
            const std::size_t to = lanes_[lanes.first].first, count = lanes_[lanes.last - 1].last - to,
                              from = rank * layer_.rows;
            if (to != from) std::copy_n(rows_.data() + from * width, count * width, rows_.data() + to * width);
        }
    }

    std::vector<parallel::block> runs_;
    factor_layer layer_;
    parallel::team team_;
    parallel::block owned_;
    kernels::gradient_strip strip_;
    std::vector<parallel::block> lanes_;  // rows of each lane, of all ranks
    std::size_t rank_;
    std::unique_ptr<messages> messages_;
    tensor::slice<T> formed_;
    tensor::slice<T> scratch_;
    const tensor::arena* arena_ = nullptr;
    std::span<T> rows_;
    comm::operation<T>* running_ = nullptr;
    bool is_formed_ = false;
};

/// A bucket of a plan that may use factors: this one does or does not.
template <class T>
class tree_or_factor_sum : public either<T, tree_sum<T>, factor_sum<T>> {
public:
    [[gnu::cold]] tree_or_factor_sum(const bucket& of, tensor::arena& arena) {
        if (of.factors.outputs > 0)
            this->second_ = std::make_unique<factor_sum<T>>(of, arena);
        else
            this->first_ = std::make_unique<tree_sum<T>>(of, arena);
    }

    /// Where there are factors.
    [[nodiscard]] std::span<T> own_factors(std::span<T> all) const noexcept { return this->second_->own_factors(all); }
};

/// As reduce::method of compress::none, for a plan that may use factors.
template <class T>
struct factor_method {
    using reducer = tree_or_factor_sum<T>;
    using memory = node_memory;
    static constexpr bool has_workers = false;

    [[nodiscard]] static reducer make(const bucket& of, const compress::none&, tensor::arena& arena) {
        return {of, arena};
    }
};

}  // namespace lockstep::reduce
