// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/binding.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::network;
using ls::model::placement;
using ls::model::redistribution;
using ls::tensor::shape;

namespace {

/// A user's layer that can be cut, and has a number.
template <std::size_t In, std::size_t Out, std::size_t Whole = Out>
struct scaled_layer {
    using input = shape<In>;
    using output = shape<Out>;
    static constexpr std::string_view name = "scaled";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "weight", .rows = In, .columns = Out}};
    static constexpr double flops = 1;
    double gain = 1;
    template <std::size_t Shards>
    constexpr auto shard() const {
        return scaled_layer<In, Whole / Shards, Whole>{.gain = gain};
    }
    void forward(const auto&) const {}
    void backward(const auto&) const {}
};
template <std::size_t Out>
struct scaled {
    double gain = 1;
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return scaled_layer<Input::size, Out>{.gain = gain};
    }
};

/// Every layer that has numbers, none of them at its default.
constexpr auto numbered = ls::sequential{
    ls::input<4, 4, 2>,
    local_response_norm<3>{.alpha = 0.5, .beta = 0.25, .offset = 3},
    batch_norm{.momentum = 0.75, .epsilon = 0.125},
    relu{},
    batch_norm{.momentum = 0.5, .epsilon = 0.0625},
    flatten{},
    scaled<8>{.gain = 3},
    dropout{.rate = 0.375},
    layer_norm{.epsilon = 0.5},
    scaled<4>{.gain = 5},
    dropout{.rate = 0.625},
};
using numbered_type = std::remove_const_t<decltype(numbered)>;

template <class F>
void each_count(F&& f) {
    f(std::integral_constant<std::size_t, 1>{});
    f(std::integral_constant<std::size_t, 2>{});
    f(std::integral_constant<std::size_t, 4>{});
}

template <class Network>
std::vector<redistribution> redistributions() {
    std::vector<redistribution> out;
    for (const auto& fact : Network::facts) out.push_back(fact.redistribution_before);
    out.push_back(Network::redistribution_after);
    return out;
}

}  // namespace

TEST_CASE("model/binding: each layer takes what the one before it gives", "[model]") {
    using whole = network<lenet_type, 1>;
    static_assert(std::is_same_v<whole::layer<0>::input, shape<28, 28, 1>> &&
                  std::is_same_v<whole::layer<0>::output, shape<24, 24, 32>>);
    static_assert(std::is_same_v<whole::layer<3>::input, shape<12, 12, 32>> &&
                  std::is_same_v<whole::layer<6>::output, shape<1024>>);
    static_assert(std::is_same_v<whole::layer<9>, dense_layer<512, 10>>);
    static_assert(whole::facts[6].is_view && !whole::facts[5].is_view);
    CHECK(whole::facts[7].name == "dense");
}

TEST_CASE("model/binding: one rank redistributes nothing", "[model]") {
    CHECK(redistributions<network<lenet_type, 1>>() ==
          std::vector<redistribution>(lenet_type::size + 1, redistribution::none));
    CHECK(redistributions<network<mixed_type, 1>>() ==
          std::vector<redistribution>(mixed_type::size + 1, redistribution::none));
}

TEST_CASE("model/binding: what two ranks exchange in LeNet", "[model]") {
    using half = network<lenet_type, 2>;
    std::vector<redistribution> expected(lenet_type::size + 1, redistribution::none);
    expected[7] = redistribution::gather_samples;   // the first dense layer sees the samples of both
    expected[9] = redistribution::gather_features;  // relu stays on its features
    expected[10] = redistribution::to_samples;      // for the loss
    CHECK(redistributions<half>() == expected);
    static_assert(std::is_same_v<half::layer<7>, dense_layer<1024, 256, 512>> &&
                  std::is_same_v<half::layer<9>, dense_layer<512, 5, 10>>);
    static_assert(std::is_same_v<half::layer<8>::input, shape<256>> &&
                  std::is_same_v<half::layer<8>::output, shape<256>>);
    static_assert(std::is_same_v<half::layer<3>, network<lenet_type, 1>::layer<3>>);
    static_assert(std::is_same_v<half::output, shape<10>>);
}

TEST_CASE("model/binding: a layer that needs whole samples gets them, and the next dense layer gathers again",
          "[model]") {
    using half = network<mixed_type, 2>;
    const std::vector<redistribution> expected{
        redistribution::none,             // conv
        redistribution::none,             // tanh
        redistribution::none,             // flatten
        redistribution::gather_samples,   // dense
        redistribution::none,             // dropout on the features of this rank
        redistribution::to_samples,       // whole_sample
        redistribution::none,             // dropout on whole samples
        redistribution::gather_samples,   // dense
        redistribution::gather_features,  // dense after dense
        redistribution::none,             // relu
        redistribution::to_samples,       // loss
    };
    CHECK(redistributions<half>() == expected);
    static_assert(half::at<4>::after == placement::features && half::at<5>::after == placement::samples);
    static_assert(std::is_same_v<half::layer<4>::input, shape<12>> && std::is_same_v<half::layer<6>::input, shape<24>>);
    static_assert(half::at<3>::is_sharded && !half::at<4>::is_sharded && !half::at<0>::is_sharded);
}

TEST_CASE("model/binding: a network that ends on whole samples redistributes nothing after it", "[model]") {
    constexpr auto net = ls::sequential{ls::input<8>, dense<8>{}, whole_sample{}};
    using half = network<std::remove_const_t<decltype(net)>, 2>;
    STATIC_REQUIRE(half::redistribution_after == redistribution::none &&
                   half::facts[1].redistribution_before == redistribution::to_samples);
}

TEST_CASE("model/binding: the numbers of a spec reach its layer, cut or not", "[model]") {
    STATIC_REQUIRE(network<mixed_type, 1>::at<4>::make(mixed).rate == 0.125);
    STATIC_REQUIRE(network<mixed_type, 2>::at<4>::make(mixed).rate == 0.125);
    STATIC_REQUIRE(network<mixed_type, 2>::at<6>::make(mixed).rate == 0.25);
    STATIC_REQUIRE(numbered_type::size == 10);
    each_count([]<std::size_t Shards>(std::integral_constant<std::size_t, Shards>) {
        using net = network<numbered_type, Shards>;
        STATIC_REQUIRE(net::template at<0>::make(numbered).alpha == 0.5);
        STATIC_REQUIRE(net::template at<0>::make(numbered).beta == 0.25);
        STATIC_REQUIRE(net::template at<0>::make(numbered).offset == 3);
        // A normalisation that computes what stands after it, and one that does not.
        STATIC_REQUIRE(net::template at<1>::epilogue == ls::layer_api::epilogue::relu);
        STATIC_REQUIRE(net::template at<1>::make(numbered).momentum == 0.75);
        STATIC_REQUIRE(net::template at<1>::make(numbered).epsilon == 0.125);
        STATIC_REQUIRE(net::template at<3>::epilogue == ls::layer_api::epilogue::none);
        STATIC_REQUIRE(net::template at<3>::make(numbered).momentum == 0.5);
        STATIC_REQUIRE(net::template at<3>::make(numbered).epsilon == 0.0625);
        STATIC_REQUIRE(net::template at<5>::make(numbered).gain == 3);
        STATIC_REQUIRE(net::template layer<5>::output::size == 8 / Shards);
        STATIC_REQUIRE(net::template at<6>::make(numbered).rate == 0.375);
        STATIC_REQUIRE(net::template at<7>::make(numbered).epsilon == 0.5);
        STATIC_REQUIRE(net::template at<8>::make(numbered).gain == 5);
        STATIC_REQUIRE(net::template at<9>::make(numbered).rate == 0.625);
    });
}
