// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/events.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace core = lockstep::core;
namespace report = lockstep::report;

TEST_CASE("report/events: epochs count what an earlier fit() has left of one as part of the first", "[report]") {
    const report::fit_begin at_the_start{.minibatches = 10},
        later{.epochs = 2, .steps = 24, .minibatches = 10, .begun = 4};
    CHECK(report::steps_until(report::epochs{3}, at_the_start) == 30);
    CHECK(report::steps_until(report::epochs{3}, later) == 26);
    CHECK(report::steps_until(report::epochs{0}, later) == 0);
    CHECK(report::steps_until(report::steps{~std::size_t{0}}, later) == ~std::uint64_t{0});
}

TEST_CASE("report/events: the end of a run counts from its begin", "[report]") {
    const report::fit_begin later{.epochs = 2, .steps = 24, .minibatches = 10, .begun = 4};
    CHECK(report::steps_until(report::until_epoch{5}, later) == 26);
    CHECK(report::steps_until(report::until_epoch{3}, later) == 6);
    CHECK(report::steps_until(report::until_epoch{2}, later) == 0);
    CHECK(report::steps_until(report::until_epoch{0}, later) == 0);
    CHECK(report::steps_until(report::until_step{30}, later) == 6);
    CHECK(report::steps_until(report::until_step{24}, later) == 0);
    CHECK(report::steps_until(report::until_step{7}, later) == 0);
}

TEST_CASE("report/events: more steps than can be counted are an error", "[report]") {
    // Wrapped, this would be 2 steps.
    CHECK_THROWS_WITH(
        report::steps_until(report::epochs{(std::size_t{1} << 63U) + 1}, report::fit_begin{.minibatches = 2}),
        Catch::Contains("steps of a fit() of so many epochs: 9223372036854775809 x 2"));
}

TEST_CASE("report/events: fit() refuses epochs whose steps would wrap, and trains nothing", "[report]") {
    namespace ls = lockstep;
    const std::vector<float> x(32, 1), y(16, 1);
    const auto set = ls::data::in_memory<ls::tensor::shape<2>, ls::tensor::shape<1>>(x, y);
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = ls::sequential{ls::input<2>, ls::layers::dense<1>{}},
                                                    .loss = ls::mean_squared_error{},
                                                    .batch = 8}};
    CHECK_THROWS_AS(trainer.fit(set, ls::epochs{(std::size_t{1} << 63U) + 1}), core::error);
    CHECK(trainer.report().steps == 0);
}
