// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/adaptive_choice.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/planner/compression.hpp"

using lockstep::planner::step_model;
using lockstep::planner::step_seconds;
using lockstep::sync::adaptive_choice;
using choice = adaptive_choice::choice;

namespace {

namespace ls = lockstep;

/// A layer of 1 s forward and 2 s backward, and a bucket: dense, or with one candidate.
step_model one_layer(double dense_sum, ls::planner::compression_cost candidate, bool overlaps) {
    return {.forward = {1},
            .backward = {2},
            .buckets = {{0, 0, {{0, dense_sum, 0, 0, 0, false}, candidate}}},
            .overlaps = overlaps};
}
/// Of two layers, of which the first to be ready has messages that backward of the other hides.
step_model hidden(double dense_sum, ls::planner::compression_cost candidate) {
    return {.forward = {1, 1},
            .backward = {50, 1},
            .buckets = {{1, 1, {{0, dense_sum, 0, 0, 0, false}, candidate}}, {0, 0, {{}}}},
            .overlaps = true};
}
ls::collectives::cost_model links(double latency) {
    return {.inside = {}, .between = {latency, 1e-9}, .seconds_per_added_byte = 0};
}
/// What a run sees that has been dense.
adaptive_choice::seen dense_steps(const step_model& model) {
    const choice dense(model.buckets.size());
    step_model without = ls::planner::scaled(model, 0, 1);
    return {.alone = model,
            .step = step_seconds(model, dense),
            .waited = step_seconds(model, dense) - step_seconds(without, dense),
            .is_dense = true};
}

}  // namespace

TEST_CASE("sync/adaptive_choice: what saves the margin is chosen, and stays where steps get shorter") {
    const step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);
    adaptive_choice of{1, 1, {.overlaps = false}};
    of.links_are(links(1e-6));
    of.begin_run();
    const auto made = of.decide({0}, dense_steps(model));
    CHECK(made.next == choice{1});
    CHECK_FALSE(made.is_attempt);
    CHECK(of.back() == choice{0});
    CHECK(of.measured() == Approx(13));
    const auto verdict = of.verify({1}, 12.9);
    CHECK(verdict.stays);
    CHECK(verdict.next == choice{1});
    CHECK_FALSE(of.is_barred(0, 1));

    // A margin that is not saved, an error that is too large.
    adaptive_choice reluctant{1, 1, {.margin = 0.55, .overlaps = false}};
    CHECK(reluctant.decide({0}, dense_steps(model)).next == choice{0});
    adaptive_choice strict{1, 1, {.max_error = 0.4, .overlaps = false}};
    CHECK(strict.decide({0}, dense_steps(model)).next == choice{0});
}

TEST_CASE("sync/adaptive_choice: few steps ask for a larger gain, none and no room for no change at all") {
    const step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);  // 13 s or 6 s
    const step_model less = one_layer(10, {3, 3, 3, 0, 0.5}, false);   // 13 s or 12 s
    const auto next = [](const adaptive_choice::seen& seen) {
        return adaptive_choice{1, 1, {.overlaps = false}}.decide({0}, seen).next;
    };
    auto seen = dense_steps(model);
    seen.is_short = true;
    CHECK(next(seen) == choice{1});
    seen = dense_steps(less);
    CHECK(next(seen) == choice{1});
    seen.is_short = true;
    CHECK(next(seen) == choice{0});
    seen = dense_steps(model);
    seen.step = std::numeric_limits<double>::infinity();
    CHECK(next(seen) == choice{0});
    seen = dense_steps(model);
    seen.has_room = false;
    CHECK(next(seen) == choice{0});
}

TEST_CASE(
    "sync/adaptive_choice: a change that makes steps longer is taken back, and not made again until links change") {
    const step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);
    adaptive_choice of{1, 1, {.overlaps = false}};
    of.links_are(links(1e-6));
    const auto seen = [&] {
        auto out = dense_steps(model);
        out.alone.buckets[0].candidates[1].is_barred = of.is_barred(0, 1);
        return out;
    };
    CHECK(of.decide({0}, seen()).next == choice{1});
    const auto verdict = of.verify({1}, 13.1);
    CHECK_FALSE(verdict.stays);
    CHECK_FALSE(verdict.was_attempt);
    CHECK(verdict.next == choice{0});
    CHECK(of.is_barred(0, 1));
    CHECK(of.decide({0}, seen()).next == choice{0});
    of.links_are(links(1.4e-6));
    CHECK(of.decide({0}, seen()).next == choice{0});
    of.links_are(links(1.6e-6));
    CHECK_FALSE(of.is_barred(0, 1));
    CHECK(of.decide({0}, seen()).next == choice{1});
}

TEST_CASE("sync/adaptive_choice: what is barred or too inexact becomes dense, also where that takes longer") {
    step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);
    adaptive_choice of{1, 1, {.overlaps = false}};
    CHECK(of.decide({0}, dense_steps(model)).next == choice{1});
    CHECK(of.verify({1}, 6).stays);
    model.buckets[0].max_error = 0.3;
    const auto made = of.decide({1}, {.alone = model, .step = 6});
    CHECK(made.next == choice{0});
    // That is what a change would be compared with: the owner has nothing to verify.
    CHECK(of.back() == choice{0});
    CHECK(of.measured() == Approx(13));
    // Where there is room for no other change, too.
    CHECK(adaptive_choice{1, 1, {.overlaps = false}}.decide({1}, {.alone = model, .step = 6, .has_room = false}).next ==
          choice{0});
    model.buckets[0].max_error = 1;
    CHECK(adaptive_choice{1, 1, {.overlaps = false}}.decide({1}, {.alone = model, .step = 6, .has_room = false}).next ==
          choice{1});
}

TEST_CASE("sync/adaptive_choice: layers do not become dense where dense steps took longer than those of now") {
    // The model finds dense shorter, but dense steps were seen to take 13 s.
    const step_model first = one_layer(10, {1, 1, 1, 0, 0.5}, false), later = one_layer(2, {1, 1, 1, 0, 0.5}, false);
    adaptive_choice of{1, 1, {.overlaps = false}};
    CHECK(of.decide({0}, dense_steps(first)).next == choice{1});
    CHECK(of.verify({1}, 6).stays);
    CHECK(of.decide({1}, {.alone = later, .step = 6}).next == choice{1});
    CHECK(of.decide({1}, {.alone = later, .step = 13.5}).next == choice{0});
}

TEST_CASE("sync/adaptive_choice: dense layers that made steps longer are not chosen again until links change") {
    // Each of two layers: dense 10 s; the candidate 3 s, later 12 s.
    const auto model = [](double encode) {
        step_model out = one_layer(10, {1, 1, 1, 0, 0.5}, false);
        out.forward.push_back(1);
        out.backward.push_back(2);
        out.buckets.insert(out.buckets.begin(), out.buckets[0]);
        out.buckets[0].lowest_layer = out.buckets[0].highest_layer = 1;
        out.buckets[0].candidates[1].encode = encode;
        return out;
    };
    adaptive_choice of{2, 1, {.overlaps = false}};
    of.links_are(links(1e-6));
    CHECK(of.decide({0, 0}, dense_steps(model(1))).next == choice{1, 1});
    CHECK(of.verify({1, 1}, 12).stays);
    const adaptive_choice::seen later{.alone = model(20), .step = step_seconds(model(20), choice{1, 1})};
    CHECK(of.decide({1, 1}, later).next == choice{0, 1});
    CHECK(of.verify({0, 1}, later.step + 1).next == choice{1, 1});
    // Both dense took 26 s before: that is compared, and not better either.
    CHECK(of.decide({1, 1}, later).next == choice{0, 0});
    CHECK(of.verify({0, 0}, later.step + 1).next == choice{1, 1});
    CHECK(of.decide({1, 1}, later).next == choice{1, 1});
    CHECK(of.decide({1, 1}, later).next == choice{1, 1});
    of.links_are(links(2e-6));
    CHECK(of.decide({1, 1}, later).next == choice{0, 1});
}

TEST_CASE("sync/adaptive_choice: a run does not stay slower than dense: what quick steps have kept is compared again") {
    const step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);  // 13 s, 6 s predicted
    const auto keeps_a_bad_one = [&](adaptive_choice& of) {
        of.links_are(links(1e-6));
        CHECK(of.decide({0}, dense_steps(model)).next == choice{1});
        CHECK(of.verify({1}, 12.9).stays);
        // Within the margin nothing is compared, and few steps say nothing.
        CHECK(of.decide({1}, {.alone = model, .step = 13.2}).next == choice{1});
        CHECK(of.decide({1}, {.alone = model, .step = 14, .is_short = true}).next == choice{1});
        const auto made = of.decide({1}, {.alone = model, .step = 14});
        CHECK(made.next == choice{0});
        CHECK_FALSE(made.is_attempt);
        CHECK(of.measured() == Approx(14));
    };
    adaptive_choice bad{1, 1, {.overlaps = false}};
    keeps_a_bad_one(bad);
    const auto verdict = bad.verify({0}, 13);
    CHECK(verdict.stays);
    CHECK(verdict.next == choice{0});
    CHECK(bad.decide({0}, dense_steps(model)).next == choice{0});
    bad.links_are(links(2e-6));
    CHECK(bad.decide({0}, dense_steps(model)).next == choice{1});
    // The whole machine has become slower: dense as well.
    adaptive_choice good{1, 1, {.overlaps = false}};
    keeps_a_bad_one(good);
    CHECK(good.verify({0}, 27).next == choice{1});
    CHECK_FALSE(good.is_barred(0, 1));
    CHECK(good.decide({1}, {.alone = model, .step = 14}).next == choice{1});
    // What was never dense is not known to be slower.
    adaptive_choice resumed{1, 1, {.overlaps = false}};
    resumed.links_are(links(1e-6));
    CHECK(resumed.decide({1}, {.alone = model, .step = 20}).next == choice{1});
}

TEST_CASE("sync/adaptive_choice: few first steps say too little of dense for a comparison") {
    const step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false);
    adaptive_choice of{1, 1, {.overlaps = false}};
    auto first = dense_steps(model);
    first.is_short = true;
    CHECK(of.decide({0}, first).next == choice{1});
    CHECK(of.verify({1}, 11).stays);
    CHECK(of.decide({1}, {.alone = model, .step = 11}).next == choice{1});
}

TEST_CASE("sync/adaptive_choice: what has to be dense is no comparison, and dense is not barred by it") {
    step_model model = one_layer(10, {1, 1, 1, 0, 0.5}, false), inexact = model;
    inexact.buckets[0].max_error = 0.3;
    adaptive_choice of{1, 1, {.overlaps = false}};
    of.links_are(links(1e-6));
    CHECK(of.decide({0}, dense_steps(model)).next == choice{1});
    CHECK(of.verify({1}, 12.9).stays);
    CHECK(of.decide({1}, {.alone = inexact, .step = 14}).next == choice{0});
    CHECK(of.back() == choice{0});  // nothing to verify
    CHECK(of.decide({0}, dense_steps(model)).next == choice{1});
    CHECK(of.verify({1}, 12.9).stays);
    // Dense is compared all the same, and stays where it is quicker.
    CHECK(of.decide({1}, {.alone = model, .step = 20}).next == choice{0});
    CHECK(of.verify({0}, 13).stays);
}

TEST_CASE("sync/adaptive_choice: steps correct what links and encoding take alone") {
    // Alone: dense 10 s, the candidate 6 s.
    const step_model model = one_layer(10, {3, 0, 3, 0, 0.5}, false);
    adaptive_choice fast_links{1, 1, {.overlaps = false}};
    CHECK(fast_links.decide({0}, {.alone = model, .step = 8, .waited = 5, .is_dense = true}).next == choice{0});
    CHECK(fast_links.link() == Approx(0.5));
    adaptive_choice slow_links{1, 1, {.overlaps = false}};
    CHECK(slow_links.decide({0}, {.alone = model, .step = 23, .waited = 20, .is_dense = true}).next == choice{1});
    CHECK(slow_links.link() == Approx(2));

    // A second layer: dense 5 s, the candidate 7 s; but steps show that encoding takes half of the time.
    step_model two = model;
    two.forward.push_back(1);
    two.backward.push_back(2);
    two.buckets.insert(two.buckets.begin(), {1, 1, {{0, 5, 0, 0, 0}, {3, 1, 3, 0, 0.5}}});
    adaptive_choice encoding{2, 1, {.overlaps = false}};
    CHECK(encoding.decide({0, 0}, dense_steps(two)).next == choice{0, 1});
    const double half = step_seconds(ls::planner::scaled(two, 1, 0.5), choice{0, 1});
    CHECK(encoding.verify({0, 1}, half).stays);
    CHECK(encoding.decide({0, 1}, {.alone = two, .step = half}).next == choice{1, 1});
}

TEST_CASE("sync/adaptive_choice: hidden messages are attempted to be shorter once, which shows what they take") {
    const auto begin = [](adaptive_choice& of, const step_model& model) {
        const auto made = of.decide({0, 0}, dense_steps(model));
        REQUIRE(made.is_attempt);
        REQUIRE(made.next == choice{1, 0});
    };
    SECTION("it stays where it saves the margin") {
        const step_model model = hidden(60, {0.1, 1, 0.1, 0, 0.5});
        adaptive_choice of{2, 1, {}};
        begin(of, model);
        const choice measured{0, 0}, now{1, 0};
        const auto verdict = of.verify(now, step_seconds(ls::planner::with_drag(model, measured, 0.4), now));
        CHECK(verdict.was_attempt);
        CHECK(verdict.stays);
        CHECK(of.drag() == Approx(0.4).epsilon(1e-6));
        CHECK_FALSE(of.verify(now, 1).was_attempt);
    }
    SECTION("it is taken back where it does not, and not made again") {
        const step_model model = hidden(20, {0.1, 1, 0.1, 0, 0.5});
        adaptive_choice of{2, 1, {}};
        begin(of, model);
        const auto verdict = of.verify({1, 0}, step_seconds(model, choice{0, 0}) + 0.2);
        CHECK(verdict.was_attempt);
        CHECK_FALSE(verdict.stays);
        CHECK(verdict.next == choice{0, 0});
        CHECK(of.drag() == 0);
        CHECK_FALSE(of.is_barred(0, 1));  // that messages are hidden is no fault of the candidate
        const auto again = of.decide({0, 0}, dense_steps(model));
        CHECK_FALSE(again.is_attempt);
        CHECK(again.next == choice{0, 0});
        of.begin_run();
        begin(of, model);
    }
    SECTION("nor where the model finds it best") {
        const step_model model = hidden(60, {0.1, 1, 0.1, 0, 0.5});
        adaptive_choice of{2, 1, {}};
        begin(of, model);
        CHECK(of.verify({1, 0}, step_seconds(model, choice{0, 0}) + 0.2).next == choice{0, 0});
    }
    SECTION("not without overlap, and not after few steps") {
        const step_model model = hidden(20, {0.1, 1, 0.1, 0, 0.5});
        adaptive_choice blocking{2, 1, {.overlaps = false}};
        CHECK_FALSE(blocking.decide({0, 0}, dense_steps(model)).is_attempt);
        auto few = dense_steps(model);
        few.is_short = true;
        CHECK_FALSE(adaptive_choice{2, 1, {}}.decide({0, 0}, few).is_attempt);
    }
}

TEST_CASE("sync/adaptive_choice: one candidate everywhere is tried as well, and stays where it takes less") {
    // Two layers of 3 s. The model finds candidates 1 and 2 best: 7.9 s; candidate 1 alone 8.1 s, 2 alone 8.2 s.
    step_model model{.forward = {1, 1}, .backward = {2, 2}, .buckets = {}, .overlaps = false};
    model.buckets = {{1, 1, {{0, 10, 0, 0, 0}, {1, 0, 0, 0, 0.5}, {1.3, 0, 0, 0, 0.5}}},
                     {0, 0, {{0, 10, 0, 0, 0}, {1.1, 0, 0, 0, 0.5}, {0.9, 0, 0, 0, 0.5}}}};
    const auto begin = [&](adaptive_choice& of, const step_model& seen) {
        of.links_are(links(1e-6));
        CHECK(of.decide({0, 0}, dense_steps(seen)).next == choice{1, 2});
        return of.verify({1, 2}, 8);
    };
    SECTION("the quickest of them is not tried anew, and what it has beaten neither, until links change") {
        adaptive_choice of{2, 2, {.overlaps = false}};
        auto verdict = begin(of, model);
        CHECK(verdict.stays);
        CHECK(verdict.is_attempt);
        CHECK(verdict.next == choice{1, 1});
        CHECK(of.back() == choice{1, 2});
        CHECK(of.measured() == 8);
        verdict = of.verify({1, 1}, 8.1);
        CHECK_FALSE(verdict.stays);
        CHECK(verdict.is_attempt);
        CHECK(verdict.next == choice{2, 2});
        CHECK(of.back() == choice{1, 2});
        CHECK(of.measured() == 8);
        verdict = of.verify({2, 2}, 7.8);
        CHECK(verdict.stays);
        CHECK_FALSE(verdict.is_attempt);
        CHECK(verdict.next == choice{2, 2});
        CHECK_FALSE(of.is_barred(1, 1));
        CHECK(of.decide({2, 2}, {.alone = model, .step = 7.9}).next == choice{2, 2});
        of.links_are(links(1.6e-6));
        auto again = of.decide({2, 2}, {.alone = model, .step = 7.9});
        CHECK(again.next == choice{1, 2});
        CHECK_FALSE(again.is_attempt);
        CHECK_FALSE(of.verify({1, 2}, 7).is_attempt);
        of.begin_run();
        of.links_are(links(1.6e-6));
        CHECK(of.decide({1, 2}, {.alone = model, .step = 7}).next == choice{1, 1});
    }
    SECTION("what was slower by less than the margin comes back where the model asks for it") {
        adaptive_choice of{2, 2, {.margin = 0.005, .overlaps = false}};
        (void)begin(of, model);
        (void)of.verify({1, 1}, 8.1);
        CHECK(of.verify({2, 2}, 7.98).next == choice{2, 2});
        CHECK(of.decide({2, 2}, {.alone = model, .step = 9}).next == choice{1, 2});
    }
    SECTION("a decision that finds nothing better begins with them, one that knows few steps does not") {
        adaptive_choice of{2, 2, {.overlaps = false}};
        of.links_are(links(1e-6));
        auto few = dense_steps(model);
        few.is_short = true;
        CHECK(of.decide({0, 0}, few).next == choice{1, 2});
        CHECK_FALSE(of.verify({1, 2}, 8).is_attempt);
        const adaptive_choice::seen seen{.alone = model, .step = 8};
        for (auto kind : {0, 1, 2}) {
            auto other = seen;
            if (kind == 0) other.is_short = true;
            if (kind == 1) other.has_room = false;
            if (kind == 2) other.step = std::numeric_limits<double>::infinity();
            CHECK(of.decide({1, 2}, other).next == choice{1, 2});
        }
        const auto made = of.decide({1, 2}, seen);
        CHECK(made.is_attempt);
        CHECK(made.next == choice{1, 1});
        CHECK(of.back() == choice{1, 2});
        const auto verdict = of.verify({1, 1}, 9);
        CHECK(verdict.is_attempt);
        CHECK(verdict.next == choice{2, 2});
        CHECK(of.verify({2, 2}, 9).next == choice{1, 2});
        CHECK_FALSE(of.decide({1, 2}, seen).is_attempt);
    }
    SECTION("not in critical phases, and not beside a choice whose time is not known") {
        step_model critical = model;
        critical.buckets[0].max_error = 0.6;
        adaptive_choice of{2, 2, {.overlaps = false}};
        CHECK_FALSE(begin(of, critical).is_attempt);
        CHECK_FALSE(of.decide({1, 2}, {.alone = critical, .step = 8}).is_attempt);
        critical.buckets[0].max_error = 0.4;
        CHECK(of.decide({1, 2}, {.alone = critical, .step = 8}).next == choice{0, 2});
        CHECK(of.decide({1, 2}, {.alone = model, .step = 8}).next == choice{1, 1});
    }
    SECTION("nor where what was before was not allowed any more, but at the next decision") {
        step_model inexact = model;
        inexact.buckets[0].candidates[1].error = 0.99;
        adaptive_choice of{2, 2, {.overlaps = false}};
        of.links_are(links(1e-6));
        CHECK(of.decide({1, 2}, {.alone = inexact, .step = 8}).next == choice{2, 2});
        REQUIRE(of.back() == choice{0, 2});
        CHECK_FALSE(of.verify({2, 2}, 9).is_attempt);
        CHECK(of.decide({2, 2}, {.alone = inexact, .step = 9}).next == choice{2, 1});
    }
    SECTION("dense is one where the run has not seen it for long, as after a resume") {
        step_model fast = model;  // dense 7.95 s
        for (auto& bucket : fast.buckets) bucket.candidates[0].sum = 0.975;
        const adaptive_choice::seen seen{.alone = fast, .step = step_seconds(fast, choice{1, 2})};
        adaptive_choice resumed{2, 2, {.overlaps = false}};
        CHECK(resumed.decide({1, 2}, seen).next == choice{0, 0});
        CHECK(resumed.back() == choice{1, 2});
        auto verdict = resumed.verify({0, 0}, 7.5);
        CHECK(verdict.stays);
        CHECK_FALSE(verdict.is_attempt);  // others have to be quicker than they are predicted to be
        CHECK(verdict.next == choice{0, 0});
        adaptive_choice slower{2, 2, {.overlaps = false}};
        CHECK(slower.decide({1, 2}, seen).next == choice{0, 0});
        CHECK(slower.verify({0, 0}, 8.2).next == choice{1, 1});
        CHECK(slower.verify({1, 1}, 8.2).next == choice{2, 2});
        CHECK(slower.verify({2, 2}, 8.2).next == choice{1, 2});
        // Now it is known.
        CHECK(slower.decide({1, 2}, {.alone = fast, .step = 8.5}).next == choice{0, 0});
        // Of the few first steps neither.
        step_model slow = fast;
        for (auto& bucket : slow.buckets) bucket.candidates[0].sum = 10;
        auto few = dense_steps(slow);
        few.is_short = true;
        adaptive_choice early{2, 2, {.overlaps = false}};
        CHECK(early.decide({0, 0}, few).next == choice{1, 2});
        CHECK_FALSE(early.verify({1, 2}, 8).is_attempt);
        CHECK(early.decide({1, 2}, seen).next == choice{0, 0});
        adaptive_choice begun{2, 2, {.overlaps = false}};
        begun.links_are(links(1e-6));
        auto dense = dense_steps(fast);
        CHECK(begun.decide({0, 0}, dense).next == choice{0, 0});
        CHECK(begun.decide({1, 2}, seen).next == choice{1, 1});
    }
    SECTION("a run that goes on from a state begins with the first again") {
        adaptive_choice of{2, 2, {.overlaps = false}};
        CHECK(begin(of, model).next == choice{1, 1});
        of.begin_run();
        of.links_are(links(1e-6));
        CHECK(of.decide({1, 2}, {.alone = model, .step = 8}).next == choice{1, 1});
        CHECK(of.verify({1, 1}, 9).next == choice{2, 2});
        CHECK_FALSE(of.verify({2, 2}, 9).is_attempt);
    }
    SECTION("what a run has had before is no rival, and what is barred neither") {
        adaptive_choice of{2, 2, {.overlaps = false}};
        of.links_are(links(1e-6));
        step_model first = model;
        first.buckets[0].candidates[2].encode = 0.2;
        auto few = dense_steps(first);
        few.is_short = true;
        CHECK(of.decide({0, 0}, few).next == choice{2, 2});
        CHECK_FALSE(of.verify({2, 2}, 9).is_attempt);
        CHECK(of.decide({2, 2}, {.alone = model, .step = 9}).next == choice{1, 2});
        CHECK(of.verify({1, 2}, 8).next == choice{1, 1});
        CHECK_FALSE(of.verify({1, 1}, 9).is_attempt);

        adaptive_choice barred{2, 2, {.overlaps = false}};
        barred.links_are(links(1e-6));
        few.alone = model;
        CHECK(barred.decide({0, 0}, few).next == choice{1, 2});
        CHECK(barred.verify({1, 2}, 30).next == choice{0, 0});
        CHECK(barred.is_barred(0, 1));
        step_model without = model;
        for (std::size_t b = 0; b < 2; ++b)
            for (std::size_t k = 1; k < 3; ++k) without.buckets[b].candidates[k].is_barred = barred.is_barred(b, k);
        CHECK(barred.decide({0, 0}, dense_steps(without)).next == choice{2, 1});
        CHECK_FALSE(barred.verify({2, 1}, 9).is_attempt);
    }
    SECTION("where none takes less, the choice of the model comes back") {
        adaptive_choice of{2, 2, {.overlaps = false}};
        (void)begin(of, model);
        CHECK(of.verify({1, 1}, 8).next == choice{2, 2});
        const auto verdict = of.verify({2, 2}, 8);
        CHECK_FALSE(verdict.stays);
        CHECK_FALSE(verdict.is_attempt);
        CHECK(verdict.next == choice{1, 2});
    }
    SECTION(
        "but where its error is too large, and not if that is predicted to take a quarter more, and longer than "
        "dense") {
        step_model inexact = model, slow = model;
        for (auto& bucket : slow.buckets) bucket.candidates[0].sum = 1.95;
        inexact.buckets[0].candidates[2].error = 0.99;
        slow.buckets[1].candidates[1].encode = 3.1;
        slow.buckets[0].candidates[2].encode = 3.1;
        adaptive_choice bounded{2, 2, {.overlaps = false}}, quick{2, 2, {.overlaps = false}};
        CHECK(begin(bounded, inexact).next == choice{1, 1});
        const auto verdict = bounded.verify({1, 1}, 8.1);
        CHECK_FALSE(verdict.is_attempt);
        CHECK(verdict.next == choice{1, 2});
        CHECK_FALSE(begin(quick, slow).is_attempt);
    }
    SECTION("a quarter of a step that takes longer than it is predicted to is more") {
        model.buckets[1].candidates[1].encode = 3.1;
        model.buckets[0].candidates[2].encode = 3.1;
        const double predicted = step_seconds(model, choice{1, 2});
        for (const bool dense_is_slow : {false, true})
            for (const double times : {1.0, 3.0}) {
                for (auto& bucket : model.buckets) bucket.candidates[0].sum = dense_is_slow ? 10 : 1.95;
                adaptive_choice of{2, 2, {.overlaps = false}};
                of.links_are(links(1e-6));
                CHECK(of.decide({1, 2}, {.alone = model, .step = times * predicted}).is_attempt ==
                      (times > 2 || dense_is_slow));
            }
    }
    SECTION("after a hidden attempt that was in vain it has to save the margin against dense") {
        step_model two = hidden(20, {0.1, 1, 0.1, 0, 0.5});
        two.buckets[0].candidates.push_back({0.2, 1, 0.1, 0, 0.5});
        for (const double saved : {0.01, 0.03}) {
            adaptive_choice of{2, 2, {}};
            const double dense = step_seconds(two, choice{0, 0});
            REQUIRE(of.decide({0, 0}, dense_steps(two)).next == choice{1, 0});
            auto verdict = of.verify({1, 0}, dense + 0.2);
            REQUIRE(verdict.is_attempt);
            CHECK(verdict.next == choice{2, 0});
            verdict = of.verify({2, 0}, (1 - saved) * dense);
            CHECK(verdict.stays == (saved > 0.02));
            CHECK(verdict.next == (saved > 0.02 ? choice{2, 0} : choice{0, 0}));
        }
    }
    SECTION("at most three, those that are predicted to take the least") {
        for (std::size_t candidate = 3; candidate < 6; ++candidate)
            for (auto& bucket : model.buckets)
                bucket.candidates.push_back({1.5 - 0.01 * static_cast<double>(candidate), 0, 0, 0, 0.5});
        adaptive_choice of{2, 5, {.overlaps = false}};
        auto verdict = begin(of, model);
        std::vector<choice> tried;
        while (verdict.is_attempt) {
            tried.push_back(verdict.next);
            verdict = of.verify(verdict.next, 9);
        }
        CHECK(tried == std::vector<choice>{{1, 1}, {2, 2}, {5, 5}});
    }
}

TEST_CASE(
    "sync/adaptive_choice: whatever the model does not know, steps that were verified are not longer than before") {
    constexpr std::size_t candidates = 3;
    std::size_t changes = 0, taken_back = 0, attempts = 0, rivals = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        INFO("seed " << seed);
        const ls::core::random_stream random{seed, ls::core::purpose::user};
        std::uint64_t drawn = 0;
        const auto next = [&] { return random.uniform(drawn++); };
        step_model alone;
        alone.overlaps = next() < 0.7;
        const std::size_t layers = 1 + static_cast<std::size_t>(next() * 5);
        const bool is_bounded = seed % 2 == 1;  // critical phases
        const double wire = 10 * next() * next();
        for (std::size_t layer = 0; layer < layers; ++layer) {
            alone.forward.push_back(next());
            alone.backward.push_back(2 * next());
        }
        for (std::size_t layer = layers; layer-- > 0;) {
            const double size = next();
            ls::planner::bucket_costs bucket{layer, layer, {{0, wire * size, 0.1 * size, wire * size, 0}}};
            for (std::size_t k = 0; k < candidates; ++k)
                bucket.candidates.push_back({size * next(), wire * size * next(), size * next(), 0, next()});
            alone.buckets.push_back(bucket);
        }
        // What steps really take: links and encoding are other than alone, and messages take time from layers.
        step_model truth = ls::planner::scaled(alone, 0.3 + 2 * next(), 0.2 + 2 * next());
        const double drag = next() < 0.3 ? 0 : next();
        for (auto& bucket : truth.buckets)
            for (auto& one : bucket.candidates) one.drag = drag * (one.sum + one.share);
        const auto takes = [&](const choice& now) { return step_seconds(truth, now); };

        adaptive_choice of{layers, candidates, {.overlaps = alone.overlaps}};
        choice now(layers), before = now;
        for (int period = 0; period < 8; ++period) {
            of.links_are(links(1e-6));
            double computing = 0, more = 0;
            for (const double one : alone.forward) computing += one;
            for (const double one : alone.backward) computing += one;
            for (std::size_t b = 0; b < layers; ++b) more += truth.buckets[b].candidates[now[b]].drag;
            adaptive_choice::seen seen{.alone = alone, .step = takes(now), .is_dense = of.is_all_dense(now)};
            for (double& one : seen.alone.forward) one *= 1 + more / computing;
            for (double& one : seen.alone.backward) one *= 1 + more / computing;
            step_model free = truth;
            for (std::size_t b = 0; b < layers; ++b)
                for (std::size_t k = 0; k <= candidates; ++k) {
                    free.buckets[b].candidates[k].sum = free.buckets[b].candidates[k].share = 0;
                    seen.alone.buckets[b].candidates[k].is_barred = of.is_barred(b, k);
                }
            seen.waited = takes(now) - step_seconds(free, now);
            seen.is_short = period == 0 && is_bounded;
            for (auto& bucket : seen.alone.buckets)
                if (is_bounded && next() < 0.1) bucket.max_error = next();
            const auto is_allowed = [&](const choice& one) {
                return ls::planner::allowed_of(seen.alone, one, {}) == one;
            };
            before = now;
            const auto made = of.decide(now, seen);
            now = made.next;
            CHECK(is_allowed(now));
            attempts += made.is_attempt ? 1 : 0;
            // As the owner: what an attempt leads to is verified as well.
            const choice first_back = of.back();
            for (int again = 0; now != before && now != of.back(); ++again) {
                REQUIRE(again < 6);
                ++changes;
                const auto verdict = of.verify(now, takes(now));
                taken_back += verdict.stays ? 0 : 1;
                rivals += verdict.is_attempt ? 1 : 0;
                if (!verdict.is_attempt) CHECK(verdict.stays == (verdict.next == now));
                now = verdict.next;
                CHECK(is_allowed(now));
                for (std::size_t b = 0; b < layers; ++b)
                    if (verdict.is_attempt && now[b] != of.back()[b]) CHECK_FALSE(of.is_barred(b, now[b]));
                if (verdict.stays && !verdict.is_attempt) break;
            }
            if (first_back != before) continue;  // what had to become dense was not measured
            CHECK(takes(now) <= takes(of.back()));
            CHECK(takes(now) <= takes(before));
        }
        if (!is_bounded) CHECK(takes(now) <= takes(choice(layers)));
    }
    CHECK(changes > 100);
    CHECK(taken_back > 20);
    CHECK(attempts > 20);
    CHECK(rivals > 100);
}
