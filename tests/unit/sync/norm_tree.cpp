// SPDX-License-Identifier: BSD-3-Clause
// Sums of tensors over ranks: any strips give the bits of one rank.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/kernels/elementwise/sum_of_squares.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/norm_tree.hpp"

using namespace lockstep;
using sync::norm_strip;
using sync::norm_tree;

namespace {

/// The sums of all tensors, as so many ranks compute them, whose strips are cut at random, and dealt at random.
std::vector<double> sums(const std::vector<std::vector<float>>& tensors, std::size_t ranks, std::uint64_t seed) {
    const core::random_stream random{seed, core::purpose::user};
    std::uint64_t draw = 0;
    std::vector<std::size_t> sizes;
    std::vector<std::vector<norm_strip>> strips(ranks);
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        const std::size_t size = tensors[tensor].size(), pieces = ranks == 1 ? 1 : 1 + random.below(4, draw++);
        sizes.push_back(size);
        std::vector<std::size_t> cuts{0, size};
        for (std::size_t i = 1; i < pieces; ++i) cuts.push_back(random.below(static_cast<std::uint32_t>(size), draw++));
        std::sort(cuts.begin(), cuts.end());
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
            if (cuts[i] < cuts[i + 1])
                strips[random.below(static_cast<std::uint32_t>(ranks), draw++)].push_back(
                    {tensor, {cuts[i], cuts[i + 1]}});
    }
    const norm_tree tree{sizes, strips};
    // Each rank fills its own slots; nothing else is used.
    std::vector<double> values(tree.slots().back().last, std::nan(""));
    for (std::size_t rank = 0; rank < ranks; ++rank)
        for (const auto& node : tree.nodes(rank)) {
            REQUIRE(std::isnan(values.at(node.slot)));
            REQUIRE((node.slot >= tree.slots()[rank].first && node.slot < tree.slots()[rank].last));
            values[node.slot] = kernels::sum_of_squares(std::span<const float>{tensors[node.part.tensor]}.subspan(
                node.part.numbers.first, node.part.numbers.size()));
        }
    std::vector<double> out;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) out.push_back(tree.sum(tensor, values.data()));
    return out;
}

}  // namespace

TEST_CASE("sync/norm_tree: any cut over any ranks has the bits of one rank, and of one sum", "[sync]") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const core::random_stream random{seed, core::purpose::user, 1};
        std::vector<std::vector<float>> tensors(1 + random.below(5, 0));
        std::vector<double> direct;
        for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
            tensors[tensor].resize(1 + random.below(seed % 2 == 0 ? 50 : 5000, 1 + tensor));
            for (std::size_t i = 0; i < tensors[tensor].size(); ++i)
                tensors[tensor][i] = static_cast<float>(random.normal(10'000 * (1 + tensor) + i));
            direct.push_back(kernels::sum_of_squares(std::span<const float>{tensors[tensor]}));
        }
        INFO("seed " << seed);
        for (const std::size_t ranks : {1, 2, 3, 8}) CHECK(sums(tensors, ranks, seed) == direct);
    }
}

TEST_CASE("sync/norm_tree: an order of addition by strips would show", "[sync]") {
    const core::random_stream random{1, core::purpose::user};
    std::vector<float> x(4096);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
    const std::span<const float> all{x};
    std::size_t others = 0;
    for (std::size_t cut = 1; cut < x.size(); cut += 64)
        others += kernels::sum_of_squares(all.first(cut)) + kernels::sum_of_squares(all.subspan(cut)) !=
                  kernels::sum_of_squares(all);
    CHECK(others > 0);
}

TEST_CASE("sync/norm_tree: strips that leave numbers out or overlap are refused", "[sync]") {
    const std::vector<std::size_t> sizes{10};
    CHECK_THROWS_WITH((norm_tree{sizes, {{{0, {0, 4}}}, {{0, {4, 9}}}}}),
                      Catch::Contains("the strips of tensor 0 have 9 of its 10 numbers"));
    CHECK_THROWS((norm_tree{sizes, {{{0, {0, 6}}}, {{0, {5, 9}}}}}));
}

TEST_CASE("sync/norm_tree: ranks that own all share the work, others keep their strips", "[sync]") {
    const std::vector<parallel::block> strips{{0, 40}, {40, 40}, {40, 100}};
    CHECK(sync::distinct_strips(strips, 100) == strips);
    const auto parts = sync::distinct_strips({{0, 1000}, {0, 1000}, {0, 1000}}, 1000);
    CHECK(parts.front().first == 0);
    CHECK(parts.back().last == 1000);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) CHECK(parts[i].last == parts[i + 1].first);
    CHECK(sync::distinct_strips({{0, 7}}, 7) == std::vector<parallel::block>{{0, 7}});
}

TEST_CASE("sync/norm_tree: the factor of clipping is norm / max(norm, total)", "[sync]") {
    const sync::clip_by_global_norm clip{.norm = 2};
    CHECK(clip.factor(0) == 1);
    CHECK(clip.factor(2) == 1);
    CHECK(clip.factor(8) == 0.25);
    CHECK(clip.is_active());
    CHECK_FALSE(sync::clip_by_global_norm{.norm = HUGE_VAL}.is_active());
    CHECK_NOTHROW(sync::clip_by_global_norm{.norm = HUGE_VAL}.check());
    for (const double bad : {0.0, -1.0, std::nan("")}) CHECK_THROWS(sync::clip_by_global_norm{.norm = bad}.check());
}
