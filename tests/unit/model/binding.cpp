// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/binding.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::exchange;
using ls::model::network;
using ls::model::placement;
using ls::tensor::shape;

namespace {

template <class Network>
std::vector<exchange> exchanges() {
    std::vector<exchange> out;
    for (const auto& fact : Network::facts) out.push_back(fact.in_front);
    out.push_back(Network::behind);
    return out;
}

}  // namespace

TEST_CASE("model/binding: each layer takes what the one before it gives", "[model]") {
    using whole = network<lenet_type, 1>;
    static_assert(std::is_same_v<whole::layer<0>::input, shape<28, 28, 1>> && std::is_same_v<whole::layer<0>::output, shape<24, 24, 32>>);
    static_assert(std::is_same_v<whole::layer<3>::input, shape<12, 12, 32>> && std::is_same_v<whole::layer<6>::output, shape<1024>>);
    static_assert(std::is_same_v<whole::layer<9>, dense_layer<512, 10>>);
    static_assert(whole::facts[6].is_view && !whole::facts[5].is_view);
    CHECK(whole::facts[7].name == "dense");
}

TEST_CASE("model/binding: one rank exchanges nothing", "[model]") {
    CHECK(exchanges<network<lenet_type, 1>>() == std::vector<exchange>(lenet_type::size + 1, exchange::none));
    CHECK(exchanges<network<mixed_type, 1>>() == std::vector<exchange>(mixed_type::size + 1, exchange::none));
}

TEST_CASE("model/binding: what two ranks exchange in LeNet", "[model]") {
    using half = network<lenet_type, 2>;
    std::vector<exchange> expected(lenet_type::size + 1, exchange::none);
    expected[7] = exchange::gather_samples;   // the first dense layer sees the samples of both
    expected[9] = exchange::gather_features;  // relu stays on its features
    expected[10] = exchange::to_samples;      // for the loss
    CHECK(exchanges<half>() == expected);
    static_assert(std::is_same_v<half::layer<7>, dense_layer<1024, 256, 512>> && std::is_same_v<half::layer<9>, dense_layer<512, 5, 10>>);
    static_assert(std::is_same_v<half::layer<8>::input, shape<256>> && std::is_same_v<half::layer<8>::output, shape<256>>);
    static_assert(std::is_same_v<half::layer<3>, network<lenet_type, 1>::layer<3>>);
    static_assert(std::is_same_v<half::output, shape<10>>);
}

TEST_CASE("model/binding: a layer that needs whole samples gets them, and the next dense layer gathers again", "[model]") {
    using half = network<mixed_type, 2>;
    const std::vector<exchange> expected{
        exchange::none,             // conv
        exchange::none,             // tanh
        exchange::none,             // flatten
        exchange::gather_samples,   // dense
        exchange::none,             // dropout on the features of this rank
        exchange::to_samples,       // whole_sample
        exchange::none,             // dropout on whole samples
        exchange::gather_samples,   // dense
        exchange::gather_features,  // dense behind dense
        exchange::none,             // relu
        exchange::to_samples,       // loss
    };
    CHECK(exchanges<half>() == expected);
    static_assert(half::at<4>::after == placement::features && half::at<5>::after == placement::samples);
    static_assert(std::is_same_v<half::layer<4>::input, shape<12>> && std::is_same_v<half::layer<6>::input, shape<24>>);
    static_assert(half::at<3>::is_sharded && !half::at<4>::is_sharded && !half::at<0>::is_sharded);
}

TEST_CASE("model/binding: a network that ends on whole samples exchanges nothing behind it", "[model]") {
    constexpr auto net = ls::sequential{ls::input<8>, dense<8>{}, whole_sample{}};
    using half = network<std::remove_const_t<decltype(net)>, 2>;
    STATIC_REQUIRE(half::behind == exchange::none && half::facts[1].in_front == exchange::to_samples);
}

TEST_CASE("model/binding: the numbers of a spec reach its layer, cut or not", "[model]") {
    STATIC_REQUIRE(network<mixed_type, 1>::at<4>::make(mixed).rate == 0.125);
    STATIC_REQUIRE(network<mixed_type, 2>::at<4>::make(mixed).rate == 0.125);
    STATIC_REQUIRE(network<mixed_type, 2>::at<6>::make(mixed).rate == 0.25);
}
