// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The frame of a program of its own: starts MPI, runs a function on all ranks, and ends the whole job in seconds when one of them fails.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <new>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/all_gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"

namespace lockstep::comm {

namespace detail {

/// How a rank's function ended.
enum class ending : std::size_t { well, failed, gave_up, heard_of_a_failure };

/// Waits until all ranks have come here with their ending, at most 2 s where this one has failed, 1 s where it has
/// given up waiting (and a quarter more for each rank below it, up to 2 s), 4 s where it has heard of either: who failed says why.
class meeting {
public:
    meeting(const group& ranks);

    /// False if somebody does not come.
    [[nodiscard]] bool wait(ending mine);
    /// The lowest rank that failed by itself, or else gave up, or else heard of a failure, or else the number of ranks.
    [[nodiscard]] std::size_t first_failed() const noexcept;

private:
    [[nodiscard]] std::size_t first(ending one) const noexcept {
        return static_cast<std::size_t>(std::find(endings_.begin(), endings_.end(), static_cast<std::size_t>(one)) - endings_.begin());
    }
    group ranks_;
    std::vector<std::size_t> endings_;
    operation<std::size_t> gather_;
    std::size_t rank_;
};

/// What a rank says when it is told to end because another has gone: `mpirun` sends SIGTERM to all when one was killed.
class last_words {
public:
    [[gnu::cold]] explicit last_words(const group& ranks) {
        if (ranks.notices().watched_by() == nullptr) return;
        speaker() = ranks.notices().watched_by().get();
        struct sigaction before {};
        ::sigaction(SIGTERM, nullptr, &before);
        if (before.sa_handler == SIG_DFL) std::signal(SIGTERM, &last_words::say);
    }
    last_words(const last_words&) = delete;
    last_words& operator=(const last_words&) = delete;
    ~last_words() { silence(); }
    /// What was to be said is said elsewhere.
    static void silence() noexcept { speaker() = nullptr; }

private:
    [[gnu::cold]] static void say(int number) {
        if (const watch* const from = speaker(); from != nullptr) {
            short_line line;
            from->describe_end(line);
            [[maybe_unused]] const auto written = ::write(2, line.text().data(), line.text().size());
        }
        std::signal(number, SIG_DFL);
        std::raise(number);
    }
    [[nodiscard]] static const watch*& speaker() noexcept {
        static const watch* by = nullptr;
        return by;
    }
};

}  // namespace detail

/// int main(int argc, char** argv) { return ls::program(argc, argv, [](const mpi::communicator& world) { ..; return 0; }); }
/// `f(world)` runs on every rank, with MPI at `level`. Returns what f returned, or 1 on every rank if f threw on any. The error is
/// printed once, on stderr, in a line that begins with "lockstep:". Ranks that do not come to the end within 2 s after a failure are
/// ended with MPI_Abort: no failure hangs. Standard output that could not be written, and files that pass the limit of their size
/// (SIGXFSZ), are failures, too. A rank that is told to end (SIGTERM) says where it is. Inside somebody else's program this is
/// not needed: errors are ordinary exceptions there.
template <class F>
[[nodiscard]] int program(int argc, char** argv, F&& f, boost::mpi::threading::level level = boost::mpi::threading::funneled) {
    boost::mpi::environment environment{argc, argv, level};
    const boost::mpi::communicator world;
    // A group of its own: notices of failure that others exchange do not disturb the meeting.
    const group ranks{world};
    detail::meeting meeting{ranks};
    const detail::last_words words{ranks};
    detail::ending ending = detail::ending::well;
    std::string why;
    int code = 0;
    const core::file_size_limit_is_an_error limit;
    try {
        try {
            code = std::forward<F>(f)(world);
            core::flush_standard_output();
        } catch (const std::bad_alloc&) {
            core::rethrow();
        }
    } catch (const remote_failure& failure) {
        ending = detail::ending::heard_of_a_failure;
        why = failure.what();
    } catch (const stalled& failure) {
        ending = detail::ending::gave_up;
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
        std::string place;  // of a failure that does not tell it
        if (const auto& by = ranks.notices().watched_by(); by != nullptr && !by->failed_at().empty() && ending == detail::ending::failed)
            place = core::text("    on rank ", ranks.rank(), ": ", by->failed_at(), "\n");
        std::fprintf(stderr, "%s\n%s", why.c_str(), place.c_str());
        std::fflush(stderr);
    };
    if (ending != detail::ending::well) words.silence();
    const auto all_come = [&] {
        try {
            return meeting.wait(ending);
        } catch (const core::error& failure) {  // from MPI
            if (ending == detail::ending::well) why = failure.what(), ending = detail::ending::failed;
            return false;
        }
    };
    if (!all_come()) {
        if (ending != detail::ending::heard_of_a_failure) print();
        std::fflush(nullptr);
        ::alarm(3);  // where MPI has lost the others, it may not get that far
        boost::mpi::environment::abort(1);
    }
    if (meeting.first_failed() == static_cast<std::size_t>(world.rank())) print();
    return meeting.first_failed() == static_cast<std::size_t>(world.size()) ? code : 1;
}

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION meeting::meeting(const group& ranks)
    : ranks_{ranks},
      endings_(ranks.size()),
      gather_{ranks.named("endings"), all_gather(ranks.rank(), equal_strips(ranks.size(), 1))},
      rank_{ranks.rank()} {
    ranks.notices().set_timeout(std::chrono::seconds{0});  // a rank may have work of its own for as long as it likes
}

LOCKSTEP_FUNCTION bool meeting::wait(ending mine) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{mine == ending::heard_of_a_failure ? 4
                                                                            : mine == ending::failed           ? 2
                                                                                                               : 1};
    // Ranks that give up at the same time, without a group yet in which one could tell the others: the lowest one speaks, and ends the job.
    if (mine == ending::gave_up) deadline += std::min<std::size_t>(rank_, 4) * std::chrono::milliseconds{250};
    endings_[rank_] = static_cast<std::size_t>(mine);
    gather_.start(endings_, {});
    collective place = gather_.what();
    place.kind = short_name{"at the end of the program"};
    place.what = {};
    place.where = {};
    place.unit = "";
    for (patience waiting{awaited{&place, &ranks_.record()}}; !gather_.poll(); waiting.wait(ranks_.notices())) {
        if (mine != ending::well && std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::yield();
    }
    return true;
}

LOCKSTEP_FUNCTION std::size_t meeting::first_failed() const noexcept {
    for (const ending how : {ending::failed, ending::gave_up, ending::heard_of_a_failure})
        if (const std::size_t rank = first(how); rank < endings_.size()) return rank;
    return endings_.size();
}

}  // namespace detail

#endif

}  // namespace lockstep::comm

namespace lockstep {
using comm::program;
}  // namespace lockstep
