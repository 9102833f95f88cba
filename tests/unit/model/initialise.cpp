// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/initialise.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace model = lockstep::model;
namespace tensor = lockstep::tensor;
using tensor::parameter;

namespace {

template <class T, class Rule>
std::vector<T> filled(const parameter& of, const Rule& rule, std::uint64_t seed = 1, std::size_t layer = 2,
                      std::size_t number = 0) {
    std::vector<T> out(of.size());
    model::initialise<T>(of, out, 0, of.columns, seed, layer, number, rule);
    return out;
}

constexpr parameter weight{.name = "weight", .rows = 300, .columns = 200, .fan_in = 300, .fan_out = 200};
constexpr double count = 300 * 200;

template <class T>
double moment(const std::vector<T>& numbers, int power) {
    double sum = 0;
    for (const T number : numbers) sum += std::pow(static_cast<double>(number), power);
    return sum / static_cast<double>(numbers.size());
}

}  // namespace

// The mean of n independent numbers with variance v lies within 5 sqrt(v / n): 6 in 10^7 fair generators would fall
// short.

TEMPLATE_TEST_CASE("model/initialise: He: normal with variance 2 / fan_in", "[model]", float, double) {
    const auto w = filled<TestType>(weight, model::he{});
    const double variance = 2.0 / 300;
    CHECK(std::abs(moment(w, 1)) <= 5 * std::sqrt(variance / count));
    CHECK(std::abs(moment(w, 2) - variance) <= 5 * std::sqrt(2 * variance * variance / count));
    // Normal: the fourth moment is 3 v^2, and its square has the mean 105 v^4.
    CHECK(std::abs(moment(w, 4) - 3 * variance * variance) <= 5 * std::sqrt(96 / count) * variance * variance);
}

TEMPLATE_TEST_CASE("model/initialise: Glorot: uniform in +- sqrt(6 / (fan_in + fan_out))", "[model]", float, double) {
    const auto w = filled<TestType>(weight, model::glorot{});
    const double bound = std::sqrt(6.0 / 500), variance = bound * bound / 3;
    double most = 0;
    for (const TestType one : w) most = std::max(most, std::abs(static_cast<double>(one)));
    CHECK(most <= bound * (1 + static_cast<double>(std::numeric_limits<TestType>::epsilon())));
    // All of 60,000 numbers are below 0.9997 of the bound once in 6 10^7 times.
    CHECK(most >= 0.9997 * bound);
    CHECK(std::abs(moment(w, 1)) <= 5 * std::sqrt(variance / count));
    // E x^4 = b^4 / 5.
    CHECK(std::abs(moment(w, 2) - variance) <= 5 * std::sqrt((std::pow(bound, 4) / 5 - variance * variance) / count));
}

TEMPLATE_TEST_CASE("model/initialise: a shard starts with its columns of the whole, bit by bit", "[model]", float,
                   double) {
    const auto check = [](const auto& rule) {
        const auto whole = filled<TestType>(weight, rule);
        for (const std::size_t shards : {2, 4, 5}) {
            parameter part = weight;
            part.columns = weight.columns / shards;
            for (std::size_t shard = 0; shard < shards; ++shard) {
                std::vector<TestType> mine(part.size());
                model::initialise<TestType>(part, mine, shard * part.columns, weight.columns, 1, 2, 0, rule);
                for (std::size_t row = 0; row < part.rows; ++row)
                    REQUIRE(std::memcmp(&mine[row * part.columns], &whole[row * weight.columns + shard * part.columns],
                                        part.columns * sizeof(TestType)) == 0);
            }
        }
    };
    check(model::he{});
    check(model::glorot{});
}

TEST_CASE("model/initialise: float weights are the double ones, rounded", "[model]") {
    const auto check = [](const auto& rule) {
        const auto exact = filled<double>(weight, rule);
        const auto rounded = filled<float>(weight, rule);
        std::size_t different = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) different += rounded[i] != static_cast<float>(exact[i]);
        CHECK(different == 0);
    };
    check(model::he{});
    check(model::glorot{});
}

TEST_CASE("model/initialise: seed, layer and parameter each give other numbers", "[model]") {
    const auto first = filled<float>(weight, model::he{}, 1, 2, 0);
    CHECK(filled<float>(weight, model::he{}, 1, 2, 0) == first);
    const auto equal_numbers = [&](const std::vector<float>& other) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i];
        return equal;
    };
    // 60,000 pairs of numbers with about 2^23 values each: less than 1 is equal on average.
    CHECK(equal_numbers(filled<float>(weight, model::he{}, 2, 2, 0)) < 10);
    CHECK(equal_numbers(filled<float>(weight, model::he{}, 1, 3, 0)) < 10);
    CHECK(equal_numbers(filled<float>(weight, model::he{}, 1, 2, 1)) < 10);
}

namespace {

/// He's variance over the depth.
struct by_depth {
    [[nodiscard]] static double value(const parameter& of, const lockstep::core::random_stream& random,
                                      std::uint64_t index, std::size_t layer) noexcept {
        return model::he::value(of, random, index) / static_cast<double>(layer + 1);
    }
};

}  // namespace

TEST_CASE("model/initialise: a rule may know the number of the layer", "[model]") {
    const auto he = filled<double>(weight, model::he{}, 1, 3), deep = filled<double>(weight, by_depth{}, 1, 3);
    for (std::size_t i = 0; i < he.size(); ++i) REQUIRE(deep[i] == he[i] / 4);
}

TEST_CASE("model/initialise: zeros, ones and a constant, whatever the rule", "[model]") {
    parameter other = weight;
    other.initial = tensor::start::zeros;
    CHECK(filled<float>(other, model::he{}) == std::vector<float>(other.size(), 0.0F));
    other.initial = tensor::start::ones;
    CHECK(filled<double>(other, model::glorot{}) == std::vector<double>(other.size(), 1.0));
    other.initial = tensor::start::constant;
    other.value = 0.25;
    CHECK(filled<float>(other, model::glorot{}) == std::vector<float>(other.size(), 0.25F));
}
