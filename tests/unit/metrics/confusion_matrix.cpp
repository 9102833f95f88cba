// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/metrics/confusion_matrix.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace metrics_test;

TEMPLATE_TEST_CASE("metrics/confusion_matrix: counts of a plain loop", "[metrics]", float, double) {
    const auto check = []<std::size_t Classes>(const samples<TestType, Classes>& of) {
        std::vector<std::uint64_t> expected(Classes * Classes);
        for (std::size_t row = 0; row < of.label.size(); ++row)
            ++expected[static_cast<std::size_t>(of.label[row]) * Classes + of.predicted(row)];
        const auto found = of.result(metrics::confusion_matrix{});
        CHECK(found.classes == Classes);
        CHECK(found.counts == expected);
        CHECK(found(Classes - 1, 0) == expected[(Classes - 1) * Classes]);
        CHECK(found.others == 0);
    };
    check(samples<TestType, 2>{301});
    check(samples<TestType, 10>{301});
    check(samples<TestType, 17>{1});
}

TEST_CASE("metrics/confusion_matrix: a class that does not exist is an error, not another pair", "[metrics]") {
    const metrics::confusion_counts two{.classes = 2, .counts = {1, 2, 3, 4}};
    CHECK(two(1, 0) == 3);
    CHECK_THROWS_WITH(two(0, 2), Catch::Contains("label 0, predicted as 2, is no pair of 2 classes"));
    CHECK_THROWS_WITH(two(2, 0), Catch::Contains("label 2"));
}

TEST_CASE("metrics/confusion_matrix: rows that are in no place of it are counted apart", "[metrics]") {
    samples<float, 3> of{20};
    of.y[7] = std::numeric_limits<float>::quiet_NaN();
    of.label[5] = 3;
    of.label[6] = -1;
    const auto found = of.result(metrics::confusion_matrix{});
    std::uint64_t sum = 0;
    for (const std::uint64_t one : found.counts) sum += one;
    CHECK(sum == 17);
    CHECK(found.others == 3);
}
