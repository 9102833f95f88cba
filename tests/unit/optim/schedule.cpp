// SPDX-License-Identifier: BSD-3-Clause

#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/optim/schedule.hpp"

using namespace lockstep;
using namespace lockstep::optim;

namespace {
constexpr auto last_step = std::numeric_limits<std::uint64_t>::max();
}

TEST_CASE("optim/schedule: a lambda is one", "[optim]") {
    const double rate = 0.1;
    const auto halved = [rate](std::uint64_t step) { return step < 10 ? rate : rate / 2; };
    static_assert(LrSchedule<decltype(halved)>);
    static_assert(!LrSchedule<int>);
    CHECK(halved(9) == 0.1);
}

TEST_CASE("optim/schedule: constant", "[optim]") {
    CHECK(constant{.rate = 0.3}(0) == 0.3);
    CHECK(constant{.rate = 0.3}(last_step) == 0.3);
    CHECK(constant{.rate = 0.3}.settings() == "rate=0.3");
    CHECK_NOTHROW(constant{}.check());
    CHECK_THROWS_WITH(constant{.rate = 0}.check(),
                      "lockstep: constant has rate = 0, not a positive number; take a learning rate such as 0.1");
    CHECK_THROWS_AS(constant{.rate = std::numeric_limits<double>::infinity()}.check(), core::error);
    CHECK_THROWS_AS(constant{.rate = std::numeric_limits<double>::quiet_NaN()}.check(), core::error);
}

TEST_CASE("optim/schedule: step_decay drops at multiples of every", "[optim]") {
    const step_decay schedule{.rate = 0.5, .factor = 0.25, .every = 100};
    CHECK(schedule(0) == 0.5);
    CHECK(schedule(99) == 0.5);
    CHECK(schedule(100) == 0.125);
    CHECK(schedule(199) == 0.125);
    CHECK(schedule(200) == 0.03125);
    CHECK(schedule(last_step) == 0);
    CHECK(schedule.settings() == "rate=0.5 factor=0.25 every=100");
    CHECK_NOTHROW(schedule.check());
    CHECK_THROWS_WITH((step_decay{.every = 0}.check()),
                      "lockstep: step_decay has every = 0; give the number of steps between two drops, at least 1");
    CHECK_THROWS_WITH(
        (step_decay{.factor = 1.5, .every = 9}.check()),
        "lockstep: step_decay has factor = 1.5, outside (0, 1]; take the ratio of two successive rates, such as 0.1");
    CHECK_THROWS_AS((step_decay{.rate = -1, .every = 9}.check()), core::error);
    CHECK_THROWS_AS((step_decay{.rate = 0.1}.check()), core::error);  // a drop at every step is not meant
}

TEST_CASE("optim/schedule: warmup_cosine at its corners", "[optim]") {
    const warmup_cosine schedule{.peak = 0.8, .warmup = 4, .total = 12, .floor = 0.2};
    CHECK(schedule(0) == Approx(0.2));
    CHECK(schedule(1) == Approx(0.4));
    CHECK(schedule(2) == Approx(0.6));
    CHECK(schedule(3) == 0.8);
    CHECK(schedule(4) == 0.8);
    CHECK(schedule(6) == Approx(0.2 + 0.6 * 0.5 * (1 + 0.70710678118654752)));
    CHECK(schedule(8) == Approx(0.5));
    CHECK(schedule(11) > 0.2);
    CHECK(schedule(12) == 0.2);
    CHECK(schedule(last_step) == 0.2);
    for (std::uint64_t step = 4; step < 12; ++step) CHECK(schedule(step + 1) < schedule(step));

    SECTION("without warm-up it starts at the peak") {
        const warmup_cosine plain{.peak = 1, .total = 2};
        CHECK(plain(0) == 1);
        CHECK(plain(1) == Approx(0.5));
        CHECK(plain(2) == 0);
    }
    SECTION("all warm-up") {
        const warmup_cosine rising{.peak = 1, .warmup = 2, .total = 2};
        CHECK(rising(0) == 0.5);
        CHECK(rising(1) == 1);
        CHECK(rising(2) == 0);
        CHECK_NOTHROW(rising.check());
    }
    CHECK(schedule.settings() == "peak=0.8 warmup=4 total=12 floor=0.2");
    CHECK_NOTHROW(schedule.check());
    CHECK_THROWS_WITH((warmup_cosine{.warmup = 9, .total = 8}.check()),
                      "lockstep: warmup_cosine has warmup = 9 and total = 8 steps; count both from step 0: total is at "
                      "least 1 and at least "
                      "warmup");
    CHECK_THROWS_WITH(
        (warmup_cosine{.peak = 0.1, .total = 8, .floor = 0.2}.check()),
        "lockstep: warmup_cosine has floor = 0.2, outside [0, peak] with peak = 0.1; take the rate to end at, or 0");
    CHECK_THROWS_AS((warmup_cosine{.peak = 0.1}.check()), core::error);  // a run of one step is not meant
    CHECK_THROWS_AS((warmup_cosine{.total = 0}.check()), core::error);
    CHECK_THROWS_AS((warmup_cosine{.peak = 0, .total = 1}.check()), core::error);
}

TEST_CASE("optim/schedule: one_cycle at its corners", "[optim]") {
    const one_cycle schedule{.peak = 0.5, .total = 20, .rise = 0.4, .divisor = 25, .floor = 0.1};
    CHECK(schedule(0) == 0.02);
    CHECK(schedule(4) == Approx(0.26));  // half of the way up, in a straight line
    CHECK(schedule(6) == Approx(0.38));
    CHECK(schedule(8) == 0.5);
    CHECK(schedule(11) == Approx(0.1 + 0.4 * 0.5 * (1 + 0.70710678118654752)));
    CHECK(schedule(14) == Approx(0.3));  // half of the way down
    CHECK(schedule(19) > 0.1);
    CHECK(schedule(20) == 0.1);
    CHECK(schedule(last_step) == 0.1);
    for (std::uint64_t step = 0; step < 8; ++step) CHECK(schedule(step + 1) > schedule(step));
    for (std::uint64_t step = 8; step < 20; ++step) CHECK(schedule(step + 1) < schedule(step));
}

TEST_CASE("optim/schedule: one_cycle along other curves", "[optim]") {
    const one_cycle schedule{.peak = 0.5, .total = 20, .rise = 0.4, .rising = curve::cosine, .falling = curve::linear};
    CHECK(schedule(0) == 0.02);
    CHECK(schedule(2) == Approx(0.02 + 0.48 * 0.5 * (1 - 0.70710678118654752)));
    CHECK(schedule(4) == Approx(0.26));
    CHECK(schedule(8) == 0.5);
    CHECK(schedule(11) == Approx(0.375));
    CHECK(schedule(14) == Approx(0.25));
    CHECK(schedule(20) == 0);
}

TEST_CASE("optim/schedule: one_cycle without a rise, without a fall, between two steps", "[optim]") {
    CHECK(one_cycle{.peak = 1, .total = 2, .rise = 0}(0) == 1);
    CHECK(one_cycle{.peak = 1, .total = 2, .rise = 0}(1) == Approx(0.5));
    CHECK(one_cycle{.peak = 1, .total = 4, .rise = 1, .divisor = 2}(0) == 0.5);
    CHECK(one_cycle{.peak = 1, .total = 4, .rise = 1, .divisor = 2}(3) == Approx(0.875));
    CHECK(one_cycle{.peak = 1, .total = 4, .rise = 1, .divisor = 2}(4) == 0);
    // The peak lies at step 1.5: neither neighbour reaches it.
    const one_cycle between{.peak = 1, .total = 5, .rise = 0.3, .divisor = 4, .falling = curve::linear};
    CHECK(between(1) == Approx(0.75));
    CHECK(between(2) == Approx(6.0 / 7));
    CHECK(one_cycle{.peak = 0.5, .total = 1}(0) == 0.02);
}

TEST_CASE("optim/schedule: one_cycle says what is wrong", "[optim]") {
    CHECK_THROWS_AS((one_cycle{.peak = 0.5}.check()), core::error);  // a run of one step is not meant
    CHECK_NOTHROW((one_cycle{.peak = 0.5, .total = 1, .rise = 1, .divisor = 1, .floor = 0.5}.check()));
    CHECK(one_cycle{.peak = 0.5, .total = 20, .rise = 0.4, .falling = curve::linear}.settings() ==
          "peak=0.5 total=20 rise=0.4 divisor=25 floor=0 rising=linear falling=linear");
    CHECK_THROWS_WITH((one_cycle{.total = 0}.check()),
                      "lockstep: one_cycle has total = 0 steps; give the number of steps of the whole run, at least 1");
    CHECK_THROWS_WITH(
        (one_cycle{.total = 9, .rise = 1.5}.check()),
        "lockstep: one_cycle has rise = 1.5, outside [0, 1]; take the part of the steps before the peak, such as 0.3");
    CHECK_THROWS_WITH((one_cycle{.total = 9, .divisor = 0.5}.check()),
                      "lockstep: one_cycle has divisor = 0.5, not a number from 1; take the ratio of the highest to "
                      "the first rate, such as 25");
    CHECK_THROWS_WITH(
        (one_cycle{.peak = 0.5, .total = 9, .floor = 0.75}.check()),
        "lockstep: one_cycle has floor = 0.75, outside [0, peak] with peak = 0.5; take the rate to end at, or 0");
    CHECK_THROWS_AS((one_cycle{.peak = -1, .total = 9}.check()), core::error);
    CHECK_THROWS_AS((one_cycle{.total = 9, .rise = std::numeric_limits<double>::quiet_NaN()}.check()), core::error);
    CHECK_THROWS_AS((one_cycle{.total = 9, .divisor = std::numeric_limits<double>::infinity()}.check()), core::error);
}
