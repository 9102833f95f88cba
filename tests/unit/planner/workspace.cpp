// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/workspace.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "lockstep/core/random.hpp"

using namespace lockstep;
using planner::variant;

namespace {

using kernels = std::vector<std::vector<variant>>;

/// Whole numbers of seconds, so that sums are exact.
kernels draw_kernels(std::size_t count, std::size_t variants, std::uint32_t series) {
    const core::random_stream random{3, core::purpose::user, series};
    std::size_t drawn = 0;
    kernels out(count);
    for (auto& one : out) {
        one.resize(1 + random.below(variants, drawn++));
        for (variant& of : one) of = {static_cast<double>(random.below(30, drawn++)), random.below(12, drawn++)};
    }
    return out;
}

void for_all(const kernels& all, std::size_t k, double seconds, std::size_t scratch,
             const std::function<void(double, std::size_t)>& f) {
    if (k == all.size()) return f(seconds, scratch);
    for (const variant& one : all[k]) for_all(all, k + 1, seconds + one.seconds, scratch + one.scratch, f);
}

}  // namespace

TEST_CASE("planner/workspace: the choice is the best of all there are", "[planner]") {
    std::size_t found_some = 0, found_none = 0, better_than_rounding = 0;
    for (std::uint32_t series = 0; series < 300; ++series) {
        const auto all = draw_kernels(series % 7, 4, series);
        for (const std::size_t limit : {0U, 5U, 13U, 20U, 31U, 100U}) {
            double best = HUGE_VAL;
            for_all(all, 0, 0, 0, [&](double seconds, std::size_t scratch) {
                if (scratch <= limit) best = std::min(best, seconds);
            });
            const auto found = planner::divide_workspace(all, limit);
            INFO("series " << series << ", limit " << limit);
            REQUIRE(found.has_value() == (best < HUGE_VAL));
            ++(found ? found_some : found_none);
            if (!found) continue;
            REQUIRE(found->seconds == best);
            REQUIRE(found->scratch <= limit);
            REQUIRE(found->chosen.size() == all.size());
            double seconds = 0;
            std::size_t scratch = 0;
            for (std::size_t k = 0; k < all.size(); ++k) {
                seconds += all[k].at(found->chosen[k]).seconds;
                scratch += all[k].at(found->chosen[k]).scratch;
            }
            REQUIRE(seconds == found->seconds);
            REQUIRE(scratch == found->scratch);
            // At one price for all kernels the best is out of reach in some of these.
            std::vector<double> prices{0};
            for (int p = 1; p < 400; ++p) prices.push_back(p * 0.1);
            double at_one_price = HUGE_VAL;
            for (const double price : prices)
                if (const auto one = planner::detail::at_price(all, price); one.scratch <= limit)
                    at_one_price = std::min(at_one_price, one.seconds);
            better_than_rounding += best < at_one_price;
        }
    }
    CHECK(found_some > 500);
    CHECK(found_none > 50);
    CHECK(better_than_rounding > 20);
}

TEST_CASE("planner/workspace: as many kernels as a deep network has", "[planner]") {
    // Equal kernels: half of them can be fast.
    const kernels equal(90, {{2, 0}, {1, 10}});
    const auto found = planner::divide_workspace(equal, 455);
    REQUIRE(found.has_value());
    CHECK(found->seconds == 135);
    CHECK(found->scratch == 450);
    // Any numbers: never worse than with less.
    const auto all = draw_kernels(90, 6, 1000);
    double before = HUGE_VAL;
    for (std::size_t limit = 120; limit < 1000; limit += 40)
        if (const auto here = planner::divide_workspace(all, limit)) {
            CHECK(here->seconds <= before);
            before = here->seconds;
        }
    CHECK(before < HUGE_VAL);
}

TEST_CASE("planner/workspace: nothing to choose", "[planner]") {
    const auto none = planner::divide_workspace(kernels{}, 0);
    REQUIRE(none.has_value());
    CHECK(none->chosen.empty());
    CHECK(!planner::divide_workspace(kernels{{{1, 1}}, {}}, 10).has_value());
    CHECK(planner::divide_workspace(kernels{{{5, 3}}}, 3)->chosen == std::vector<std::size_t>{0});
    CHECK(!planner::divide_workspace(kernels{{{5, 3}}}, 2).has_value());
}
