// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/tuned.hpp"

#include <catch2/catch.hpp>
#include <type_traits>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/models/resnet.hpp"

using namespace lockstep;
using namespace lockstep::layers;

namespace {

template <std::size_t Filters>
using tuned_conv = conv<Filters, 3, conv_options{.padding = 1}, layers::tuned>;

/// A join with a number.
struct difference {
    int number = 3;
    template <class S>
    constexpr auto on(S, S) const {
        return layer_api::add_layer<2, S>{};
    }
};

template <class A, class B>
constexpr bool same(const A&, const B&) {
    return std::is_same_v<A, B>;
}

/// A convolution of the user's, which inherits with_rule().
struct own_conv : conv<4, 3, conv_options{.padding = 1}> {};

}  // namespace

TEST_CASE("model/tuned: what derives from a convolution stays what it is", "[model]") {
    constexpr auto net = sequential{input<8, 8, 3>, own_conv{}, conv<4, 3, conv_options{.padding = 1}>{}};
    STATIC_REQUIRE(same(lockstep::tuned(net), sequential{input<8, 8, 3>, own_conv{}, tuned_conv<4>{}}));
}

TEST_CASE("model/tuned: the convolutions of a network, in branches too", "[model]") {
    constexpr auto net = sequential{
        input<8, 8, 3>,
        conv<4, 3, conv_options{.padding = 1}>{},
        residual{conv<4, 3, conv_options{.padding = 1}>{}, relu{}},
        add{path{conv<5, 3, conv_options{.padding = 1}>{}, relu{}}, conv<5, 3, conv_options{.padding = 1}>{}},
        concatenate{path{}, path{path{conv<6, 3, conv_options{.padding = 1}>{}}}},
        recompute{conv<6, 3, conv_options{.padding = 1}>{}, relu{}},
        flatten{},
        dropout{.rate = 0.125},
        dense<3>{}};
    const auto want = sequential{input<8, 8, 3>,
                                 tuned_conv<4>{},
                                 residual{tuned_conv<4>{}, relu{}},
                                 add{path{tuned_conv<5>{}, relu{}}, tuned_conv<5>{}},
                                 concatenate{path{}, path{path{tuned_conv<6>{}}}},
                                 recompute{tuned_conv<6>{}, relu{}},
                                 flatten{},
                                 dropout{.rate = 0.125},
                                 dense<3>{}};
    constexpr auto got = lockstep::tuned(net);
    static_assert(same(got, want));
    static_assert(got.size == net.size);
    CHECK(got.node<13>().rate == 0.125);
}

TEST_CASE("model/tuned: the convolutions of a join of the user's", "[model]") {
    constexpr conv<4, 3, conv_options{.padding = 1}> one{};
    constexpr auto net = sequential{input<8, 8, 3>, join{difference{5}, path{one, relu{}}, one}};
    constexpr auto got = lockstep::tuned(net);
    static_assert(
        same(got, sequential{input<8, 8, 3>, join{difference{}, path{tuned_conv<4>{}, relu{}}, tuned_conv<4>{}}}));
    CHECK(got.node<3>().number == 5);
}

TEST_CASE("model/tuned: a convolution that is tuned already keeps its choice", "[model]") {
    constexpr layers::conv<4, 3, layers::conv_options{.padding = 1}, layers::tuned> chosen{
        {kernels::convolution_choice{}}};
    static_assert(chosen.chosen.choice.has_value());
    const auto net =
        lockstep::tuned(sequential{input<8, 8, 3>, residual{conv<3, 3, conv_options{.padding = 1}>{}}, chosen});
    CHECK(net.node<2>().chosen.choice.has_value());
    CHECK(!net.node<0>().chosen.choice.has_value());
}

TEST_CASE("model/tuned: a network that takes a rule", "[model]") {
    static_assert(same(lockstep::tuned(models::resnet<20>), models::resnet<20, layers::tuned>));
    static_assert(!same(models::resnet<20>, models::resnet<20, layers::tuned>));
    CHECK(models::resnet<20, layers::tuned>.size == models::resnet<20>.size);
}
