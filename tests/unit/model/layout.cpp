// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/layout.hpp"

#include <catch2/catch.hpp>

#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/model/combine.hpp"
#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::layout_entry;
using ls::model::network;

namespace {

constexpr auto branched =
    ls::sequential{ls::input<6, 6, 2>,
                   ls::residual{conv<2, 3, conv_options{.padding = 1, .bias = bias::none}>{}, batch_norm{}, relu{}},
                   ls::layers::tanh{},
                   flatten{},
                   dense<8>{},
                   relu{},
                   dense<4>{}};
using branched_type = std::remove_const_t<decltype(branched)>;

}  // namespace

TEST_CASE("model/layout: each parameter by name, in the order of layers, one after the other", "[model]") {
    constexpr auto& layout = ls::weight_layout<network<branched_type, 1>>;
    REQUIRE(layout.size() == 7);
    CHECK(layout[0] == layout_entry{0, "conv", "weight", 18, 2, 0});
    CHECK(layout[1] == layout_entry{1, "batch_norm", "scale", 1, 2, 36});
    CHECK(layout[2] == layout_entry{1, "batch_norm", "shift", 1, 2, 38});
    CHECK(layout[3] == layout_entry{6, "dense", "weight", 72, 8, 40});
    CHECK(layout[4] == layout_entry{6, "dense", "bias", 1, 8, 616});
    CHECK(layout[5] == layout_entry{8, "dense", "weight", 8, 4, 624});
    CHECK(layout[6] == layout_entry{8, "dense", "bias", 1, 4, 656});
    CHECK(layout[2].full_name() == "1.batch_norm.shift");
    STATIC_REQUIRE(layout.back().offset + layout.back().size() == network<branched_type, 1>::parameters);

    constexpr auto& statistics = ls::statistics_layout<network<branched_type, 1>>;
    REQUIRE(statistics.size() == 2);
    CHECK(statistics[0] == layout_entry{1, "batch_norm", "mean", 1, 2, 0});
    CHECK(statistics[1] == layout_entry{1, "batch_norm", "variance", 1, 2, 2});
    STATIC_REQUIRE(ls::statistics_layout<network<lenet_type, 1>>.empty());
}

TEST_CASE("model/layout: it is that of the uncut network in every partition", "[model]") {
    STATIC_REQUIRE(ls::weight_layout<network<branched_type, 1>> == ls::weight_layout<network<branched_type, 2>>);
    STATIC_REQUIRE(ls::weight_layout<network<branched_type, 1>> == ls::weight_layout<network<branched_type, 4>>);
    STATIC_REQUIRE(ls::statistics_layout<network<branched_type, 1>> ==
                   ls::statistics_layout<network<branched_type, 2>>);
    STATIC_REQUIRE(ls::weight_layout<network<mixed_type, 1>> == ls::weight_layout<network<mixed_type, 2>>);
}
