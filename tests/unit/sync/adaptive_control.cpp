// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/adaptive_control.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

using lockstep::sync::adaptive_control;
using task = adaptive_control::task;

namespace {

/// The steps of each task in a run in which decisions that are in `changes` change something, and take `cost` of 1 s
/// steps.
std::map<task, std::vector<std::uint64_t>> tasks(std::uint64_t first, std::uint64_t steps, std::uint64_t period,
                                                 const std::vector<std::uint64_t>& changes, double cost = 0) {
    adaptive_control control{period};
    control.begin_run(first);
    std::map<task, std::vector<std::uint64_t>> out;
    for (std::uint64_t step = first; step < first + steps; ++step) {
        const task what = control.at(step);
        if (what != task::none) out[what].push_back(step - first);
        if (what == task::decision)
            control.decided(step, std::find(changes.begin(), changes.end(), step - first) != changes.end(), cost, 1);
        if (what == task::verification) control.verified(step, false);
        control.took(1);
    }
    return out;
}
using numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("sync/adaptive_control: early trials, then one for each period") {
    for (const std::uint64_t first : {0U, 17U, 5000U}) {
        auto at = tasks(first, 2500, 1000, {});
        CHECK(at[task::trial] == numbers{3, 12, 50, 200, 1201, 2202});
        CHECK(at[task::decision] == numbers{4, 13, 51, 201, 1202, 2203});
        CHECK(at[task::verification].empty());
    }
    CHECK(tasks(0, 30, 5, {})[task::trial] == numbers{3, 9, 12, 18, 24});
    // A period beyond all steps.
    const auto never = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t period : {never, never - 1, never / 2 + 1})
        CHECK(tasks(5000, 2500, period, {})[task::trial] == numbers{3, 12, 50, 200});
}

TEST_CASE("sync/adaptive_control: a change is verified before the next trial") {
    auto at = tasks(0, 300, 1000, {4, 201});
    CHECK(at[task::verification] == numbers{15, 212});
    CHECK(at[task::trial] == numbers{3, 16, 50, 200});
}

TEST_CASE("sync/adaptive_control: short steps are looked at for longer") {
    // When a change in step 13 is verified, where steps take so many seconds.
    const auto verified = [](double seconds) {
        adaptive_control control{1000};
        control.begin_run(0);
        std::uint64_t at = 0;
        for (std::uint64_t step = 0; step < 100 && at == 0; ++step) {
            const task what = control.at(step);
            if (what == task::decision) control.decided(step, step == 13, 0, seconds);
            if (what == task::verification) at = step;
            control.took(seconds);
        }
        return at;
    };
    for (const double least : {1.0, 0.003, std::numeric_limits<double>::infinity(), 0.0}) CHECK(verified(least) == 24);
    CHECK(verified(0.0015) == 34);
    for (const double most : {0.001, 1e-12, std::numeric_limits<double>::denorm_min()}) CHECK(verified(most) == 44);
}

TEST_CASE("sync/adaptive_control: what a verification changes may be verified as well") {
    adaptive_control control{1000};
    control.begin_run(0);
    std::map<task, std::vector<std::uint64_t>> at;
    for (std::uint64_t step = 0; step < 100; ++step) {
        const task what = control.at(step);
        if (what != task::none) at[what].push_back(step);
        if (what == task::decision) control.decided(step, step == 13, 0, 1);
        if (what == task::verification) control.verified(step, true, step < 30);
        control.took(1);
        if (what == task::verification) CHECK(std::isinf(control.step_seconds()));
    }
    CHECK(at[task::verification] == numbers{24, 35});
    CHECK(at[task::decision] == numbers{4, 13, 51});
}

TEST_CASE("sync/adaptive_control: trials take a hundredth of the run, but for two early ones") {
    CHECK(tasks(0, 3000, 1, {}, 7)[task::trial] == numbers{3, 5, 7, 9, 11, 13, 714, 1415, 2116, 2817});
    CHECK(tasks(0, 3000, 1000, {}, 7)[task::trial] == numbers{3, 12, 713, 1714, 2715});
}

TEST_CASE("sync/adaptive_control: times of steps in which nothing else is done") {
    adaptive_control control{1000};
    CHECK(std::isinf(control.step_seconds()));
    control.begin_run(0);
    const auto step = [&](std::uint64_t number, double seconds) {
        const task what = control.at(number);
        if (what == task::decision) control.decided(number, false, 0, 1);
        control.took(seconds);
    };
    step(0, 900);  // the first one of a run
    CHECK(std::isinf(control.step_seconds()));
    step(1, 5);
    CHECK(control.step_seconds() == 5);
    step(2, 7);
    step(3, 900);                        // a trial
    CHECK(control.step_seconds() == 5);  // the least of few
    CHECK(control.is_short());
    step(4, 900);  // a decision: those before it do not count any more
    CHECK(std::isinf(control.step_seconds()));
    for (std::uint64_t number = 5; number < 12; ++number) step(number, static_cast<double>(100 - number));
    CHECK(control.step_seconds() == 92);
    CHECK_FALSE(control.is_short());
    step(12, 0);
    step(13, 0);
    for (std::uint64_t number = 14; number < 50; ++number) step(number, 2);
    CHECK(control.step_seconds() == 2);
    // The last 64.
    step(50, 0);
    step(51, 0);
    for (std::uint64_t number = 52; number < 52 + 64; ++number) step(number, 3);
    for (std::uint64_t number = 116; number < 116 + 33; ++number) step(number, 4);
    CHECK(control.step_seconds() == 4);
}

TEST_CASE("sync/adaptive_control: steps that take longer, or less, than after the last decision bring a trial") {
    // Steps take 1 s, from step `from` on `then`; a decision costs `cost`.
    const auto run = [](std::uint64_t from, double then, double cost, std::uint64_t period = 100'000) {
        adaptive_control control{period};
        control.begin_run(0);
        std::map<task, std::vector<std::uint64_t>> out;
        for (std::uint64_t step = 0; step < 2000; ++step) {
            const task what = control.at(step);
            const double seconds = step < from ? 1 : then;
            if (what != task::none) out[what].push_back(step);
            if (what == task::decision) control.decided(step, false, cost, seconds);
            if (what == task::look && control.looked(step, control.recent_seconds())) out[task::none].push_back(step);
            control.took(seconds);
        }
        return out;
    };
    // A look every 64 steps; one that finds nothing changes nothing.
    auto quiet = run(5000, 9, 0);
    CHECK(quiet[task::trial] == numbers{3, 12, 50, 200});
    CHECK(quiet[task::none].empty());
    CHECK(quiet[task::look][0] == 51 + 64);
    // 0.7 and 1.4 are no change.
    for (const double same : {0.7, 1.4}) CHECK(run(500, same, 0)[task::trial] == numbers{3, 12, 50, 200});
    // Found by the first look that knows 9 of 17 steps, and once: what steps take after the decision is what is usual.
    for (const double other : {0.5, 3.0}) {
        auto at = run(500, other, 0);
        CHECK(at[task::none] == numbers{201 + 5 * 64});
        CHECK(at[task::trial] == numbers{3, 12, 50, 200, 201 + 5 * 64 + 1});
        CHECK(at[task::decision].back() == 201 + 5 * 64 + 2);
    }
    // Dear trials wait until they take a twentieth of the run: 20 x 30 steps after the last one.
    auto dear = run(500, 3, 30);
    REQUIRE(dear[task::none].size() >= 1);
    REQUIRE(dear[task::trial] == numbers{3, 12, dear[task::none][0] + 1});
    CHECK(dear[task::none][0] >= 13 + 600);
    CHECK(dear[task::none][0] < 13 + 600 + 64);
    // Too few steps, or a rank without a time, say nothing.
    adaptive_control control{1000};
    control.begin_run(0);
    CHECK(std::isinf(control.recent_seconds()));
    CHECK_FALSE(control.looked(5, std::numeric_limits<double>::infinity()));
}
