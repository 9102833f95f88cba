// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What compress::adaptive concludes from measured times, without the run that they are from.
// Tested by tests/unit/sync/adaptive_choice.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/planner/compression.hpp"

namespace lockstep::sync {

/// The candidate of each bucket: a function of what it is told, which is the same on all ranks. decide() looks for the
/// shortest step by a model that steps correct; verify() takes back what has not made them shorter.
class adaptive_choice {
public:
    using choice = std::vector<std::size_t>;
    struct settings {
        double margin = 0.02;     ///< share of the step that another choice has to save
        double max_error = 0.98;  ///< relative
        bool overlaps = true;     ///< messages travel while layers are computed
    };
    /// Since the last decision, the largest of all ranks.
    struct seen {
        planner::step_model alone;  ///< by what links and candidates take by themselves
        double step = 0;            ///< seconds; infinite where no step was counted
        double waited = 0;          ///< of it for messages, on the rank that waits least
        bool is_short = false;      ///< of few steps
        bool is_dense = false;      ///< nothing was compressed in them
        bool has_room = true;       ///< another choice can be made
    };
    struct decision {
        choice next;
        bool is_attempt = false;
        planner::step_model model;  ///< by which it was made
    };
    struct verdict {
        choice next;
        bool stays = true;  ///< `now` does
        bool was_attempt = false;
        bool is_attempt = false;  ///< `next` is one, to be verified as well
    };

    adaptive_choice(std::size_t buckets, std::size_t candidates, const settings& of)
        : settings_{of}, barred_(buckets, std::vector<bool>(candidates + 1)) {}

    /// The run begins, or goes on from a state.
    [[gnu::cold]] void begin_run() {
        is_attempt_ = is_comparison_ = is_rival_ = false;
        forget_attempts();
        drag_ = dense_took_ = dense_seen_ = 0;
        link_ = coding_ = 1;
        refused_.clear();
    }
    /// Links that are another half slower or faster than when a candidate was barred: it may be tried again. Four
    /// times: what steps have shown of them counts no more. Links of busy hosts seem to change by less.
    [[gnu::cold]] void links_are(const collectives::cost_model& links) {
        const auto differs = [&](const collectives::cost_model& old, double times) {
            const auto by = [&](double a, double b) { return a > times * b || b > times * a; };
            return by(old.between.latency, links.between.latency) ||
                   by(old.between.seconds_per_byte, links.between.seconds_per_byte);
        };
        if (differs(links_, 1.5)) {
            for (auto& bucket : barred_) std::fill(bucket.begin(), bucket.end(), false);
            refused_.clear();
            links_ = links;
        }
        if (differs(steady_links_, 4)) {
            forget_attempts();
            drag_ = dense_took_ = dense_seen_ = 0;
            link_ = 1;
            steady_links_ = links;
        }
    }
    /// For the model of what is seen: the candidate is not to be chosen in this bucket.
    [[nodiscard]] bool is_barred(std::size_t bucket, std::size_t candidate) const { return barred_[bucket][candidate]; }

    /// What to have instead of `now`.
    [[nodiscard, gnu::cold]] decision decide(const choice& now, const seen& of) {
        decision out{now, false, of.alone};
        // Dense steps show what links do while layers are computed: that of the rank that waits least, as others wait
        // for ranks as well.
        if (of.is_dense) {
            link_ = planner::fit_link(out.model, now, of.waited);
            out.model = planner::scaled(out.model, 1, coding_);
            if (std::isfinite(of.step)) dense_took_ = of.is_short ? of.step / (1 + early_margin) : of.step;
            if (std::isfinite(of.step) && !of.is_short) dense_seen_ = of.step;
        } else {
            out.model = planner::scaled(out.model, link_, 1);
            coding_ = planner::fit_coding(out.model, now, of.step);
        }
        model_ = out.model;
        measured_with_ = now;
        out.model = planner::with_drag(model_, now, drag_);
        const planner::compression_rule rule =
            rule_of(of.is_short ? std::max(settings_.margin, early_margin) : settings_.margin);
        // What has to be dense may make the step slower: that is no fault of what the same decision changes.
        back_ = planner::allowed_of(out.model, now, rule);
        rivals_.clear();
        if (!of.has_room) out.next = back_;
        allows_rivals_ = of.has_room && !of.is_short && back_ == now && std::isfinite(of.step) && !is_critical(model_);
        if (of.has_room && !attempt(out, of, rule)) {
            out.next = planner::choose_compression(out.model, now, rule);
            // What was measured counts more than what is predicted. Nothing was where no step has been counted.
            const bool is_slower = (is_all_dense(out.next) && of.step < dense_took_) || was_refused(out.next);
            if (is_slower || !std::isfinite(of.step)) out.next = back_;
            if (out.next == back_) compare_with_dense(out, of);
        }
        measured_ = of.step;
        if (back_ != now) measured_ *= planner::step_seconds(out.model, back_) / planner::step_seconds(out.model, now);
        if (out.next == now) out.is_attempt = try_rival(out.next, measured_);
        return out;
    }
    /// After a decision that has changed something, some steps later, when steps take so many seconds with `now`.
    [[nodiscard, gnu::cold]] verdict verify(const choice& now, double seconds) {
        verdict out = std::exchange(is_rival_, false) ? judge_rival(now, seconds) : judge(now, seconds);
        // Where what comes next has been measured, it has rivals; but a first attempt is made before.
        const bool has_followed = has_attempted_ || !settings_.overlaps || !rivals_.empty();
        if (has_followed && (out.next == now || out.next == back_))
            out.is_attempt = try_rival(out.next, out.next == now ? seconds : measured_);
        return out;
    }

    /// What a change is compared with: the choice before it, as far as it is allowed, and seconds of a step with it.
    [[nodiscard]] const choice& back() const noexcept { return back_; }
    [[nodiscard]] double measured() const noexcept { return measured_; }
    /// Of the last decision.
    [[nodiscard]] const planner::step_model& model() const noexcept { return model_; }
    /// See planner::with_drag.
    [[nodiscard]] double drag() const noexcept { return drag_; }
    /// How many times as long as alone messages take in steps.
    [[nodiscard]] double link() const noexcept { return link_; }

    [[nodiscard]] static bool is_all_dense(const choice& of) noexcept {
        return std::ranges::all_of(of, [](std::size_t one) { return one == 0; });
    }

private:
    /// What has to be saved where few steps have been measured.
    static constexpr double early_margin = 0.3;
    /// Of a step: what the best choice is predicted to take, or has taken, whichever is longer. The second for rivals
    /// that are predicted to take less than dense.
    static constexpr double rival_share = 0.25, rival_share_below_dense = 1;
    static constexpr std::size_t most_rivals = 3;
    /// Beside layers encoding and decoding may take so much less than alone.
    static constexpr double least_coding = 0.25;

    /// Of a change by the model.
    [[nodiscard, gnu::cold]] verdict judge(const choice& now, double seconds) {
        if (!has_rivals_) measured_ones_.insert(measured_ones_.end(), {now, back_});
        verdict out{now, seconds < measured_, std::exchange(is_attempt_, false)};
        const bool was_comparison = std::exchange(is_comparison_, false);
        if (out.was_attempt) {
            drag_ = planner::fit_drag(model_, measured_with_, back_, now, measured_ - seconds);
            out.stays = seconds < (1 - settings_.margin) * measured_;
            if (out.stays) return out;
            // What is best with the drag that it has shown, or what was before.
            out.next = planner::choose_compression(planner::with_drag(model_, measured_with_, drag_), back_,
                                                   rule_of(settings_.margin));
            if (out.next == now) out.next = back_;
            return out;
        }
        if (is_all_dense(now)) dense_took_ = dense_seen_ = seconds;
        if (out.stays && was_comparison) refused_.push_back(back_);
        if (out.stays) return out;
        out.next = back_;
        if (was_comparison) return out;  // dense takes longer than it did: that is known now
        for (std::size_t bucket = 0; bucket < now.size(); ++bucket)
            if (now[bucket] != back_[bucket] && now[bucket] != 0) barred_[bucket][now[bucket]] = true;
        refused_.push_back(now);
        return out;
    }
    /// What is quicker stays; against dense it has to save the margin. The model may come back to what was slower by
    /// less than that: ten steps have shown little.
    [[nodiscard, gnu::cold]] verdict judge_rival(const choice& now, double seconds) {
        if (is_all_dense(now)) dense_took_ = dense_seen_ = seconds;
        const bool saves = seconds < (1 - settings_.margin) * measured_;
        verdict out{now, saves || (seconds < measured_ && !is_all_dense(back_))};
        if (!out.stays) out.next = back_;
        if (!out.stays || saves) refused_.push_back(out.stays ? back_ : now);
        return out;
    }
    /// The model may be wrong by more than two choices differ. So once some of the rivals of what it has found are
    /// tried as well: one candidate everywhere. Puts the next one in place of `best`, which steps have shown to take so
    /// many seconds, if there is one; there is none where layers are dense and no attempt has been made.
    [[nodiscard, gnu::cold]] bool try_rival(choice& best, double seconds) {
        if (!allows_rivals_ || (!has_attempted_ && is_all_dense(best))) return false;
        if (!has_rivals_) list_rivals(best, seconds);
        if (rivals_.empty()) return false;
        has_rivals_ = is_rival_ = true;
        back_ = std::exchange(best, std::move(rivals_.back()));
        rivals_.pop_back();
        measured_ = seconds;
        return true;
    }
    /// Each candidate in all buckets where it is allowed, in the others what `best` has; and dense, where enough steps
    /// of it have not been seen, as after a resume. Those few that are predicted to take the least, and not much more
    /// than `best`, with which a step has taken so many seconds: the model may know only some of them.
    [[gnu::cold]] void list_rivals(const choice& best, double seconds) {
        const planner::step_model model = planner::with_drag(model_, measured_with_, drag_);
        const planner::compression_rule rule = rule_of(settings_.margin);
        const double least = planner::step_seconds(model, best);
        const double step = std::max(least, seconds), dense = planner::step_seconds(model, choice(best.size()));
        std::vector<std::pair<double, choice>> found;
        for (std::size_t candidate = dense_seen_ > 0 ? 1 : 0; candidate < barred_[0].size(); ++candidate) {
            choice all = best;
            for (std::size_t bucket = 0; bucket < all.size(); ++bucket)
                if (!barred_[bucket][candidate] && planner::is_allowed(model.buckets[bucket], candidate, rule))
                    all[bucket] = candidate;
            const bool is_known =
                all == best || (candidate > 0 && std::ranges::find(measured_ones_, all) != measured_ones_.end());
            const double predicted = planner::step_seconds(model, all);
            const double share = predicted < dense ? rival_share_below_dense : rival_share;
            if (!is_known && predicted <= least + share * step) found.emplace_back(predicted, std::move(all));
        }
        std::ranges::sort(found);
        if (found.size() > most_rivals) found.resize(most_rivals);
        for (auto one = found.rbegin(); one != found.rend(); ++one) rivals_.push_back(std::move(one->second));
    }
    [[nodiscard]] static bool is_critical(const planner::step_model& of) noexcept {
        return std::ranges::any_of(of.buckets, [](const auto& one) { return std::isfinite(one.max_error); });
    }
    void forget_attempts() noexcept {
        has_attempted_ = has_rivals_ = false;
        measured_ones_.clear();
    }
    [[nodiscard]] planner::compression_rule rule_of(double margin) const noexcept {
        return {.margin = margin, .max_error = settings_.max_error};
    }

    /// The model does not know whether messages that are hidden take time from the core that computes, nor how much
    /// less encoding takes in a step. So once the choice that is best if messages take all of theirs and encoding the
    /// least is tried, and how much messages take is seen. Whether it is.
    [[nodiscard, gnu::cold]] bool attempt(decision& out, const seen& of, const planner::compression_rule& rule) {
        if (has_attempted_ || !settings_.overlaps || of.is_short) return false;
        // Links that a step seems to use for less than they take alone may cost it elsewhere.
        const planner::step_model at_most =
            planner::scaled(of.alone, std::max(1.0, link_), std::min(coding_, least_coding));
        const choice& now = measured_with_;
        choice next = planner::choose_compression(planner::with_drag(at_most, now, 1), now, rule);
        if (planner::link_seconds(at_most, next) >= planner::link_seconds(at_most, now) || next == back_) return false;
        out.next = std::move(next);
        out.is_attempt = is_attempt_ = has_attempted_ = true;
        return true;
    }

    [[nodiscard]] bool was_refused(const choice& one) const noexcept {
        return std::ranges::find(refused_, one) != refused_.end();
    }
    /// A change is kept by some steps, which may have been quick ones. Where steps now take longer than dense ones
    /// took, these are tried again: the quicker ones stay.
    [[gnu::cold]] void compare_with_dense(decision& out, const seen& of) {
        if (of.is_dense || of.is_short || is_all_dense(back_) || dense_seen_ == 0) return;
        if (!(std::isfinite(of.step) && of.step > (1 + settings_.margin) * dense_seen_)) return;
        out.next.assign(back_.size(), 0);
        is_comparison_ = true;
    }

    settings settings_;
    std::vector<std::vector<bool>> barred_;
    planner::step_model model_;  // of the last decision, without drag,
    choice measured_with_;       // whose layers were measured with this choice
    choice back_;                // the choice before the last change, as far as it is allowed
    std::vector<choice> refused_;  // what changes that were taken back had made of it
    double measured_ = 0;        // a step with back_
    double drag_ = 0;
    double link_ = 1, coding_ = 1;  // see planner::scaled
    double dense_seen_ = 0;         // a step as it was measured without compressed layers, in enough steps
    double dense_took_ = 0;         // a step at the last decision without compressed layers; 0: not known
    bool has_attempted_ = false, is_attempt_ = false, is_comparison_ = false;
    std::vector<choice> measured_ones_;  // before rivals were tried
    std::vector<choice> rivals_;         // that are still to be tried since the last decision, the last one first
    bool allows_rivals_ = false, has_rivals_ = false, is_rival_ = false;
    collectives::cost_model links_;         // when candidates were barred
    collectives::cost_model steady_links_;  // since when steps have shown something of them
};

}  // namespace lockstep::sync
