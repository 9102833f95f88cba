// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Averaging through messages of indices and values that are added on their way, over the tree of workers. Models
// Reducer.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/sparse_sum.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/kernels/elementwise/index_value_stream.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/stream_sum.hpp"
#include "lockstep/reduce/whole_sum.hpp"
#include "lockstep/reduce/worker_fold.hpp"
#include "lockstep/reduce/worker_sum.hpp"

namespace lockstep::reduce {

/// The sums of each worker's lanes are compressed piece by piece, as for gathered_messages, with the same state and
/// random words. The lists of a bucket become one stream of its universe, the numbers of these pieces in order; streams
/// are added over the tree of workers. Tensors that travel as they are (traits::dense_vectors) are added beside them,
/// over the same tree. Every rank owns the whole bucket.
/// Which sum of streams: see collectives/sparse_sum.hpp; compress::sparse_sum has the rule for a quantised second half,
/// a second sum of the pieces that it is for. With stream_settings::cuts, additions keep the largest (gTop-k), and what
/// a worker has sent in vain goes back into its slot 0.
/// Whether a stream is dense, parts, algorithm and buckets change no bit: a number is the sum of what workers have sent
/// of it, over their tree, those without an entry left out, plus +0.
/// A worker with a number that is not finite makes all sums of the bucket NaN, on all ranks.
/// Cost for each rank: W/p encodings, ceil(log2 p) to p messages, of lengths that follow from the indices. Memory: W/p
/// residuals, and streams with room for all of a bucket's numbers, or for all workers' entries.
template <class T, compress::StreamCompressor<T> C>
class sparse_sum {
    using second_half = std::remove_cvref_t<decltype(second_half_of(std::declval<const C&>()))>;
    static constexpr bool has_second_half = !std::is_same_v<second_half, compress::none>;

public:
    [[gnu::cold]] sparse_sum(const bucket& of, const C& compressor, tensor::arena& arena)
        : compressor_{compressor},
          settings_{stream_settings_of(compressor)},
          n_{of.n},
          team_{of.team},
          deal_{of.deal},
          speaks_{of.deal.sends(of.ranks.rank())},
          slots_{compress::slots_of(compressor)},
          inside_{worker_sum<T>::make(of, arena)} {
        if (settings_.cuts && !compress::cuts_streams<C>)
            core::fail(core::text(C::name, " has stream_settings with cuts, and does not say so"),
                       "add static constexpr bool cuts_streams = true, as global_top_k has it");
        lay_out();
        dense_fold_ = worker_fold::in_order(deal_.own, deal_.workers);
        const stream_ranks among{of};
        dense_sum_ = std::make_unique<whole_sum<T>>(of.ranks, make_worker_sum(of, dense_length_, sizeof(T), true),
                                                    of.team, of.sum);
        if (exact_.universe() > 0) make_exact_sum(of, among, arena);
        if constexpr (has_second_half)
            if (quantised_.universe() > 0) {
                quantised_sum_ = std::make_unique<quantised_sum<T, second_half>>(of, among, quantised_,
                                                                                 second_half_of(compressor), arena);
                expected_bytes_ += collectives::split_bytes(shape_of(quantised_), deal_.workers, among.senders);
                second_bytes_ = quantised_sum_->bytes();
            }
        constexpr std::string_view what = "numbers of a compressor";
        state_ = arena.reserve<T>(core::checked_product(what, slots_, own(), of.n));
        scratch_ = arena.reserve<T>(longest_scratch_);
        message_ = arena.reserve<std::byte>(longest_message_);
        dense_ = arena.reserve<T>(core::checked_product(what, own(), dense_length_));
        dense_work_ = arena.reserve<T>(dense_sum_->work_size());
        if (settings_.cuts)
            sent_ = arena.reserve<std::byte>(
                core::checked_product(what, own(), exact_.entries(), kernels::stream_entry_bytes<T>));
        if (inside_) work_ = arena.reserve<T>(inside_->work_size());
    }

    void bind(const tensor::arena& arena) noexcept {
        arena_ = &arena;
        if (exact_sum_) exact_sum_->bind(arena);
        if constexpr (has_second_half)
            if (quantised_sum_) quantised_sum_->bind(arena);
    }
    /// From now on start() leaves in the gradient of each worker of this rank what its messages say. Not with cuts,
    /// which send less.
    void leave_sent() noexcept { leaves_sent_ = true; }
    [[nodiscard]] parallel::block owned() const noexcept { return {0, n_}; }

    void start(std::span<T> gradient, std::uint64_t step) {
        gradient_ = gradient;
        step_ = step;
        sent_before_ = sent().elements;
        is_finished_ = false;
        if (!inside_) return send();
        is_adding_ = true;
        inside_->start(gradient, (*arena_)[work_]);
    }
    bool poll() {
        return advance([](auto& operation) { return operation.poll(); });
    }
    bool progress() {
        return advance([](auto& operation) { return operation.progress(); });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        if (is_adding_) return inside_->pending();
        if (exact_sum_ && !exact_sum_->is_over()) return exact_sum_->pending();
        if constexpr (has_second_half)
            if (quantised_sum_ && !quantised_sum_->is_over()) return quantised_sum_->pending();
        return dense_sum_->pending();
    }
    void finish() {
        (void)advance([](auto& operation) {
            operation.finish();
            return true;
        });
        if (std::exchange(is_finished_, true)) return;
        const std::span<T> mean = gradient_.first(n_);
        if (is_lost()) return std::fill(mean.begin(), mean.end(), std::numeric_limits<T>::quiet_NaN());
        std::fill(mean.begin(), mean.end(), T{0});
        const std::span<const T> dense = (*arena_)[dense_].first(dense_length_);
        for (const dense_piece& one : dense_pieces_)
            std::ranges::copy(dense.subspan(one.at, one.what.count), mean.subspan(one.what.first).begin());
        if (exact_sum_)
            for (std::size_t part = 0; part < exact_sum_->parts().size(); ++part)
                exact_.each<T>(exact_sum_->read(0, part), exact_sum_->parts()[part].first,
                               [&](std::size_t at, T value) { mean[at] += value; });
        if constexpr (has_second_half)
            if (quantised_sum_) quantised_sum_->decode_add(mean);
        if (settings_.cuts && exact_sum_)
            for (std::size_t worker = 0; worker < own(); ++worker) put_back(worker);
    }
    template <class F>
    void update(std::span<T>, const F& change) noexcept {
        change_blocks<T>(team_, owned(), gradient_.first(n_), change);
    }
    /// Every rank has made the same update: nothing is sent.
    void share(std::span<T>) noexcept {}

    /// Expected for indices that are equally likely: lengths of messages follow from them. With a warm-up what was sent
    /// in the step that was started last.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        const bool falls =
            exact_.entries() != exact_.usual_entries() || quantised_.entries() != quantised_.usual_entries();
        const std::size_t streams =
            falls && sent().elements > 0 ? sent().elements - sent_before_ : static_cast<std::size_t>(expected_bytes_);
        return streams + second_bytes_ + dense_sum_->bytes() + (inside_ ? inside_->bytes() : 0);
    }
    [[nodiscard]] std::span<T> sums() const noexcept { return gradient_.first(n_); }
    [[nodiscard]] static bool replicates() noexcept { return true; }
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        for (const stream_pieces* pieces : {&exact_, &quantised_})
            for (const auto& one : pieces->all())
                visit_worker_state(visit, deal_, one.what, (*arena_)[state_], slots_, n_, set, speaks_);
    }

    /// How the streams without a second half are summed, if there are any.
    [[nodiscard]] collectives::sparse_algorithm algorithm() const noexcept { return algorithm_; }
    /// Bytes and messages of streams that were handed to MPI since construction.
    [[nodiscard]] collectives::traffic sent() const noexcept {
        collectives::traffic out;
        if (exact_sum_) out += {exact_sum_->sent_messages(), exact_sum_->sent_bytes()};
        if constexpr (has_second_half)
            if (quantised_sum_)
                out += {quantised_sum_->streams().sent_messages(), quantised_sum_->streams().sent_bytes()};
        return out;
    }

private:
    struct dense_piece {
        piece what;
        std::size_t at = 0;  // among the dense ones
    };

    [[nodiscard]] std::size_t own() const noexcept { return deal_.own.size(); }
    [[nodiscard]] static collectives::stream_shape shape_of(const stream_pieces& pieces) noexcept {
        return {pieces.universe(), pieces.usual_entries(), sizeof(T)};
    }

    [[gnu::cold]] void lay_out() {
        for (const piece& one : deal_.pieces) {
            if (compress::is_dense(compressor_, compress::matrix{one.rows, one.columns})) {
                dense_pieces_.push_back({one, dense_length_});
                dense_length_ += one.count;
                continue;
            }
            const compress::list_room room = compress::list_room_of<T>(compressor_, one.count);
            longest_message_ = std::max(longest_message_, std::size_t{compressor_.template max_bytes<T>(one.count)});
            longest_scratch_ =
                std::max(longest_scratch_, std::size_t{compress::scratch_size<T>(compressor_, one.count)});
            const bool is_quantised =
                has_second_half && collectives::is_expected_dense({one.count, room.usual, sizeof(T)}, deal_.workers);
            (is_quantised ? quantised_ : exact_).add(one, room);
        }
        for (const stream_pieces* pieces : {&exact_, &quantised_})
            if (pieces->universe() > std::numeric_limits<std::uint32_t>::max())
                core::fail(core::text("a bucket has ", pieces->universe(),
                                      " numbers to be summed sparsely, but indices have 32 bits"),
                           "use buckets of fewer than 2^32 parameters");
    }
    [[gnu::cold]] void make_exact_sum(const bucket& of, const stream_ranks& among, tensor::arena& arena) {
        using collectives::sparse_algorithm;
        const auto shape = shape_of(exact_);
        algorithm_ = settings_.algorithm == compress::sparse_algorithm::automatic
                         ? collectives::choose_sparse(shape, deal_.workers, among.senders, of.costs)
                     : settings_.algorithm == compress::sparse_algorithm::split_all_gather
                         ? sparse_algorithm::split_all_gather
                         : sparse_algorithm::recursive_doubling;
        const bool splits = algorithm_ == sparse_algorithm::split_all_gather;
        const std::size_t ranks = among.runs.size(), universe = exact_.universe();
        std::vector<parallel::block> parts;
        for (std::size_t part = 0; part < (splits ? ranks : 1); ++part)
            parts.push_back(parallel::split(universe, splits ? ranks : 1, part, collectives::strip_grain));
        std::vector<kernels::stream_cut> cuts;
        for (const auto& one : exact_.all())
            if (settings_.cuts)
                cuts.push_back(
                    {static_cast<std::uint32_t>(one.at + one.what.count), static_cast<std::uint32_t>(one.room.most)});
        expected_bytes_ += settings_.cuts
                               ? static_cast<double>(std::bit_width(among.senders - 1) *
                                                     kernels::stream_entry_bytes<T> * exact_.entries())
                               : collectives::cost_of(algorithm_, shape, deal_.workers, among.senders, of.costs).bytes;
        exact_sum_ =
            std::make_unique<stream_sum<T>>(of,
                                            splits ? collectives::sparse_split_all_gather(among.rank, among.runs)
                                                   : collectives::sparse_doubling(among.rank, among.runs),
                                            std::move(parts), exact_.entries(), std::move(cuts), arena);
    }

    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        if (is_adding_) {
            if (!inside_->advance(step)) return false;
            is_adding_ = false;
            send();
        }
        bool over = dense_sum_->advance(step);
        if (exact_sum_) over = exact_sum_->advance(step) && over;
        if constexpr (has_second_half)
            if (quantised_sum_) over = quantised_sum_->advance(step) && over;
        return over;
    }

    void send() {
        const std::span<T> dense = (*arena_)[dense_];
        for (std::size_t worker = 0; worker < own(); ++worker) {
            const std::span<const T> all = gradient_.subspan(worker * n_, n_);
            for (const dense_piece& one : dense_pieces_)
                std::ranges::copy(all.subspan(one.what.first, one.what.count),
                                  dense.subspan(worker * dense_length_ + one.at).begin());
            // A compressor could hide such numbers.
            const bool sound = kernels::first_non_finite(all, team_) == n_;
            if (exact_sum_) encode(worker, exact_, *exact_sum_, sound);
            if constexpr (has_second_half)
                if (quantised_sum_) encode(worker, quantised_, quantised_sum_->streams(), sound);
        }
        if (settings_.cuts && exact_sum_) keep_sent();
        dense_fold_.run(dense, dense_length_, team_);
        dense_sum_->start(dense, (*arena_)[dense_work_]);
        if (exact_sum_) exact_sum_->start();
        if constexpr (has_second_half)
            if (quantised_sum_) quantised_sum_->start(static_cast<std::uint32_t>(step_));
    }
    /// `worker`: of this rank.
    void encode(std::size_t worker, const stream_pieces& pieces, const stream_sum<T>& to, bool sound) {
        to.clear(worker);
        if (!sound) return to.lose(worker);
        const std::size_t number = deal_.own.first + worker;
        T* const state = (*arena_)[state_].data() + worker * slots_ * n_;
        const std::span<std::byte> message = (*arena_)[message_];
        for (const auto& [one, at, room] : pieces.all()) {
            const auto series = static_cast<std::uint32_t>(one.tensor * deal_.workers + number);
            const std::size_t length = compressor_.encode(compress::encoding<T>{
                .values = gradient_.subspan(worker * n_ + one.first, one.count),
                .message = message,
                .state = tensor::slots<T>{state, slots_, n_, n_}.part(one.first, one.count),
                .scratch = (*arena_)[scratch_],
                .random =
                    core::random_stream{deal_.seed, core::purpose::rounding, series, static_cast<std::uint32_t>(step_)}
                        .from(one.offset / 4),
                .step = step_,
                .from = one.from(),
            });
            to.append(worker, compress::list_in<T>(compressor_, message.first(length)), at);
            if (!leaves_sent_) continue;
            const std::span<T> sent = gradient_.subspan(worker * n_ + one.first, one.count);
            std::fill(sent.begin(), sent.end(), T{0});
            compressor_.decode_add(std::span<const std::byte>{message.first(length)}, T{1}, sent);
        }
    }
    /// Additions use the streams up.
    void keep_sent() noexcept {
        for (std::size_t worker = 0; worker < own(); ++worker)
            std::memcpy(sent_by(worker).data(), exact_sum_->read(worker, 0).entries(), sent_by(worker).size());
    }
    [[nodiscard]] std::span<std::byte> sent_by(std::size_t worker) const noexcept {
        const std::size_t bytes = exact_.entries() * kernels::stream_entry_bytes<T>;
        return (*arena_)[sent_].subspan(worker * bytes, bytes);
    }
    /// Entries of a worker whose index is not in the result.
    void put_back(std::size_t worker) noexcept {
        using stream = kernels::index_value_stream<T>;
        const auto result = exact_sum_->read(0, 0);
        const std::span<const std::byte> sent = sent_by(worker);
        T* const residual = (*arena_)[state_].data() + worker * slots_ * n_;
        std::size_t next = 0;
        const std::size_t count = result.count();
        auto piece = exact_.all().begin();
        for (std::size_t i = 0; i < exact_.entries(); ++i) {
            const auto [index, value] = stream::entry(sent.data(), i);
            while (next < count && stream::entry(result.entries(), next).index < index) ++next;
            if (next < count && stream::entry(result.entries(), next).index == index) continue;
            while (index >= piece->at + piece->what.count) ++piece;
            residual[piece->what.first + index - piece->at] = value;
        }
    }
    /// All parts of a lost worker say so; where there are none, its numbers do.
    [[nodiscard]] bool is_lost() const noexcept {
        if (exact_sum_) return exact_sum_->read(0, 0).header().is_lost != 0;
        if constexpr (has_second_half)
            if (quantised_sum_) return quantised_sum_->is_lost();
        const std::span<const T> dense = (*arena_)[dense_].first(dense_length_);
        return kernels::first_non_finite(dense, team_) < dense.size();
    }

    C compressor_;
    compress::stream_settings settings_;
    collectives::sparse_algorithm algorithm_ = collectives::sparse_algorithm::recursive_doubling;
    std::size_t n_;
    parallel::team team_;
    worker_deal deal_;
    bool speaks_;  // of those that share a worker
    std::size_t slots_;
    std::unique_ptr<worker_sum<T>> inside_;  // where ranks share a worker
    std::vector<dense_piece> dense_pieces_;
    stream_pieces exact_;
    stream_pieces quantised_;
    std::size_t dense_length_ = 0;
    std::size_t longest_message_ = 0;
    std::size_t longest_scratch_ = 0;
    double expected_bytes_ = 0;     // of streams
    std::size_t second_bytes_ = 0;  // of the second half
    std::size_t sent_before_ = 0;   // bytes of streams, in all steps
    worker_fold dense_fold_;
    std::unique_ptr<whole_sum<T>> dense_sum_;
    std::unique_ptr<stream_sum<T>> exact_sum_;
    std::unique_ptr<std::conditional_t<has_second_half, quantised_sum<T, second_half>, char>>
        quantised_sum_;  // char: none
    tensor::slice<T> state_;
    tensor::slice<T> scratch_;
    tensor::slice<T> work_;
    tensor::slice<T> dense_;
    tensor::slice<T> dense_work_;
    tensor::slice<std::byte> message_;
    tensor::slice<std::byte> sent_;  // entries of each worker, where additions cut
    const tensor::arena* arena_ = nullptr;
    std::span<T> gradient_;
    std::uint64_t step_ = 0;
    bool leaves_sent_ = false;
    bool is_adding_ = false;
    bool is_finished_ = true;
};

}  // namespace lockstep::reduce
