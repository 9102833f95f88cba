// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// compress::adaptive with sync::every_step: the compressor of each layer changes while a run goes on. Programs include
// this header for it.
// Tested by tests/equivalence/adaptive.cpp.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/measure_costs.hpp"
#include "lockstep/compress/adaptive.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/planner/compression.hpp"
#include "lockstep/reduce/adaptive_sum.hpp"
#include "lockstep/sync/adaptive_choice.hpp"
#include "lockstep/sync/adaptive_control.hpp"
#include "lockstep/sync/every_step.hpp"
#include "lockstep/sync/owner_updates.hpp"

namespace lockstep::sync {

/// The words of every_step, between which layers are timed; before a step all ranks may decide together what travels in
/// it. Decisions wait for the weights of the last step, and allocate. One rank decides nothing.
template <class Types>
class adaptive_updates : public owner_updates<Types> {
    using base = owner_updates<Types>;
    using typename base::network;
    using typename base::T;
    using clock = std::chrono::steady_clock;
    using task = adaptive_control::task;

public:
    template <class Plan>
    [[gnu::cold]] explicit adaptive_updates(const setup<Plan>& from)
        : base{from},
          settings_{from.plan.compressor},
          control_{settings_.period},
          now_(this->queue_.size()),
          before_(now_),
          choice_{this->queue_.size(),
                  settings_.candidates.size(),
                  {.margin = settings_.margin, .max_error = settings_.max_error, .overlaps = this->overlaps_}},
          norms_(this->queue_.size(), -1.0),
          forward_(network::size),
          backward_(network::size),
          counters_(1 + most_choices),
          has_messages_{from.memory == nullptr && from.all.size() > 1} {
        if (!settings_.replay) return;
        for (const auto& one : settings_.replay->entries) (void)bucket_of(one);
        if (settings_.replay->entries.size() > most_choices)
            core::fail(core::text("the list of choices has ", settings_.replay->entries.size(), " lines"),
                       core::text("use at most ", most_choices));
    }

    void begin(std::uint64_t step) {
        base::begin(step);
        control_.took(seconds(this->times_.step_worked()));
        before_ = now_;
        if (is_fresh_) {
            is_fresh_ = false;
            choice_.begin_run();
            control_.begin_run(step);
            first_ = step;
            if (settings_.replay) require_prefix(step);
        }
        if (step <= first_ + 1) clear_times();  // the first step of a run is slow
        if (settings_.replay) {
            while (made_.size() < settings_.replay->entries.size() && next_of_replay().step <= step)
                make(compress::compressor_choice{next_of_replay()});
        } else if (!has_messages_) {
            if (!choice_.is_all_dense(now_)) {  // chosen elsewhere, before a resume
                const std::size_t first = made_.size();
                change(step, std::vector<std::size_t>(now_.size()));
                tell(core::text("step ", step, ": no messages between ranks, ", changes_since(first)));
            }
        } else if (!has_room() && choice_.is_all_dense(now_)) {
            if (made_.empty() && told_.empty())
                tell(core::text("the list of choices has no room for ", now_.size(),
                                " parts of the network: all of them stay dense; raise least_numbers"));
        } else if (has_messages_) {
            const task what = control_.at(step);
            if (what == task::trial) start_trial();
            if (what == task::decision) decide(step);
            if (what == task::verification) verify(step);
            if (what == task::look) look(step);
            ++timed_;
        }
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket)
            this->queue_[bucket].reducer.choose(now_[bucket], before_[bucket]);
    }

    [[nodiscard]] layer_hook weights_needed() noexcept {
        return {this, [](void* of, std::size_t layer) {
                    auto& self = *static_cast<adaptive_updates*>(of);
                    if (layer > 0) self.lap(self.forward_[layer - 1]);
                    self.queue_.wait_before(layer);
                    self.watch_ = clock::now();
                }};
    }
    void forward_done() {
        lap(forward_.back());
        base::forward_done();
        watch_ = clock::now();
    }
    template <class Others>
    void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
        lap(backward_[layer]);
        base::gradient_ready(layer, step, others);
        watch_ = clock::now();
    }

    /// What every_step shows, and the choices so far.
    template <class Visitor>
    void visit_state(Visitor&& visit) {
        base::visit_state(visit);
        visit(tensor::state_part<std::uint64_t>{
            .role = "compressor choices", .numbers = std::span{counters_}, .speaks = this->grid_->rank == 0});
    }
    [[gnu::cold]] void prepare_state(std::uint64_t steps) {
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket)
            this->queue_[bucket].reducer.prepare_state(was_compressed(bucket, steps));
        steps_ = steps;
    }
    /// Collective.
    [[gnu::cold]] void restored() {
        made_.clear();
        std::fill(now_.begin(), now_.end(), 0);
        const std::vector<std::uint64_t> read = counters_;
        for (std::size_t k = 0; k < std::min<std::uint64_t>(read[0], most_choices); ++k) {
            const compress::compressor_choice one{read[k + 1] >> 24U, (read[k + 1] >> 8U) & 0xFFFFU,
                                                  read[k + 1] & 0xFFU};
            if (one.candidate > settings_.candidates.size())
                core::fail(core::text("the checkpoint has chosen candidate ", one.candidate, " of adaptive in step ",
                                      one.step, ", the plan has ", settings_.candidates.size()),
                           "resume with the candidates of the run that wrote it");
            make(one);
        }
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket)
            this->queue_[bucket].reducer.restored(was_compressed(bucket, steps_));
        std::fill(norms_.begin(), norms_.end(), -1.0);
        is_fresh_ = true;
    }

    /// So far.
    [[nodiscard]] const std::vector<compress::compressor_choice>& choices() const noexcept { return made_; }
    /// A line for each decision so far, the same on all ranks but for replays, which have none.
    [[nodiscard]] const std::vector<std::string>& decisions() const noexcept { return told_; }

private:
    /// What a checkpoint has room for. Afterwards only what is not allowed any more changes, to dense.
    static constexpr std::size_t most_choices = 4096;

    [[nodiscard]] static double seconds(clock::duration some) noexcept {
        return std::chrono::duration<double>(some).count();
    }
    void lap(double& of) noexcept {
        const auto now = clock::now();
        of += seconds(now - std::exchange(watch_, now));
    }
    void clear_times() noexcept {
        std::fill(forward_.begin(), forward_.end(), 0.0);
        std::fill(backward_.begin(), backward_.end(), 0.0);
        timed_ = 0;
        updated_at_ = update_seconds();
        waited_at_ = waited_seconds();
    }

    [[nodiscard]] std::size_t bucket_of(const compress::compressor_choice& one) const {
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket)
            if (this->queue_[bucket].range.lowest_layer == one.layer) return bucket;
        core::fail(core::text("the list of choices has layer ", one.layer, " in step ", one.step,
                              ", which is not the first one of a bucket"),
                   "give the network and the least_numbers of the run that the list is from; where an earlier version "
                   "has written it, load the weights of that run");
    }
    [[nodiscard]] const compress::compressor_choice& next_of_replay() const noexcept {
        return settings_.replay->entries[made_.size()];
    }
    /// Before step `step` the list and the run say the same.
    [[gnu::cold]] void require_prefix(std::uint64_t step) const {
        const auto& wanted = settings_.replay->entries;
        std::size_t past = 0;
        while (past < wanted.size() && wanted[past].step < step) ++past;
        if (made_.size() > wanted.size() || made_.size() < past ||
            !std::equal(made_.begin(), made_.end(), wanted.begin()))
            core::fail(
                core::text("the run has had other compressors before step ", step, " than the list of choices says"),
                "give the list of the run that is resumed, or one that goes on from it");
    }
    void make(const compress::compressor_choice& one) {
        now_[bucket_of(one)] = one.candidate;
        made_.push_back(one);
        counters_[0] = made_.size();
        counters_[made_.size()] = one.step << 24U | one.layer << 8U | one.candidate;
    }
    /// Whether the last of so many steps had messages.
    [[nodiscard]] bool was_compressed(std::size_t bucket, std::uint64_t steps) const {
        std::uint64_t last = 0, before = 0;
        for (const auto& one : made_) {
            if (bucket_of(one) != bucket) continue;
            if (one.step < steps) last = one.candidate;
            if (one.step + 1 < steps) before = one.candidate;
        }
        return last != 0 || before != 0;
    }

    [[gnu::cold]] void start_trial() {
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket) this->queue_[bucket].reducer.try_all();
    }
    /// The largest of all ranks, number by number; infinite where one has none. Collective.
    [[nodiscard, gnu::cold]] std::vector<double> largest(std::vector<double> mine) const {
        const auto bytes = std::as_bytes(std::span{mine});
        for (const std::string& other :
             this->all_.gather_all(std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
            for (std::size_t i = 0; i < mine.size(); ++i) {
                double one = 0;
                std::memcpy(&one, other.data() + i * sizeof(double), sizeof(double));
                mine[i] = std::isnan(one) ? std::numeric_limits<double>::infinity() : std::max(mine[i], one);
            }
        return mine;
    }

    [[gnu::cold]] void decide(std::uint64_t step) {
        const auto begin = clock::now();
        this->queue_.wait_all();
        const auto links = comm::measure_costs(this->all_);
        time_updates();
        const double waited = (waited_seconds() - waited_at_) / std::max(1.0, timed_);
        std::vector<double> mine{control_.step_seconds(), decision_seconds_, 0, -waited};
        for (const double one : forward_) mine.push_back(one / std::max(1.0, timed_));
        for (const double one : backward_) mine.push_back(one / std::max(1.0, timed_));
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket) {
            const auto& reducer = this->queue_[bucket].reducer;
            mine[2] += reducer.trial_seconds();
            mine.push_back(reducer.tried_norm());
            for (const auto& one : reducer.costs(links, each_update_))
                mine.insert(mine.end(), {one.encode, one.sum, one.finish, one.share, one.error});
        }
        const auto all = largest(mine);
        choice_.links_are(links);
        const std::vector<std::size_t> last = now_;
        const auto [next, is_attempt, model] = choice_.decide(last, {.alone = model_of(all),
                                                                     .step = all[0],
                                                                     .waited = -all[3],
                                                                     .is_short = control_.is_short(),
                                                                     .is_dense = is_dense(),
                                                                     .has_room = has_room()});
        const std::size_t first = made_.size();
        const bool is_full = !has_room();
        change(step, next);
        std::string text = core::text("step ", step, ": ", is_attempt ? "tries " : "", changes_since(first));
        if (is_full)
            text += core::text("; the list of choices is full after ", first, ": no candidate is chosen any more");
        for (std::size_t bucket = 0, told = 0; bucket < now_.size(); ++bucket)
            if (std::isfinite(model.buckets[bucket].max_error))
                text += core::text(told++ == 0 ? "; critical " : ", ", name_of_layer(bucket));
        text += core::text(
            ": step ", milliseconds(planner::step_seconds(model, last)), " -> ",
            milliseconds(planner::step_seconds(model, now_)), " predicted, ", milliseconds(all[0]), " measured, ",
            milliseconds(planner::step_seconds(model, std::vector<std::size_t>(now_.size()))), " if all were dense",
            choice_.link() == 1 ? std::string{} : core::text(", links times ", core::fixed(choice_.link(), 2)));
        tell(std::move(text));
        control_.decided(step, now_ != last && now_ != choice_.back(), all[1] + all[2], all[0]);
        clear_times();
        decision_seconds_ = seconds(clock::now() - begin);
    }
    /// Nothing has been compressed lately.
    [[nodiscard]] bool is_dense() const noexcept { return choice_.is_all_dense(now_) && choice_.is_all_dense(before_); }
    /// For messages, but not for slow ranks.
    [[nodiscard]] double waited_seconds() const noexcept {
        const report::seconds_spent all = this->times_.added_to({});
        return all.communication_exposed - all.because.slow_rank;
    }
    /// Of dense steps alone: others decode in their updates.
    [[gnu::cold]] void time_updates() {
        if (!is_dense()) return;
        std::size_t owned = 0;
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket)
            owned += this->queue_[bucket].reducer.owned().size();
        const double updates = update_seconds() - updated_at_;
        if (timed_ > 0 && owned > 0) each_update_ = updates / timed_ / static_cast<double>(owned);
    }
    [[nodiscard]] double update_seconds() const noexcept { return this->times_.added_to({}).update; }
    /// Takes the last change back where it was in vain.
    [[gnu::cold]] void verify(std::uint64_t step) {
        this->queue_.wait_all();
        const double seconds_now = largest({control_.step_seconds()})[0];
        const double before = choice_.measured();
        const auto [next, stays, was_attempt, is_attempt] = choice_.verify(now_, seconds_now);
        const std::size_t first = made_.size();
        change(step, next);
        std::string text = core::text("step ", step, ": ", milliseconds(before), " -> ", milliseconds(seconds_now),
                                      " measured: ", stays ? "stays" : "not kept");
        if (first != made_.size()) text += core::text(is_attempt ? ", tries " : ", ", changes_since(first));
        if (was_attempt)
            text += core::text("; hidden messages take ", core::fixed(choice_.drag(), 2), " of their time from layers");
        tell(std::move(text));
        control_.verified(step, first != made_.size(), is_attempt || (!stays && was_attempt && now_ != choice_.back()));
        clear_times();
    }
    /// Whether steps take what they took: else links have changed, and the next step is a trial.
    [[gnu::cold]] void look(std::uint64_t step) {
        const double now = largest({control_.recent_seconds()})[0], before = control_.reference();
        if (control_.looked(step, now))
            tell(core::text("step ", step, ": steps take ", milliseconds(now), ", after the last decision they took ",
                            milliseconds(before), ": candidates are tried again"));
    }
    /// For a change, for all that is tried after it, for going back, and then for one change of each bucket to dense.
    [[nodiscard]] bool has_room() const noexcept { return made_.size() + 9 * now_.size() <= most_choices; }
    /// As text, with the errors of the last decision.
    [[nodiscard, gnu::cold]] std::string changes_since(std::size_t first) const {
        if (first == made_.size()) return "no change";
        std::string text;
        for (std::size_t k = first; k < made_.size(); ++k) {
            const auto& one = made_[k];
            const std::size_t bucket = bucket_of(one);
            text += core::text(k > first ? ", " : "", name_of_layer(bucket), " ", settings_.name_of(one.candidate));
            if (one.candidate != 0)
                text += core::text(
                    " (error ", core::fixed(choice_.model().buckets[bucket].candidates[one.candidate].error, 2), ")");
        }
        return text;
    }
    [[gnu::cold]] void change(std::uint64_t step, const std::vector<std::size_t>& next) {
        for (std::size_t bucket = 0; bucket < next.size(); ++bucket)
            if (next[bucket] != now_[bucket]) make({step, this->queue_[bucket].range.lowest_layer, next[bucket]});
    }
    /// Keeps the norms of gradients for the next time.
    [[nodiscard, gnu::cold]] planner::step_model model_of(std::span<const double> all) {
        planner::step_model out{.overlaps = this->overlaps_};
        const double* at = all.data() + 4;
        out.forward.assign(at, at + network::size);
        at += network::size;
        out.backward.assign(at, at + network::size);
        at += network::size;
        for (std::size_t bucket = 0; bucket < now_.size(); ++bucket) {
            const auto& one = this->queue_[bucket];
            planner::bucket_costs costs{one.range.lowest_layer, one.range.highest_layer, {}};
            if (settings_.is_critical(norms_[bucket], *at)) costs.max_error = settings_.critical_error;
            norms_[bucket] = *at++;
            for (std::size_t which = 0; which <= settings_.candidates.size(); ++which, at += 5)
                costs.candidates.push_back({at[0], at[1], at[2], at[3],
                                            at[4] < 0 ? std::numeric_limits<double>::max() : at[4],
                                            choice_.is_barred(bucket, which)});
            out.buckets.push_back(std::move(costs));
        }
        return out;
    }
    [[nodiscard, gnu::cold]] std::string name_of_layer(std::size_t bucket) const {
        const bucket_range& range = this->queue_[bucket].range;
        if (range.lowest_layer != range.highest_layer) return name_of(range);
        return core::text("layer ", range.lowest_layer, " (", network::facts[range.lowest_layer].name, ")");
    }
    [[nodiscard, gnu::cold]] static std::string milliseconds(double seconds) {
        return core::fixed(1e3 * seconds, seconds < 0.01 ? 2 : 1) + " ms";
    }
    [[gnu::cold]] void tell(std::string text) {
        if (settings_.tell && this->grid_->rank == 0) settings_.tell("lockstep: " + text + "\n");
        told_.push_back(std::move(text));
    }

    compress::adaptive settings_;
    adaptive_control control_;
    std::vector<std::size_t> now_;     // the candidate of each bucket,
    std::vector<std::size_t> before_;  // and in the step before
    adaptive_choice choice_;
    std::vector<double> norms_;  // of the gradients of buckets at the last decision; negative: there was none
    std::vector<double> forward_, backward_;  // seconds of each layer
    double timed_ = 0;                        // over so many steps
    clock::time_point watch_{};
    double updated_at_ = 0;    // seconds of all updates, when times were cleared
    double waited_at_ = 0;     // the same of waits
    double each_update_ = 0;   // of a number
    std::uint64_t first_ = 0;  // step since the start, or since a state was read
    double decision_seconds_ = 0;
    std::vector<compress::compressor_choice> made_;
    std::vector<std::uint64_t> counters_;  // the same for checkpoints: how many, then each
    std::vector<std::string> told_;
    std::uint64_t steps_ = 0;  // of a state that is read
    bool has_messages_;        // else dense sums are shorter than any encoding
    bool is_fresh_ = true;
};

template <class Types>
    requires compress::adapts<typename Types::compressor>
struct every_step_strategy<Types> {
    using type = adaptive_updates<Types>;
};

}  // namespace lockstep::sync
