// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Starts a thread that takes no signals: handlers of the application run where they did before.
// Tested by tests/mpi/comm_progress.cpp.

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// Runs work(of). `name`: for the error, as in `the thread that is to read ahead`. Throws core::error where the system
/// grants no thread.
[[nodiscard, gnu::cold]] std::thread quiet_thread(void (*work)(void*) noexcept, void* of, const char* name,
                                                  const char* remedy);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::thread quiet_thread(void (*work)(void*) noexcept, void* of, const char* name,
                                           const char* remedy) {
    struct no_signals {
        no_signals() {
            sigset_t all;
            sigfillset(&all);
            for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, own);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        no_signals(const no_signals&) = delete;
        no_signals& operator=(const no_signals&) = delete;
        ~no_signals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
        sigset_t before;
    };
    try {
        const no_signals while_it_is_made;
        return std::thread{work, of};
    } catch (const std::system_error& error) {
        fail(text(name, " could not be started (", error.what(), ")"), remedy);
    }
}

#endif

}  // namespace lockstep::core
