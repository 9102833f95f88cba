// SPDX-License-Identifier: BSD-3-Clause
// A group made of MPI's own handle, as a program in C has it: duplicated, and still the program's afterwards.
#include <mpi.h>

#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <limits>
#include <source_location>
#include <vector>

#include "lockstep/comm/group.hpp"

namespace comm = lockstep::comm;

TEST_CASE("comm/raw: a group of an MPI_Comm", "[comm]") {
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm turned = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &turned);
    {
        const comm::group group{turned};
        CHECK(group.size() == static_cast<std::size_t>(ranks));
        CHECK(group.rank() == static_cast<std::size_t>(ranks - 1 - rank));
        CHECK(group.over().communicator() != turned);
        const auto found =
            comm::make_group(turned, std::source_location::current(), comm::default_timeout()).gather_all(rank);
        for (int place = 0; place < ranks; ++place) CHECK(found[static_cast<std::size_t>(place)] == ranks - 1 - place);
    }
    // The program goes on with it, and frees it itself.
    int sum = 0;
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, turned) == MPI_SUCCESS);
    CHECK(sum == ranks * (ranks - 1) / 2);
    CHECK(MPI_Comm_free(&turned) == MPI_SUCCESS);
}

TEST_CASE("comm/raw: a rank that does not belong to the communicator is told so", "[comm]") {
    CHECK_THROWS_WITH(comm::group{MPI_COMM_NULL}, Catch::Contains("a communicator that this rank does not belong to"));
}

TEST_CASE("comm/raw: a time to wait that is none is refused", "[comm]") {
    const boost::mpi::communicator world;
    for (const double seconds :
         {-1.0, std::numeric_limits<double>::quiet_NaN(), 1e9, std::numeric_limits<double>::infinity()})
        CHECK_THROWS_WITH(
            (comm::group{world, std::source_location::current(), std::chrono::duration<double>{seconds}}),
            Catch::Contains("the timeout is ") && Catch::Contains("below 1e9 s, or to 0 to wait for ever"));
    CHECK(comm::group{world, std::source_location::current(), std::chrono::seconds{0}}.gather_all(1).size() ==
          static_cast<std::size_t>(world.size()));
}
