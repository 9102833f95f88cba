// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/fusion.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/models/resnet.hpp"
#include "unit/model/networks.hpp"

using namespace model_test;
using ls::layer_api::tail;
using ls::model::network;

namespace {

template <std::size_t Shards = 1, class Net>
std::vector<tail> tails_of(const Net&) {
    const auto& all = ls::model::fusion<Net, Shards>::tails;
    return {all.begin(), all.end()};
}
template <std::size_t Shards = 1, class Net>
std::vector<bool> views_of(const Net&) {
    std::vector<bool> out;
    for (const auto& fact : network<Net, Shards>::facts) out.push_back(fact.is_view);
    return out;
}
template <class Net>
std::vector<std::vector<std::size_t>> reads_of(const Net&) {
    std::vector<std::vector<std::size_t>> out;
    for (std::size_t node = 0; node < Net::size; ++node)
        out.emplace_back(network<Net, 1>::graph.of(node).begin(), network<Net, 1>::graph.of(node).end());
    return out;
}
constexpr std::size_t samples = ls::model::the_samples;
using conv_1 = conv<2, 1>;

}  // namespace

TEST_CASE("model/fusion: a normalisation computes the relu behind it, and a sum with relu", "[model]") {
    constexpr auto net = ls::sequential{ls::input<4, 4, 2>,
                                        conv_1{},
                                        batch_norm{.momentum = 0.25, .epsilon = 1e-3},
                                        relu{},
                                        ls::residual{conv_1{}, batch_norm{}},
                                        relu{},
                                        ls::add{conv_1{}, ls::path{conv_1{}, batch_norm{}}},
                                        relu{}};
    using type = std::remove_const_t<decltype(net)>;
    CHECK(tails_of(net) == std::vector<tail>{tail::none, tail::relu, tail::none, tail::none, tail::add_relu, tail::none, tail::none,
                                             tail::none, tail::none, tail::add_relu, tail::none, tail::none});
    CHECK(views_of(net) == std::vector<bool>{false, false, true, false, false, true, true, false, false, false, true, true});
    CHECK(reads_of(net) == std::vector<std::vector<std::size_t>>{{samples}, {0}, {1}, {2}, {3, 2}, {4}, {5}, {6}, {6}, {8, 7}, {9}, {10}});
    // What a network says of itself stays.
    const auto& facts = network<type, 1>::facts;
    CHECK((facts[1].name == "batch_norm" && facts[2].name == "relu" && facts[5].name == "add" && facts[6].name == "relu"));
    CHECK((facts[2].flops == 32 && facts[5].flops == 32 && facts[2].outputs == 32));
    // A layer that inherits from one with a tail may compute something else, and one has a single tail.
    struct derived : batch_norm_layer<ls::tensor::shape<4>> {};
    STATIC_REQUIRE(ls::layer_api::takes_tail<batch_norm_layer<ls::tensor::shape<4>>>);
    STATIC_REQUIRE(!ls::layer_api::takes_tail<derived>);
    STATIC_REQUIRE(!ls::layer_api::takes_tail<batch_norm_layer<ls::tensor::shape<4>, tail::relu>>);
    const auto made = network<type, 1>::at<1>::make(net);
    CHECK((made.momentum == 0.25 && made.epsilon == 1e-3));
    STATIC_REQUIRE(std::is_same_v<decltype(made), const batch_norm_layer<ls::tensor::shape<4, 4, 2>, tail::relu>>);
}

TEST_CASE("model/fusion: nothing is computed in front that somebody else reads, in another order or in another block", "[model]") {
    const auto none = [](const auto& net) {
        const auto tails = tails_of(net);
        return tails == std::vector<tail>(tails.size(), tail::none) && views_of(net) == std::vector<bool>(tails.size(), false);
    };
    constexpr auto in = ls::input<4, 4, 2>;
    CHECK(none(ls::sequential{in, batch_norm{}, ls::layers::tanh{}}));
    CHECK(none(ls::sequential{in, relu{}, batch_norm{}}));
    CHECK(none(ls::sequential{in, batch_norm{}, ls::residual{relu{}}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::residual{conv_1{}, batch_norm{}}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::residual{conv_1{}, batch_norm{}}, ls::residual{relu{}}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::residual{conv_1{}, batch_norm{}}, ls::layers::tanh{}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::add{ls::path{conv_1{}, batch_norm{}}, ls::path{}}, relu{}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::add{ls::path{}, conv_1{}, ls::path{conv_1{}, batch_norm{}}}, relu{}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::concatenate{ls::path{}, ls::path{conv_1{}, batch_norm{}}}, relu{}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::residual{batch_norm{}}, relu{}}));
    CHECK(none(ls::sequential{in, ls::recompute{conv_1{}, batch_norm{}}, relu{}}));
    CHECK(none(ls::sequential{in, ls::recompute{conv_1{}, batch_norm{}}, ls::recompute{relu{}, conv_1{}}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::residual{ls::recompute{conv_1{}, batch_norm{}}}, relu{}}));
    CHECK(none(ls::sequential{in, conv_1{}, ls::recompute{ls::residual{conv_1{}, batch_norm{}}}, relu{}}));
    constexpr auto block = ls::sequential{in, conv_1{}, ls::recompute{ls::residual{conv_1{}, batch_norm{}}, relu{}}};
    CHECK(tails_of(block)[2] == tail::add_relu);
}

TEST_CASE("model/fusion: in a model partition a sum that meets an exchange stays by itself", "[model]") {
    constexpr auto net = ls::sequential{ls::input<8>, dense<8>{}, batch_norm{}, relu{}, ls::residual{dense<8>{}, batch_norm{}}, relu{}};
    CHECK(tails_of<1>(net)[4] == tail::add_relu);
    CHECK(tails_of<2>(net)[4] == tail::none);
    CHECK(tails_of<2>(net)[1] == tail::relu);
}

TEST_CASE("model/fusion: all of a residual network", "[model]") {
    const auto tails = tails_of(ls::models::resnet<20>);
    CHECK(std::count(tails.begin(), tails.end(), tail::relu) == 10);
    CHECK(std::count(tails.begin(), tails.end(), tail::add_relu) == 9);
}
