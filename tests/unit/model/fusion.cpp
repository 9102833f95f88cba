// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/fusion.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/models/resnet.hpp"
#include "unit/model/networks.hpp"

using namespace model_test;
using ls::layer_api::epilogue;
using ls::model::network;

namespace {

template <std::size_t Shards = 1, class Net>
std::vector<epilogue> epilogues_of(const Net&) {
    const auto& all = ls::model::fusion<Net, Shards>::epilogues;
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

/// A join that can do what a normalisation can.
template <class S, epilogue Epilogue = epilogue::none>
struct merged_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "merged";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = S::size;
    static constexpr ls::layer_api::traits traits{.inputs = 2, .has_addend = Epilogue == epilogue::add_relu};
    template <epilogue Other>
    [[nodiscard]] constexpr auto with_epilogue() const noexcept {
        return merged_layer<S, Other>{};
    }
};
struct merged {
    template <class S>
    constexpr auto on(S, S) const {
        return merged_layer<S>{};
    }
};

}  // namespace

TEST_CASE("model/fusion: a normalisation computes the relu after it, and a sum with relu", "[model]") {
    constexpr auto net = ls::sequential{ls::input<4, 4, 2>,
                                        conv_1{},
                                        batch_norm{.momentum = 0.25, .epsilon = 1e-3},
                                        relu{},
                                        ls::residual{conv_1{}, batch_norm{}},
                                        relu{},
                                        ls::add{conv_1{}, ls::path{conv_1{}, batch_norm{}}},
                                        relu{}};
    using type = std::remove_const_t<decltype(net)>;
    CHECK(epilogues_of(net) == std::vector<epilogue>{epilogue::none, epilogue::relu, epilogue::none, epilogue::none,
                                                     epilogue::add_relu, epilogue::none, epilogue::none, epilogue::none,
                                                     epilogue::none, epilogue::add_relu, epilogue::none,
                                                     epilogue::none});
    CHECK(views_of(net) ==
          std::vector<bool>{false, false, true, false, false, true, true, false, false, false, true, true});
    CHECK(reads_of(net) == std::vector<std::vector<std::size_t>>{
                               {samples}, {0}, {1}, {2}, {3, 2}, {4}, {5}, {6}, {6}, {8, 7}, {9}, {10}});
    // What a network says of itself stays.
    const auto& facts = network<type, 1>::facts;
    CHECK((facts[1].name == "batch_norm" && facts[2].name == "relu" && facts[5].name == "add" &&
           facts[6].name == "relu"));
    CHECK((facts[2].flops == 32 && facts[5].flops == 32 && facts[2].outputs == 32));
    // A layer that inherits from one with an epilogue may compute something else, and one has a single epilogue.
    struct derived : batch_norm_layer<ls::tensor::shape<4>> {};
    STATIC_REQUIRE(ls::layer_api::takes_epilogue<batch_norm_layer<ls::tensor::shape<4>>>);
    STATIC_REQUIRE(!ls::layer_api::takes_epilogue<derived>);
    STATIC_REQUIRE(!ls::layer_api::takes_epilogue<batch_norm_layer<ls::tensor::shape<4>, epilogue::relu>>);
    // Nor does one that inherits from relu count as it.
    struct like_relu : ls::layer_api::activation_layer<relu, ls::tensor::shape<4>> {};
    struct other : relu {};
    using ls::layer_api::epilogue_part;
    STATIC_REQUIRE(ls::layer_api::as_epilogue<ls::layer_api::activation_layer<relu, ls::tensor::shape<4>>> ==
                   epilogue_part::relu);
    STATIC_REQUIRE(ls::layer_api::as_epilogue<like_relu> == epilogue_part::none);
    STATIC_REQUIRE(ls::layer_api::as_epilogue<ls::layer_api::activation_layer<other, ls::tensor::shape<4>>> ==
                   epilogue_part::none);
    const auto made = network<type, 1>::at<1>::make(net);
    CHECK((made.momentum == 0.25 && made.epsilon == 1e-3));
    STATIC_REQUIRE(std::is_same_v<decltype(made), const batch_norm_layer<ls::tensor::shape<4, 4, 2>, epilogue::relu>>);
}

TEST_CASE("model/fusion: nothing is computed early that another layer reads, in another order or in another block",
          "[model]") {
    const auto none = [](const auto& net) {
        const auto epilogues = epilogues_of(net);
        return epilogues == std::vector<epilogue>(epilogues.size(), epilogue::none) &&
               views_of(net) == std::vector<bool>(epilogues.size(), false);
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
    CHECK(epilogues_of(block)[2] == epilogue::add_relu);
}

TEST_CASE("model/fusion: a join computes the relu after it, but no sum: it reads several values as it is", "[model]") {
    constexpr auto net = ls::sequential{ls::input<4, 4, 2>,
                                        conv_1{},
                                        ls::join{merged{}, conv_1{}, conv_1{}},
                                        relu{},
                                        ls::residual{ls::join{merged{}, conv_1{}, conv_1{}}},
                                        relu{}};
    CHECK(epilogues_of(net) == std::vector<epilogue>{epilogue::none, epilogue::none, epilogue::none, epilogue::relu,
                                                     epilogue::none, epilogue::none, epilogue::none, epilogue::none,
                                                     epilogue::none, epilogue::none});
    CHECK(views_of(net)[4]);
}

TEST_CASE("model/fusion: in a model partition a sum next to a redistribution stays by itself", "[model]") {
    constexpr auto net =
        ls::sequential{ls::input<8>, dense<8>{}, batch_norm{}, relu{}, ls::residual{dense<8>{}, batch_norm{}}, relu{}};
    CHECK(epilogues_of<1>(net)[4] == epilogue::add_relu);
    CHECK(epilogues_of<2>(net)[4] == epilogue::none);
    CHECK(epilogues_of<2>(net)[1] == epilogue::relu);
}

TEST_CASE("model/fusion: all of a residual network", "[model]") {
    const auto epilogues = epilogues_of(ls::models::resnet<20>);
    CHECK(std::count(epilogues.begin(), epilogues.end(), epilogue::relu) == 10);
    CHECK(std::count(epilogues.begin(), epilogues.end(), epilogue::add_relu) == 9);
}
