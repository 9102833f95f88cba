// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/compression.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/core/random.hpp"

using namespace lockstep::planner;
using choice = std::vector<std::size_t>;

namespace {

/// Layers of equal times, each a bucket, with these candidates.
step_model same_layers(std::size_t layers, double compute, std::vector<compression_cost> candidates) {
    step_model out;
    out.forward.assign(layers, compute);
    out.backward.assign(layers, compute);
    for (std::size_t layer = layers; layer-- > 0;) out.buckets.push_back({layer, layer, candidates});
    return out;
}

/// A network of up to `most` layers with random times, of which some have no parameters and some share a bucket.
step_model random_model(std::uint64_t seed, std::size_t most, std::size_t candidates) {
    const lockstep::core::random_stream random{seed, lockstep::core::purpose::user};
    std::uint64_t at = 0;
    const auto next = [&] { return random.uniform(at++); };
    step_model out;
    const std::size_t layers = 1 + static_cast<std::size_t>(next() * static_cast<double>(most));
    for (std::size_t layer = 0; layer < layers; ++layer) {
        out.forward.push_back(next());
        out.backward.push_back(2 * next());
    }
    out.overlaps = next() < 0.8;
    const double link = 8 * next() * next();
    std::size_t highest = layers;
    for (std::size_t layer = layers; layer-- > 0;) {
        if (next() < 0.3 && layer > 0) continue;
        bucket_costs bucket{layer, highest - 1, {}};
        if (next() < 0.2) bucket.max_error = next();
        const double size = next();
        bucket.candidates.push_back({0, link * size, 0.1 * size, link * size, 0, false});
        for (std::size_t k = 1; k < candidates; ++k)
            bucket.candidates.push_back(
                {size * next(), link * size * next() / 2, size * next(), 0, 0.5 + next() / 2, next() < 0.1});
        out.buckets.push_back(bucket);
        highest = layer;
    }
    return out;
}

/// Every choice that a rule allows.
template <class F>
void each_choice(const step_model& of, const compression_rule& rule, const F& f) {
    choice now(of.buckets.size(), 0);
    while (true) {
        bool fits = true;
        for (std::size_t b = 0; b < now.size(); ++b) {
            const auto& one = of.buckets[b].candidates[now[b]];
            fits = fits && (now[b] == 0 ||
                            (!one.is_barred && one.error <= rule.max_error && one.error <= of.buckets[b].max_error));
        }
        if (fits) f(now);
        std::size_t b = 0;
        while (b < now.size() && ++now[b] == of.buckets[b].candidates.size()) now[b++] = 0;
        if (b == now.size()) return;
    }
}

}  // namespace

TEST_CASE("planner/compression: a step by hand") {
    // Two layers; backward 2 + 2, forward 1 + 1.
    step_model of{.forward = {1, 1}, .backward = {2, 2}, .buckets = {}, .overlaps = true};
    of.buckets.push_back({1, 1, {{0, 3, 0.5, 4, 0, false}, {1, 0.5, 2, 0, 0.9, false}}});
    of.buckets.push_back({0, 0, {{0, 3, 0.5, 4, 0, false}, {1, 0.5, 2, 0, 0.9, false}}});
    // Sums arrive at 2 + 3 = 5 and 8. Layer 1 is updated at 5.5, layer 0 at 8.5; its weights leave first and are there
    // at 12.5, those of layer 1 at 16.5, long after the forward of layer 0.
    CHECK(step_seconds(of, choice{0, 0}) == Approx(17.5));
    // Encoding ends at 3 and 6; messages arrive at 3.5 and 6.5; by then layer 1 has been decoded from 6 to 8, layer 0
    // is from 8 to 10.
    CHECK(step_seconds(of, choice{1, 1}) == Approx(12));
    // Layer 0 compressed: the link is free for it at 5, so it arrives at 5.5 and is finished at 7.5 or after layer 1
    // (5 to 5.5) as both are there at the end of backward, 5: layer 1 first. Weights of layer 1 wait for layer 0.
    CHECK(step_seconds(of, choice{0, 1}) == Approx(7.5 + 4 + 1));
    of.overlaps = false;
    // Sums at 7 and 10, updates at 7.5 and 10.5, weights at 14.5 and 18.5, before any forward.
    CHECK(step_seconds(of, choice{0, 0}) == Approx(20.5));
}

TEST_CASE("planner/compression: costs that are no numbers are no shorter") {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    for (const double bad : {infinite, std::numeric_limits<double>::quiet_NaN()})
        for (const bool overlaps : {true, false}) {
            step_model model = same_layers(3, 1, {{0, 1, 1, 1, 0, false}});
            model.overlaps = overlaps;
            const double seconds = step_seconds(model, choice(3, 0));
            for (auto& bucket : model.buckets) bucket.candidates[0].sum = bad;
            CHECK_FALSE(step_seconds(model, choice(3, 0)) < seconds - 6);
            if (bad == infinite) CHECK(step_seconds(model, choice(3, 0)) == infinite);
        }
}

TEST_CASE("planner/compression: links are fitted to how long a step has waited") {
    std::size_t fitted = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        const step_model real = random_model(seed, 6, 2);
        const choice dense(real.buckets.size(), 0);
        step_model without = real, measured = real;
        for (auto& bucket : without.buckets) bucket.candidates[0].sum = bucket.candidates[0].share = 0;
        const double waited = step_seconds(real, dense) - step_seconds(without, dense);
        // Links that were measured to be three times as fast.
        for (auto& bucket : measured.buckets)
            for (auto& one : bucket.candidates) {
                one.sum /= 3;
                one.share /= 3;
            }
        const double factor = fit_link(measured, dense, waited);
        INFO("seed " << seed);
        if (waited < 1e-6) continue;  // nothing is seen of a link that is hidden
        ++fitted;
        CHECK(factor == Approx(3).epsilon(1e-6));
        CHECK(step_seconds(measured, dense) == Approx(step_seconds(real, dense)));
    }
    CHECK(fitted > 20);
    step_model hidden = same_layers(4, 1, {{0, 0.1, 0, 0.1, 0, false}});
    CHECK(fit_link(hidden, choice(4, 0), 0) == Approx(0.125));
    step_model slow = same_layers(4, 1, {{0, 0.1, 0, 0.1, 0, false}});
    CHECK(fit_link(slow, choice(4, 0), 1e6) == Approx(16));
}

TEST_CASE("planner/compression: coding is fitted to what a step has taken, and never made longer") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const step_model real = random_model(900 + seed, 8, 3);
        choice last(real.buckets.size(), 2);
        for (const double factor : {0.2, 0.5, 0.9}) {
            step_model measured = scaled(real, 1, 1 / factor);
            const double seconds = step_seconds(real, last), longer = step_seconds(measured, last);
            CHECK(longer >= seconds);
            const double found = fit_coding(measured, last, seconds);
            CHECK(found <= 1);
            // A part of it may be hidden: then the factor is another one, the step is not.
            CHECK(step_seconds(measured, last) == Approx(seconds).epsilon(1e-9));
            for (std::size_t bucket = 0; bucket < real.buckets.size(); ++bucket) {
                const auto &one = measured.buckets[bucket].candidates, &other = real.buckets[bucket].candidates;
                CHECK(one[0].finish == other[0].finish);
                CHECK(one[1].encode == Approx(other[1].encode / factor * found));
                CHECK(one[1].sum == other[1].sum);
            }
        }
        step_model same = real;
        CHECK(fit_coding(same, last, 2 * step_seconds(real, last)) == 1);
        CHECK(step_seconds(same, last) == step_seconds(real, last));
    }
}

TEST_CASE("planner/compression: hidden messages that take time from layers") {
    // Two layers of 10 s each way; 4 s of messages for each are hidden. Those of the candidate take 1 s.
    const step_model hidden = same_layers(2, 10, {{0, 4, 0, 0, 0, false}, {0, 1, 0, 0, 0.5, false}});
    const choice dense(2, 0), small(2, 1);
    CHECK(step_seconds(hidden, dense) == Approx(44));  // the last one waits
    CHECK(step_seconds(hidden, small) == Approx(41));
    // Measured with dense messages: 6 s less of them give back 3 s.
    const step_model half = with_drag(hidden, dense, 0.5);
    CHECK(step_seconds(half, dense) == step_seconds(hidden, dense));
    CHECK(step_seconds(half, small) == Approx(38));
    // Measured with small ones: dense messages take 3 s more.
    const step_model other = with_drag(hidden, small, 0.5);
    CHECK(step_seconds(other, small) == step_seconds(hidden, small));
    CHECK(step_seconds(other, dense) == Approx(47));
    // However much is asked for, layers take a tenth.
    CHECK(step_seconds(with_drag(hidden, dense, 1000), small) == Approx(0.1 * 40 + 1));

    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const step_model model = random_model(1300 + seed, 8, 2);
        const choice all_dense(model.buckets.size(), 0), all_small(model.buckets.size(), 1);
        const lockstep::core::random_stream random{seed, lockstep::core::purpose::user};
        const double planted = random.uniform(0);
        const step_model real = with_drag(model, all_dense, planted);
        const double saved = step_seconds(real, all_dense) - step_seconds(real, all_small);
        const double found = fit_drag(model, all_dense, all_dense, all_small, saved);
        CHECK(found >= 0);
        CHECK(found <= 1);
        const step_model fitted = with_drag(model, all_dense, found);
        CHECK(step_seconds(fitted, all_dense) - step_seconds(fitted, all_small) ==
              Approx(saved).epsilon(1e-9).margin(1e-9));
        CHECK(fit_drag(model, all_dense, all_dense, all_small, saved + 1e6) == 1);
        CHECK(fit_drag(model, all_dense, all_dense, all_small, -1e6) == 0);
    }
}

TEST_CASE("planner/compression: dense where nothing pays") {
    // The link is free, or hidden behind backward and forward.
    const std::vector<compression_cost> free{{0, 0, 0, 0, 0, false}, {1e-3, 0, 1e-3, 0, 0.5, false}};
    const std::vector<compression_cost> hidden{{0, 0.2, 0.01, 0.2, 0, false}, {0.05, 0.01, 0.05, 0, 0.5, false}};
    for (const auto& costs : {free, hidden}) {
        const step_model of = same_layers(6, 1, costs);
        CHECK(choose_compression(of, choice(6, 0), {.margin = 0.03}) == choice(6, 0));
        // Also where something is compressed now.
        CHECK(choose_compression(of, choice(6, 1), {.margin = 0.03}) == choice(6, 0));
    }
    CHECK(choose_compression({}, {}, {}).empty());
}

TEST_CASE("planner/compression: the smallest error of those that are as fast, none above the bound") {
    const step_model of = same_layers(4, 1,
                                      {{0, 50, 0.1, 50, 0, false},
                                       {0.1, 1, 0.1, 0, 0.7, false},
                                       {0.1, 1, 0.1, 0, 0.6, false},
                                       {0.1, 0.5, 0.1, 0, 0.99, false}});
    CHECK(choose_compression(of, choice(4, 0), {.max_error = 0.98}) == choice(4, 2));
    CHECK(choose_compression(of, choice(4, 3), {.max_error = 0.98}) == choice(4, 2));
    CHECK(choose_compression(of, choice(4, 0), {.max_error = 0.65}) == choice(4, 2));
    CHECK(choose_compression(of, choice(4, 0), {.max_error = 0.5}) == choice(4, 0));
    CHECK(choose_compression(of, choice(4, 2), {.max_error = 0.5}) == choice(4, 0));
    CHECK(allowed_of(of, choice(4, 2), {.max_error = 0.5}) == choice(4, 0));
    CHECK(allowed_of(of, choice(4, 2), {.max_error = 0.98}) == choice(4, 2));
    // A bucket may have a lower bound; a higher one changes nothing.
    step_model bounded = of;
    bounded.buckets[1].max_error = 0.5;
    bounded.buckets[3].max_error = 0.995;
    CHECK(choose_compression(bounded, choice(4, 2), {.max_error = 0.98}) == choice{2, 0, 2, 2});
    step_model barred = of;
    for (auto& bucket : barred.buckets) bucket.candidates[2].is_barred = true;
    CHECK(choose_compression(barred, choice(4, 2), {.max_error = 0.98}) == choice(4, 1));
}

TEST_CASE("planner/compression: a change has to save the margin") {
    // One layer; dense 10 + 10 on the link after 1 of backward, before 1 of forward.
    const auto with = [](double seconds) {
        return same_layers(1, 1, {{0, 10, 0, 10, 0, false}, {0, seconds, 0, 0, 0.5, false}});
    };
    // 22 dense; 3 % of it are 0.66.
    CHECK(choose_compression(with(19.5), choice{0}, {.margin = 0.03}) == choice{0});
    CHECK(choose_compression(with(19.3), choice{0}, {.margin = 0.03}) == choice{1});
    // What is chosen stays until dense is as fast.
    CHECK(choose_compression(with(19.5), choice{1}, {.margin = 0.03}) == choice{1});
    CHECK(choose_compression(with(20), choice{1}, {.margin = 0.03}) == choice{0});
}

TEST_CASE("planner/compression: random steps against all choices") {
    std::size_t changed = 0, optimal = 0, cases = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        const step_model of = random_model(seed, 5, 3);
        const compression_rule rule{.margin = 0.03, .max_error = 0.9};
        const choice dense(of.buckets.size(), 0);
        const choice found = choose_compression(of, dense, rule);
        INFO("seed " << seed);
        CHECK(found == choose_compression(of, dense, rule));
        double best = step_seconds(of, dense);
        bool is_allowed = false;
        each_choice(of, rule, [&](const choice& one) {
            best = std::min(best, step_seconds(of, one));
            is_allowed = is_allowed || one == found;
        });
        CHECK(is_allowed);
        const double seconds = step_seconds(of, found), as_dense = step_seconds(of, dense);
        // Dense, or the margin better than dense.
        CHECK((found == dense || seconds < 0.97 * as_dense));
        // No other allowed choice is better by more than the margin.
        CHECK(seconds <= best / 0.97 * (1 + 2e-3));
        changed += found != dense;
        optimal += seconds <= best * (1 + 2e-3);
        ++cases;
        // Nothing changes once more.
        CHECK(choose_compression(of, found, rule) == found);
    }
    CHECK(changed > cases / 4);
    CHECK(optimal > cases / 2);
}
