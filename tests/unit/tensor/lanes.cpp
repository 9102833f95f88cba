// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/lanes.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"

namespace tensor = lockstep::tensor;
namespace parallel = lockstep::parallel;
using tensor::subtree;

namespace {

using list = std::vector<std::pair<std::size_t, std::size_t>>;

/// The definition of the tree, written down once more: node (first, length) is cut off at `total` and is the sum of its
/// two halves. The whole nodes that lie in [lanes.first, lanes.last) and whose parent does not.
void collect(std::size_t first, std::size_t length, parallel::block lanes, std::size_t total, list& out) {
    const std::size_t last = std::min(first + length, total);
    if (first >= total || last <= lanes.first || first >= lanes.last) return;
    if (first >= lanes.first && last <= lanes.last) {
        out.emplace_back(first, last - first);
        return;
    }
    collect(first, length / 2, lanes, total, out);
    collect(first + length / 2, length / 2, lanes, total, out);
}

std::size_t root(std::size_t total) {
    std::size_t length = 1;
    while (length < total) length *= 2;
    return length;
}

/// Which additions a node stands for.
std::string sum(std::size_t first, std::size_t length, std::size_t total) {
    if (length == 1) return lockstep::core::text(first);
    const std::string left = sum(first, length / 2, total);
    if (first + length / 2 >= total) return left;
    return "(" + left + "+" + sum(first + length / 2, length / 2, total) + ")";
}

/// The length of the uncut node that covers exactly this run.
std::size_t uncut(subtree tree, std::size_t total) {
    std::size_t length = 1;
    while (std::min(tree.first + length, total) < tree.first + tree.count) length *= 2;
    return length;
}

/// The additions that walk() makes, with as many partial sums as tree_depth() says.
std::string walked(subtree tree) {
    std::vector<std::string> partial(tensor::tree_depth(tree.count));
    std::size_t next = 0;
    tensor::walk(
        tree.count,
        [&](std::size_t lane, std::size_t level) {
            CHECK(lane == next++);
            partial.at(level) = lockstep::core::text(tree.first + lane);
        },
        [&](std::size_t level) { partial.at(level) = "(" + partial.at(level) + "+" + partial.at(level + 1) + ")"; });
    CHECK(next == tree.count);
    return partial.empty() ? "" : partial[0];
}

}  // namespace

TEST_CASE("tensor/lanes: a run of lanes is covered once by the fewest whole nodes of the tree", "[tensor]") {
    for (std::size_t total = 1; total <= 70; ++total)
        for (std::size_t first = 0; first <= total; ++first)
            for (std::size_t last = first; last <= total; ++last) {
                list expected, got;
                collect(0, root(total), {first, last}, total, expected);
                for (const subtree& one : tensor::cover({first, last}, total)) got.emplace_back(one.first, one.count);
                INFO("lanes " << first << " to " << last << " of " << total);
                REQUIRE(got == expected);
                std::size_t at = first;
                for (const auto& [node, count] : got) {
                    REQUIRE(node == at);
                    REQUIRE(count > 0);
                    at += count;
                    // Aligned: it starts at a multiple of its uncut length.
                    REQUIRE(node % uncut({node, count}, total) == 0);
                }
                REQUIRE(at == last);
                REQUIRE(got.size() <= std::max<std::size_t>(1, 2 * tensor::tree_depth(total)));
            }
    CHECK(tensor::cover({0, 0}, 0).empty());
    CHECK(tensor::cover({0, 70}, 70).size() == 1);
}

TEST_CASE("tensor/lanes: walk adds in the order of the tree, wherever in it a node lies", "[tensor]") {
    for (std::size_t total = 1; total <= 70; ++total)
        for (std::size_t length = 1; length <= root(total); length *= 2)
            for (std::size_t first = 0; first < total; first += length) {
                const subtree node{first, std::min(first + length, total) - first};
                REQUIRE(walked(node) == sum(first, length, total));
            }
    CHECK(walked({0, 5}) == "(((0+1)+(2+3))+4)");
    CHECK(walked({0, 7}) == "(((0+1)+(2+3))+((4+5)+6))");
    CHECK(walked({0, 0}).empty());
}

TEST_CASE("tensor/lanes: no more partial sums than tree_depth are needed, and no fewer", "[tensor]") {
    for (std::size_t count = 1; count <= 70; ++count) {
        std::size_t highest = 0;
        tensor::walk(
            count, [&](std::size_t, std::size_t level) { highest = std::max(highest, level); }, [](std::size_t) {});
        CHECK(highest + 1 == tensor::tree_depth(count));
    }
}

TEST_CASE("tensor/lanes: rows are dealt to lanes as equally as possible, in order", "[tensor]") {
    for (std::size_t lanes = 1; lanes <= 13; ++lanes)
        for (std::size_t rows = 0; rows <= 40; ++rows) {
            std::vector<std::size_t> lengths(lanes, 999);
            tensor::deal_rows(rows, lengths);
            REQUIRE(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}) == rows);
            const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
            REQUIRE(*most - *least <= 1);
        }
}

TEST_CASE("tensor/lanes: a lane set knows its rows, its first row in the minibatch, and the rows of each node",
          "[tensor]") {
    const lockstep::core::random_stream random{5, lockstep::core::purpose::user};
    std::size_t drawn = 0;
    for (std::size_t total = 1; total <= 20; ++total)
        for (std::size_t first = 0; first <= total; ++first)
            for (std::size_t last = first; last <= total; ++last) {
                tensor::lane_set set{total, {first, last}};
                CHECK(set.rows() == 0);
                // Assigned twice: nothing of the first minibatch stays.
                for (int again = 0; again < 2; ++again) {
                    std::vector<std::size_t> lengths(total);
                    for (auto& length : lengths) length = random.below(4, drawn++);
                    set.assign(lengths);
                    std::size_t before = 0;
                    for (std::size_t lane = 0; lane < first; ++lane) before += lengths[lane];
                    INFO("lanes " << first << " to " << last << " of " << total);
                    REQUIRE(set.first_row() == before);
                    REQUIRE(set.total() == total);
                    REQUIRE(set.count() == last - first);
                    REQUIRE(set.lanes() == parallel::block{first, last});
                    std::size_t at = 0;
                    for (std::size_t lane = first; lane < last; ++lane) {
                        REQUIRE(set.blocks()[lane - first] == parallel::block{at, at + lengths[lane]});
                        at += lengths[lane];
                    }
                    REQUIRE(set.rows() == at);
                    std::size_t next = first;
                    for (const subtree& tree : set.trees()) {
                        REQUIRE(tree.first == next);
                        REQUIRE(set.blocks(tree).size() == tree.count);
                        REQUIRE(set.blocks(tree).data() == set.blocks().data() + (next - first));
                        next += tree.count;
                    }
                    REQUIRE(next == last);
                }
            }
}
