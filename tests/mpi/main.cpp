// SPDX-License-Identifier: BSD-3-Clause
// The main program of tests on several ranks. Ranks synchronise after every test case, so they are always in the same
// one; a failure on one rank is a failure on all; a test case without an end is named and stopped.
#define CATCH_CONFIG_RUNNER
#include <unistd.h>

#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace mpi = boost::mpi;

/// What the watchdog writes is put together beforehand: a signal handler may not allocate.
class watchdog {
public:
    static void start(int rank, int ranks) {
        rank_ = rank;
        ranks_ = ranks;
        const char* text = std::getenv("LOCKSTEP_TEST_SECONDS");
        if (text != nullptr && std::atoi(text) > 0) seconds_ = static_cast<unsigned>(std::atoi(text));
        std::signal(SIGALRM, &watchdog::bark);
    }

    static void watch(const std::string& what) {
        ::alarm(0);
        length_ = std::snprintf(message_, sizeof message_, "watchdog: rank %d of %d: no end after %u s in \"%s\"\n",
                                rank_, ranks_, seconds_, what.c_str());
        ::alarm(seconds_);
    }

private:
    static void bark(int) {
        const auto size = static_cast<std::size_t>(length_) < sizeof message_ ? static_cast<std::size_t>(length_)
                                                                              : sizeof message_ - 1;
        if (::write(STDERR_FILENO, message_, size) < 0) ::_exit(3);
        ::sleep(2);  // the other ranks say where they are, too, before the launcher ends them
        ::_exit(2);
    }

    static inline int rank_ = 0;
    static inline int ranks_ = 1;
    static inline unsigned seconds_ = 120;
    static inline int length_ = 0;
    static inline char message_[512] = {};
};

/// Set while MPI is up. A duplicate: messages of the tests are never taken for those of the harness.
mpi::communicator* harness = nullptr;

struct rank_listener : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;

    void testCaseStarting(const Catch::TestCaseInfo& info) override { watchdog::watch(info.name); }

    // At once, and on the rank where it happened: if the other ranks now wait for this one, no report will follow.
    bool assertionEnded(const Catch::AssertionStats& stats) override {
        const auto& result = stats.assertionResult;
        if (result.isOk()) return true;
        crashed_ = crashed_ || result.getResultType() == Catch::ResultWas::FatalErrorCondition;
        std::string text = result.hasExpression() ? result.getExpandedExpression() : std::string{};
        if (result.hasMessage()) text += (text.empty() ? "" : ": ") + result.getMessage();
        const auto line = result.getSourceInfo();
        std::fprintf(stderr, "rank %d of %d: %s:%zu: FAILED: %s\n", harness->rank(), harness->size(), line.file,
                     line.line, text.c_str());
        return true;
    }

    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        if (crashed_) return;  // inside a signal handler: no place for messages, and the launcher ends the other ranks
        const bool mine = stats.totals.testCases.failed > 0;
        const bool any = mpi::all_reduce(*harness, mine, std::logical_or<bool>{});
        if (any && harness->rank() == 0) std::fprintf(stderr, "test case failed: %s\n", stats.testInfo.name.c_str());
    }

private:
    bool crashed_ = false;
};

int run(int argc, char** argv) {
    const int rank = harness->rank();
    // Rank 0 reports as it goes. The other ranks would print the same, so theirs is shown only if they fail.
    std::ostringstream held;
    auto* const console = std::cout.rdbuf();
    if (rank != 0) std::cout.rdbuf(held.rdbuf());
    Catch::Session session;
    session.configData().useColour = Catch::UseColour::No;  // launchers hand out terminals and then mix what comes back
    const int failed = session.run(argc, argv);
    std::cout.rdbuf(console);
    watchdog::watch("the end of the session");

    std::vector<int> all;
    mpi::all_gather(*harness, failed, all);
    bool any = false;
    for (int other = 0; other < harness->size(); ++other) {
        if (all[static_cast<std::size_t>(other)] == 0) continue;
        any = true;
        if (rank == other && rank != 0) std::cout << "---- rank " << rank << " ----\n" << held.str() << std::flush;
        harness->barrier();
    }
    if (any && rank == 0) {
        std::cout << "failed on rank";
        for (std::size_t other = 0; other < all.size(); ++other) {
            if (all[other] != 0) std::cout << ' ' << other;
        }
        std::cout << " of " << all.size() << std::endl;
    }
    return any ? 1 : 0;
}

}  // namespace

CATCH_REGISTER_LISTENER(rank_listener)

int main(int argc, char** argv) {
    const mpi::environment environment{argc, argv, mpi::threading::serialized};
    const mpi::communicator world;
    watchdog::start(world.rank(), world.size());
    watchdog::watch("the start of the session");
    mpi::communicator duplicate{world, mpi::comm_duplicate};
    harness = &duplicate;
    return run(argc, argv);
}
