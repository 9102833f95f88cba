// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/cost_model.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/halving_doubling.hpp"
#include "lockstep/collectives/predict.hpp"
#include "lockstep/collectives/recursive_doubling.hpp"
#include "lockstep/collectives/ring.hpp"
#include "reference/binomial.hpp"

using namespace lockstep;

namespace {

const collectives::cost_model model{.inside = {}, .between = {5e-6, 1e-9}, .seconds_per_added_byte = 0};

/// Of the busiest rank, and of all of them with their waiting.
template <class Build>
std::vector<double> seconds(std::size_t ranks, const Build& build, const collectives::cost_model& with = model) {
    std::vector<collectives::schedule> all;
    double alone = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        all.push_back(build(rank));
        alone = std::max(alone, collectives::price(all.back(), rank, 4, with));
    }
    return {alone, collectives::predict(all, 4, with)};
}

}  // namespace

// L = latency, G = seconds per byte, m = numbers of 4 bytes: the catalogue of Ben-Nun, Hoefler 2019.
TEST_CASE("collectives/cost_model: prices of the all-reduces are the formulas of the literature", "[collectives]") {
    const std::size_t ranks = GENERATE(2U, 4U, 16U, 64U), n = 16 * 64 * 5;
    const double p = static_cast<double>(ranks), log2 = std::log2(p), L = 5e-6,
                 bytes = 4.0 * static_cast<double>(n) * 1e-9;
    for (const double one :
         seconds(ranks, [&](std::size_t rank) { return collectives::doubling_all_reduce{64}(rank, ranks, n); }))
        CHECK(one == Approx(log2 * (L + bytes)).epsilon(1e-12));
    for (const double one :
         seconds(ranks, [&](std::size_t rank) { return collectives::tree_all_reduce{64}(rank, ranks, n); }))
        CHECK(one == Approx(2 * L * log2 + 2 * bytes * (p - 1) / p).epsilon(1e-12));
    for (const double one :
         seconds(ranks, [&](std::size_t rank) { return collectives::halving_doubling_all_reduce{}(rank, ranks, n); }))
        CHECK(one == Approx(2 * L * log2 + 2 * bytes * (p - 1) / p).epsilon(1e-12));
    for (const double one :
         seconds(ranks, [&](std::size_t rank) { return collectives::ring_all_reduce{}(rank, ranks, n); }))
        CHECK(one == Approx(2 * (p - 1) * (L + bytes / p)).epsilon(1e-12));
    // The root's chain: one child after the other, up and down.
    CHECK(seconds(ranks, [&](std::size_t rank) {
              return collectives::binomial_reduce(rank, ranks, n).then(collectives::binomial_broadcast(rank, ranks, n));
          })[0] == Approx(2 * log2 * (L + bytes)).epsilon(1e-12));
}

TEST_CASE("collectives/cost_model: additions, links inside a host, and what is printed", "[collectives]") {
    const collectives::cost_model two{
        .inside = {1e-6, 1e-10}, .between = {5e-5, 8e-9}, .seconds_per_added_byte = 5e-11, .on = {0, 0, 2, 2}};
    const std::size_t n = 1024;
    // Distance 1 is inside a host, distance 2 between them.
    const double expected = 1e-6 + 5e-5 + 4096 * (1e-10 + 8e-9 + 2 * 5e-11);
    for (const double one : seconds(
             4, [&](std::size_t rank) { return collectives::doubling_all_reduce{4}(rank, 4, n); }, two))
        CHECK(one == Approx(expected).epsilon(1e-12));
    CHECK(collectives::to_text(two) ==
          "between hosts 50.0 us + 8.00 ns/B, inside 1.0 us + 0.10 ns/B, additions 0.05 ns/B");
    auto near = two;
    near.on = {0, 0, 0, 0};
    CHECK(collectives::to_text(near) == "inside 1.0 us + 0.10 ns/B, additions 0.05 ns/B");
    CHECK(collectives::to_text(model) == "between hosts 5.0 us + 1.00 ns/B, additions 0.00 ns/B");
}
