// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/adaptive_control.hpp"

#include <catch2/catch.hpp>

#include <cmath>
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
}

TEST_CASE("sync/adaptive_control: a change is verified before the next trial") {
    auto at = tasks(0, 300, 1000, {4, 201});
    CHECK(at[task::verification] == numbers{15, 212});
    CHECK(at[task::trial] == numbers{3, 16, 50, 200});
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
