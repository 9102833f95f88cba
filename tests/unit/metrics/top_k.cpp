// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/metrics/top_k.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "lockstep/metrics/accuracy.hpp"
#include "support.hpp"

using namespace metrics_test;

TEMPLATE_TEST_CASE("metrics/top_k: the k first of a stable sort", "[metrics]", float, double) {
    for (const std::size_t rows : {0, 1, 17, 200}) {
        const samples<TestType, 11> of{rows};
        for (int k = 1; k < 11; ++k) {
            std::size_t expected = 0;
            for (std::size_t row = 0; row < rows; ++row) {
                std::vector<std::int32_t> order(11);
                std::iota(order.begin(), order.end(), 0);
                const TestType* y = of.y.data() + row * 11;
                std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return y[a] > y[b]; });
                expected += std::find(order.begin(), order.begin() + k, of.label[row]) != order.begin() + k;
            }
            CHECK(of.mean_sum(metrics::top_k{.k = k}) == expected);
        }
        CHECK(of.mean_sum(metrics::top_k{.k = 1}) == of.mean_sum(metrics::accuracy{}));
    }
}

TEST_CASE("metrics/top_k: a NaN or an unknown label is never correct", "[metrics]") {
    samples<float, 5> of{3};
    of.y[2] = std::numeric_limits<float>::quiet_NaN();
    of.label[1] = -1;
    of.label[2] = 5;
    CHECK(of.mean_sum(metrics::top_k{.k = 4}) == 0);
}

TEST_CASE("metrics/top_k: numbers that make no sense", "[metrics]") {
    CHECK(metrics::top_k{}.settings() == "k=5");
    CHECK_NOTHROW(metrics::top_k{}.check());
    CHECK_THROWS_WITH(metrics::top_k{.k = 0}.check(), "lockstep: top_k has k = 0; take 1 or more, such as 5");
    CHECK_NOTHROW(metrics::top_k{}.check_outputs(6));
    CHECK_THROWS_AS(metrics::top_k{}.check_outputs(5), core::error);
}
