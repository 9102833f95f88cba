// SPDX-License-Identifier: BSD-3-Clause
// ranks: 2 3
// Memory that MPI uses is never given back and never lies on the stack, whatever is thrown: calls of MPI, of operator
// delete and of munmap are watched.
#include <malloc.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/node/shared_window.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;

namespace {

/// Messages that MPI has been given and has not finished. One that is given up stays for ever.
struct in_use {
    MPI_Request request;
    std::uintptr_t first, last;
};
std::array<in_use, 4096> used;
std::size_t count = 0, given_up = 0, freed = 0, on_stack = 0;
std::uintptr_t stack_base = 0;

void begin(const void* data, int bytes, MPI_Request request) {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    const char here = 0;
    if (reinterpret_cast<std::uintptr_t>(&here) < first && first < stack_base) ++on_stack;
    if (count < used.size()) used[count++] = {request, first, first + static_cast<std::uintptr_t>(bytes)};
}
void end(MPI_Request request) {
    for (std::size_t i = 0; i < count; ++i)
        if (used[i].request == request) used[i--] = used[--count];
}
/// What became of requests that a call has tested.
template <class F>
int tested(int n, MPI_Request* all, F&& call) {
    std::array<MPI_Request, 1024> before{};
    std::copy_n(all, n, before.begin());
    const int code = call();
    for (int i = 0; i < n; ++i)
        if (before[static_cast<std::size_t>(i)] != MPI_REQUEST_NULL && all[i] == MPI_REQUEST_NULL)
            end(before[static_cast<std::size_t>(i)]);
    return code;
}

void count_freed(const void* memory, std::size_t bytes) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(memory), last = first + bytes;
    for (std::size_t i = 0; i < count; ++i) freed += used[i].first < last && first < used[i].last;
}
// Not inlined: the compiler would find new and free() in one place.
[[gnu::noinline]] void* find(std::size_t bytes) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
[[gnu::noinline]] void release(void* memory) noexcept {
    count_freed(memory, memory == nullptr ? 0 : ::malloc_usable_size(memory));
    std::free(memory);
}

}  // namespace

extern "C" {
int munmap(void* memory, std::size_t bytes) noexcept {
    count_freed(memory, bytes);
    return static_cast<int>(::syscall(SYS_munmap, memory, bytes));
}
int MPI_Isend(const void* data, int bytes, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* out) {
    const int code = PMPI_Isend(data, bytes, type, to, tag, over, out);
    return begin(data, bytes, *out), code;
}
int MPI_Issend(const void* data, int bytes, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* out) {
    const int code = PMPI_Issend(data, bytes, type, to, tag, over, out);
    return begin(data, bytes, *out), code;
}
int MPI_Irecv(void* data, int bytes, MPI_Datatype type, int from, int tag, MPI_Comm over, MPI_Request* out) {
    const int code = PMPI_Irecv(data, bytes, type, from, tag, over, out);
    return begin(data, bytes, *out), code;
}
int MPI_Test(MPI_Request* one, int* done, MPI_Status* status) {
    return tested(1, one, [&] { return PMPI_Test(one, done, status); });
}
int MPI_Testall(int n, MPI_Request* all, int* done, MPI_Status* statuses) {
    return tested(n, all, [&] { return PMPI_Testall(n, all, done, statuses); });
}
int MPI_Testsome(int n, MPI_Request* all, int* done, int* which, MPI_Status* statuses) {
    return tested(n, all, [&] { return PMPI_Testsome(n, all, done, which, statuses); });
}
int MPI_Request_free(MPI_Request* one) {
    for (std::size_t i = 0; i < count; ++i)
        if (used[i].request == *one) used[i].request = MPI_REQUEST_NULL, ++given_up;
    return PMPI_Request_free(one);
}
}

void* operator new(std::size_t bytes) {
    void* const memory = find(bytes);
    if (memory == nullptr) throw std::bad_alloc{};
    return memory;
}
// The others too: that of a sanitizer would not be a match.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return find(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }

namespace {

/// Calls f(ranks) on all ranks. The last one comes when the others have given up: after 0.3 s without it.
template <class F>
void come_late(F&& f) {
    const char base = 0;
    stack_base = reinterpret_cast<std::uintptr_t>(&base);
    const comm::group survivors{boost::mpi::communicator{}};
    count = given_up = freed = on_stack = 0;
    std::size_t failed = 0;
    {
        std::optional<comm::group> ranks{comm::group{boost::mpi::communicator{}}};
        ranks->aborts().set_timeout(std::chrono::milliseconds{300});
        if (ranks->rank() + 1 == ranks->size()) std::this_thread::sleep_for(std::chrono::milliseconds{1500});
        try {
            f(*ranks);
        } catch (const lockstep::core::error&) {
            failed = 1;
        }
        (void)survivors.gather_all(failed);
    }
    CHECK(freed == 0);
    CHECK(on_stack == 0);
    // MPI has really been left with something.
    std::size_t failures = 0, left = 0;
    for (const std::size_t one : survivors.gather_all(failed)) failures += one;
    for (const std::size_t one : survivors.gather_all(given_up)) left += one;
    CHECK(failures > 0);
    CHECK(left > 0);
}

constexpr std::size_t n = std::size_t{1} << 18;

}  // namespace

TEST_CASE("training/message_memory: a schedule over an array of the caller", "[comm]") {
    come_late([](const comm::group& ranks) {
        std::vector<float> data(ranks.size() * n, 1.0F);
        comm::run<float>(ranks, collectives::all_gather(ranks.rank(), collectives::equal_strips(ranks.size(), n)),
                         std::span{data});
    });
}

TEST_CASE("training/message_memory: a schedule over a buffer", "[comm]") {
    come_late([](const comm::group& ranks) {
        comm::buffer<float> data(ranks.size() * n, 1.0F);
        comm::run<float>(ranks, collectives::all_gather(ranks.rank(), collectives::equal_strips(ranks.size(), n)),
                         data);
    });
}

TEST_CASE("training/message_memory: an operation that is destroyed while it is under way", "[comm]") {
    come_late([](const comm::group& ranks) {
        {
            comm::buffer<float> data(ranks.size() * n, 1.0F);
            comm::operation<float> gather{
                ranks, collectives::all_gather(ranks.rank(), collectives::equal_strips(ranks.size(), n))};
            if (ranks.rank() == 0) gather.start(data, {});
        }
        (void)ranks.gather_all(1);
    });
}

TEST_CASE("training/message_memory: arrays that ranks share, and give back", "[comm]") {
    std::optional<lockstep::node::shared_window> window;
    const std::size_t ranks = static_cast<std::size_t>(boost::mpi::communicator{}.size());
    window.emplace(comm::group{boost::mpi::communicator{}}, ranks * n * sizeof(float));
    const auto data = window->memory().reserve<float>(ranks * n);
    come_late([&](const comm::group& all) {
        struct give_back {
            std::optional<lockstep::node::shared_window>& what;
            ~give_back() { what.reset(); }
        } last{window};
        comm::operation<float> gather{all,
                                      collectives::all_gather(all.rank(), collectives::equal_strips(all.size(), n))};
        gather.run(window->memory().mine(data), {});
    });
}

TEST_CASE("training/message_memory: values of all ranks, and longer ones", "[comm]") {
    come_late([](const comm::group& ranks) { (void)ranks.gather_all(std::array<char, 100'000>{}); });
}
