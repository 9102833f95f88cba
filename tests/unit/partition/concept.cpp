// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/partition/concept.hpp"

#include <catch2/catch.hpp>

#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/partition/pipeline.hpp"

namespace partition = lockstep::partition;

TEST_CASE("partition/concept: data, model and hybrid partitions", "[partition]") {
    using partition::Partition;
    static_assert(Partition<partition::data> && partition::data::shards == 1 && partition::data::replicates);
    static_assert(Partition<partition::model<3>> && partition::model<3>::shards == 3 &&
                  !partition::model<3>::replicates);
    constexpr auto both = partition::hybrid{partition::data{}, partition::model<4>{}};
    using hybrid = std::remove_const_t<decltype(both)>;
    static_assert(Partition<hybrid> && hybrid::shards == 4 && hybrid::stages == 1 && hybrid::replicates);
    static_assert(Partition<partition::pipeline<3>> && partition::pipeline<3>::stages == 3 &&
                  partition::pipeline<3>::shards == 1 && !partition::pipeline<3>::replicates);
    constexpr auto lines = partition::hybrid{partition::data{}, partition::pipeline<3>{.first_layers = {2, 5}}};
    static_assert(lines.stages == 3 && lines.shards == 1 && lines.replicates);
    CHECK(partition::first_layers_of(lines) == std::array<std::size_t, 2>{2, 5});
    CHECK(partition::first_layers_of(partition::pipeline<2>{}) == std::array<std::size_t, 1>{0});
    CHECK(partition::first_layers_of(both).empty());
    CHECK(lines.settings() == "3 stages, from layer 2, from layer 5");
    CHECK(partition::pipeline<2>{}.settings() == "2 stages");
    CHECK(both.settings().empty());
    static_assert(!Partition<int>);
    CHECK(hybrid::name == "hybrid");
    CHECK(partition::data::name == "data");
    CHECK(partition::model<2>::name == "model");
}
