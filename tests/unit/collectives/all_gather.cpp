// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/all_gather.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/collectives/tree.hpp"
#include "lockstep/collectives/verify.hpp"

namespace collectives = lockstep::collectives;
using lockstep::parallel::block;
using lockstep::parallel::split;

namespace {

using builder = collectives::schedule (*)(std::size_t, std::span<const block>);

/// Every rank begins with its strip alone and must end with all; returns what each sends.
std::vector<collectives::traffic> gathered(builder build, const std::vector<block>& strips, std::size_t n) {
    std::vector<collectives::schedule> programs;
    std::vector<std::vector<std::uint16_t>> data;
    for (std::size_t rank = 0; rank < strips.size(); ++rank) {
        programs.push_back(build(rank, strips));
        data.emplace_back(n);
        for (std::size_t i = strips[rank].first; i < strips[rank].last; ++i)
            data.back()[i] = static_cast<std::uint16_t>(i + 1);
    }
    const auto sent = collectives::simulate<std::uint16_t>(programs, data);
    bool right = true;
    for (std::size_t rank = 0; rank < strips.size(); ++rank) {
        right = right && programs[rank].elements() == n && sent[rank] == programs[rank].sent() &&
                programs[rank].work_size() == 0 && programs[rank].added() == 0;
        for (std::size_t i = 0; i < n; ++i) right = right && data[rank][i] == i + 1;
    }
    REQUIRE(right);
    return sent;
}

std::vector<block> natural(std::size_t ranks, std::size_t n) {
    std::vector<block> out(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) out[rank] = split(n, ranks, rank);
    return out;
}

/// Lengths 0, 1, 2, .. in an order that is neither natural nor mirrored.
std::vector<block> uneven(std::size_t ranks, std::size_t& n) {
    std::vector<block> out(ranks);
    n = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
        const std::size_t rank =
            (i + 1 + (i % 2 == 0 && i + 2 < ranks ? 1 : 0) - (i % 2 == 1 && i + 1 < ranks ? 1 : 0)) % ranks;
        out[rank] = {n, n + rank % 5};
        n = out[rank].last;
    }
    return out;
}

/// ceil(log2(ranks))
std::size_t rounds(std::size_t ranks) {
    std::size_t out = 0;
    while ((std::size_t{1} << out) < ranks) ++out;
    return out;
}

std::size_t others(const std::vector<block>& strips, std::size_t rank) {
    std::size_t count = 0;
    for (std::size_t other = 0; other < strips.size(); ++other) count += other != rank && !strips[other].empty();
    return count;
}

}  // namespace

TEST_CASE("collectives/all_gather: every algorithm, every number of ranks", "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 64; ++ranks) {
        for (const std::size_t n : {0U, 1U, 2U, 7U, 64U, 1000U}) {
            INFO(ranks << " ranks, " << n << " elements");
            const auto strips = natural(ranks, n);
            const auto direct = gathered(&collectives::direct_all_gather, strips, n);
            const auto ring = gathered(&collectives::ring_all_gather, strips, n);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                const std::size_t own = strips[rank].size();
                REQUIRE(direct[rank] == collectives::traffic{own == 0 ? 0 : ranks - 1, own * (ranks - 1)});
                const std::size_t next = (rank + 1) % ranks;
                REQUIRE(ring[rank] == collectives::traffic{others(strips, next), n - strips[next].size()});
            }
            const auto bruck = gathered(&collectives::bruck_all_gather, strips, n);
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                REQUIRE(collectives::bruck_all_gather(rank, strips).received().elements == n - strips[rank].size());
                if (n % ranks == 0) REQUIRE(bruck[rank].elements == n / ranks * (ranks - 1));
                REQUIRE(bruck[rank].messages <= 2 * rounds(ranks));
                REQUIRE(collectives::bruck_all_gather(rank, strips).rounds().size() <= rounds(ranks));
            }
            gathered(&collectives::all_gather, strips, n);
            gathered(&collectives::all_gather, collectives::tree_strips(ranks, 64, n), n);
            gathered(&collectives::all_gather, collectives::tree_strips(ranks, ranks, n), n);
        }
        std::size_t n = 0;
        const auto strips = uneven(ranks, n);
        gathered(&collectives::direct_all_gather, strips, n);
        gathered(&collectives::ring_all_gather, strips, n);
        gathered(&collectives::bruck_all_gather, strips, n);
        gathered(&collectives::all_gather, strips, n);
    }
    for (const std::size_t ranks : {128U, 256U, 1000U}) gathered(&collectives::all_gather, natural(ranks, 1501), 1501);
}

TEST_CASE("collectives/all_gather: recursive doubling sends log2(p) messages and n(p-1)/p elements", "[collectives]") {
    for (std::size_t ranks = 1; ranks <= 64; ranks *= 2) {
        const std::size_t n = 16 * 64;
        for (const auto& strips : {natural(ranks, n), collectives::tree_strips(ranks, ranks, n)}) {
            REQUIRE(collectives::can_double(strips));
            for (const auto& sent : gathered(&collectives::doubling_all_gather, strips, n))
                CHECK(sent == collectives::traffic{rounds(ranks), n * (ranks - 1) / ranks});
        }
        for (const std::size_t odd : {0U, 1U, 2U, 7U, 64U, 1000U}) {
            gathered(&collectives::doubling_all_gather, natural(ranks, odd), odd);
            gathered(&collectives::doubling_all_gather, collectives::tree_strips(ranks, ranks, odd), odd);
        }
    }
}

TEST_CASE("collectives/all_gather: strips in no useful order, or no power of two, cannot be doubled", "[collectives]") {
    const std::vector<block> mixed{{0, 4}, {8, 12}, {12, 16}, {4, 8}};
    CHECK_FALSE(collectives::can_double(mixed));
    CHECK_FALSE(collectives::can_double(natural(6, 60)));
    CHECK_THROWS_AS(collectives::doubling_all_gather(0, mixed), lockstep::core::error);
    gathered(&collectives::all_gather, mixed, 16);
    CHECK(*collectives::can_double(natural(8, 80)) == collectives::doubling_order::outwards);
    CHECK(*collectives::can_double(collectives::tree_strips(8, 8, 1024)) == collectives::doubling_order::inwards);
}

TEST_CASE("collectives/all_gather: strips that together exceed what a program can have are an error", "[collectives]") {
    CHECK_THROWS_WITH(collectives::equal_strips(4, std::size_t{1} << 62U),
                      Catch::Contains("elements of all strips: 4 x 4611686018427387904"));
}
