// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/saving/network_text.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/layers/tuned_conv.hpp"
#include "lockstep/model/combine.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/saving/names.hpp"

using namespace lockstep;
using namespace lockstep::layers;

namespace {

template <class... Specs>
std::string text(const Specs&... specs) {
    return saving::text_of(sequential{input<12, 12, 8>, specs...});
}

}  // namespace

TEST_CASE("saving/network_text: networks of equal shapes that compute something else have other texts", "[saving]") {
    // Each of a group has the same names, numbers and parameters.
    const auto all_differ = [](const auto&... texts) {
        const std::set<std::string> all{texts...};
        CAPTURE(all);
        CHECK(all.size() == sizeof...(texts));
        // As before, without what tells them apart.
        for (const std::string& one : all) CHECK(saving::is_of_network(one, one));
        CHECK_FALSE(saving::is_of_network(*all.begin(), *all.rbegin()));
    };
    all_differ(text(max_pool<2>{}), text(max_pool<3, 2, 1>{}));
    all_differ(text(mean_pool<2>{}), text(mean_pool<1, 2>{}));
    all_differ(text(conv<8, 3, conv_options{.padding = 1}>{}),
               text(conv<8, 3, conv_options{.padding = 2, .dilation = 2}>{}));
    // Another rule is another network where it picks other algorithms.
    all_differ(text(conv<64, 1>{}, conv<64, 3, conv_options{.padding = 1}>{}),
               text(conv<64, 1>{}, conv<64, 3, conv_options{.padding = 1}, kernels::always_direct>{}));
    CHECK(text(conv<8, 3>{}) == text(conv<8, 3, conv_options{}, kernels::always_direct>{}));
    all_differ(text(conv<8, rows_and_columns{3, 5}, conv_options{.padding = {1, 2}}>{}),
               text(conv<8, rows_and_columns{5, 3}, conv_options{.padding = {2, 1}}>{}));
    all_differ(text(conv<8, 1, conv_options{.stride = {2, 1}}>{}), text(conv<8, 1, conv_options{.stride = {1, 2}}>{}));
    // 4 groups of a kernel of 2 x 2 have as many weights as one of 1 x 1.
    all_differ(text(conv<8, 2, conv_options{.stride = 2, .groups = 4, .bias = bias::none}>{}),
               text(conv<8, 1, conv_options{.stride = 2, .bias = bias::none}>{}));
    all_differ(text(depthwise_conv<3, conv_options{.padding = 1}>{}),
               text(depthwise_conv<3, conv_options{.padding = 2, .dilation = 2}>{}));
    all_differ(text(shortcut<8, 1>{}), text(shortcut<32, 2>{}));
    all_differ(text(local_response_norm<5>{}), text(local_response_norm<3>{}));
    all_differ(text(conv_max_pool<8, 1, conv_max_pool_options{.window = {2, 4}}>{}),
               text(conv_max_pool<8, 1, conv_max_pool_options{.window = {4, 2}}>{}));
    // A rule that a file of choices follows is no other network.
    CHECK(text(conv<8, 3>{}) == text(conv<8, 3, conv_options{}, layers::tuned>{}));
    CHECK(text(conv<8, 3, conv_options{.stride = 2}>{}, relu{}, flatten{}, dense<3>{}) ==
          "12x12x8 conv->200/584[3x3 stride 2x2] relu->200/0 flatten->200/0 dense->3/603");
}

TEST_CASE("saving/network_text: files of earlier versions have texts without windows", "[saving]") {
    const std::string now = text(conv<8, 3, conv_options{.padding = 1}>{}, relu{}, max_pool<3, 2, 1>{});
    const std::string then = "12x12x8 conv->1152/584 relu->1152/0 max_pool->288/0";
    CHECK(now == "12x12x8 conv->1152/584[3x3 padding 1x1] relu->1152/0 max_pool->288/0[3x3 stride 2x2 padding 1x1]");
    CHECK(saving::is_of_network(then, now));
    CHECK_FALSE(saving::is_of_network(now, then));
    CHECK_FALSE(saving::is_of_network(then + " relu->288/0", now));
    CHECK_FALSE(saving::is_of_network("12x12x8 conv->1152/584[3x3] relu->1152/0 max_pool->288/0", now));
    CHECK_FALSE(saving::is_of_network("", now));
    // Settings of layers may have such brackets, and do not count as windows.
    const std::string odd = "12x12x8 mine->4/0([1,2] 3[4]) conv->1152/584", odd_now = odd + "[3x3 padding 1x1]";
    CHECK(saving::is_of_network(odd, odd_now));
    CHECK_FALSE(saving::is_of_network("12x12x8 mine->4/0([1,3] 3[4]) conv->1152/584", odd_now));
    CHECK_FALSE(saving::is_of_network("12x12x8 mine->4/0([1,2] 3[4]) conv->1152/584[3x3]", odd_now));
}

TEST_CASE("saving/network_text: a kind of layers that had no windows in an earlier version", "[saving]") {
    const std::string now = text(conv<8, 3, conv_options{.padding = 1}>{}, shortcut<16, 2>{}, max_pool<2>{});
    const auto there = [](const char* conv, const char* shortcut, const char* pool) {
        return core::text("12x12x8 conv->1152/584", conv, " shortcut->576/0", shortcut, " max_pool->144/0", pool);
    };
    CHECK(now == there("[3x3 padding 1x1]", "[stride 2x2]", "[2x2 stride 2x2]"));
    CHECK(saving::is_of_network(there("[3x3 padding 1x1]", "", "[2x2 stride 2x2]"), now));
    CHECK_FALSE(saving::is_of_network(there("[3x3 padding 1x1]", "[]", "[2x2 stride 2x2]"), now));
    CHECK_FALSE(saving::is_of_network(there("[3x3]", "", "[2x2 stride 2x2]"), now));
    CHECK_FALSE(saving::is_of_network(there("[3x3 padding 1x1]", "", "[3x3 stride 2x2]"), now));
    // The details of another layer are none of this one.
    CHECK_FALSE(saving::is_of_network(there("[2x2 stride 2x2]", "", "[3x3 padding 1x1]"), now));
}

TEST_CASE("saving/network_text: weights fit where algorithms alone differ", "[saving]") {
    const std::string usual = text(conv<64, 1>{}, conv<64, 3, conv_options{.padding = 1}>{}),
                      direct = text(conv<64, 1>{}, conv<64, 3, conv_options{.padding = 1}, kernels::always_direct>{});
    CHECK(direct.find("[3x3 padding 1x1 by direct direct direct]") != direct.npos);
    CHECK_FALSE(saving::is_of_network(usual, direct));
    CHECK(saving::is_of_network(usual, direct, true));
    CHECK(saving::is_of_network(direct, usual, true));
    CHECK_FALSE(saving::is_of_network(text(conv<64, 1>{}, conv<64, 3>{}), direct, true));
}

TEST_CASE("saving/network_text: weights fit a network that is trained otherwise", "[saving]") {
    const auto net = [](double rate, double momentum, double epsilon = 1e-5) {
        return text(flatten{}, dropout{rate}, dense<6>{}, batch_norm{.momentum = momentum, .epsilon = epsilon}, relu{},
                    dropout{rate}, dense<3>{});
    };
    CHECK(saving::is_of_network(net(0.1, 0.1), net(0.25, 0.1), true));
    CHECK(saving::is_of_network(net(0.1, 0.1), net(0.5, 0.01), true));
    CHECK_FALSE(saving::is_of_network(net(0.1, 0.1), net(0.1, 0.1, 1e-3), true));  // decides outputs
    CHECK_FALSE(saving::is_of_network(net(0.1, 0.1), net(0.25, 0.1)));             // a run is another one
    CHECK_FALSE(saving::is_of_network(net(0.1, 0.1), net(0.1, 0.2)));
    // A damaged text is read once.
    CHECK_FALSE(saving::is_of_network(std::string(5'000'000, '1'), net(0.1, 0.1), true));
    // Without dropout layers have other numbers.
    CHECK_FALSE(
        saving::is_of_network(net(0.1, 0.1), text(flatten{}, dense<6>{}, batch_norm{}, relu{}, dense<3>{}), true));
}
