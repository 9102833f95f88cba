// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/network.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::network;
using ls::model::segment;

namespace {

constexpr std::size_t conv_1 = 5 * 5 * 1 * 32 + 32, conv_2 = 5 * 5 * 32 * 64 + 64, dense_1 = 1024 * 512 + 512,
                      dense_2 = 512 * 10 + 10;

template <class Network>
std::vector<std::size_t> field(std::size_t ls::model::layer_facts::*member) {
    std::vector<std::size_t> out;
    for (const auto& fact : Network::facts) out.push_back(fact.*member);
    return out;
}

}  // namespace

TEST_CASE("model/network: parameters of LeNet", "[model]") {
    using whole = network<lenet_type, 1>;
    static_assert(conv_1 == 832 && conv_2 == 51264 && dense_1 == 524800 && dense_2 == 5130);
    static_assert(whole::parameters == 582026 && whole::parameters_here == 582026);
    static_assert(std::is_same_v<whole::output, ls::tensor::shape<10>> &&
                  std::is_same_v<whole::input, ls::tensor::shape<28, 28, 1>>);
    CHECK(field<whole>(&ls::model::layer_facts::parameters) ==
          std::vector<std::size_t>{conv_1, 0, 0, conv_2, 0, 0, 0, dense_1, 0, dense_2});
    CHECK(field<whole>(&ls::model::layer_facts::inputs) ==
          std::vector<std::size_t>{784, 18432, 18432, 4608, 4096, 4096, 1024, 1024, 512, 512});
    CHECK(field<whole>(&ls::model::layer_facts::outputs) ==
          std::vector<std::size_t>{18432, 18432, 4608, 4096, 4096, 1024, 1024, 512, 512, 10});
}

TEST_CASE("model/network: operations of LeNet", "[model]") {
    using whole = network<lenet_type, 1>;
    constexpr double c1 = 2.0 * 24 * 24 * 25 * 32, c2 = 2.0 * 8 * 8 * 25 * 32 * 64, d1 = 2.0 * 1024 * 512,
                     d2 = 2.0 * 512 * 10;
    constexpr double relus = 24 * 24 * 32 + 8 * 8 * 64 + 512, pools = 12 * 12 * 32 * 4 + 4 * 4 * 64 * 4;
    CHECK(whole::forward_flops == c1 + c2 + d1 + d2 + relus + pools);
    // Forward, and two gradients; that of the images is not asked for.
    CHECK(whole::training_flops == 2 * c1 + 3 * (c2 + d1 + d2) + 2 * (relus + pools));
    static_assert(whole::first_learning_layer == 0);
    static_assert(network<mixed_type, 1>::first_learning_layer == 0);
    constexpr auto late = ls::sequential{ls::input<4, 4, 1>, relu{}, flatten{}, dense<2>{}};
    static_assert(network<std::remove_const_t<decltype(late)>, 1>::first_learning_layer == 2);
    constexpr auto never = ls::sequential{ls::input<4>, relu{}};
    static_assert(network<std::remove_const_t<decltype(never)>, 1>::first_learning_layer == 1);
}

TEST_CASE("model/network: parameters lie one after the other, the sharded ones last", "[model]") {
    using whole = network<lenet_type, 1>;
    STATIC_REQUIRE(whole::offset(0) == 0 && whole::offset(3) == conv_1 && whole::offset(7) == conv_1 + conv_2);
    STATIC_REQUIRE(whole::offset(9) == conv_1 + conv_2 + dense_1);
    STATIC_REQUIRE(whole::segment_size(segment::replicated) == whole::parameters &&
                   whole::segment_size(segment::sharded) == 0);

    using half = network<lenet_type, 2>;
    STATIC_REQUIRE(half::parameters == 582026);
    STATIC_REQUIRE(half::parameters_here == conv_1 + conv_2 + (dense_1 + dense_2) / 2);
    STATIC_REQUIRE(half::segment_size(segment::replicated) == conv_1 + conv_2);
    STATIC_REQUIRE(half::offset(3) == conv_1 && half::offset(7) == conv_1 + conv_2 &&
                   half::offset(9) == conv_1 + conv_2 + dense_1 / 2);
    STATIC_REQUIRE(half::facts[9].offset == dense_1 / 2 && half::facts[9].parameters_here == dense_2 / 2 &&
                   half::facts[9].parameters == dense_2);
    STATIC_REQUIRE(half::facts[7].segment == segment::sharded && half::facts[3].segment == segment::replicated);
    STATIC_REQUIRE(half::facts[7].inputs == 1024 && half::facts[7].outputs == 512);  // of the uncut layer
}

TEST_CASE("model/network: the parameters of each rank are used once, by one layer", "[model]") {
    const auto check = []<class Network>(Network) {
        std::vector<int> used(Network::parameters_here);
        for (std::size_t layer = 0; layer < Network::size; ++layer)
            for (std::size_t i = 0; i < Network::facts[layer].parameters_here; ++i)
                ++used.at(Network::offset(layer) + i);
        for (const int count : used) REQUIRE(count == 1);
    };
    check(network<lenet_type, 1>{});
    check(network<lenet_type, 2>{});
    check(network<mixed_type, 1>{});
    check(network<mixed_type, 2>{});
    check(network<mixed_type, 4>{});
}

TEST_CASE("model/network: which layers can be cut", "[model]") {
    using ls::model::shardable;
    STATIC_REQUIRE(shardable<lenet_type>::count() == 2 && shardable<mixed_type>::count() == 3);
    STATIC_REQUIRE(shardable<lenet_type>::first_undivided(1) == lenet_type::size);
    STATIC_REQUIRE(shardable<lenet_type>::first_undivided(2) == lenet_type::size);
    STATIC_REQUIRE(shardable<lenet_type>::first_undivided(4) == 9);  // 10 outputs
    STATIC_REQUIRE(shardable<lenet_type>::first_undivided(3) == 7);  // 512 outputs
}
