// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/combine.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "lockstep/layers/shortcut.hpp"
#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::network;
using ls::model::redistribution;
using ls::model::the_samples;
using ls::tensor::shape;

namespace {

template <class Net>
std::vector<std::vector<std::size_t>> reads() {
    std::vector<std::vector<std::size_t>> out;
    for (std::size_t node = 0; node < Net::size; ++node)
        out.emplace_back(Net::graph.of(node).begin(), Net::graph.of(node).end());
    return out;
}
template <class Net, std::size_t Shards = 1>
std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& fact : network<Net, Shards>::facts) out.emplace_back(fact.name);
    return out;
}
using list = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST_CASE("model/combine: a plain network reads each value once", "[model]") {
    list expected{{the_samples}};
    for (std::size_t node = 1; node < lenet_type::size; ++node) expected.push_back({node - 1});
    CHECK(reads<lenet_type>() == expected);
    for (std::size_t node = 0; node < lenet_type::size; ++node) {
        CHECK(lenet_type::graph.readers[node] == (node + 1 < lenet_type::size ? 1U : 0U));
        CHECK(!lenet_type::graph.joined[node]);
    }
}

TEST_CASE("model/combine: residual, add and concatenate become nodes after their paths", "[model]") {
    constexpr auto net = ls::sequential{
        ls::input<8, 8, 3>,
        conv<4, 3, conv_options{.padding = 1}>{},                                               // 0
        ls::residual{conv<4, 3, conv_options{.padding = 1}>{}, relu{}, dropout{.rate = 0.25}},  // 1 2 3, join 4
        ls::add{ls::path{conv<6, 3, conv_options{.stride = 2, .padding = 1}>{}, relu{}},
                shortcut<6, 2>{}},  // 5 6, 7, join 8
        ls::concatenate{ls::path{}, conv<2, 1>{},
                        ls::path{max_pool<3, 1>{}, conv<1, 1, conv_options{.padding = 1}>{}}},  // 9, 10 11, join 12
        flatten{},                                                                              // 13
    };
    using type = std::remove_const_t<decltype(net)>;
    CHECK(reads<type>() ==
          list{{the_samples}, {0}, {1}, {2}, {0, 3}, {4}, {5}, {4}, {6, 7}, {8}, {8}, {10}, {8, 9, 11}, {12}});
    CHECK(names<type>() == std::vector<std::string>{"conv", "conv", "relu", "dropout", "add", "conv", "relu",
                                                    "shortcut", "add", "conv", "max_pool", "conv", "concatenate",
                                                    "flatten"});
    using whole = network<type, 1>;
    static_assert(std::is_same_v<whole::layer<4>::output, shape<8, 8, 4>> &&
                  std::is_same_v<whole::layer<8>::output, shape<4, 4, 6>>);
    static_assert(std::is_same_v<whole::layer<12>::output, shape<4, 4, 9>> &&
                  std::is_same_v<whole::output, shape<144>>);
    static_assert(whole::at<3>::make(net).rate == 0.25 && net.node<3>().rate == 0.25);
    static_assert(type::graph.readers[0] == 2 && type::graph.readers[8] == 3 && type::graph.readers[4] == 2);
    static_assert(type::graph.joined[0] && type::graph.joined[3] && type::graph.joined[8] && !type::graph.joined[4]);
    // Offsets and operations of the flat list.
    static_assert(whole::offset(1) == 3 * 9 * 4 + 4 && whole::offset(5) == whole::offset(1) + 4 * 9 * 4 + 4);
    static_assert(whole::facts[4].flops == 8 * 8 * 4 && whole::facts[12].flops == 0);
}

TEST_CASE("model/combine: combinators inside each other", "[model]") {
    constexpr auto net = ls::sequential{
        ls::input<5>, ls::residual{ls::residual{dense<5>{}, relu{}}, relu{}},         // 0 1, join 2, 3, join 4
        ls::add{ls::path{}, ls::path{}, ls::path{ls::path{dense<5>{}}, ls::path{}}},  // 5, join 6
        ls::concatenate{ls::add{relu{}, dense<5>{}}, ls::residual{relu{}}},  // 7, 8, join 9, 10, join 11, join 12
    };
    using type = std::remove_const_t<decltype(net)>;
    CHECK(reads<type>() == list{{the_samples},
                                {0},
                                {the_samples, 1},
                                {2},
                                {the_samples, 3},
                                {4},
                                {4, 4, 5},
                                {6},
                                {6},
                                {7, 8},
                                {6},
                                {6, 10},
                                {9, 11}});
    static_assert(std::is_same_v<network<type, 1>::output, shape<10>>);
    // A residual of a residual alone: x + (x + dense(x)).
    constexpr auto twice = ls::sequential{ls::input<5>, ls::residual{ls::residual{dense<5>{}}}};
    CHECK(reads<std::remove_const_t<decltype(twice)>>() == list{{the_samples}, {the_samples, 0}, {the_samples, 1}});
    constexpr ls::residual one{dense<5>{}};
    constexpr ls::residual inner = one;
    static_assert(std::is_same_v<decltype(inner), decltype(one)>);
    constexpr auto thrice = ls::sequential{ls::input<5>, ls::residual{ls::residual{inner}}};
    CHECK(reads<std::remove_const_t<decltype(thrice)>>() ==
          list{{the_samples}, {the_samples, 0}, {the_samples, 1}, {the_samples, 2}});
}

TEST_CASE("model/combine: gradients are asked for where something that learns was computed from", "[model]") {
    constexpr auto net = ls::sequential{
        ls::input<6>, relu{},                                         // 0
        ls::add{ls::path{relu{}}, ls::path{dense<6>{}}, ls::path{}},  // 1, 2, join 3
        relu{},                                                       // 4
    };
    using whole = network<std::remove_const_t<decltype(net)>, 1>;
    std::vector<bool> learns, input_learns;
    for (const auto& fact : whole::facts) {
        learns.push_back(fact.learns);
        input_learns.push_back(fact.input_learns);
    }
    CHECK(learns == std::vector<bool>{false, false, true, true, true});
    CHECK(input_learns == std::vector<bool>{false, false, false, true, true});
    // The dense layer needs no data gradient: nothing learns before it. The two layers before which nothing learns, and
    // that learn nothing, have no backward pass.
    static_assert(whole::facts[0].flops > 0);
    static_assert(whole::training_flops ==
                  2 * whole::forward_flops - whole::facts[0].gradient_flops - whole::facts[1].gradient_flops);
}

TEST_CASE("model/combine: in a model partition several readers share whole samples", "[model]") {
    constexpr auto net = ls::sequential{
        ls::input<8>,
        dense<8>{},                               // 0: features, read by dense and add
        ls::residual{dense<8>{}, relu{}},         // 1 2, join 3
        dense<8>{},                               // 4
        relu{},                                   // 5
        ls::concatenate{ls::path{}, dense<4>{}},  // 6, join 7
    };
    using half = network<std::remove_const_t<decltype(net)>, 2>;
    std::vector<redistribution> before, after;
    for (const auto& fact : half::facts) {
        before.push_back(fact.redistribution_before);
        after.push_back(fact.redistribution_after);
    }
    using enum redistribution;
    CHECK(before == std::vector<redistribution>{gather_samples, gather_samples, none, none, gather_samples, none,
                                                gather_samples, none});
    CHECK(after == std::vector<redistribution>{to_samples, none, to_samples, none, none, to_samples, to_samples, none});
    static_assert(half::redistribution_after == none);
    static_assert(std::is_same_v<half::layer<2>::input, shape<4>> && std::is_same_v<half::layer<7>::output, shape<12>>);
}

TEST_CASE("model/combine: a recompute is its layers, of which those run again that backward needs", "[model]") {
    constexpr auto net = ls::sequential{
        ls::input<8, 8, 3>,
        conv<4, 3, conv_options{.padding = 1}>{},  // 0
        ls::recompute{conv<4, 3, conv_options{.padding = 1}>{}, relu{},
                      conv<4, 3, conv_options{.padding = 1}>{}},  // 1 2 3
        ls::residual{ls::recompute{relu{}, max_pool<3, 1, 1>{}, conv<4, 3, conv_options{.padding = 1}>{},
                                   relu{}}},  // 4 5 6 7, join 8
        flatten{},                            // 9
        ls::recompute{dense<10>{}},           // 10
    };
    using type = std::remove_const_t<decltype(net)>;
    CHECK(reads<type>() == list{{the_samples}, {0}, {1}, {2}, {3}, {4}, {5}, {6}, {3, 7}, {8}, {9}});
    CHECK(std::vector<std::size_t>(type::graph.block.begin(), type::graph.block.end()) ==
          std::vector<std::size_t>{0, 1, 1, 1, 2, 2, 2, 2, 0, 0, 3});
    std::vector<bool> again;
    double work = 0;
    for (const auto& fact : network<type, 1>::facts) {
        again.push_back(fact.runs_again);
        if (fact.runs_again) work += fact.flops;
    }
    // The value of the last convolution of a block is not read in its backward; a maximum needs to know its winner.
    CHECK(again == std::vector<bool>{false, true, true, false, true, true, true, true, false, false, false});
    constexpr auto plain =
        ls::sequential{ls::input<8, 8, 3>,
                       conv<4, 3, conv_options{.padding = 1}>{},
                       conv<4, 3, conv_options{.padding = 1}>{},
                       relu{},
                       conv<4, 3, conv_options{.padding = 1}>{},
                       ls::residual{relu{}, max_pool<3, 1, 1>{}, conv<4, 3, conv_options{.padding = 1}>{}, relu{}},
                       flatten{},
                       dense<10>{}};
    using other = network<std::remove_const_t<decltype(plain)>, 1>;
    CHECK(network<type, 1>::training_flops == other::training_flops + work);
    CHECK(network<type, 1>::forward_flops == other::forward_flops);
}
