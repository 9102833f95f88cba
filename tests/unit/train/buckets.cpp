// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/buckets.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "unit/model/networks.hpp"

using namespace model_test;
using ls::model::network;
using ls::model::segment;

namespace {

template <class F>
void with_networks(F&& f) {
    f(network<lenet_type, 1>{});
    f(network<lenet_type, 2>{});
    f(network<mixed_type, 1>{});
    f(network<mixed_type, 2>{});
    f(network<mixed_type, 4>{});
}

}  // namespace

TEST_CASE("train/buckets: each parameter is in one bucket, with whole layers of one segment", "[train]") {
    with_networks([]<class Network>(Network) {
        for (const std::size_t least : {0UL, 1UL, 100UL, 1000UL, 60000UL, 1UL << 30U}) {
            INFO("least " << least);
            const auto buckets = ls::train::make_buckets<Network>(least);
            std::vector<int> used(Network::parameters_here);
            for (const auto& bucket : buckets) {
                REQUIRE(bucket.count > 0);
                for (std::size_t i = 0; i < bucket.count; ++i) ++used.at(bucket.first + i);
                // The layers in it: all of one segment, and the last that backward finishes is the lowest.
                std::size_t lowest = Network::size, inside = 0;
                for (std::size_t layer = 0; layer < Network::size; ++layer) {
                    const std::size_t offset = Network::offset(layer), count = Network::facts[layer].parameters_here;
                    if (count == 0 || offset < bucket.first || offset >= bucket.first + bucket.count) continue;
                    REQUIRE(Network::facts[layer].segment == bucket.segment);
                    REQUIRE(offset + count <= bucket.first + bucket.count);
                    lowest = std::min(lowest, layer);
                    inside += count;
                }
                REQUIRE(bucket.lowest_layer == lowest);
                REQUIRE(inside == bucket.count);
            }
            for (const int count : used) REQUIRE(count == 1);
        }
    });
}

TEST_CASE("train/buckets: all but the last bucket of a segment have at least what was asked for, and no layer too many", "[train]") {
    with_networks([]<class Network>(Network) {
        for (const std::size_t least : {0UL, 1UL, 100UL, 1000UL, 60000UL, 1UL << 30U}) {
            const auto buckets = ls::train::make_buckets<Network>(least);
            for (std::size_t i = 0; i < buckets.size(); ++i) {
                const bool last = i + 1 == buckets.size() || buckets[i + 1].segment != buckets[i].segment;
                if (!last) REQUIRE(buckets[i].count >= least);
                // Without the layer that it took last it was too small.
                const std::size_t before = buckets[i].count - Network::facts[buckets[i].lowest_layer].parameters_here;
                if (before > 0) REQUIRE(before < least);
            }
        }
    });
}

TEST_CASE("train/buckets: LeNet", "[train]") {
    using whole = network<lenet_type, 1>;
    const auto each = ls::train::make_buckets<whole>(0);
    REQUIRE(each.size() == 4);
    CHECK(each[0].lowest_layer == 9);
    CHECK(each[1].lowest_layer == 7);
    CHECK(each[2].lowest_layer == 3);
    CHECK(each[3].lowest_layer == 0);
    CHECK(each[0].count == 5130);
    CHECK(ls::train::name_of(each[0]) == "layer 9");
    const auto one = ls::train::make_buckets<whole>(1U << 20U);
    REQUIRE(one.size() == 1);
    CHECK(one[0].count == 582026);
    // The last layer alone has 5,130.
    CHECK(ls::train::make_buckets<whole>(5130).front().count == 5130);
    CHECK(ls::train::make_buckets<whole>(5131).front().count == 529930);
    // 5,130 + 524,800 reach 60,000; the convolutions follow.
    const auto two = ls::train::make_buckets<whole>(60000);
    REQUIRE(two.size() == 2);
    CHECK(two[0].count == 529930);
    CHECK(two[1].lowest_layer == 0);
    // Numbered as in the summary, in weights() and in the timeline.
    CHECK(ls::train::name_of(two[0]) == "layers 7-9");
    CHECK(ls::train::name_of(two[1]) == "layers 0-3");
}

TEST_CASE("train/buckets: runs cover their parameters once, and decay what decays", "[train]") {
    with_networks([]<class Network>(Network) {
        std::vector<int> decays(Network::parameters_here, -1);
        ls::core::for_each_index<Network::size>([&](auto layer) {
            std::size_t at = Network::offset(layer);
            for (const auto& parameter : Network::template layer<layer>::parameters)
                for (std::size_t i = 0; i < parameter.size(); ++i) decays.at(at++) = parameter.decays;
        });
        const std::size_t all = Network::parameters_here;
        for (const auto& [first, count] :
             std::vector<std::pair<std::size_t, std::size_t>>{{0, all}, {0, 0}, {1, all - 1}, {all / 3, all / 3}, {5, 1}, {all - 7, 7}}) {
            std::vector<int> found(all, -1);
            for (const auto& run : ls::train::make_runs<Network>(first, count)) {
                REQUIRE(run.count > 0);
                for (std::size_t i = run.first; i < run.first + run.count; ++i) {
                    REQUIRE(found.at(i) == -1);
                    found[i] = run.decays;
                }
            }
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < all; ++i) wrong += found[i] != (i >= first && i < first + count ? decays[i] : -1);
            REQUIRE(wrong == 0);
        }
    });
}

TEST_CASE("train/buckets: no two messages that are averaged have the same random words, in any grid", "[train]") {
    for (const std::size_t shards : {1UL, 2UL, 4UL})
        for (const std::size_t replicas : {1UL, 2UL, 3UL}) {
            ls::partition::grid on{.rank = 0, .ranks = shards * replicas, .shards = shards, .lanes = 12};
            const std::size_t buckets = 5;
            std::set<std::uint32_t> seen;
            std::size_t messages = 0;
            for (std::size_t bucket = 0; bucket < buckets; ++bucket)
                for (on.rank = 0; on.rank < on.ranks; ++on.rank, ++messages)
                    seen.insert(
                        ls::train::rounding_series({.segment = bucket < 2 ? segment::sharded : segment::replicated}, bucket, buckets, on));
            CHECK(seen.size() == messages);
            CHECK(*seen.rbegin() < ls::core::random_stream::series_count);
        }
}

TEST_CASE("train/buckets: more random series than there are addresses are an error", "[train]") {
    const ls::partition::grid on{.rank = 1, .ranks = 2, .shards = 2, .lanes = 1U << 20U};
    CHECK_NOTHROW(ls::train::rounding_series({}, 7, 8, on));
    CHECK_THROWS_WITH(ls::train::rounding_series({}, 7, 9, on), Catch::Contains("2 shards, 9 buckets and 1048576 lanes are more than"));
}
