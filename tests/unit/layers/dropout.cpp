// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/dropout.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

template <class T, std::size_t Features>
problem<T, layer_api::dropout_layer<shape<Features>>> ones(std::size_t rows, double rate) {
    return {.rows = rows,
            .x = array<T>(rows * Features, T{1}),
            .layer = layers::dropout{.rate = rate}.on(shape<Features>{})};
}

}  // namespace

TEMPLATE_TEST_CASE("layers/dropout: keeps the expected part, scaled so that the mean stays", "[layers]", float,
                   double) {
    constexpr std::size_t features = 300, rows = 200;  // more features than are drawn at a time
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
        const auto y = forward(ones<TestType, features>(rows, rate)).y;
        const auto kept = static_cast<TestType>(1.0 / (1.0 - rate));
        std::size_t count = 0, other = 0;
        for (const TestType one : y) {
            count += one == kept;
            other += one != kept && one != 0;
        }
        CHECK(other == 0);
        // Five standard deviations of a binomial count: 6 in 10^7 fair generators would fall short.
        const double n = features * rows;
        CHECK(std::abs(static_cast<double>(count) - (1 - rate) * n) <= 5 * std::sqrt(rate * (1 - rate) * n));
    }
}

TEST_CASE("layers/dropout: every feature and every row is dropped as often as the others", "[layers]") {
    constexpr std::size_t features = 40, rows = 4000;
    const auto y = forward(ones<float, features>(rows, 0.25)).y;
    for (std::size_t feature = 0; feature < features; ++feature) {
        double kept = 0;
        for (std::size_t row = 0; row < rows; ++row) kept += y[row * features + feature] != 0;
        CHECK(std::abs(kept - 0.75 * rows) <= 5 * std::sqrt(0.25 * 0.75 * rows));
    }
}

TEMPLATE_TEST_CASE("layers/dropout: backward uses the mask of forward", "[layers]", float, double) {
    constexpr std::size_t features = 261, rows = 7;
    auto of = ones<TestType, features>(rows, 0.3);
    of.x = uniform<TestType>(rows * features, 1);
    const auto dy = uniform<TestType>(rows * features, 2);
    const auto ran = forward(of);
    const auto dx = backward(of, ran, dy, one_lane(rows)).dx;
    const auto scale = static_cast<TestType>(1 / 0.7);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < dx.size(); ++i) {
        wrong += ran.y[i] != 0 && ran.y[i] != of.x[i] * scale;
        wrong += dx[i] != (ran.y[i] == 0 ? TestType{0} : dy[i] * scale);
    }
    CHECK(wrong == 0);
}

TEST_CASE("layers/dropout: the mask belongs to the sample: rows alone, in a batch and on other ranks have the same",
          "[layers]") {
    constexpr std::size_t features = 261, rows = 9;
    const auto all = ones<float, features>(rows, 0.5);
    const auto y = forward(all).y;
    for (const std::size_t count : {1, 2, 4})
        for (std::size_t first = 0; first + count <= rows; ++first) {
            const auto some = forward(all.part(first, count)).y;
            CHECK(std::equal(some.begin(), some.end(), y.begin() + static_cast<std::ptrdiff_t>(first * features)));
        }
}

TEST_CASE("layers/dropout: a shard of the features has its part of the mask", "[layers]") {
    constexpr std::size_t features = 270, shards = 3, width = features / shards, rows = 5;
    auto all = ones<float, features>(rows, 0.5);
    all.first_row = 3;
    const auto y = forward(all).y;
    for (std::size_t shard = 0; shard < shards; ++shard) {
        auto mine = ones<float, width>(rows, 0.5);
        mine.first_row = 3;
        mine.features = {shard * width, features};
        const auto part = forward(mine).y;
        for (std::size_t row = 0; row < rows; ++row)
            CHECK(std::equal(part.begin() + static_cast<std::ptrdiff_t>(row * width),
                             part.begin() + static_cast<std::ptrdiff_t>((row + 1) * width),
                             y.begin() + static_cast<std::ptrdiff_t>(row * features + shard * width)));
    }
}

TEST_CASE("layers/dropout: another step, layer, seed or sample has another mask", "[layers]") {
    const auto mask = [](core::random_stream random, std::size_t first_row) {
        auto of = ones<float, 64>(1, 0.5);
        of.random = random;
        of.first_row = first_row;
        return forward(of).y;
    };
    using core::purpose;
    const auto first = mask({1, purpose::dropout, 2, 3}, 4);
    CHECK(mask({1, purpose::dropout, 2, 3}, 4) == first);
    CHECK(mask({1, purpose::dropout, 2, 4}, 4) != first);
    CHECK(mask({1, purpose::dropout, 3, 3}, 4) != first);
    CHECK(mask({2, purpose::dropout, 2, 3}, 4) != first);
    CHECK(mask({1, purpose::dropout, 2, 3}, 5) != first);
}

TEMPLATE_TEST_CASE("layers/dropout: inference and a rate of 0 change nothing", "[layers]", float, double) {
    auto of = ones<TestType, 261>(40, 0.5);
    of.x = uniform<TestType>(of.x.size(), 1);
    of.mode = layer_api::mode::inference;
    for (const int threads : thread_counts()) {
        of.team = {threads};
        CHECK(same_bits(forward(of).y, of.x));
    }
    auto none = ones<TestType, 261>(40, 0);
    none.x = of.x;
    CHECK(same_bits(forward(none).y, of.x));
}

TEST_CASE("layers/dropout: wrong rates are refused", "[layers]") {
    CHECK_THROWS_WITH(layers::dropout{.rate = 1}.check(),
                      "lockstep: dropout rate is 1; use a probability of at least 0 and below 1");
    CHECK_THROWS_WITH(layers::dropout{.rate = -0.1}.check(),
                      "lockstep: dropout rate is -0.1; use a probability of at least 0 and below 1");
    CHECK_THROWS_AS(layers::dropout{.rate = NAN}.check(), core::error);
    CHECK_THROWS_WITH(layers::dropout{.rate = 1 - 1e-9}.check(),
                      Catch::Contains("e-10; use a rate of at most 1 - 2^-20 = 0.999999"));
    CHECK_NOTHROW(layers::dropout{.rate = 0.999999}.check());
    CHECK_NOTHROW(layers::dropout{.rate = 0}.check());
    CHECK_NOTHROW(layers::dropout{.rate = 0.999}.check());
    CHECK(layers::dropout{.rate = 0.25}.settings() == "rate=0.25");
}
