// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/micro_batch.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/core/random.hpp"

using namespace lockstep;
using planner::division;
using planner::kernel_run;

namespace {

/// Random runs with whole numbers of seconds, so that sums are exact.
struct lottery {
    core::random_stream random;
    std::size_t drawn = 0;
    std::size_t operator()(std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); }
};

std::vector<kernel_run> draw_runs(lottery& draw) {
    std::vector<kernel_run> out(draw(1, 5));
    for (kernel_run& run : out) run = {draw(1, 6), static_cast<double>(draw(1, 20)), draw(0, 4)};
    return out;
}

/// Every division, by trying each run as the next one.
void for_all(std::size_t samples, std::span<const kernel_run> runs, double seconds, std::size_t scratch,
             const std::function<void(double, std::size_t)>& f) {
    if (samples == 0) return f(seconds, scratch);
    for (const kernel_run& run : runs)
        if (run.samples <= samples)
            for_all(samples - run.samples, runs, seconds + run.seconds, std::max(scratch, run.scratch), f);
}

}  // namespace

TEST_CASE("planner/micro_batch: the division is the best of all there are", "[planner]") {
    lottery draw{{1, core::purpose::user, 1}};
    std::size_t found_some = 0, found_none = 0;
    for (int i = 0; i < 400; ++i) {
        const auto runs = draw_runs(draw);
        const std::size_t samples = draw(0, 9), limit = draw(0, 4);
        double best = HUGE_VAL;
        for_all(samples, runs, 0, 0, [&](double seconds, std::size_t scratch) {
            if (scratch <= limit) best = std::min(best, seconds);
        });
        const auto found = planner::fastest_division(samples, runs, limit);
        REQUIRE(found.has_value() == (best < HUGE_VAL));
        ++(found ? found_some : found_none);
        if (!found) continue;
        REQUIRE(found->seconds == best);
        REQUIRE(found->scratch <= limit);
        REQUIRE(std::accumulate(found->runs.begin(), found->runs.end(), std::size_t{0}) == samples);
    }
    CHECK(found_some > 50);
    CHECK(found_none > 50);
}

TEST_CASE("planner/micro_batch: desirable divisions are the Pareto front", "[planner]") {
    lottery draw{{2, core::purpose::user, 1}};
    std::size_t longest = 0;
    for (int i = 0; i < 400; ++i) {
        const auto runs = draw_runs(draw);
        const std::size_t samples = draw(0, 9);
        std::vector<std::pair<std::size_t, double>> all, front, got;
        for_all(samples, runs, 0, 0, [&](double seconds, std::size_t scratch) { all.emplace_back(scratch, seconds); });
        std::sort(all.begin(), all.end());
        for (const auto& one : all)
            if (front.empty() || one.second < front.back().second) front.push_back(one);
        for (const division& one : planner::desirable_divisions(samples, runs))
            got.emplace_back(one.scratch, one.seconds);
        REQUIRE(got == front);
        longest = std::max(longest, front.size());
    }
    CHECK(longest > 2);
}

TEST_CASE("planner/micro_batch: less scratch, shorter runs", "[planner]") {
    // A kernel whose speed and scratch grow with the samples that it takes at once.
    std::vector<kernel_run> runs;
    for (std::size_t samples = 1; samples <= 64; samples *= 2)
        runs.push_back({samples, static_cast<double>(samples) + 2, samples * 100});
    CHECK(planner::fastest_division(60, runs, 6400) == division{{4, 8, 16, 32}, 68, 3200});
    CHECK(planner::fastest_division(64, runs, 6400) == division{{64}, 66, 6400});
    CHECK(planner::fastest_division(64, runs, 1700) == division{{16, 16, 16, 16}, 72, 1600});
    CHECK(planner::fastest_division(64, runs, 99) == std::nullopt);
    CHECK(planner::fastest_division(0, runs, 0) == division{});
    CHECK(planner::desirable_divisions(4, runs) ==
          std::vector<division>{{{1, 1, 1, 1}, 12, 100}, {{2, 2}, 8, 200}, {{4}, 6, 400}});
}
