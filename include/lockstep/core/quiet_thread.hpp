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
    sigset_t all, before;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread out;
    std::string refused;
    try {
        out = std::thread{work, of};
    } catch (const std::system_error& error) {
        refused = error.what();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!refused.empty()) fail(text(name, " could not be started (", refused, ")"), remedy);
    return out;
}

#endif

}  // namespace lockstep::core
