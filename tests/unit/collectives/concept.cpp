// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/concept.hpp"

#include <catch2/catch.hpp>
#include <cstddef>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/ring.hpp"

namespace collectives = lockstep::collectives;

namespace {

/// What a user may write: everything to rank 0.
struct funnel {
    static constexpr const char* name = "funnel";
    static constexpr bool invariant = false;
    collectives::schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        collectives::schedule out{name, invariant};
        if (rank > 0) out.send(0, collectives::in_data(0, n));
        for (std::size_t other = 1; rank == 0 && other < ranks; ++other)
            out.receive(other, collectives::in_work(other * n, n));
        out.end_round();
        return out;
    }
};
struct no_schedule {
    static constexpr const char* name = "nothing";
    static constexpr bool invariant = true;
    int operator()(std::size_t, std::size_t, std::size_t) const { return 0; }
};

}  // namespace

TEST_CASE("collectives/concept: what is a collective", "[collectives]") {
    STATIC_REQUIRE(collectives::Collective<funnel, std::size_t>);
    STATIC_REQUIRE_FALSE(collectives::AllReduce<funnel>);
    STATIC_REQUIRE_FALSE(collectives::Collective<no_schedule, std::size_t>);
    STATIC_REQUIRE(collectives::AllReduce<collectives::tree_all_reduce>);
    STATIC_REQUIRE(collectives::AllReduce<collectives::ring_all_reduce>);
    STATIC_REQUIRE(collectives::tree_all_reduce::invariant);
    STATIC_REQUIRE_FALSE(collectives::ring_all_reduce::invariant);
    CHECK(funnel{}(1, 2, 5).sent() == collectives::traffic{1, 5});
}
