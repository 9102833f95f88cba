// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums and gathers of the ranks of a node straight out of each other's memory and into each other's, without a message,
// in the order of the lane tree.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/one_pass_sum.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace lockstep::node {

/// What a shared_operation does with data, the array at the same offset of every rank's part.
/// all_reduce: before, data holds one n-vector for each node of the rank's lanes; after, data[0, n) is the sum, on
/// every rank. reduce_scatter: the same before; after, data[strips[rank]] is the sum there, all else is as it was.
/// all_gather: before, data[strips[rank]] is this rank's; after, data[0, n) has the strips of all.
enum class shared_kind : std::uint8_t { all_reduce, reduce_scatter, all_gather };

/// How an all-reduce goes. strips: each rank adds its strip of all parts and writes it into all parts; two waits.
/// copies: each rank puts its vectors into a second array, and adds all n elements for itself when all have; one wait,
/// p times the additions. automatic: copies for up to 16 KiB where ranks have to share cores.
enum class shared_route : std::uint8_t { automatic, strips, copies };

/// One collective over shared memory, again and again. Made in the same order, with equal arguments, on all ranks; the
/// parts outlive it. Memory traffic in bytes, all ranks together, v = vectors of all ranks (p where lanes are aligned),
/// s = sizeof(T): all_reduce by strips reads v n s and writes p n s, copies reads (p + 1) v n s and writes (v + p) n s;
/// reduce_scatter reads v n s and writes n s; all_gather reads and writes (p - 1) n s. Between start and the end of
/// finish no other code touches data.
template <class T>
class shared_operation {
public:
    /// `lanes`: the run of each rank (not used by all_gather). `strips`: a partition of 0 .. n-1, one for each rank.
    /// Throws core::error.
    [[gnu::cold]] shared_operation(shared_parts& memory, shared_kind kind, std::span<const parallel::block> lanes,
                                   std::span<const parallel::block> strips, tensor::slice<T> data, std::size_t n,
                                   parallel::team team = {}, shared_route route = shared_route::automatic)
        : kind_{kind},
          team_{team},
          rank_{memory.rank()},
          n_{n},
          strips_(strips.begin(), strips.end()),
          sum_{lanes},
          signals_{reserve_signals(memory)} {
        const std::size_t ranks = memory.size();
        if (lanes.size() != ranks || strips_.size() != ranks)
            core::fail(
                core::text(ranks, " ranks with ", lanes.size(), " runs of lanes and ", strips_.size(), " strips"),
                "pass one run of lanes and one strip for each rank");
        check_strips(strips, n);
        const std::size_t vectors = kind_ == shared_kind::all_gather ? 1 : sum_.most_vectors();
        if (data.count < core::checked_product("numbers of a shared operation", vectors, n))
            core::fail(core::text("a shared operation on ", data.count, " numbers needs ", vectors * n),
                       "reserve one vector for each node of the lanes of the rank that has the most");
        copies_ = kind_ == shared_kind::all_reduce &&
                  (route == shared_route::copies || (route == shared_route::automatic && ranks > 1 &&
                                                     vectors * n * sizeof(T) <= small(memory.crowded())));

        for (std::size_t rank = 0; rank < ranks; ++rank) data_.push_back(memory.of(rank, data).data());
        std::size_t own = 0;
        for (const auto& leaf : sum_.leaves()) own += leaf.rank == rank_;
        own_ = own * n;
        std::vector<tensor::slice<T>> slices{data};
        if (copies_) slices = {memory.reserve<T>(vectors * n), memory.reserve<T>(vectors * n)};
        for (const auto& slice : slices)
            for (const auto& leaf : sum_.leaves())
                leaves_.push_back(memory.of(leaf.rank, slice).data() + leaf.slot * n);
        if (copies_)
            for (const auto& slice : slices) copy_.push_back(memory.mine(slice).data());
        scratch_.resize(sum_.scratch_size() * static_cast<std::size_t>(std::max(1, team_.threads)));
        mark_ = (n << 8U) + (static_cast<std::uint64_t>(kind_) << 6U) + (copies_ ? 32U : 0U) + sizeof(T);
        signals_.of(rank_).mark = mark_;
        constexpr const char* names[] = {"shared all-reduce", "shared reduce-scatter", "shared all-gather"};
        signals_.name({.elements = n_,
                       .unit = comm::unit_of<T>,
                       .kind = comm::short_name{names[static_cast<std::size_t>(kind_)]},
                       .what = {}});
    }

    /// Bytes that an operation takes in each part beside its data, on the automatic route.
    [[nodiscard]] static constexpr std::size_t overhead(std::size_t vectors, std::size_t n) noexcept {
        return sizeof(shared_signal) + 2 * shared_parts::footprint(std::min(vectors * n * sizeof(T), small(true)));
    }

    /// Data of this rank is ready, and others may read and write it. Throws core::error if the operation is running.
    void start(const std::source_location& where = std::source_location::current()) {
        refuse_stopped();
        if (running_) core::fail("a shared operation was started while it is running", "call finish() first");
        running_ = true;
        worked_ = false;
        ++turn_;
        signals_.begins(where);
        // In two arrays by turns: a rank that has seen all others arrive in one turn knows that they have read those of
        // the turn before.
        if (copies_) std::copy_n(data_[rank_], own_, copy_[turn_ % 2]);
        signals_.raise(2 * turn_ - 1);
        (void)advance();
    }

    /// Does what can be done without waiting; true when the operation is over. Now and then looks for a failure: throws
    /// remote_failure. One that has thrown stays so: core::error in all calls.
    bool poll() {
        refuse_stopped();
        if (!running_ || advance()) return true;
        or_stop([&] { signals_.polled(); });
        return false;
    }

    /// Waits until the operation is over. Throws remote_failure if a rank has announced one.
    void finish() {
        refuse_stopped();
        if (!running_) return;
        or_stop(
            [&] { signals_.wait([](void* self) { return static_cast<shared_operation*>(self)->advance(); }, this); });
    }

    void run(const std::source_location& where = std::source_location::current()) {
        start(where);
        finish();
    }

    [[nodiscard]] bool running() const noexcept { return running_; }
    /// Whether an all-reduce goes by copies.
    [[nodiscard]] bool copies() const noexcept { return copies_; }

private:
    /// Up to so many bytes of a rank, one wait instead of two is worth the additional work: only where a wait is a
    /// change of processes.
    [[nodiscard]] static constexpr std::size_t small(bool crowded) noexcept {
        return crowded ? std::size_t{16} << 10U : 0;
    }

    [[nodiscard, gnu::cold]] static shared_signals reserve_signals(shared_parts& memory) {
        const auto slice = memory.reserve<shared_signal>(1);
        std::vector<shared_signal*> all;
        for (std::size_t rank = 0; rank < memory.size(); ++rank) all.push_back(memory.of(rank, slice).data());
        std::vector<std::size_t> ranks(memory.size());
        std::iota(ranks.begin(), ranks.end(), std::size_t{0});
        return {std::move(all), memory.mine(slice).data(), std::move(ranks), memory.aborts(),
                memory.group(), memory.crowded()};
    }

    template <class F>
    void or_stop(F&& f) {
        try {
            f();
        } catch (...) {
            stop();
            throw;
        }
    }
    [[gnu::cold]] void stop() noexcept {
        running_ = false;
        stopped_ = true;
    }
    /// A later turn would raise the signal for which others wait in the broken one.
    void refuse_stopped() const {
        if (stopped_) [[unlikely]]
            core::fail("a shared operation is used again that a failure has ended",
                       "make a new one, in a new group of ranks");
    }

    bool advance() {
        if (!worked_) {
            if (!signals_.all_reached(2 * turn_ - 1)) return false;
            if (turn_ == 1) compare();
            work();
            worked_ = true;
            if (!copies_) signals_.raise(2 * turn_);
        }
        if (!copies_ && !signals_.all_reached(2 * turn_)) return false;
        running_ = false;
        return true;
    }

    [[gnu::cold]] void compare() {
        for (std::size_t rank = 0; rank < signals_.size(); ++rank) {
            if (signals_.of(rank).mark == mark_) continue;
            stop();
            core::fail(core::text("rank ", rank_, " is in a shared operation on ", n_, " numbers, rank ", rank,
                                  " in another one on ", signals_.of(rank).mark >> 8U),
                       "make the same shared operations in the same order on all ranks");
        }
    }

    void work() noexcept {
        const parallel::block mine = strips_[rank_];
        const std::span<const T* const> leaves{leaves_};
        const std::span<T* const> own{&data_[rank_], 1};
        if (kind_ == shared_kind::all_gather)
            gather();
        else if (copies_)
            sum_(team_, leaves.subspan(turn_ % 2 * sum_.leaves().size(), sum_.leaves().size()), own, {0, n_}, scratch_);
        else
            sum_(team_, leaves, kind_ == shared_kind::all_reduce ? std::span<T* const>{data_} : own, mine, scratch_);
    }

    void gather() noexcept {
        // Each rank begins with another one: not all of them with rank 0.
        for (std::size_t distance = 1; distance < data_.size(); ++distance) {
            const std::size_t from = (rank_ + distance) % data_.size();
            const parallel::block strip = strips_[from];
            parallel::for_blocks(team_, strip.size(), 16384, [&](parallel::block part) {
                std::copy_n(data_[from] + strip.first + part.first, part.size(),
                            data_[rank_] + strip.first + part.first);
            });
        }
    }

    shared_kind kind_;
    bool copies_ = false;
    bool running_ = false;
    bool stopped_ = false;  // before its end, by a failure
    bool worked_ = false;
    parallel::team team_;
    std::size_t rank_;
    std::size_t n_;
    std::size_t own_ = 0;
    std::vector<parallel::block> strips_;
    one_pass_sum<T> sum_;
    shared_signals signals_;
    std::vector<T*> data_;          // of each rank
    std::vector<const T*> leaves_;  // of the tree, in data, or in one array for copies after the other
    std::vector<T*> copy_;          // of this rank: two arrays
    std::vector<T> scratch_;
    std::uint64_t mark_ = 0;
    std::uint64_t turn_ = 0;
};

/// The sum over all lanes on every rank, with the bits of tree_all_reduce{lanes}.
template <class T>
[[nodiscard]] shared_operation<T> shared_all_reduce(shared_parts& memory, std::size_t lanes, tensor::slice<T> data,
                                                    std::size_t n, parallel::team team = {},
                                                    shared_route route = shared_route::automatic) {
    const auto runs = collectives::deal_lanes(memory.size(), lanes);
    std::vector<parallel::block> strips;
    for (std::size_t rank = 0; rank < memory.size(); ++rank)
        strips.push_back(parallel::split(n, memory.size(), rank, collectives::strip_grain));
    return {memory, shared_kind::all_reduce, runs, strips, data, n, team, route};
}

/// The strip of this rank of the sum, with the bits of tree_reduce_scatter().
template <class T>
[[nodiscard]] shared_operation<T> shared_reduce_scatter(shared_parts& memory, std::span<const parallel::block> lanes,
                                                        std::span<const parallel::block> strips, tensor::slice<T> data,
                                                        std::size_t n, parallel::team team = {}) {
    return {memory, shared_kind::reduce_scatter, lanes, strips, data, n, team};
}

/// The strips of all ranks.
template <class T>
[[nodiscard]] shared_operation<T> shared_all_gather(shared_parts& memory, std::span<const parallel::block> strips,
                                                    tensor::slice<T> data, std::size_t n, parallel::team team = {}) {
    return {memory, shared_kind::all_gather, collectives::deal_lanes(memory.size(), memory.size()), strips, data, n,
            team};
}

}  // namespace lockstep::node
