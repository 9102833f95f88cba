// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sum of layers whose compressor may change from step to step: dense as without one, gathered messages, or rounds.
// Models Reducer.
// Tested by tests/equivalence/adaptive.cpp.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/compress/adaptive.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/reduce/candidate_sums.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/reduce/tree_sum.hpp"

namespace lockstep::reduce {

/// What a bucket takes with one candidate, in seconds of this rank; see planner::compression_cost.
struct candidate_cost {
    double encode = 0, sum = 0, finish = 0, share = 0, error = 0;
};

/// Dense steps are those of tree_sum, over the workers' sums: this rank owns a strip, and only its slots of the
/// optimizer are up to date. Compressed ones are those of gathered_messages with error_feedback{one_of}, or of
/// candidate_sums, with the same residual: every rank owns everything. In the first dense step after compressed ones
/// messages carry all of p = g + e, which empties the residual. Before the first compressed step after dense ones the
/// slots of all strips are gathered, slot by slot. Memory beside all of them: slots for the whole bucket.
template <class T>
class adaptive_sum {
    using compressor = compress::error_feedback<compress::one_of>;

public:
    [[gnu::cold]] adaptive_sum(const bucket& of, const compress::adaptive& settings, tensor::arena& arena)
        : of_{of},
          dense_{of, arena},
          messages_{of, compressor{settings.as_one()}, arena},
          sums_{of, settings.sending(), messages_.state(), arena},
          tried_(settings.candidates.size()) {
        std::size_t compressors = 0;
        for (const compress::candidate& one : settings.candidates)
            message_numbers_.push_back(one.compressor() != nullptr ? ++compressors : 0);
        compressed_.resize(1 + compressors);
        sum_ = sums_.size();
        std::size_t longest = 0, scratch = 0;
        const compress::one_of all = settings.as_one();
        for (const piece& one : of.deal.pieces) {
            for (std::size_t number = 0; number <= compressors; ++number)
                if (!all.candidates[number].is_dense({one.rows, one.columns})) compressed_[number] += one.count;
            has_matrices_ = has_matrices_ || !one.is_vector();
            longest = std::max(longest, one.count);
            scratch = std::max(scratch, all.template scratch_size<T>(one.count));
        }
        rest_ = arena.reserve<T>(longest);
        scratch_ = arena.reserve<T>(scratch);
        message_ = arena.reserve<std::byte>(all.template max_bytes<T>(longest));
        if (of.ranks.size() == 1 || dense_.replicates()) return;
        std::vector<parallel::block> strips = collectives::tree_strips(of.runs, of.n);
        if (of.memory == nullptr && of.algorithm != collectives::sum_algorithm::tree)
            for (std::size_t rank = 0; rank < strips.size(); ++rank)
                strips[rank] = of.sums.make(of.algorithm, rank, of.runs, of.n, of.on).owned;
        gather_ = std::make_unique<comm::operation<T>>(of.ranks, collectives::all_gather(of.ranks.rank(), strips),
                                                       of.team, comm::flow::usual_piece, of.sum);
        work_ = arena.reserve<T>(gather_->program().work_size());
    }

    void bind(const tensor::arena& arena) noexcept {
        arena_ = &arena;
        dense_.bind(arena);
        messages_.bind(arena);
        sums_.bind(arena);
    }
    /// The slots of the optimizer for all of the bucket.
    [[gnu::cold]] void keep_slots(const tensor::slots<T>& slots) noexcept { slots_ = slots; }
    /// For which numbers of the bucket this rank has room for slots.
    [[nodiscard]] parallel::block stored() const noexcept { return {0, of_.n}; }

    /// The candidate of the step that is started next, and of the one before it.
    void choose(std::size_t candidate, std::size_t before) noexcept {
        next_ = candidate;
        next_compresses_ = candidate != 0 || before != 0;
    }
    /// The step that is started next tries all candidates on the gradient, and changes nothing for that.
    void try_all() noexcept { tries_ = true; }
    /// What is owned is about to be overwritten with that of a run whose last step was compressed, or not.
    [[gnu::cold]] void prepare_state(bool compressed) noexcept {
        sum_ = sums_.size();
        compresses_ = compressed;
        slots_are_whole_ = compressed || gather_ == nullptr;
    }
    /// It has been, and that last step was compressed, or not. Collective.
    [[gnu::cold]] void restored(bool compressed) {
        compresses_ = compressed;
        if (!compressed || std::exchange(slots_are_whole_, true)) return;
        for (std::size_t slot = 0; slot < slots_.count(); ++slot) gather_->run(slots_[slot], (*arena_)[work_]);
    }

    [[nodiscard]] parallel::block owned() const noexcept {
        return compresses_ ? parallel::block{0, of_.n} : dense_.owned();
    }
    [[nodiscard]] bool replicates() const noexcept { return compresses_ || dense_.replicates(); }

    void start(std::span<T> gradient, std::uint64_t step) {
        gradient_ = gradient;
        step_ = step;
        compresses_ = next_compresses_;
        gathers_ = false;
        if (std::exchange(tries_, false)) try_candidates();
        sum_ = compresses_ ? sums_.find(next_) : sums_.size();
        if (!compresses_) {
            slots_are_whole_ = slots_are_whole_ && gather_ == nullptr;
            add_workers(gradient, of_.n, of_.runs[of_.ranks.rank()], of_.lanes, of_.deal.lanes);
            return dense_.start(gradient, step);
        }
        if (std::exchange(slots_are_whole_, true) || slots_.count() == 0) return start_compressed();
        slot_ = 0;
        gathers_ = true;
        stage_ = stage::slots;
        gather_->start(slots_[0], (*arena_)[work_]);
    }
    bool poll() {
        return advance([](auto& one) { return one.poll(); });
    }
    bool progress() {
        return advance([](auto& one) { return one.progress(); });
    }
    void finish() {
        (void)advance([](auto& one) {
            one.finish();
            return true;
        });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        if (stage_ == stage::slots) return gather_->pending();
        return started(*this, [](const auto& one) { return one.pending(); });
    }
    template <class F>
    void update(std::span<T> weights, const F& change) {
        started(*this, [&](auto& one) { one.update(weights, change); });
    }
    void share(std::span<T> weights) {
        if (!compresses_) dense_.share(weights);
    }
    [[nodiscard]] std::span<T> sums() const noexcept {
        return started(*this, [](const auto& one) { return one.sums(); });
    }
    /// In the step that was started last.
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        const std::size_t slots = gathers_ ? slots_.count() * gather_->program().sent().elements * sizeof(T) : 0;
        return slots + started(*this, [](const auto& one) { return std::size_t{one.bytes_per_step()}; });
    }
    /// Residuals of workers, and what reductions keep.
    template <class Visitor>
    void visit_state(Visitor&& visit, std::size_t set) const {
        messages_.visit_state(visit, set);
        sums_.visit_state(visit, set);
    }

    /// By these costs of links, and by what was tried: dense, then each candidate. `each_update`: seconds of the
    /// optimizer for a number; 0: not known.
    [[nodiscard, gnu::cold]] std::vector<candidate_cost> costs(const collectives::cost_model& links,
                                                               double each_update) const {
        const std::size_t rank = of_.ranks.rank();
        const auto numbers = static_cast<double>(of_.n);
        // An optimizer moves its slots, reads the gradient, and reads and writes weights, or at the rate of additions.
        const auto arrays = static_cast<double>(slots_.count() + 3);
        if (each_update == 0) each_update = arrays * static_cast<double>(sizeof(T)) * links.seconds_per_added_byte;
        const double each_pass = each_update / arrays;
        const auto workers = static_cast<double>(of_.deal.workers), own = static_cast<double>(of_.deal.own.size());
        std::vector<candidate_cost> out(1);
        out[0].finish = static_cast<double>(dense_.owned().size()) * each_update;
        if (of_.memory == nullptr && of_.ranks.size() > 1) {
            const auto halves = of_.sums.make(of_.algorithm, rank, of_.runs, of_.n, of_.on);
            out[0].sum = collectives::price(halves.sum, rank, sizeof(T), links);
            out[0].share = collectives::price(halves.share, rank, sizeof(T), links);
        }
        for (std::size_t which = 0; which < tried_.size(); ++which) {
            const trial& one = tried_[which];
            const std::size_t sum = sums_.find(which + 1);
            const bool is_sum = sum < sums_.size();
            const auto compressed =
                static_cast<double>(is_sum ? sums_.with(sum, [](const auto& rounds) { return rounds.compressed(); })
                                           : compressed_[message_numbers_[which]]);
            candidate_cost next;
            // A trial of messages lies in the cache: residuals come from memory, and sums go there.
            const double passes = is_sum ? 0 : 2 * each_pass * numbers;
            next.encode = own * (one.encode * compressed + passes);
            next.sum = is_sum ? sums_.with(sum, [&](const auto& rounds) { return rounds.price(rank, links); })
                              : collectives::price(messages_.gathering(message_numbers_[which]), rank, 1, links);
            // Ranks that share a worker add first.
            if (of_.deal.is_shared())
                next.sum += 2 * (links.inside.latency + numbers * sizeof(T) * links.inside.seconds_per_byte);
            next.finish = (is_sum ? 1 : workers) * one.decode * compressed + numbers * each_update + passes;
            // Of a gradient of zeros it is not known: below all that others know.
            if (compressed > 0) next.error = one.squares == 0 ? -1 : std::sqrt(one.lost / one.squares);
            if (!std::isfinite(next.error)) next.error = std::numeric_limits<double>::max();
            out.push_back(next);
        }
        return out;
    }
    /// The norm of what the last trial was tried on; infinite where it is none, as ranks take the largest.
    [[nodiscard, gnu::cold]] double tried_norm() const {
        return tried_squares_ >= 0 ? std::sqrt(tried_squares_) : std::numeric_limits<double>::infinity();
    }
    /// Seconds of the last trial.
    [[nodiscard]] double trial_seconds() const noexcept { return trial_seconds_; }

private:
    enum class stage : unsigned char { slots, summing };
    /// Numbers that each candidate is tried on, at most, unless one piece is longer.
    static constexpr std::size_t most_tried = std::size_t{1} << 17U;

    /// Seconds for a number: the least of all pieces, because what others do to this machine makes it only longer.
    struct trial {
        double encode = 0, decode = 0, squares = 0, lost = 0;
    };
    /// The same over trials, which may slowly get longer.
    static void keep(double& least, double seconds) noexcept {
        least = least == 0 ? seconds : std::min(seconds, 1.25 * least);
    }

    /// f(what sums the step that was started last). `self`: *this, const or not.
    template <class Self, class F>
    static decltype(auto) started(Self& self, const F& f) {
        if (!self.compresses_) return f(self.dense_);
        return self.sum_ < self.sums_.size() ? self.sums_.with(self.sum_, f) : f(self.messages_);
    }
    void start_compressed() {
        stage_ = stage::summing;
        if (sum_ < sums_.size()) return sums_.with(sum_, [&](auto& rounds) { rounds.start(gradient_, step_); });
        const std::size_t number = next_ == 0 ? 0 : message_numbers_[next_ - 1];
        messages_.compressor().inner.chosen = number;
        messages_.start(gradient_, step_, number);
    }
    /// Goes on as far as step(operation) says that one is over; true when all are.
    template <class Step>
    bool advance(const Step& step) {
        while (stage_ == stage::slots) {
            if (!step(*gather_)) return false;
            if (++slot_ < slots_.count())
                gather_->start(slots_[slot_], (*arena_)[work_]);
            else
                start_compressed();
        }
        return started(*this, [&](auto& one) -> bool { return step(one); });
    }

    /// As error feedback does it, without a residual, on matrices spread over the gradient of the first worker.
    [[gnu::cold]] void try_candidates() {
        using clock = std::chrono::steady_clock;
        const auto seconds = [](clock::duration some) { return std::chrono::duration<double>(some).count(); };
        const auto begun = clock::now();
        const auto& all = messages_.compressor().inner.candidates;
        const std::span<std::byte> room = (*arena_)[message_];
        std::vector<trial> found(tried_.size(),
                                 {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()});
        // Of what each candidate does not leave dense; the first one leaves nothing so.
        const auto may_try = [&](const compress::any& candidate, const piece& one) {
            return !(one.is_vector() && has_matrices_) && !candidate.is_dense({one.rows, one.columns});
        };
        std::vector<sample_of_pieces> samples;
        for (const compress::any& candidate : all) {
            std::size_t numbers = 0, pieces = 0;
            for (const piece& one : of_.deal.pieces)
                if (may_try(candidate, one)) numbers += one.count, ++pieces;
            samples.emplace_back(numbers, pieces, most_tried);
        }
        tried_squares_ = 0;
        for (const piece& one : of_.deal.pieces) {
            std::vector<bool> takes;
            for (std::size_t number = 0; number < all.size(); ++number)
                takes.push_back(may_try(all[number], one) && samples[number].takes(one.count));
            if (std::ranges::find(takes, true) == takes.end()) continue;
            const std::span<const T> values = std::span<const T>{gradient_}.subspan(one.first, one.count);
            const std::span<T> rest = (*arena_)[rest_].first(one.count);
            double squares = 0;
            for (const T value : values) squares += static_cast<double>(value) * static_cast<double>(value);
            if (takes[0]) tried_squares_ += squares;
            for (std::size_t which = 0; which < tried_.size(); ++which) {
                if (message_numbers_[which] == 0 || !takes[message_numbers_[which]]) continue;
                const auto& candidate = all[message_numbers_[which]];
                const auto begin = clock::now();
                std::ranges::copy(values, rest.begin());
                const std::size_t bytes = candidate.encode_snapped(
                    compress::encoding<T>{
                        .values = rest,
                        .message = room,
                        .state = {},
                        .scratch = (*arena_)[scratch_],
                        .random = core::random_stream{of_.deal.seed, core::purpose::rounding,
                                                      static_cast<std::uint32_t>(one.tensor * of_.deal.workers),
                                                      static_cast<std::uint32_t>(step_)}
                                      .from(one.offset / 4),
                        .step = step_,
                        .from = one.from(),
                        .is_sent = false},
                    rest);
                const std::span<const std::byte> message{room.first(bytes)};
                candidate.decode_add(message, T{-1}, rest);
                const auto encoded = clock::now();
                double lost = 0;
                for (const T value : rest) lost += static_cast<double>(value) * static_cast<double>(value);
                const auto cleared = clock::now();
                candidate.decode_add(message, T{1}, rest);
                const auto count = static_cast<double>(one.count);
                trial& to = found[which];
                to.decode = std::min(to.decode, seconds(clock::now() - cleared) / count);
                to.encode = std::min(to.encode, seconds(encoded - begin) / count);
                to.squares += squares;
                to.lost += lost;
            }
        }
        for (std::size_t sum = 0; sum < sums_.size(); ++sum)
            sums_.with(sum, [&](auto& rounds) {
                // No message is on its way.
                const tensor::slice<std::byte> bytes = messages_.room();
                const tensor::slice<T> numbers{bytes.offset, bytes.count / sizeof(T)};
                const reduction_trial one = rounds.try_on(gradient_, step_, most_tried, (*arena_)[numbers]);
                found[sums_.candidate(sum) - 1] = {one.encode, one.finish, one.squares, one.lost};
            });
        for (std::size_t which = 0; which < found.size(); ++which) {
            if (found[which].encode == std::numeric_limits<double>::max()) continue;  // it had no piece
            keep(tried_[which].encode, found[which].encode);
            keep(tried_[which].decode, found[which].decode);
            tried_[which].squares = found[which].squares;
            tried_[which].lost = found[which].lost;
        }
        trial_seconds_ = seconds(clock::now() - begun);
    }

    bucket of_;
    tree_sum<T> dense_;
    gathered_messages<T, compressor> messages_;
    candidate_sums<T> sums_;
    std::unique_ptr<comm::operation<T>> gather_;  // of slots; null: every rank has all of them
    tensor::slice<T> work_;
    tensor::slice<T> rest_;  // what a trial leaves of a piece
    tensor::slice<T> scratch_;
    tensor::slice<std::byte> message_;
    const tensor::arena* arena_ = nullptr;
    tensor::slots<T> slots_;
    std::vector<trial> tried_;                  // of each candidate
    std::vector<std::size_t> message_numbers_;  // of each: among those of messages_; 0: a reduction
    std::vector<std::size_t> compressed_;       // numbers that each candidate of messages_ does not leave dense
    bool has_matrices_ = false;                 // then vectors are not tried
    double trial_seconds_ = 0;
    double tried_squares_ = 0;  // of the pieces that the last trial was tried on
    std::span<T> gradient_;
    std::uint64_t step_ = 0;
    std::size_t next_ = 0;
    std::size_t sum_ = 0;  // of the step that was started last, where it is compressed; else, or of messages: size()
    std::size_t slot_ = 0;
    stage stage_ = stage::summing;
    bool next_compresses_ = false;
    bool compresses_ = false;      // the step that was started last
    bool slots_are_whole_ = true;  // on every rank
    bool tries_ = false;
    bool gathers_ = false;  // slots, in this step
};

/// With workers, as every compressor; dense sums go through shared memory where ranks have it.
template <class T>
struct method<T, compress::adaptive> {
    using reducer = adaptive_sum<T>;
    using memory = node_memory;
    static constexpr bool has_workers = true;
    static constexpr bool needs_costs = true;

    [[nodiscard]] static reducer make(const bucket& of, const compress::adaptive& settings, tensor::arena& arena) {
        return {of, settings, arena};
    }
};

}  // namespace lockstep::reduce
