// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging in rounds: runs any compress::Reduction over messages, all matrices of a bucket together in each round.
// Models Reducer.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/elementwise/sum_of_squares.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/whole_sum.hpp"
#include "lockstep/reduce/worker_fold.hpp"
#include "lockstep/reduce/worker_sum.hpp"

namespace lockstep::reduce {

/// A piece, and where its numbers lie.
template <std::size_t Rounds>
struct part_of_rounds {
    piece what;
    compress::matrix shape;
    bool is_dense = false;
    std::size_t dense = 0;                    // among those that are added as they are,
    std::array<std::size_t, Rounds> first{};  // in each round
    std::size_t shared = 0, kept = 0;         // among these numbers
    compress::reduction_sizes<Rounds> sizes{};
};

/// Seconds for a number, and the squares of what was tried and of what is left of it; infinite where it is not finite.
struct reduction_trial {
    double encode = 0, finish = 0, squares = 0, lost = 0;
};

/// All matrices of the bucket go through each round of R together, as one sum over workers; those that R leaves alone
/// (compress::is_dense) are added over the binary tree of workers, as they are, beside the rounds. The same bits on any
/// number of ranks and for any buckets. Ranks that share a worker add its lanes first, over its own lane tree; then
/// each of them encodes the sum, and the first one sends it. Every rank owns the whole bucket (its weights are never
/// sent) and keeps the whole optimizer state.
/// Cost for each rank, with W workers on p <= W ranks, a power of two: in a round of m elements 2 log2(p) messages of
/// 2m(p-1)/p elements in all, log2(p) messages of m up to 8 KiB; W/p encodings. Memory: W/p times the state and the
/// longest round.
/// A worker with a number that is not finite makes all sums of the bucket NaN, on all ranks.
/// In the plain steps of R, the first ones of a run, all of the bucket is added as it is.
template <class T, compress::Reduction<T> R>
class rounds {
    static constexpr std::size_t round_count = R::rounds.size();
    template <std::size_t K>
    using encoded = compress::element_of<R, T, K>;
    template <std::size_t K>
    using summed = std::conditional_t<R::rounds[K] == compress::algebra::max, largest<T>, encoded<K>>;

public:
    /// `residual`: of several reducers of a bucket, one of which has each step, laid out as that of error_feedback.
    /// What another reducer has left of a piece that is added as it is goes with it.
    [[gnu::cold]] rounds(const bucket& of, const R& reduction, tensor::arena& arena,
                         const tensor::slice<T>* residual = nullptr)
        : reduction_{reduction},
          slots_{compress::slots_of(reduction)},
          n_{of.n},
          team_{of.team},
          deal_{of.deal},
          speaks_{of.deal.sends(of.ranks.rank())},
          is_first_{of.ranks.rank() == 0},
          shares_residual_{residual != nullptr},
          inside_{worker_sum<T>::make(of, arena)},
          is_plain_{compress::plain_steps(reduction) > 0} {
        lay_out();
        ordered_ = worker_fold::in_order(deal_.own, deal_.workers);
        unordered_ = worker_fold::in_any_order(own());
        std::size_t data_bytes = 0, work_bytes = inside_ ? inside_->work_size() * sizeof(T) : 0;
        core::for_each_index<round_count>([&](auto round) {
            using E = summed<round>;
            auto& sum = core::get<round>(sums_);
            sum = make_sum<E>(of, length_[round], R::rounds[round] == compress::algebra::ordered_sum);
            data_bytes =
                std::max(data_bytes, core::checked_product("bytes of a round", own(), length_[round], sizeof(E)));
            work_bytes = std::max(work_bytes, sum->work_size() * sizeof(E));
        });
        dense_sum_ = make_sum<T>(of, dense_length_, true);
        state_ = shares_residual_
                     ? *residual
                     : arena.reserve<T>(core::checked_product("numbers of a reduction", slots_, own(), of.n));
        shared_ = arena.reserve<T>(shared_length_);
        kept_ = arena.reserve<T>(core::checked_product("numbers of a reduction", own(), kept_length_));
        data_ = arena.reserve<std::byte>(data_bytes);
        work_ = arena.reserve<std::byte>(work_bytes);
        const bool has_plain_steps = compress::plain_steps(reduction_) > 0;
        dense_ = arena.reserve<T>(
            core::checked_product("numbers of dense tensors", own(), has_plain_steps ? n_ : dense_length_));
        if (has_plain_steps) plain_sum_ = make_sum<T>(of, n_, true);
        dense_work_ =
            arena.reserve<T>(std::max(dense_sum_->work_size(), has_plain_steps ? plain_sum_->work_size() : 0));
    }

    void bind(const tensor::arena& arena) noexcept {
        arena_ = &arena;
        // Random words of a step that never comes.
        if constexpr (requires(const compress::shared_pass<T>& all) { reduction_.initialise(all); })
            for (const part& one : parts_)
                if (!one.is_dense) reduction_.initialise(shared_of(one, std::numeric_limits<std::uint32_t>::max()));
    }
    [[nodiscard]] parallel::block owned() const noexcept { return {0, n_}; }

    void start(std::span<T> gradient, std::uint64_t step) {
        gradient_ = gradient;
        step_ = static_cast<std::uint32_t>(step);
        is_plain_ = step < compress::plain_steps(reduction_);
        is_finished_ = false;
        is_lost_ = false;
        if (!inside_) return start_rounds();
        is_adding_ = true;
        inside_->start(gradient, as<T>(work_));
    }
    bool poll() {
        return advance([](auto& operation) { return operation.poll(); });
    }
    bool progress() {
        return advance([](auto& operation) { return operation.progress(); });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        if (is_adding_) return inside_->pending();
        if (is_plain_) return plain_sum_->pending();
        comm::pending_operation out = dense_sum_->pending();
        core::for_each_index<round_count>([&](auto round) {
            if (round_ == round) out = core::get<round>(sums_)->pending();
        });
        return out;
    }
    void finish() {
        (void)advance([](auto& operation) {
            operation.finish();
            return true;
        });
        if (std::exchange(is_finished_, true)) return;
        const std::span<T> mean = gradient_.first(n_);
        // Without a first round the sums themselves say it.
        const std::span<const T> dense = (*arena_)[dense_].first(is_plain_ ? n_ : dense_length_);
        if (flag_ == 0 || is_plain_) is_lost_ = kernels::first_non_finite(dense, team_) < dense.size();
        if (is_lost_) return std::fill(mean.begin(), mean.end(), std::numeric_limits<T>::quiet_NaN());
        if (is_plain_) return (void)std::ranges::copy(dense, mean.begin());
        constexpr std::size_t last = round_count - 1;
        const auto results = result_of<last>();
        for (const part& one : parts_) {
            const std::span<T> here = mean.subspan(one.what.first, one.what.count);
            if (one.is_dense)
                std::ranges::copy(dense.subspan(one.dense, one.what.count), here.begin());
            else
                reduction_.finish(shared_of(one, step_), results.subspan(one.first[last], one.sizes.elements[last]),
                                  here);
        }
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), gradient_.first(n_), change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        const std::size_t inside = inside_ ? inside_->bytes() : 0;
        if (is_plain_) return inside + plain_sum_->bytes();
        std::size_t out = inside + dense_sum_->bytes();
        core::for_each_index<round_count>([&](auto round) { out += core::get<round>(sums_)->bytes(); });
        return out;
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.first(n_); }
    [[nodiscard]] static bool replicates() noexcept { return true; }
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (const part& one : parts_) {
            if (one.is_dense) continue;
            visit_worker_state(visit, deal_, one.what, (*arena_)[state_], slots_, n_, set, speaks_);
            visit_shared(visit, set, 0, one);
        }
    }
    /// Without that of workers, as `slot`.
    template <class Visitor>
    void visit_shared_state(Visitor&& visit, std::size_t set, std::size_t slot) const {
        for (const part& one : parts_)
            if (!one.is_dense && one.sizes.shared > 0) visit_shared(visit, set, slot, one);
    }

    /// Numbers that it does not add as they are.
    [[nodiscard, gnu::cold]] std::size_t compressed() const noexcept {
        std::size_t out = 0;
        for (const part& one : parts_) out += one.is_dense ? 0 : one.what.count;
        return out;
    }
    /// Seconds of the messages of a step on a rank, by these costs.
    [[nodiscard, gnu::cold]] double price(std::size_t rank, const collectives::cost_model& links) const {
        double out = dense_sum_->price(rank, links);
        core::for_each_index<round_count>([&](auto round) { out += core::get<round>(sums_)->price(rank, links); });
        return out;
    }
    /// What the first worker of this rank takes alone for matrices spread over the bucket, of about `most` numbers or a
    /// single one, and what it leaves of them. `gradient`: as for start(). `room`: for the longest matrix. For
    /// error_feedback, between two steps; nothing is changed. Allocates what is small beside the matrix.
    [[nodiscard, gnu::cold]] reduction_trial try_on(std::span<T> gradient, std::uint64_t step, std::size_t most,
                                                    std::span<T> room) {
        using clock = std::chrono::steady_clock;
        const auto seconds = [](clock::duration some) { return std::chrono::duration<double>(some).count(); };
        gradient_ = gradient;
        step_ = static_cast<std::uint32_t>(step);
        reduction_trial out;
        std::size_t pieces = 0, tried = 0;
        for (const part& one : parts_) pieces += one.is_dense ? 0 : 1;
        sample_of_pieces sample{compressed(), pieces, most};
        for (const part& one : parts_) {
            const std::size_t count = one.what.count;
            if (one.is_dense || !sample.takes(count)) continue;
            const std::span<T> rest = room.first(count);
            std::fill(rest.begin(), rest.end(), T{0});
            std::vector<T> kept(one.sizes.kept);
            const auto lasting = (*arena_)[shared_].subspan(one.shared, one.sizes.shared);
            std::vector<T> shared(lasting.begin(), lasting.end());
            compress::worker_pass<T> in = pass_of(0, one);
            if (kernels::first_non_finite(in.values, team_) < count) {
                out.squares = out.lost = std::numeric_limits<double>::infinity();
                continue;
            }
            in.state = {rest.data(), 1, count, count};
            in.kept = kept;
            in.shared = shared;
            in.is_sent = false;
            compress::shared_pass<T> all = shared_of(one, step_);
            all.shared = shared;
            all.is_sent = false;
            out.squares += kernels::sum_of_squares(in.values);
            core::for_each_index<round_count>([&](auto round) {
                std::vector<encoded<round>> elements(one.sizes.elements[round]);
                const auto begun = clock::now();
                reduction_.encode(compress::round_number<round>{}, in, std::span{elements});
                const auto made = clock::now();
                out.encode += seconds(made - begun);
                const std::span<const encoded<round>> result{elements};
                if constexpr (round + 1 < round_count) {
                    reduction_.combined(compress::round_number<round>{}, all, result);
                    out.finish += seconds(clock::now() - made);
                } else {
                    out.lost += kernels::sum_of_squares(std::span<const T>{rest});
                    const auto left = clock::now();
                    reduction_.finish(all, result, rest);
                    out.finish += seconds(clock::now() - left);
                }
            });
            tried += count;
        }
        out.encode /= static_cast<double>(std::max<std::size_t>(tried, 1));
        out.finish /= static_cast<double>(std::max<std::size_t>(tried, 1));
        return out;
    }

private:
    using part = part_of_rounds<round_count>;
    template <std::size_t... K>
    static auto sums_of(std::index_sequence<K...>) -> core::pack<std::unique_ptr<whole_sum<summed<K>>>...>;

    [[nodiscard]] std::size_t own() const noexcept { return deal_.own.size(); }
    template <class Visitor>
    void visit_shared(Visitor&& visit, std::size_t set, std::size_t slot, const part& one) const {
        visit(tensor::state_part<T>{.role = "reduction",
                                    .slot = slot,
                                    .set = set,
                                    .tensor = one.what.tensor,
                                    .segment = one.what.offset,
                                    .numbers = (*arena_)[shared_].subspan(one.shared, one.sizes.shared),
                                    .speaks = is_first_});
    }

    [[gnu::cold]] void lay_out() {
        constexpr std::string_view what = "elements of a round";
        for (const piece& one : deal_.pieces) {
            part next{.what = one, .shape = {1, one.count}};
            if (one.count == one.rows * one.columns) next.shape = {one.rows, one.columns};
            // A segment of a matrix is none of one extent.
            next.is_dense = compress::is_dense(reduction_, compress::matrix{one.rows, one.columns});
            if (next.is_dense) {
                next.dense = dense_length_;
                dense_length_ += one.count;
            } else {
                next.sizes = reduction_.sizes(next.shape, deal_.workers);
                next.first = length_;
                next.shared = shared_length_;
                next.kept = kept_length_;
                for (std::size_t round = 0; round < round_count; ++round)
                    length_[round] = core::checked_sum(what, length_[round], next.sizes.elements[round]);
                shared_length_ = core::checked_sum(what, shared_length_, next.sizes.shared);
                kept_length_ = core::checked_sum(what, kept_length_, next.sizes.kept);
                flag_ = 1;
            }
            parts_.push_back(next);
        }
        length_[0] += flag_;
    }
    template <class E>
    [[nodiscard, gnu::cold]] static std::unique_ptr<whole_sum<E>> make_sum(const bucket& of, std::size_t n,
                                                                           bool in_order) {
        return std::make_unique<whole_sum<E>>(of.ranks, make_worker_sum(of, n, sizeof(E), in_order), of.team, of.sum);
    }

    template <class E>
    [[nodiscard]] std::span<E> as(tensor::slice<std::byte> bytes) const noexcept {
        return (*arena_)[tensor::slice<E>{bytes.offset, bytes.count / sizeof(E)}];
    }
    template <std::size_t K>
    [[nodiscard]] std::span<const encoded<K>> result_of() const noexcept {
        return as<encoded<K>>(data_).first(length_[K]);
    }

    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        if (is_adding_) {
            if (!inside_->advance(step)) return false;
            is_adding_ = false;
            start_rounds();
        }
        if (is_plain_) return plain_sum_->advance(step);
        const bool dense = dense_sum_->advance(step);
        core::for_each_index<round_count>([&](auto round) {
            if (round_ == round && core::get<round>(sums_)->advance(step)) end_round(round);
        });
        return dense && round_ == round_count;
    }

    void start_rounds() {
        const std::span<T> dense = (*arena_)[dense_];
        if (is_plain_) {
            std::ranges::copy(gradient_.first(own() * n_), dense.begin());
            ordered_.run(dense, n_, team_);
            return plain_sum_->start(dense, (*arena_)[dense_work_]);
        }
        for (std::size_t worker = 0; worker < own(); ++worker)
            for (const part& one : parts_) {
                if (!one.is_dense) continue;
                const std::span<T> to = dense.subspan(worker * dense_length_ + one.dense, one.what.count);
                std::ranges::copy(values_of(worker, one), to.begin());
                if (!shares_residual_) continue;
                const std::span<T> rest = (*arena_)[state_].subspan(worker * n_ + one.what.first, one.what.count);
                kernels::add(std::span<const T>{rest}, to);
                std::fill(rest.begin(), rest.end(), T{0});
            }
        ordered_.run(dense, dense_length_, team_);
        dense_sum_->start(dense, (*arena_)[dense_work_]);
        start_round(core::index_constant<0>{});
    }
    template <std::size_t K>
    void start_round(core::index_constant<K>) {
        round_ = K;
        const auto elements = as<encoded<K>>(data_);
        for (std::size_t worker = 0; worker < own(); ++worker) {
            const auto mine = elements.subspan(worker * length_[K], length_[K]);
            bool sound = !is_lost_;
            if constexpr (K == 0) {
                // Later rounds of all ranks know what the first one says.
                sound = kernels::first_non_finite(std::span<const T>{gradient_.subspan(worker * n_, n_)}, team_) == n_;
                if (flag_ > 0) mine.back() = sound ? encoded<K>{} : lost_flag<encoded<K>>();
            }
            if (!sound) std::ranges::fill(mine.first(length_[K] - (K == 0 ? flag_ : 0)), encoded<K>{});
            for (const part& one : parts_)
                if (sound && !one.is_dense)
                    reduction_.encode(compress::round_number<K>{}, pass_of(worker, one),
                                      mine.subspan(one.first[K], one.sizes.elements[K]));
        }
        const auto data = as<summed<K>>(data_);
        (R::rounds[K] == compress::algebra::ordered_sum ? ordered_ : unordered_).run(data, length_[K], team_);
        core::get<K>(sums_)->start(data, as<summed<K>>(work_));
    }
    /// The result of a round is there.
    template <std::size_t K>
    void end_round(core::index_constant<K>) {
        const auto results = result_of<K>();
        if constexpr (K == 0) is_lost_ = flag_ > 0 && results.back() != encoded<K>{};
        if constexpr (K + 1 < round_count) {
            for (const part& one : parts_)
                if (!is_lost_ && !one.is_dense)
                    reduction_.combined(compress::round_number<K>{}, shared_of(one, step_),
                                        results.subspan(one.first[K], one.sizes.elements[K]));
            start_round(core::index_constant<K + 1>{});
        } else {
            round_ = round_count;
        }
    }
    template <class E>
    [[nodiscard]] static E lost_flag() noexcept {
        if constexpr (std::is_integral_v<E>)
            return E{1};
        else
            return static_cast<E>(std::numeric_limits<float>::quiet_NaN());
    }

    /// `worker`: of this rank.
    [[nodiscard]] std::span<const T> values_of(std::size_t worker, const part& one) const noexcept {
        return gradient_.subspan(worker * n_ + one.what.first, one.what.count);
    }
    [[nodiscard]] compress::worker_pass<T> pass_of(std::size_t worker, const part& one) const noexcept {
        const std::size_t number = deal_.own.first + worker;
        const auto series = static_cast<std::uint32_t>(one.what.tensor * deal_.workers + number);
        T* const state = (*arena_)[state_].data() + worker * slots_ * n_;
        return {
            .shape = one.shape,
            .workers = deal_.workers,
            .worker = number,
            .values = values_of(worker, one),
            .state = tensor::slots<T>{state, slots_, n_, n_}.part(one.what.first, one.what.count),
            .kept = (*arena_)[kept_].subspan(worker * kept_length_ + one.kept, one.sizes.kept),
            .shared = (*arena_)[shared_].subspan(one.shared, one.sizes.shared),
            .random = core::random_stream{deal_.seed, core::purpose::rounding, series, step_}.from(one.what.offset / 4),
            .team = team_,
            .common = common_of(one, step_),
            .step = step_,
            .from = one.what.from()};
    }
    [[nodiscard]] core::random_stream common_of(const part& one, std::uint32_t step) const noexcept {
        const auto series = static_cast<std::uint32_t>(one.what.tensor);
        return core::random_stream{deal_.seed, core::purpose::reduction, series, step}.from(one.what.offset / 4);
    }
    [[nodiscard]] compress::shared_pass<T> shared_of(const part& one, std::uint32_t step) const noexcept {
        return {.shape = one.shape,
                .workers = deal_.workers,
                .shared = (*arena_)[shared_].subspan(one.shared, one.sizes.shared),
                .random = common_of(one, step),
                .team = team_,
                .step = step,
                .from = one.what.from()};
    }

    R reduction_;
    std::size_t slots_;
    std::size_t n_;
    parallel::team team_;
    worker_deal deal_;
    bool speaks_;    // of those that share a worker,
    bool is_first_;  // and of all
    bool shares_residual_;
    std::vector<part> parts_;
    std::array<std::size_t, round_count> length_{};  // of each round: elements of a worker
    std::size_t flag_ = 0;  // 1: the last element of the first round says that a worker is not finite
    std::size_t dense_length_ = 0;
    std::size_t shared_length_ = 0;
    std::size_t kept_length_ = 0;
    worker_fold ordered_;
    worker_fold unordered_;
    std::unique_ptr<worker_sum<T>> inside_;  // where ranks share a worker
    decltype(sums_of(std::make_index_sequence<round_count>{})) sums_;
    std::unique_ptr<whole_sum<T>> dense_sum_;
    std::unique_ptr<whole_sum<T>> plain_sum_;  // of the bucket, where there are plain steps
    tensor::slice<T> state_;
    tensor::slice<T> shared_;
    tensor::slice<T> kept_;
    tensor::slice<std::byte> data_;  // of the round that is under way
    tensor::slice<std::byte> work_;
    tensor::slice<T> dense_;
    tensor::slice<T> dense_work_;
    const tensor::arena* arena_ = nullptr;
    std::span<T> gradient_;
    std::uint32_t step_ = 0;
    std::size_t round_ = round_count;
    bool is_plain_;  // the step that was started last; before the first one: whether that will be, if none is resumed
    bool is_adding_ = false;
    bool is_lost_ = false;
    bool is_finished_ = true;
};

}  // namespace lockstep::reduce
