// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/partition/concept.hpp"

#include <catch2/catch.hpp>

#include "lockstep/partition/data.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"

namespace partition = lockstep::partition;

TEST_CASE("partition/concept: data, model and hybrid partitions", "[partition]") {
    using partition::Partition;
    static_assert(Partition<partition::data> && partition::data::shards == 1 && partition::data::replicates);
    static_assert(Partition<partition::model<3>> && partition::model<3>::shards == 3 &&
                  !partition::model<3>::replicates);
    constexpr auto both = partition::hybrid{partition::data{}, partition::model<4>{}};
    using hybrid = std::remove_const_t<decltype(both)>;
    static_assert(Partition<hybrid> && hybrid::shards == 4 && hybrid::stages == 1 && hybrid::replicates);
    static_assert(!Partition<int>);
    CHECK(hybrid::name == "hybrid");
    CHECK(partition::data::name == "data");
    CHECK(partition::model<2>::name == "model");
}
