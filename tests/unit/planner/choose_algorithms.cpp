// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/choose_algorithms.hpp"

#include <catch2/catch.hpp>

using namespace lockstep;
using kernels::algorithm;
using kernels::convolution_pass;
using kernels::micro_batches;
using planner::division;
using planner::measured_pass;
using planner::workspace;

namespace {

/// 16 samples: the direct algorithm without scratch, Winograd's in half the time with scratch that grows with the
/// samples, patches between them.
std::vector<measured_pass> two_passes() {
    const std::vector<planner::measured_algorithm> algorithms{
        {algorithm::direct, {{16, 16, 0}}},
        {algorithm::winograd4, {{16, 8, 160}, {8, 4.25, 80}, {4, 2.5, 40}, {1, 1, 10}}},
        {algorithm::im2col, {{16, 12, 30}}},
    };
    return {{0, convolution_pass::forward, algorithm::direct, algorithms},
            {1, convolution_pass::backward_data, algorithm::winograd4, algorithms}};
}

std::vector<planner::chosen_pass> choose(std::size_t limit, workspace use, double margin = 0) {
    return planner::choose_algorithms(two_passes(), 16, limit, use, margin);
}

}  // namespace

TEST_CASE("planner/choose_algorithms: with one workspace each pass has the whole limit", "[planner]") {
    const auto all = choose(160, workspace::reuse);
    REQUIRE(all.size() == 2);
    for (const auto& one : all) {
        CHECK(one.choice == kernels::pass_choice{algorithm::winograd4, {}});
        CHECK(one.seconds == 8);
        CHECK(one.scratch == 160);
    }
    CHECK(all[0].layer == 0);
    CHECK(all[1].layer == 1);
    CHECK(all[1].pass == convolution_pass::backward_data);
    CHECK(all[0].rule_seconds == 16);
    CHECK(all[0].rule_scratch == 0);
    CHECK(all[1].rule_seconds == 8);
    CHECK(all[1].rule_scratch == 160);

    for (const auto& one : choose(100, workspace::reuse)) {
        CHECK(one.choice == kernels::pass_choice{algorithm::winograd4, {{8}, 1}});
        CHECK(one.seconds == 8.5);
        CHECK(one.scratch == 80);
    }
    for (const auto& one : choose(39, workspace::reuse))
        CHECK(one.choice == kernels::pass_choice{algorithm::im2col, {}});
    for (const auto& one : choose(29, workspace::reuse)) CHECK(one.choice.which == algorithm::direct);
}

TEST_CASE("planner/choose_algorithms: a divided workspace goes to those who gain most", "[planner]") {
    std::size_t whole = 0;
    for (const auto& one : choose(240, workspace::division)) {
        CHECK(one.choice.which == algorithm::winograd4);
        whole += one.choice.micro.count == 0;
    }
    CHECK(whole == 1);  // 160 + 80
    const auto tight = choose(170, workspace::division);
    CHECK(tight[0].seconds + tight[1].seconds == 17);
    CHECK(tight[0].scratch + tight[1].scratch == 160);
    const auto none = choose(0, workspace::division);
    CHECK(none[0].choice.which == algorithm::direct);
    CHECK(none[1].choice.which == algorithm::direct);
}

TEST_CASE("planner/choose_algorithms: a change has to pay", "[planner]") {
    // Patches save a quarter of what the rule's algorithm takes.
    CHECK(choose(35, workspace::reuse, 0.2)[0].choice.which == algorithm::im2col);
    CHECK(choose(35, workspace::reuse, 0.3)[0].choice.which == algorithm::direct);
    CHECK(choose(35, workspace::reuse, 0.3)[0].seconds == 16);
    CHECK(choose(35, workspace::division, 0.3)[0].choice.which == algorithm::direct);
    // So does a division: in halves the rule's own algorithm would save a sixteenth.
    const std::vector<measured_pass> halves{
        {0, convolution_pass::forward, algorithm::direct, {{algorithm::direct, {{16, 16, 4}, {8, 7.5, 4}}}}}};
    CHECK(planner::choose_algorithms(halves, 16, 9, workspace::reuse, 0.05)[0].choice.micro.count == 1);
    const auto kept = planner::choose_algorithms(halves, 16, 9, workspace::reuse, 0.07)[0];
    CHECK(kept.choice.micro.count == 0);
    CHECK(kept.seconds == 16);
}

TEST_CASE("planner/choose_algorithms: a limit that is too small", "[planner]") {
    auto measured = two_passes();
    for (auto& one : measured) one.algorithms.erase(one.algorithms.begin());
    CHECK_THROWS_WITH(planner::choose_algorithms(measured, 16, 9, workspace::reuse, 0),
                      "lockstep: the forward pass of convolution 0 needs 10 bytes of scratch at least, the limit is 9; "
                      "raise the limit");
    CHECK_THROWS_WITH(
        planner::choose_algorithms(measured, 16, 19, workspace::division, 0),
        "lockstep: all passes together need 20 bytes of scratch at least, the limit is 19; raise the limit");
    CHECK(planner::choose_algorithms(measured, 16, 20, workspace::division, 0).size() == 2);
}

TEST_CASE("planner/choose_algorithms: divisions as runs of a layer", "[planner]") {
    CHECK(planner::to_micro_batches(division{{16}}) == micro_batches{});
    CHECK(planner::to_micro_batches(division{}) == micro_batches{});
    CHECK(planner::to_micro_batches(division{{8, 8}}) == micro_batches{{8}, 1});
    CHECK(planner::to_micro_batches(division{{4, 8, 16}}) == micro_batches{{4, 8, 16}, 3});
    CHECK(planner::to_micro_batches(division{{4, 4, 4, 8}}) == micro_batches{{8, 4}, 2});
    const auto crowded = planner::to_micro_batches(division{{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4}});
    CHECK(crowded == micro_batches{{1, 1, 1, 2, 2, 2, 3, 4}, 8});
}

TEST_CASE("planner/choose_algorithms: choices by layer", "[planner]") {
    const auto choices = planner::by_layer(choose(100, workspace::reuse), 3);
    REQUIRE(choices.size() == 3);
    CHECK(choices[0][convolution_pass::forward] == kernels::pass_choice{algorithm::winograd4, {{8}, 1}});
    CHECK(choices[0][convolution_pass::backward_data] == kernels::pass_choice{});
    CHECK(choices[1][convolution_pass::backward_data] == kernels::pass_choice{algorithm::winograd4, {{8}, 1}});
    CHECK(choices[2] == kernels::convolution_choice{});
}
