// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/stages.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/model/combine.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
namespace model = ls::model;
using namespace ls::layers;
using ls::parallel::block;

namespace {

/// The least cost of the dearest of `stages` stages over layers from `from` on, by trying all cuts.
double cheapest(const std::vector<double>& costs, const bool* begins, std::size_t from, std::size_t stages) {
    double all = 0;
    for (std::size_t layer = from; layer < costs.size(); ++layer) all += costs[layer];
    if (stages == 1) return all;
    double best = HUGE_VAL, here = 0;
    for (std::size_t next = from + 1; next < costs.size(); ++next) {
        here += costs[next - 1];
        if (begins[next]) best = std::min(best, std::max(here, cheapest(costs, begins, next, stages - 1)));
    }
    return best;
}

}  // namespace

TEST_CASE("model/stages: the dearest stage costs least", "[model]") {
    std::mt19937 random{5};
    std::size_t tried = 0;
    for (std::size_t run = 0; run < 400; ++run) {
        const std::size_t layers = 2 + random() % 11, stages = 2 + random() % 4;
        std::vector<double> costs(layers);
        for (double& one : costs) one = static_cast<double>(random() % 20);
        const auto begins = std::make_unique<bool[]>(layers);
        std::size_t places = 0;
        for (std::size_t layer = 1; layer < layers; ++layer) places += begins[layer] = random() % 3 > 0;
        if (places + 1 < stages) continue;
        ++tried;
        const std::vector<std::size_t> chosen(stages - 1);
        const auto cut = model::cut_stages(costs, {begins.get(), layers}, chosen);
        REQUIRE(cut.size() == stages);
        double dearest = 0;
        std::size_t at = 0;
        for (const block& stage : cut) {
            REQUIRE(stage.first == at);
            REQUIRE(stage.last > at);
            REQUIRE((at == 0 || begins[at]));
            double cost = 0;
            for (; at < stage.last; ++at) cost += costs[at];
            dearest = std::max(dearest, cost);
        }
        REQUIRE(at == layers);
        CHECK(dearest == cheapest(costs, begins.get(), 0, stages));
    }
    CHECK(tried > 200);
}

TEST_CASE("model/stages: a stage begins where a user says, or nowhere", "[model]") {
    const std::vector<double> costs{1, 1, 1, 1, 1};
    const std::array<bool, 5> begins{false, true, false, true, true};
    const auto cut = [&](std::vector<std::size_t> firsts) { return model::cut_stages(costs, begins, firsts); };
    CHECK(cut({1, 4}) == std::vector<block>{{0, 1}, {1, 4}, {4, 5}});
    CHECK_THROWS_WITH(cut({1, 2}),
                      Catch::Contains("stage 2 of a pipeline cannot begin with layer 2; name layers of these in "
                                      "ascending order, or none at all: 1, 3, 4"));
    CHECK_THROWS_WITH(cut({3, 1}), Catch::Contains("stage 2 of a pipeline cannot begin with layer 1, as stage 1 begins "
                                                   "with layer 3"));
    CHECK_THROWS_WITH(cut({3, 3}), Catch::Contains("cannot begin with layer 3"));
    CHECK_THROWS_WITH(cut({0, 3}), Catch::Contains("stage 1 of a pipeline cannot begin with layer 0"));
    CHECK_THROWS_WITH(cut({3, 5}), Catch::Contains("cannot begin with layer 5"));
}

TEST_CASE("model/stages: branches, blocks that run again and fused layers stay whole", "[model]") {
    constexpr auto net =
        ls::sequential{ls::input<8, 8, 2>,
                       conv<2, 3, conv_options{.padding = 1}>{},                              // 0
                       batch_norm{},                                                          // 1
                       relu{},                                                                // 2
                       ls::residual{conv<2, 3, conv_options{.padding = 1}>{}, batch_norm{}},  // 3, 4, 5
                       relu{},                                                                // 6
                       ls::recompute{conv<2, 1>{}, relu{}},                                   // 7, 8
                       flatten{},                                                             // 9
                       dense<4>{}};                                                           // 10
    using type = std::remove_const_t<decltype(net)>;
    constexpr auto begins = model::begins_stage<type>;
    static_assert(type::size == 11);
    // Batch normalisation computes the relu and the sum after it.
    CHECK(begins == std::array<bool, 11>{false, true, false, true, false, false, false, true, false, true, true});
    CHECK(model::most_stages<type> == 6);
    // What ends a network with the samples again leaves no cut before it.
    constexpr auto around = ls::sequential{ls::input<4>, ls::residual{dense<4>{}, relu{}, dense<4>{}}, dense<2>{}};
    using whole = std::remove_const_t<decltype(around)>;
    CHECK(model::begins_stage<whole> == std::array<bool, 5>{false, false, false, false, true});
    // Each stage costs something; those of dense layers most.
    const auto costs = model::stage_costs<model::network<type, 1>>();
    CHECK(*std::ranges::min_element(costs) > 0);
    CHECK(costs[0] > costs[2]);
}
