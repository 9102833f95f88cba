// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/overlap_clock.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>

namespace {

namespace ls = lockstep;
using clock_type = ls::report::overlap_clock;
using direction = clock_type::direction;

/// So many seconds after a beginning of our own.
clock_type::time at(double seconds) {
    return clock_type::time{std::chrono::hours{1}} +
           std::chrono::duration_cast<clock_type::clock::duration>(std::chrono::duration<double>(seconds));
}
bool is(double found, double expected) { return found == Approx(expected).epsilon(1e-6).margin(1e-6); }

/// Two buckets of equal size, which take 1 s each when they are alone.
clock_type two_buckets() {
    clock_type times;
    for (std::size_t i = 0; i < 2; ++i) times.add_bucket(1000);
    for (std::size_t i = 0; i < 2; ++i) {
        times.started(i, direction::sum, at(-10 + 2 * static_cast<double>(i)));
        times.arrived(i, direction::sum, at(-9 + 2 * static_cast<double>(i)));
    }
    times.begin_round(direction::sum);
    return times;
}

}  // namespace

TEST_CASE("report/overlap_clock: what is under way is hidden but for the time of waiting", "[report]") {
    clock_type times;
    for (std::size_t i = 0; i < 2; ++i) times.add_bucket(10);
    times.started(0, direction::sum, at(0));
    times.started(1, direction::sum, at(2));
    times.arrived(0, direction::sum, at(3));
    times.arrived(1, direction::sum, at(7));  // 5 to 7 and one second more in waiting
    CHECK(is(times.waited(at(5), at(8)), 3));
    CHECK(is(times.exposed(), 3));
    CHECK(is(times.hidden(), 5));
    // Nothing is under way: the wait hides nothing and takes nothing away.
    (void)times.waited(at(9), at(10));
    CHECK(is(times.exposed(), 4));
    CHECK(is(times.hidden(), 5));
}

TEST_CASE("report/overlap_clock: why a rank waited for sums", "[report]") {
    SECTION("the last bucket starts when there is nothing left to compute") {
        clock_type times = two_buckets();
        times.started(0, direction::sum, at(0));
        times.arrived(0, direction::sum, at(1));
        times.started(1, direction::sum, at(5));
        times.arrived(1, direction::sum, at(6));
        times.explain_sums(at(5), 1, 0);
        CHECK(is(times.because().last_bucket, 1));
        CHECK(is(times.because().sum(), 1));
    }
    SECTION("the one before it was too large to be hidden") {
        clock_type times = two_buckets();
        times.started(0, direction::sum, at(4.25));
        times.started(1, direction::sum, at(4.5));
        times.arrived(0, direction::sum, at(5.25));
        times.arrived(1, direction::sum, at(6.25));
        times.explain_sums(at(4.5), 1.75, 0);
        CHECK(is(times.because().last_bucket, 1));
        CHECK(is(times.because().large_bucket, 0.75));
        CHECK(is(times.because().no_progress, 0));
    }
    SECTION("without a poll: it could have arrived long ago") {
        clock_type times = two_buckets();
        times.started(0, direction::sum, at(0));
        times.started(1, direction::sum, at(5));
        times.arrived(0, direction::sum, at(6));
        times.arrived(1, direction::sum, at(7));
        times.explain_sums(at(5), 2, 0);
        CHECK(is(times.because().last_bucket, 1));
        CHECK(is(times.because().no_progress, 1));
    }
    SECTION("another rank came later") {
        clock_type times = two_buckets();
        times.started(0, direction::sum, at(0));
        times.arrived(0, direction::sum, at(1));
        times.started(1, direction::sum, at(5));
        times.arrived(1, direction::sum, at(9));
        times.explain_sums(at(5), 4, 3);
        CHECK(is(times.because().slow_rank, 3));
        CHECK(is(times.because().last_bucket, 1));
        CHECK(is(times.because().no_progress, 0));
    }
}

TEST_CASE("report/overlap_clock: why a rank waited for weights", "[report]") {
    clock_type times = two_buckets();
    for (std::size_t i = 0; i < 2; ++i) {
        times.started(i, direction::share, at(-4 + 2 * static_cast<double>(i)));
        times.arrived(i, direction::share, at(-3 + 2 * static_cast<double>(i)));
    }
    times.begin_round(direction::share);
    times.started(0, direction::share, at(0));
    times.started(1, direction::share, at(0));
    times.arrived(0, direction::share, at(1));
    times.explain_share(0, at(0.25), at(1), true);
    CHECK(is(times.because().last_bucket, 0.75));
    // The second could have been there at 2.
    times.arrived(1, direction::share, at(3.5));
    times.explain_share(1, at(1.5), at(3.5), false);
    CHECK(is(times.because().large_bucket, 0.5));
    CHECK(is(times.because().no_progress, 1.5));
}
