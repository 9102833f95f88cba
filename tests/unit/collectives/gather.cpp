// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/gather.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/collectives/verify.hpp"

namespace collectives = lockstep::collectives;
using lockstep::parallel::block;

namespace {

/// Strips of 0, 1, 2, .. elements.
std::vector<block> uneven(std::size_t ranks) {
    std::vector<block> out;
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        out.push_back({at, at + rank % 4});
        at = out.back().last;
    }
    return out;
}
using numbers = std::vector<std::uint16_t>;

}  // namespace

TEST_CASE("collectives/gather: all strips come to the root, and go back", "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks)
        for (std::size_t root = 0; root < ranks; ++root) {
            const auto strips = uneven(ranks);
            const std::size_t n = strips.back().last;
            std::vector<collectives::schedule> in, out;
            std::vector<numbers> data;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                in.push_back(collectives::gather(rank, root, strips));
                out.push_back(collectives::scatter(rank, root, strips));
                data.emplace_back(n);
                for (std::size_t i = 0; i < strips[rank].size(); ++i)
                    data.back()[(rank == root ? strips[rank].first : 0) + i] =
                        static_cast<std::uint16_t>(strips[rank].first + i + 1);
            }
            const auto sent = collectives::simulate<std::uint16_t>(in, data);
            bool right = true;
            for (std::size_t i = 0; i < n; ++i) right = right && data[root][i] == i + 1;
            std::size_t elements = 0;
            for (const auto& one : sent) elements += one.elements;
            CHECK(right);
            CHECK(elements == n - strips[root].size());
            for (std::size_t rank = 0; rank < ranks; ++rank)
                if (rank != root) data[rank].assign(n, 0);
            (void)collectives::simulate<std::uint16_t>(out, data);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                for (std::size_t i = 0; i < strips[rank].size(); ++i)
                    right =
                        right && data[rank][(rank == root ? strips[rank].first : 0) + i] == strips[rank].first + i + 1;
            CHECK(right);
        }
}

TEST_CASE("collectives/gather: one message goes from one rank to another", "[collectives]") {
    std::vector<collectives::schedule> programs;
    std::vector<numbers> data;
    for (std::size_t rank = 0; rank < 4; ++rank) {
        programs.push_back(collectives::one_message(rank, 3, 1, 2));
        data.push_back({static_cast<std::uint16_t>(rank), static_cast<std::uint16_t>(10 * rank)});
    }
    const auto sent = collectives::simulate<std::uint16_t>(programs, data);
    CHECK(data == std::vector<numbers>{{0, 0}, {3, 30}, {2, 20}, {3, 30}});
    CHECK(sent[3] == collectives::traffic{1, 2});
    CHECK(sent[0] == collectives::traffic{0, 0});
    CHECK(programs[0].rounds().empty());
}
