// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The frame of a program of its own: starts MPI, runs a function on all ranks, and ends the whole job in seconds when one of them fails.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

namespace detail {

/// How a rank's function ended.
enum class ending : std::size_t { well, failed, heard_of_a_failure };

/// Waits until all ranks have come here with their ending, at most 2 s where this one has failed, 4 s where it has heard of it: who failed says why.
class meeting {
public:
    meeting(const group& ranks)
        : endings_(ranks.size()), gather_{ranks, all_gather(ranks.rank(), strips(ranks.size()))}, rank_{ranks.rank()} {}

    /// False if somebody does not come.
    [[nodiscard]] bool wait(ending mine) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{mine == ending::failed ? 2 : 4};
        endings_[rank_] = static_cast<std::size_t>(mine);
        gather_.start(endings_, {});
        while (!gather_.poll()) {
            if (mine != ending::well && std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::yield();
        }
        return true;
    }
    /// The lowest rank that failed by itself, or the number of ranks.
    [[nodiscard]] std::size_t first_failed() const noexcept {
        std::size_t rank = 0;
        while (rank < endings_.size() && endings_[rank] != static_cast<std::size_t>(ending::failed)) ++rank;
        return rank;
    }

private:
    static std::vector<parallel::block> strips(std::size_t ranks) {
        std::vector<parallel::block> out;
        for (std::size_t rank = 0; rank < ranks; ++rank) out.push_back({rank, rank + 1});
        return out;
    }
    std::vector<std::size_t> endings_;
    operation<std::size_t> gather_;
    std::size_t rank_;
};

}  // namespace detail

/// int main(int argc, char** argv) { return ls::program(argc, argv, [](const mpi::communicator& world) { ..; return 0; }); }
/// `f(world)` runs on every rank with MPI at `threading::funneled`. Returns what f returned, or 1 on every rank if f threw on any. The error is
/// printed once, on stderr, in a line that begins with "lockstep:". Ranks that do not come to the end within 2 s after a failure are ended
/// with MPI_Abort: no failure hangs. Inside somebody else's program this is not needed: errors are ordinary exceptions there.
template <class F>
[[nodiscard]] int program(int argc, char** argv, F&& f) {
    boost::mpi::environment environment{argc, argv, boost::mpi::threading::funneled};
    const boost::mpi::communicator world;
    // A group of its own: notices of failure that others exchange do not disturb the meeting.
    detail::meeting meeting{group{world}};
    detail::ending ending = detail::ending::well;
    std::string why;
    int code = 0;
    try {
        code = std::forward<F>(f)(world);
    } catch (const remote_failure& failure) {
        ending = detail::ending::heard_of_a_failure;
        why = failure.what();
    } catch (const core::error& failure) {
        ending = detail::ending::failed;
        why = failure.what();
    } catch (const std::exception& failure) {
        ending = detail::ending::failed;
        why = core::text("rank ", world.rank(), " of ", world.size(), " failed: ", failure.what());
    } catch (...) {
        ending = detail::ending::failed;
        why = core::text("rank ", world.rank(), " of ", world.size(), " failed with an exception that is no std::exception");
    }
    const auto print = [&] {
        constexpr std::string_view head = "lockstep: ";
        if (why.compare(0, head.size(), head) != 0) why.insert(0, head);
        std::fprintf(stderr, "%s\n", why.c_str());
        std::fflush(stderr);
    };
    if (!meeting.wait(ending)) {
        if (ending == detail::ending::failed) print();
        std::fflush(nullptr);
        boost::mpi::environment::abort(1);
    }
    if (meeting.first_failed() == static_cast<std::size_t>(world.rank())) print();
    return meeting.first_failed() == static_cast<std::size_t>(world.size()) ? code : 1;
}

}  // namespace lockstep::comm

namespace lockstep {
using comm::program;
}  // namespace lockstep
