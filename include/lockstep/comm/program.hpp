// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The frame of a program of its own: starts MPI, runs a function on all ranks, and ends the whole job in seconds when
// one of them fails.
// Tested by tests/failing_runs/program.cpp.

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/stop_request.hpp"

namespace lockstep::comm {

namespace detail {

/// How a rank's function ended.
enum class ending : std::size_t { well, failed, gave_up, heard_of_a_failure };

/// Waits until all ranks have come here with their ending, at most 1 s where this one has failed, a quarter longer
/// where it has given up waiting, which it may have because another has failed, 6 s where it has heard of either: the
/// rank that failed says why. Of ranks that give up or have heard, each waits a quarter more for each rank below it, up
/// to 1 s, and the first whose time is over tells the others that it speaks: wait() throws remote_failure there.
class final_agreement {
public:
    final_agreement(const group& ranks);

    /// False if a rank does not come.
    [[nodiscard]] bool wait(ending mine, int code);
    /// 128 + signal where a run of any rank was told to end; 0: none was.
    [[nodiscard]] int stopped() const noexcept {
        std::size_t out = 0;
        for (const std::size_t one : endings_) out = std::max(out, one / codes);
        return static_cast<int>(out);
    }
    /// The lowest rank that failed by itself, or else gave up, or else heard of a failure, or else the number of ranks.
    [[nodiscard]] std::size_t first_failed() const noexcept;

private:
    [[nodiscard]] std::size_t first(ending how) const noexcept {
        const auto is = [&](std::size_t one) { return one % codes == static_cast<std::size_t>(how); };
        return static_cast<std::size_t>(std::find_if(endings_.begin(), endings_.end(), is) - endings_.begin());
    }
    static constexpr std::size_t codes = 16;  ///< an ending + so many times the exit code of one that was told to end
    group ranks_;
    buffer<std::size_t> endings_;
    operation<std::size_t> gather_;
    std::size_t rank_;
};

/// Signals that ask a program to end. A run stops after its step (core/stop_request.hpp). Where none listens, the rank
/// says where it is and goes. Where a step takes long it says so and stays, for it may wait for a rank that is busy:
/// `mpirun` sends SIGTERM to all when one was killed, and a second later ends them. A second SIGTERM ends it as well,
/// where the step is late or 5 s have passed.
class last_words {
    static constexpr int numbers[] = {SIGTERM, SIGINT, SIGUSR1};

public:
    [[gnu::cold]] explicit last_words(const group& ranks) {
        speaker() = ranks.aborts().watched_by().get();
        for (const int number : numbers) handle(number, &last_words::ask);
    }
    last_words(const last_words&) = delete;
    last_words& operator=(const last_words&) = delete;
    ~last_words() { silence(); }
    /// What was to be said is said elsewhere.
    static void silence() noexcept { speaker() = nullptr; }
    /// Signals do what they did before. Declared before MPI begins: until MPI has ended, a rank that is done ignores
    /// them, or a job that has come to its end would be taken for one that was stopped.
    struct given_back {
        given_back() = default;
        given_back(const given_back&) = delete;
        given_back& operator=(const given_back&) = delete;
        [[gnu::cold]] ~given_back() {
            for (const int number : numbers) {
                struct sigaction now {};
                if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == &last_words::ask)
                    std::signal(number, SIG_DFL);
            }
        }
    };

private:
    /// Whether the signal is handled so: not what the application handles, or what its parent has told it to ignore.
    [[gnu::cold]] static bool handle(int number, void (*by)(int)) noexcept {
        struct sigaction before {};
        ::sigaction(number, nullptr, &before);
        if (before.sa_handler != SIG_DFL) return before.sa_handler == by;
        struct sigaction next {};
        next.sa_handler = by;
        next.sa_flags = SA_RESTART;
        return ::sigaction(number, &next, nullptr) == 0;
    }
    [[gnu::cold]] static void ask(int number) {
        const int reason = errno;
        using request = core::stop_request;
        // SIGTERM may come twice at once, from mpirun and from the system that has started it.
        const bool again =
            number == request::signal() &&
            (number == SIGINT || (number == SIGTERM && (request::is_late() || request::is_older_than(5))));
        if (again || !(request::is_heard() || request::is_stopping())) return say(number);
        request::ask(number);
        if (number == SIGTERM && !request::is_stopping()) look_soon();
        errno = reason;
    }
    [[gnu::cold]] static void look(int) {
        const int reason = errno;
        if (core::stop_request::is_heard()) core::stop_request::is_late() ? describe() : look_soon();
        errno = reason;
    }
    /// Not where the application has an alarm of its own.
    static void look_soon() noexcept {
        itimerval under_way{};
        const bool is_free = ::getitimer(ITIMER_REAL, &under_way) == 0 && under_way.it_value.tv_sec == 0 &&
                             under_way.it_value.tv_usec == 0;
        if (!is_free || !handle(SIGALRM, &last_words::look)) return;
        const itimerval tenth{{0, 0}, {0, 100'000}};
        ::setitimer(ITIMER_REAL, &tenth, nullptr);
    }
    /// Once: a run that goes on, or is ended later, has said it.
    [[gnu::cold]] static void describe() {
        if (const watch* const from = speaker(); from != nullptr) {
            short_line line;
            from->describe_end(line);
            [[maybe_unused]] const auto written = ::write(2, line.text().data(), line.text().size());
        }
        silence();
    }
    [[gnu::cold]] static void say(int number) {
        describe();
        std::signal(number, SIG_DFL);
        std::raise(number);
    }
    [[nodiscard]] static const watch*& speaker() noexcept {
        static const watch* by = nullptr;
        return by;
    }
};

/// What ended a rank's part of a program, if not its return. Needs no memory: there may be none left.
class outcome {
public:
    explicit outcome(std::exception_ptr why = nullptr) noexcept;

    [[nodiscard]] ending how() const noexcept { return how_; }
    /// In a line that begins with "lockstep:". `by`: knows the call site of a failure that does not tell it. size 0:
    /// MPI has not begun.
    void print(int rank, int size, const watch* by) const noexcept;

private:
    std::exception_ptr why_;
    ending how_ = ending::well;
};

/// How the ranks of a program agree on its outcome, from the start of MPI to its end.
class session {
public:
    /// Throws what goes wrong at the start.
    explicit session(const boost::mpi::communicator& world) : ranks_{world}, agreement_{ranks_}, words_{ranks_} {}
    /// The exit code on all ranks: `code`, or 1 if any has failed.
    [[nodiscard]] int end(const outcome& mine, int code, bool is_stopped) noexcept;

private:
    group ranks_;  // of its own: aborts of other groups do not disturb the agreement
    final_agreement agreement_;
    last_words words_;
};

[[nodiscard]] int run_program(int argc, char** argv, void* f,
                              int (*call)(void* f, const boost::mpi::communicator& world),
                              boost::mpi::threading::level level) noexcept;

}  // namespace detail

/// int main(int argc, char** argv) { return ls::program(argc, argv, [](const mpi::communicator& world) { ..; return 0;
/// }); } `f(world)` runs on every rank, with MPI at `level`. Returns what f returned, or 1 on every rank if f, or what
/// comes before or after it, failed on any. It throws nothing. The error is printed once, on stderr, in a line that
/// begins with "lockstep:". Ranks that do not come to the end within some seconds after a failure are ended with
/// MPI_Abort: no failure hangs. Standard output that could not be written, and files that pass the limit of their size
/// (SIGXFSZ), are failures, too. A signal that asks for the end (SIGTERM, SIGUSR1, Ctrl-C) stops a fit() after its step
/// on all ranks, and they return 128 + signal; else the rank says where it is and goes. Inside another program this is
/// not needed: errors are ordinary exceptions there.
template <class F>
[[nodiscard]] int program(int argc, char** argv, F&& f,
                          boost::mpi::threading::level level = boost::mpi::threading::funneled) {
    auto run = [&](const boost::mpi::communicator& world) -> int { return std::forward<F>(f)(world); };
    return detail::run_program(
        argc, argv, &run,
        [](void* self, const boost::mpi::communicator& world) { return (*static_cast<decltype(run)*>(self))(world); },
        level);
}

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION final_agreement::final_agreement(const group& ranks)
    : ranks_{ranks},
      endings_(ranks.size()),
      gather_{ranks.named("endings"),
              collectives::all_gather(ranks.rank(), collectives::equal_strips(ranks.size(), 1))},
      rank_{ranks.rank()} {
    ranks.aborts().set_timeout(std::chrono::seconds{0});  // a rank may have work of its own for as long as it likes
}

LOCKSTEP_FUNCTION bool final_agreement::wait(ending mine, int code) {
    auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds{mine == ending::heard_of_a_failure ? 6000
                                                                     : mine == ending::gave_up          ? 1250
                                                                                                        : 1000};
    // Ranks that give up at the same time, without a group yet in which one could tell the others: one speaks, mostly
    // the lowest.
    const bool is_one_of_many = mine == ending::gave_up || mine == ending::heard_of_a_failure;
    if (is_one_of_many) deadline += std::min<std::size_t>(rank_, 4) * std::chrono::milliseconds{250};
    endings_[rank_] = static_cast<std::size_t>(mine) + codes * static_cast<std::size_t>(code);
    gather_.start(endings_, {});
    collective call_site = gather_.what();
    call_site.kind = short_name{"at the end of the program"};
    call_site.what = {};
    call_site.where = {};
    call_site.unit = "";
    for (backoff waiting{pending_operation{&call_site, &ranks_.record()}}; !gather_.poll();
         waiting.wait(ranks_.aborts())) {
        if (mine != ending::well && std::chrono::steady_clock::now() > deadline) {
            ranks_.aborts().check();
            if (is_one_of_many) ranks_.aborts().announce("gave up waiting");
            return false;
        }
    }
    return true;
}

LOCKSTEP_FUNCTION std::size_t final_agreement::first_failed() const noexcept {
    for (const ending how : {ending::failed, ending::gave_up, ending::heard_of_a_failure})
        if (const std::size_t rank = first(how); rank < endings_.size()) return rank;
    return endings_.size();
}

LOCKSTEP_FUNCTION outcome::outcome(std::exception_ptr why) noexcept : why_{std::move(why)} {
    if (why_ == nullptr) return;
    how_ = ending::failed;
    try {
        std::rethrow_exception(why_);
    } catch (const remote_failure&) {
        how_ = ending::heard_of_a_failure;
    } catch (const stalled&) {
        how_ = ending::gave_up;
    } catch (...) {
    }
}

LOCKSTEP_FUNCTION void outcome::print(int rank, int size, const watch* by) const noexcept {
    const auto write = [&](const char* text, bool is_ours) {
        if (std::string_view{text}.starts_with("lockstep: "))
            std::fprintf(stderr, "%s\n", text);
        else if (is_ours || size == 0)
            std::fprintf(stderr, "lockstep: %s\n", text);
        else
            std::fprintf(stderr, "lockstep: rank %d of %d failed: %s\n", rank, size, text);
        if (by != nullptr && !by->failed_at().empty() && how_ == ending::failed)
            std::fprintf(stderr, "    on rank %d: %.*s\n", rank, static_cast<int>(by->failed_at().size()),
                         by->failed_at().data());
        std::fflush(stderr);
    };
    try {
        if (why_ != nullptr) std::rethrow_exception(why_);
    } catch (const core::error& failure) {
        write(failure.what(), true);
    } catch (const std::bad_alloc&) {
        write("no memory is left (std::bad_alloc)", false);
    } catch (const std::exception& failure) {
        std::string text;
        try {
            text = core::printable(failure.what(), true);
        } catch (...) {  // for want of memory: as it is
        }
        write(text.empty() ? failure.what() : text.c_str(), false);
    } catch (...) {
        write("an exception that is no std::exception", false);
    }
}

[[noreturn]] LOCKSTEP_FUNCTION void abort_job() noexcept {
    std::signal(SIGALRM, SIG_DFL);
    ::alarm(3);  // where MPI has lost the others, or a pipe is full, it may not get that far
    std::fflush(nullptr);
    boost::mpi::environment::abort(1);
    std::_Exit(1);
}

LOCKSTEP_FUNCTION int session::end(const outcome& mine, int code, bool is_stopped) noexcept {
    if (mine.how() != ending::well) last_words::silence();
    watch* const by = ranks_.aborts().watched_by().get();
    const auto print = [&](const outcome& what) {
        what.print(static_cast<int>(ranks_.rank()), static_cast<int>(ranks_.size()), by);
    };
    if (is_over()) {  // the function has ended MPI: no rank can be reached any more
        print(mine);
        return mine.how() == ending::well ? code : 1;
    }
    outcome of_agreement;
    try {
        if (agreement_.wait(mine.how(), is_stopped ? code : 0)) {
            const std::size_t first = agreement_.first_failed();
            if (first == ranks_.size()) core::stop_request::ends();
            if (by != nullptr) by->glance();  // MPI asks that what others have sent is received before it ends
            if (first == ranks_.rank()) print(mine);
            if (first != ranks_.size()) return 1;
            return code != 0 || agreement_.stopped() == 0 ? code : agreement_.stopped();
        }
    } catch (...) {  // from MPI, or for want of memory
        of_agreement = outcome{std::current_exception()};
    }
    const bool another_speaks = of_agreement.how() == ending::heard_of_a_failure;
    const outcome& why = mine.how() == ending::well ? of_agreement : mine;
    if (another_speaks)
        std::this_thread::sleep_for(std::chrono::seconds{1});  // it ends the job
    else
        print(why);  // also where another was to speak: it has had its time, and the job is still there
    abort_job();
}

LOCKSTEP_FUNCTION int run_program(int argc, char** argv, void* f,
                                  int (*call)(void* f, const boost::mpi::communicator& world),
                                  boost::mpi::threading::level level) noexcept {
    const core::file_size_limit_is_an_error limit;  // before MPI, which makes files, too
    const last_words::given_back signals;
    std::optional<boost::mpi::environment> environment;
    std::optional<boost::mpi::communicator> world;
    std::optional<session> all;
    int rank = 0, size = 0;
    try {
        if (is_over())
            core::fail("MPI has ended in this process, and cannot begin again", "call lockstep::program() once");
        environment.emplace(argc, argv, level);
        world.emplace();
        size = world->size();
        rank = world->rank();
        all.emplace(*world);
    } catch (...) {
        const outcome why{std::current_exception()};
        if (size == 0) {
            why.print(0, 0, nullptr);
            if (boost::mpi::environment::initialized() && !is_over()) abort_job();
            return 1;
        }
        // Ranks have no group yet to agree in. One speaks for all that fail alike; else the lowest of those that fail
        // ends the job.
        const auto longest = std::chrono::milliseconds{why.how() == ending::gave_up ? 1000 : 2000};
        const bool together = all_come(*world, longest + std::min(rank, 4) * std::chrono::milliseconds{250});
        if (rank == 0 || !together) why.print(rank, size, nullptr);
        // MPI cannot end while it makes a communicator that was given up.
        if (!together || !all_come(*world, std::chrono::seconds{1}) || why.how() == ending::gave_up) abort_job();
        return 1;
    }
    int code = 0;
    bool is_stopped = false;
    outcome mine;
    try {
        code = call(f, *world);
        core::flush_standard_output();
    } catch (const core::interrupted& stop) {
        code = stop.exit_code();
        is_stopped = true;
        if (stop.is_printed()) outcome{std::current_exception()}.print(rank, size, nullptr);
    } catch (const std::bad_alloc&) {
        try {
            core::rethrow();
        } catch (...) {
            mine = outcome{std::current_exception()};
        }
    } catch (...) {
        mine = outcome{std::current_exception()};
    }
    return all->end(mine, code, is_stopped);
}

}  // namespace detail

#endif

}  // namespace lockstep::comm

namespace lockstep {
using comm::program;
}  // namespace lockstep
