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
    CHECK(report::steps_until(report::epochs{3}, 10, 0) == 30);
    CHECK(report::steps_until(report::epochs{3}, 10, 4) == 26);
    CHECK(report::steps_until(report::epochs{0}, 10, 4) == 0);
    CHECK(report::steps_until(report::steps{~std::size_t{0}}, 10, 4) == ~std::uint64_t{0});
}

TEST_CASE("report/events: more steps than can be counted are an error", "[report]") {
    // Wrapped, this would be 2 steps.
    CHECK_THROWS_WITH(report::steps_until(report::epochs{(std::size_t{1} << 63U) + 1}, 2, 0),
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
