// SPDX-License-Identifier: BSD-3-Clause
// Cases that must fail: they show that the main program of the MPI tests reports a failure on any rank, and a deadlock.
#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <stdexcept>

TEST_CASE("harness: one rank fails", "[.one_rank_fails]") {
    const boost::mpi::communicator world;
    const int rank = world.rank();
    CHECK(rank != 1);
}

TEST_CASE("harness: one rank throws", "[.one_rank_throws]") {
    const boost::mpi::communicator world;
    if (world.rank() == 1) throw std::runtime_error{"thrown on rank 1"};
}

TEST_CASE("harness: one rank waits for ever", "[.deadlock]") {
    const boost::mpi::communicator world;
    if (world.rank() == 1) world.recv(0, 7);
}

TEST_CASE("harness: one rank crashes", "[.crash]") {
    const boost::mpi::communicator world;
    if (world.rank() == 1) std::raise(SIGSEGV);
}

TEST_CASE("harness: all ranks agree", "[agree]") {
    const boost::mpi::communicator world;
    CHECK(boost::mpi::all_reduce(world, 1, std::plus<int>{}) == world.size());
}
