// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/model/memory_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "unit/model/random_nodes.hpp"

namespace ls = lockstep;
using ls::model::memory_node;
using ls::model::no_piece;
using ls::model::piece;
using ls::model::the_samples;
using support::dice;

namespace {

void check_offsets(const std::vector<piece>& all, std::size_t bytes) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        REQUIRE(all[i].offset % ls::simd::alignment == 0);
        REQUIRE(all[i].offset + all[i].bytes <= bytes);
        for (std::size_t j = 0; j < i; ++j) {
            const bool apart =
                all[i].offset + all[i].bytes <= all[j].offset || all[j].offset + all[j].bytes <= all[i].offset;
            if (all[i].overlaps(all[j]) && all[i].bytes > 0 && all[j].bytes > 0) REQUIRE(apart);
        }
    }
}

}  // namespace

TEST_CASE("model/memory_plan: pieces that are live at once never overlap, and little is lost", "[model]") {
    std::size_t placed = 0, least = 0;
    for (std::uint32_t series = 0; series < 400; ++series) {
        dice roll{series};
        std::vector<piece> all(roll(30));
        for (auto& one : all) {
            one.bytes = roll(4) == 0 ? roll(3) : 1 + roll(5000);
            one.first = roll(20);
            one.last = one.first + roll(10);
        }
        const std::size_t bytes = ls::model::assign_offsets(all);
        check_offsets(all, bytes);
        // The least that any placement needs, with every piece on cache lines.
        auto rounded = all;
        for (auto& one : rounded)
            one.bytes = (one.bytes + ls::simd::alignment - 1) / ls::simd::alignment * ls::simd::alignment;
        std::size_t most = 0;
        for (std::size_t event = 0; event < 30; ++event) {
            std::size_t live = 0;
            for (const auto& one : rounded) live += one.first <= event && event <= one.last ? one.bytes : 0;
            most = std::max(most, live);
        }
        CHECK(ls::model::most_live(rounded) == most);
        CHECK(bytes >= most);
        placed += bytes;
        least += most;
    }
    CHECK(placed < least + least / 10);
}

namespace {

memory_node layer(std::span<const std::size_t> reads, bool needs_x, bool needs_y, bool in_place) {
    return {.reads = reads,
            .traits = {.needs_x = needs_x, .needs_y = needs_y, .in_place = in_place},
            .learns = true,
            .input = 64,
            .output = 64,
            .value = 64};
}

}  // namespace

TEST_CASE("model/memory_plan: relu works in the memory of what it reads; a convolution's input stays until backward",
          "[model]") {
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {1}, {2}};
    const std::vector<memory_node> nodes{layer(reads[0], true, false, false), layer(reads[1], false, true, true),
                                         layer(reads[2], true, false, false), layer(reads[3], false, true, true)};
    const auto plan = ls::model::plan_memory(nodes);
    CHECK(plan.nodes[0].value == plan.nodes[1].value);
    CHECK(plan.nodes[1].value != plan.nodes[2].value);
    CHECK(plan.pieces[plan.nodes[1].value].last == 2 * 4 - 1);
    CHECK(plan.nodes[1].dvalue == plan.nodes[0].dvalue);
    CHECK(plan.nodes[3].dvalue == plan.network_gradient);
    // The loss reads a value and writes a gradient while the first value waits; later that waits while a convolution
    // turns one gradient into another.
    CHECK(plan.bytes == 3 * 64);
}

TEST_CASE(
    "model/memory_plan: the gradient of a sum is that of its parts, and is not written over while another part needs "
    "it",
    "[model]") {
    // x is read by relu and by the sum: x + relu(x).
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {0, 1}};
    std::vector<memory_node> nodes{layer(reads[0], true, false, false), layer(reads[1], false, true, true),
                                   layer(reads[2], false, false, true)};
    nodes[2].traits.passes_gradient = true;
    const auto plan = ls::model::plan_memory(nodes);
    CHECK(plan.nodes[1].value != plan.nodes[0].value);  // the sum still reads x
    CHECK(plan.nodes[2].value == plan.nodes[0].value);  // relu needs its output in backward, and x is not needed
    CHECK(plan.nodes[1].dvalue == plan.network_gradient);
    const auto& last = plan.nodes[1].inputs[0];
    CHECK(last.others == plan.network_gradient);
    CHECK(last.written != plan.network_gradient);
    CHECK(last.sum == last.written);
    CHECK(plan.nodes[0].dvalue == last.sum);
}

TEST_CASE("model/memory_plan: the gradient of a value with two readers stays in two parts where its layer adds them",
          "[model]") {
    // A layer, a view of its value, and two readers of that.
    const std::vector<std::vector<std::size_t>> reads{{the_samples}, {0}, {1}, {2, 1}};
    std::vector<memory_node> nodes{layer(reads[0], true, true, false), layer(reads[1], false, false, false),
                                   layer(reads[2], true, false, false), layer(reads[3], true, true, true)};
    nodes[1].traits.is_view = true;
    nodes[3].traits.has_addend = true;
    const auto sums = ls::model::plan_memory(nodes);
    CHECK(sums.nodes[0].more == no_piece);
    CHECK(sums.nodes[2].inputs[0].sum == sums.nodes[0].dvalue);
    nodes[0].traits.sums_gradient = true;
    const auto apart = ls::model::plan_memory(nodes);
    CHECK(apart.nodes[2].inputs[0].sum == no_piece);
    for (const std::size_t i : {0, 1}) {
        CHECK(apart.nodes[i].dvalue == apart.nodes[3].inputs[1].written);
        CHECK(apart.nodes[i].more == apart.nodes[2].inputs[0].given);
    }
    CHECK(apart.bytes == sums.bytes);
    // Where another node reads the value after the view, the view's gradient is one of two itself.
    const std::vector<std::vector<std::size_t>> more{{the_samples}, {0}, {1}, {2, 1}, {3, 0}};
    for (std::size_t i = 0; i < 4; ++i) nodes[i].reads = more[i];
    nodes.push_back(layer(more[4], false, false, false));
    nodes[4].traits.passes_gradient = true;
    const auto both = ls::model::plan_memory(nodes);
    CHECK(both.nodes[1].more == no_piece);
    CHECK(both.nodes[0].more == both.nodes[1].inputs[0].given);
    CHECK(both.nodes[0].dvalue == both.network_gradient);
}

TEST_CASE("model/memory_plan: each path of a concatenation has a gradient of its own size, in any order of the widths",
          "[model]") {
    std::vector<std::size_t> widths{1, 2, 3, 5};
    do {
        const std::vector<std::vector<std::size_t>> reads{
            {the_samples}, {the_samples}, {the_samples}, {the_samples}, {0, 1, 2, 3}};
        std::vector<memory_node> nodes;
        for (std::size_t k = 0; k < 4; ++k) {
            nodes.push_back(layer(reads[k], true, false, false));
            nodes[k].output = nodes[k].value = 64 * widths[k];
        }
        nodes.push_back(layer(reads[4], false, false, false));
        nodes[4].input = nodes[0].value;
        nodes[4].output = nodes[4].value = std::size_t{64} * 11;
        const auto plan = ls::model::plan_memory(nodes);
        for (std::size_t k = 0; k < 4; ++k) {
            CHECK(plan.pieces[plan.nodes[4].inputs[k].written].bytes == nodes[k].value);
            CHECK(plan.nodes[k].dvalue == plan.nodes[4].inputs[k].written);
        }
    } while (std::next_permutation(widths.begin(), widths.end()));
}

TEST_CASE("model/memory_plan: a chain in blocks keeps the input of each block and the values of one", "[model]") {
    // Twelve convolutions of 64 bytes, each of which needs its input in backward.
    constexpr std::size_t n = 12;
    std::vector<std::vector<std::size_t>> reads{{the_samples}};
    for (std::size_t i = 1; i < n; ++i) reads.push_back({i - 1});
    const auto plan_of = [&](std::size_t length) {
        std::vector<memory_node> nodes;
        for (std::size_t i = 0; i < n; ++i) nodes.push_back(layer(reads[i], true, false, false));
        for (std::size_t i = 0; length > 0 && i < n; ++i) {
            nodes[i].block = 1 + i / length;
            nodes[i].runs_again = (i + 1) % length != 0;
        }
        return ls::model::plan_memory(nodes);
    };
    const auto plain = plan_of(0), blocks = plan_of(4);
    // 11 inputs, the output and, after the loss, two gradients.
    CHECK(plain.bytes == 13 * 64);
    // The inputs of two blocks; of the last block three values, and two gradients.
    CHECK(blocks.bytes == 7 * 64);
    CHECK(blocks.pieces[blocks.nodes[3].value].last > blocks.pieces[blocks.nodes[11].value].last);
    CHECK(blocks.pieces[blocks.nodes[2].value].last == 3);
    CHECK(blocks.again[3].output == no_piece);
}

TEST_CASE("model/memory_plan: pieces that together exceed what a program can have are an error", "[model]") {
    std::vector<piece> all(3, {.bytes = std::size_t{1} << 62U, .first = 0, .last = 1});
    CHECK_THROWS_WITH(ls::model::assign_offsets(all), Catch::Contains("bytes of a step"));
    all[1].first = all[1].last = 2;
    all[2].first = all[2].last = 3;
    CHECK(ls::model::assign_offsets(all) == std::size_t{1} << 62U);
}
