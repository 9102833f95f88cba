// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/metrics/precision_and_recall.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "support.hpp"

using namespace metrics_test;

TEMPLATE_TEST_CASE("metrics/precision_and_recall: by their definitions", "[metrics]", float, double) {
    for (const std::size_t rows : {5, 12, 400}) {
        const samples<TestType, 9> of{rows};
        const auto found = of.result(metrics::precision_and_recall{});
        double precisions = 0, recalls = 0, classes = 0;
        for (std::size_t c = 0; c < 9; ++c) {
            double right = 0, predicted = 0, labelled = 0;
            for (std::size_t row = 0; row < rows; ++row) {
                const bool as = of.predicted(row) == c, is = of.label[row] == static_cast<std::int32_t>(c);
                predicted += as, labelled += is, right += as && is;
            }
            CHECK(found.precision.at(c) == (predicted > 0 ? right / predicted : 0));
            CHECK(found.recall.at(c) == (labelled > 0 ? right / labelled : 0));
            if (predicted + labelled > 0) precisions += found.precision[c], recalls += found.recall[c], classes += 1;
        }
        if (rows == 5) CHECK(classes < 9);  // some occur nowhere
        CHECK(found.macro_precision == Approx(precisions / classes).epsilon(1e-15));
        CHECK(found.macro_recall == Approx(recalls / classes).epsilon(1e-15));
    }
}

// scikit-learn 1.3: precision_score([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], average='macro'), its own example.
TEST_CASE("metrics/precision_and_recall: an example of scikit-learn", "[metrics]") {
    samples<float, 4> of{6};
    of.label = {0, 1, 2, 0, 1, 2};
    of.y.assign(24, 0);
    const std::size_t predicted[] = {0, 2, 1, 0, 0, 1};
    for (std::size_t row = 0; row < 6; ++row) of.y[4 * row + predicted[row]] = 1;
    const auto found = of.result(metrics::precision_and_recall{});
    CHECK(found.precision == std::vector<double>{2.0 / 3, 0, 0, 0});
    CHECK(found.recall == std::vector<double>{1, 0, 0, 0});
    CHECK(found.macro_precision == Approx(2.0 / 9));
    CHECK(found.macro_recall == Approx(1.0 / 3));
}

TEST_CASE("metrics/precision_and_recall: a row without a prediction still asks for its class", "[metrics]") {
    samples<float, 2> of{4};
    of.label = {0, 0, 1, 1};
    of.y = {1, 0, std::numeric_limits<float>::quiet_NaN(), 0, 0, 1, 0, 1};
    const auto found = of.result(metrics::precision_and_recall{});
    CHECK(found.precision == std::vector<double>{1, 1});
    CHECK(found.recall == std::vector<double>{0.5, 1});
}
