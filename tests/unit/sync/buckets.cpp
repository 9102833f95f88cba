// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/buckets.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <utility>
#include <vector>

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

TEST_CASE("sync/buckets: each parameter is in one bucket, with whole layers of one segment", "[sync]") {
    with_networks([]<class Network>(Network) {
        for (const std::size_t least : {0UL, 1UL, 100UL, 1000UL, 60000UL, 1UL << 30U}) {
            INFO("least " << least);
            const auto buckets = ls::sync::make_buckets<Network>(least);
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

TEST_CASE("sync/buckets: all but the last bucket of a segment have at least what was asked for, and no layer too many",
          "[sync]") {
    with_networks([]<class Network>(Network) {
        for (const std::size_t least : {0UL, 1UL, 100UL, 1000UL, 60000UL, 1UL << 30U}) {
            const auto buckets = ls::sync::make_buckets<Network>(least);
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

TEST_CASE("sync/buckets: LeNet", "[sync]") {
    using whole = network<lenet_type, 1>;
    const auto each = ls::sync::make_buckets<whole>(0);
    REQUIRE(each.size() == 4);
    CHECK(each[0].lowest_layer == 9);
    CHECK(each[1].lowest_layer == 7);
    CHECK(each[2].lowest_layer == 3);
    CHECK(each[3].lowest_layer == 0);
    CHECK(each[0].count == 5130);
    CHECK(ls::sync::name_of(each[0]) == "layer 9");
    const auto one = ls::sync::make_buckets<whole>(1U << 20U);
    REQUIRE(one.size() == 1);
    CHECK(one[0].count == 582026);
    // The last layer alone has 5,130.
    CHECK(ls::sync::make_buckets<whole>(5130).front().count == 5130);
    CHECK(ls::sync::make_buckets<whole>(5131).front().count == 529930);
    // 5,130 + 524,800 reach 60,000; the convolutions follow.
    const auto two = ls::sync::make_buckets<whole>(60000);
    REQUIRE(two.size() == 2);
    CHECK(two[0].count == 529930);
    CHECK(two[1].lowest_layer == 0);
    // Numbered as in the summary, in weights() and in the timeline.
    CHECK(ls::sync::name_of(two[0]) == "layers 7-9");
    CHECK(ls::sync::name_of(two[1]) == "layers 0-3");
}

TEST_CASE("sync/buckets: a layer that sends factors is alone in its bucket", "[sync]") {
    using whole = network<lenet_type, 1>;
    std::array<bool, whole::size> alone{};
    alone[7] = true;
    const auto three = ls::sync::make_buckets<whole>(1U << 20U, alone);
    REQUIRE(three.size() == 3);
    CHECK((three[0].lowest_layer == 9 && three[0].count == 5130 && !three[0].by_factors));
    CHECK(
        (three[1].lowest_layer == 7 && three[1].highest_layer == 7 && three[1].count == 524800 && three[1].by_factors));
    CHECK((three[2].lowest_layer == 0 && three[2].highest_layer == 3 && !three[2].by_factors));
    // Whatever stands beside it: the next layer does not join it.
    alone[9] = true;
    CHECK(ls::sync::make_buckets<whole>(1U << 20U, alone).size() == 3);
    alone[3] = alone[0] = true;
    for (const auto& range : ls::sync::make_buckets<whole>(1U << 20U, alone))
        CHECK((range.by_factors && range.first == whole::offset(range.lowest_layer)));
    CHECK(ls::sync::make_buckets<whole>(1U << 20U, std::array<bool, whole::size>{}).size() == 1);
}

TEST_CASE("sync/buckets: runs cover their parameters once, and decay what decays", "[sync]") {
    with_networks([]<class Network>(Network) {
        std::vector<int> decays(Network::parameters_here, -1);
        ls::core::for_each_index<Network::size>([&](auto layer) {
            std::size_t at = Network::offset(layer);
            for (const auto& parameter : Network::template layer<layer>::parameters)
                for (std::size_t i = 0; i < parameter.size(); ++i) decays.at(at++) = parameter.decays;
        });
        const std::size_t all = Network::parameters_here;
        for (const auto& [first, count] : std::vector<std::pair<std::size_t, std::size_t>>{
                 {0, all}, {0, 0}, {1, all - 1}, {all / 3, all / 3}, {5, 1}, {all - 7, 7}}) {
            std::vector<int> found(all, -1);
            for (const auto& run : ls::sync::make_runs<Network>(first, count)) {
                REQUIRE(run.count > 0);
                for (std::size_t i = run.first; i < run.first + run.count; ++i) {
                    REQUIRE(found.at(i) == -1);
                    found[i] = run.decays;
                }
            }
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < all; ++i)
                wrong += found[i] != (i >= first && i < first + count ? decays[i] : -1);
            REQUIRE(wrong == 0);
        }
    });
}

TEST_CASE("sync/buckets: pieces cover each tensor once, in segments counted from its start, whatever the buckets",
          "[sync]") {
    with_networks([]<class Network>(Network) {
        const ls::partition::grid on{.rank = 0, .ranks = Network::shards, .shards = Network::shards, .lanes = 12};
        for (const std::size_t segment : {0UL, 64UL, 192UL, 1UL << 16U}) {
            // Of all buckets: where a piece lies in the network, and what it says of its tensor.
            const auto pieces_of = [&](std::size_t least) {
                std::set<std::array<std::size_t, 6>> out;
                for (const auto& bucket : ls::sync::make_buckets<Network>(least))
                    for (const auto& one : ls::sync::make_pieces<Network>(bucket, on, segment)) {
                        REQUIRE(one.first + one.count <= bucket.count);
                        REQUIRE(one.offset + one.count <= one.rows * one.columns);
                        REQUIRE((segment == 0 ? one.offset == 0 : one.offset % segment == 0 && one.count <= segment));
                        out.insert(
                            {bucket.first + one.first, one.count, one.tensor, one.offset, one.rows, one.columns});
                    }
                return out;
            };
            const auto each = pieces_of(1), all = pieces_of(1U << 30U);
            CHECK(each == all);
            std::size_t at = 0;
            std::set<std::pair<std::size_t, std::size_t>> addresses;
            for (const auto& one : all) {
                CHECK(one[0] == at);
                at += one[1];
                CHECK(addresses.emplace(one[2], one[3]).second);
            }
            CHECK(at == Network::parameters_here);
        }
    });
}

TEST_CASE("sync/buckets: more random series than there are addresses are an error", "[sync]") {
    const ls::partition::grid on{.rank = 1, .ranks = 2, .shards = 2, .lanes = 1U << 20U, .workers = 1U << 20U};
    CHECK_NOTHROW(ls::sync::require_series(8, on));
    CHECK_THROWS_WITH(ls::sync::require_series(9, on),
                      Catch::Contains("9 tensors, 2 shards and 1048576 workers are more than"));
}
