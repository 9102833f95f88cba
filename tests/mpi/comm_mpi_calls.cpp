// SPDX-License-Identifier: BSD-3-Clause
// Calls of MPI fail here when they are told to, hosts are where they are said to be, and communicators are counted.
#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/node/shared_window.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace node = lockstep::node;
namespace core = lockstep::core;

namespace {

/// The next call of this name fails on this rank, a message if it has so many bytes. One in `status` ends well but for
/// one of its messages.
struct fault {
    std::string_view call;
    int bytes = 0;
    bool in_status = false;
};
fault next;
constexpr int code_of_fault = MPI_ERR_NO_MEM;

bool strikes(std::string_view call, int bytes = 0) {
    if (next.call != call || next.bytes != bytes || next.in_status) return false;
    next = {};
    return true;
}

int finish(std::string_view call, int code, bool any, MPI_Status* first) {
    if (next.call != call || !next.in_status || code != MPI_SUCCESS || !any) return code;
    next = {};
    first->MPI_ERROR = code_of_fault;
    return MPI_ERR_IN_STATUS;
}

int level = -1;             ///< of threads; below 0: MPI's own
bool hosts_of_one = false;  ///< that share no memory, and all have one name
int communicators = 0;      ///< that were made here and not freed

std::string words() {
    char out[MPI_MAX_ERROR_STRING];
    int size = 0;
    MPI_Error_string(code_of_fault, out, &size);
    return {out, static_cast<std::size_t>(size)};
}

}  // namespace

extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* out) {
    return strikes("MPI_Isend", count) ? code_of_fault : PMPI_Isend(data, count, type, to, tag, over, out);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm over, MPI_Request* out) {
    return strikes("MPI_Irecv", count) ? code_of_fault : PMPI_Irecv(data, count, type, from, tag, over, out);
}
int MPI_Testsome(int count, MPI_Request* all, int* done, int* which, MPI_Status* statuses) {
    if (strikes("MPI_Testsome")) return code_of_fault;
    const int code = PMPI_Testsome(count, all, done, which, statuses);
    for (int i = 0; i < *done; ++i) statuses[i].MPI_ERROR = MPI_SUCCESS;
    return finish("MPI_Testsome", code, *done > 0, statuses);
}
/// A collective of setup tests two requests, a message of the watch one.
int MPI_Testall(int count, MPI_Request* all, int* done, MPI_Status* statuses) {
    if (strikes("MPI_Testall")) return code_of_fault;
    const int code = PMPI_Testall(count, all, done, statuses);
    const bool any = *done != 0 && count == 2 && statuses != MPI_STATUSES_IGNORE;
    for (int i = 0; any && i < count; ++i) statuses[i].MPI_ERROR = MPI_SUCCESS;
    return finish("MPI_Testall", code, any, statuses);
}
int MPI_Comm_idup(MPI_Comm of, MPI_Comm* out, MPI_Request* request) {
    ++communicators;
    return strikes("MPI_Comm_idup") ? code_of_fault : PMPI_Comm_idup(of, out, request);
}
int MPI_Comm_dup(MPI_Comm of, MPI_Comm* out) { return ++communicators, PMPI_Comm_dup(of, out); }
int MPI_Comm_split(MPI_Comm of, int color, int key, MPI_Comm* out) {
    return ++communicators, PMPI_Comm_split(of, color, key, out);
}
int MPI_Comm_split_type(MPI_Comm of, int type, int key, MPI_Info info, MPI_Comm* out) {
    int rank = 0;
    MPI_Comm_rank(of, &rank);
    ++communicators;
    const int code =
        hosts_of_one ? PMPI_Comm_split(of, rank, key, out) : PMPI_Comm_split_type(of, type, key, info, out);
    // Fails after the call: the other ranks are in it.
    return strikes("MPI_Comm_split_type") ? code_of_fault : code;
}
int MPI_Query_thread(int* out) {
    const int code = PMPI_Query_thread(out);
    if (level >= 0) *out = level;
    return code;
}
int MPI_Comm_free(MPI_Comm* one) { return --communicators, PMPI_Comm_free(one); }
}

namespace {

/// What each rank throws; empty: nothing.
template <class F>
std::vector<std::string> texts(const comm::group& survivors, F&& f) {
    std::string text;
    try {
        f();
    } catch (const core::error& failure) {
        text = failure.what();
    }
    next = {};
    return survivors.gather_all(std::string_view{text});
}

/// One message from rank 0 to rank 1. MPI may still read or write the numbers after a failure.
constexpr std::size_t numbers = 4000;
float buffer[numbers];

std::vector<std::string> one_message(const comm::group& survivors, const fault& on_sender, const fault& on_receiver) {
    const comm::group ranks{boost::mpi::communicator{}};
    collectives::schedule program{"a message", true};
    if (ranks.rank() == 0) program.send(1, collectives::in_data(0, numbers));
    if (ranks.rank() == 1) program.receive(0, collectives::in_data(0, numbers));
    program.end_round();
    comm::operation<float> once{ranks, program};
    if (ranks.rank() == 0) next = on_sender;
    if (ranks.rank() == 1) next = on_receiver;
    return texts(survivors, [&] {
        once.run(buffer, {});
        // The others hear of it while they wait for something else.
        if (ranks.gather_all(0).empty()) return;
    });
}

}  // namespace

TEST_CASE("comm/mpi_calls: a message that MPI does not send or receive is an error on all ranks", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    const int bytes = numbers * sizeof(float);
    const std::string on_sender = "rank 0 cannot send 16000 bytes to rank 1 in a message #1 at comm_mpi_calls.cpp:";
    const std::string on_receiver =
        "rank 1 cannot receive 16000 bytes from rank 0 in a message #1 at comm_mpi_calls.cpp:";
    struct example {
        fault sender, receiver;
        std::string text;
    };
    for (const example& one :
         {example{{"MPI_Isend", bytes}, {}, on_sender}, example{{}, {"MPI_Irecv", bytes}, on_receiver},
          example{{"MPI_Testsome"}, {}, on_sender}, example{{}, {"MPI_Testsome"}, on_receiver},
          example{{"MPI_Testsome", 0, true}, {}, on_sender}, example{{}, {"MPI_Testsome", 0, true}, on_receiver}}) {
        const auto all = one_message(survivors, one.sender, one.receiver);
        const std::size_t bad = one.sender.call.empty() ? 1 : 0;
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            CHECK_THAT(all[rank],
                       Catch::Matchers::Contains("lockstep: " + one.text) && Catch::Matchers::Contains(words()));
            CHECK((all[rank].find("lockstep: " + one.text) == 0) == (rank == bad));
        }
    }
}

TEST_CASE("comm/mpi_calls: so is one of setup", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    for (const fault& one :
         {fault{"MPI_Isend", 24}, fault{"MPI_Irecv", 24}, fault{"MPI_Testall"}, fault{"MPI_Testall", 0, true}}) {
        const comm::group ranks{boost::mpi::communicator{}};
        struct value {
            char letters[24];
        };
        if (ranks.rank() == 0) next = one;
        const auto all = texts(survivors, [&] {
            (void)ranks.gather_all(value{});
            (void)ranks.gather_all(value{});
        });
        CHECK_THAT(all[0], Catch::Matchers::StartsWith("lockstep: rank 0 cannot ") &&
                               Catch::Matchers::Contains(" 24 bytes ") &&
                               Catch::Matchers::Contains(" in setup #1 at comm_mpi_calls.cpp:") &&
                               Catch::Matchers::Contains(words()));
        for (std::size_t rank = 1; rank < all.size(); ++rank)
            CHECK_THAT(all[rank], Catch::Matchers::Contains("rank 0: " + all[0]));
    }
}

TEST_CASE("comm/mpi_calls: a group that MPI cannot make is refused with its words", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    next = {"MPI_Comm_idup"};
    const auto all = texts(survivors, [] { const comm::group ranks{boost::mpi::communicator{}}; });
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        CHECK_THAT(all[rank], Catch::Matchers::StartsWith(core::text("lockstep: MPI_Comm_idup failed on rank ", rank,
                                                                     " of MPI_COMM_WORLD: ")) &&
                                  Catch::Matchers::Contains(words()));
}

TEST_CASE("comm/mpi_calls: groups on communicators that are made again and again give all of theirs back", "[comm]") {
    const boost::mpi::communicator world;
    const auto use = [&](const boost::mpi::communicator& one) {
        const comm::group ranks{one};
        CHECK(ranks.gather_all(1).size() == ranks.size());
        CHECK(ranks.split(ranks.rank() % 2, 0).gather_all(1).size() <= ranks.size());
    };
    int before = 0;
    for (int round = 0; round < 30; ++round) {
        use(boost::mpi::communicator{world, boost::mpi::comm_duplicate});
        use(world.split(0, world.size() - world.rank()));  // in another order
        if (round == 0) before = communicators;
    }
    CHECK(communicators == before);
}

TEST_CASE("comm/mpi_calls: hosts are told apart by the memory that they share, not by their names", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    hosts_of_one = true;
    const auto apart = ranks.hosts();
    const bool one_node = node::on_one_node(ranks);
    hosts_of_one = false;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) CHECK(apart[rank] == rank);
    CHECK(one_node == (ranks.size() == 1));
    // Also in a part of the ranks, which has numbers of its own.
    const auto part = ranks.split(0, ranks.size() - ranks.rank());
    const auto together = part.hosts();
    CHECK(std::all_of(together.begin(), together.end(), [&](std::size_t one) { return one == together[0]; }) ==
          node::on_one_node(part));
    for (std::size_t rank = 0; rank < part.size(); ++rank)
        CHECK((together[rank] <= rank && together[together[rank]] == together[rank]));
}

TEST_CASE("comm/mpi_calls: where MPI does not tell one rank who shares its memory, all ranks are told", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}}, ranks{boost::mpi::communicator{}};
    if (ranks.rank() + 1 == ranks.size()) next = {"MPI_Comm_split_type"};
    const auto all = texts(survivors, [&] { (void)node::on_one_node(ranks); });
    for (const std::string& one : all)
        CHECK_THAT(one, Catch::Matchers::StartsWith(core::text("lockstep: MPI does not tell rank ", ranks.size() - 1,
                                                               " which ranks share its memory; ")));
}

TEST_CASE("comm/mpi_calls: threads that MPI does not permit are refused", "[comm]") {
    const auto refused = [](int permitted, comm::thread_use needed) {
        level = permitted;
        std::string out;
        try {
            comm::require_threads(needed, "a test asks for a thread", "do without");
        } catch (const core::error& failure) {
            out = failure.what();
        }
        level = -1;
        return out;
    };
    using enum comm::thread_use;
    CHECK_THAT(refused(MPI_THREAD_SINGLE, beside),
               Catch::Matchers::StartsWith(
                   "lockstep: a test asks for a thread, which needs MPI at MPI_THREAD_FUNNELED, and MPI runs at "
                   "MPI_THREAD_SINGLE; ") &&
                   Catch::Matchers::Contains("threading::funneled") && Catch::Matchers::EndsWith("or do without"));
    for (const int permitted : {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED})
        CHECK_THAT(refused(permitted, by_turns), Catch::Matchers::Contains("needs MPI at MPI_THREAD_SERIALIZED") &&
                                                     Catch::Matchers::Contains("threading::serialized"));
    for (const int permitted : {MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE})
        CHECK(refused(permitted, beside).empty());
    for (const int permitted : {MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE})
        CHECK(refused(permitted, by_turns).empty());
}
