// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writes that fail with an error instead of a signal, whatever the program does about signals.
// Tested by tests/unit/core/output_file.cpp.

#include <signal.h>

#include <cerrno>
#include <initializer_list>

namespace lockstep::core {

/// A SIGXFSZ or SIGPIPE that a write of this thread raises stays with the thread, and is taken away at the end: the
/// write fails with EFBIG or EPIPE. Keeps errno. Costs four system calls.
class held_signals {
public:
    held_signals() noexcept {
        ::sigemptyset(&held_);
        ::sigaddset(&held_, SIGXFSZ);
        ::sigaddset(&held_, SIGPIPE);
        ::sigpending(&earlier_);
        ::pthread_sigmask(SIG_BLOCK, &held_, &mask_);
    }
    held_signals(const held_signals&) = delete;
    held_signals& operator=(const held_signals&) = delete;
    ~held_signals() {
        const int reason = errno;
        sigset_t now;
        ::sigpending(&now);
        for (const int number : {SIGXFSZ, SIGPIPE}) {
            if (::sigismember(&now, number) != 1 || ::sigismember(&earlier_, number) == 1) continue;
            sigset_t one;
            ::sigemptyset(&one);
            ::sigaddset(&one, number);
            int taken = 0;
            (void)::sigwait(&one, &taken);
        }
        ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        errno = reason;
    }

private:
    sigset_t held_{}, earlier_{}, mask_{};
};

}  // namespace lockstep::core
