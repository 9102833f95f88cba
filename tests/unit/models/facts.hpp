// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of networks count.

#include <catch2/catch.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/model/network.hpp"

namespace models_test {

namespace ls = lockstep;

template <const auto& Net>
using network = ls::model::network<std::remove_cvref_t<decltype(Net)>, 1>;

/// Operations of a sample, forward, in convolutions and dense layers: what publications count.
template <class Network>
constexpr double weight_flops() {
    double sum = 0;
    for (const auto& fact : Network::facts)
        if (fact.name == "conv" || fact.name == "conv_max_pool" || fact.name == "dense") sum += fact.flops;
    return sum;
}

template <class Network>
constexpr std::size_t count(std::string_view name) {
    std::size_t sum = 0;
    for (const auto& fact : Network::facts) sum += fact.name == name;
    return sum;
}

}  // namespace models_test
