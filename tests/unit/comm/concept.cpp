// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/concept.hpp"

#include <catch2/catch.hpp>
#include <cstddef>

#include "lockstep/comm/all_reduce.hpp"
#include "lockstep/comm/ring.hpp"

namespace comm = lockstep::comm;

namespace {

/// What a user may write: everything to rank 0.
struct funnel {
    static constexpr const char* name = "funnel";
    static constexpr bool invariant = false;
    comm::schedule operator()(std::size_t rank, std::size_t ranks, std::size_t n) const {
        comm::schedule out{name, invariant};
        if (rank > 0) out.send(0, comm::in_data(0, n));
        for (std::size_t other = 1; rank == 0 && other < ranks; ++other) out.receive(other, comm::in_work(other * n, n));
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

TEST_CASE("comm/concept: what is a collective", "[comm]") {
    STATIC_REQUIRE(comm::Collective<funnel, std::size_t>);
    STATIC_REQUIRE_FALSE(comm::AllReduce<funnel>);
    STATIC_REQUIRE_FALSE(comm::Collective<no_schedule, std::size_t>);
    STATIC_REQUIRE(comm::AllReduce<comm::tree_all_reduce>);
    STATIC_REQUIRE(comm::AllReduce<comm::ring_all_reduce>);
    STATIC_REQUIRE(comm::tree_all_reduce::invariant);
    STATIC_REQUIRE_FALSE(comm::ring_all_reduce::invariant);
    CHECK(funnel{}(1, 2, 5).sent() == comm::traffic{1, 5});
}
