// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/factors.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/every_step.hpp"

namespace ls = lockstep;

static_assert(ls::sync::takes_factors<ls::sync::every_step> && ls::sync::takes_factors<ls::sync::delayed>);
static_assert(!ls::sync::takes_factors<ls::sync::no_factors>);

namespace {

/// A dense layer of m x q on so many ranks with two lanes each, and an equal part of a batch.
ls::reduce::bucket layer(std::size_t ranks, std::size_t m, std::size_t q, std::size_t batch) {
    ls::reduce::bucket out{.ranks = ls::comm::group{}, .runs = {}, .lanes = 2 * ranks, .n = m * q + q, .team = {}};
    for (std::size_t rank = 0; rank < ranks; ++rank) out.runs.push_back({2 * rank, 2 * rank + 2});
    out.factors = {.inputs = m, .outputs = q, .rows = (batch + ranks - 1) / ranks};
    return out;
}

constexpr ls::collectives::link ethernet{50e-6, 8e-9};

bool prefers(std::size_t ranks, std::size_t m, std::size_t q, std::size_t batch, const ls::collectives::link& over) {
    return ls::sync::prefers_factors(layer(ranks, m, q, batch), batch, 4, {over, over, 1e-11, {}});
}

}  // namespace

TEST_CASE("sync/factors: a layer sends factors where they are fewer numbers", "[sync]") {
    // m q / (m + q) = 2048.
    for (const std::size_t ranks : {2, 4, 8, 16, 64}) {
        CHECK(prefers(ranks, 4096, 4096, 256, ethernet));
        CHECK(prefers(ranks, 4096, 4096, 1920, ethernet));
        CHECK_FALSE(prefers(ranks, 4096, 4096, 2048, ethernet));
        CHECK_FALSE(prefers(ranks, 4096, 4096, 8192, ethernet));
        CHECK_FALSE(prefers(ranks, 784, 10, 64, ethernet));
    }
}

TEST_CASE("sync/factors: and where they take less time", "[sync]") {
    // A short bucket that is summed by doubling has no weights to share, so it has half as many rounds.
    constexpr ls::collectives::link slow_start{1, 1e-12};
    auto bucket = layer(4, 64, 64, 16);
    CHECK(ls::sync::prefers_factors(bucket, 16, 4, {slow_start, slow_start, 1e-11, {}}));
    bucket.algorithm = ls::collectives::sum_algorithm::doubling;
    CHECK_FALSE(ls::sync::prefers_factors(bucket, 16, 4, {slow_start, slow_start, 1e-11, {}}));
    CHECK(ls::sync::prefers_factors(bucket, 16, 4, {{0, 8e-9}, {0, 8e-9}, 1e-11, {}}));
    // Much room for few rows: five rows on four ranks take room for eight.
    CHECK_FALSE(prefers(4, 12, 12, 5, {0, 8e-9}));
    CHECK(prefers(4, 12, 12, 4, {0, 8e-9}));
}

TEST_CASE("sync/factors: what does not go with them in a plan", "[sync]") {
    using ls::reduce::transport;
    const ls::sync::factors always{.always = true}, automatic{};
    CHECK_NOTHROW(always.check(transport::messages, "tree:0-max"));
    CHECK_NOTHROW(automatic.check(transport::shared_memory, ""));
    CHECK_THROWS_WITH(always.check(transport::shared_memory, ""),
                      "lockstep: the plan asks for shared memory, and for factors, which are "
                      "messages; leave one of them out");
    for (const auto& which : {always, automatic})
        CHECK_THROWS_WITH(which.check(transport::messages, "ring:0-max"),
                          "lockstep: the plan asks for factors, which add along the lane tree, and for the all-reduce "
                          "'ring:0-max', whose "
                          "bits depend on the number of ranks; leave one of them out");
}
