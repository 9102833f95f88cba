// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A thread that moves collectives on while another one computes. The two take turns: MPI is called by one of them at a
// time.
// Tested by tests/mpi/comm_progress.cpp.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/comm/transport.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/quiet_thread.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::comm {

/// The turn belongs to the owner of this object, who makes MPI calls as if there were no other thread. From lend() to
/// take() it belongs to the thread, which calls `pass` again and again: that may call MPI, and the owner may not, but
/// for the time of a try_turn(). A thread without anything to do sleeps until it is told that there is something:
/// ring(). One that waits for others looks again and again, with pauses in which the core is free: they end where it is
/// rung for. What a pass throws is thrown by the owner's next take() or try_turn(); the thread does nothing more. A
/// trainer lends the turn for a walk over its layers that has something under way and for the update of strips, and
/// takes it back after it. So MPI_THREAD_SERIALIZED is enough, and between steps, in data sets, observers and
/// evaluation and after a failure no second thread is in MPI. Compressors encode on the thread. It runs the loops of
/// a team alone, because a second team would fight with the first. Where nothing came it sleeps for 50 us, so a core
/// that is shared stays with the layers.
class progress_thread {
public:
    enum class outcome : std::uint8_t { nothing_to_do, nothing_came, moved };
    using pass = outcome (*)(void* owner);

    /// Throws core::error where MPI permits no second thread, or the system none.
    [[gnu::cold]] progress_thread(pass turn, void* owner);
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;
    /// Waits for the pass that is running.
    [[gnu::cold]] ~progress_thread();

    /// The thread may work from now on.
    void lend() {
        if (is_lent()) return;
        lent_.store(true, std::memory_order_release);
        ring();
    }
    /// There is something new to do. From the owner, also while the thread is in a pass.
    void ring() {
        {
            const std::lock_guard at{bell_};
            ++rings_;
        }
        rung_.notify_one();
    }
    /// The owner has the turn again. Waits for the pass that is running.
    void pause() noexcept {
        if (!is_lent()) return;
        // First the word, then the lock: a thread that goes on at once would not let go of it.
        lent_.store(false, std::memory_order_release);
        const std::lock_guard turn{turn_};
    }
    /// The same, and throws what the thread has thrown.
    void take() {
        pause();
        if (error_) [[unlikely]]
            std::rethrow_exception(std::exchange(error_, nullptr));
    }
    /// The turn for as long as the lock lives, if the thread does not have it just now. Throws what it has thrown.
    [[nodiscard]] std::unique_lock<std::mutex> try_turn() {
        std::unique_lock turn{turn_, std::try_to_lock};
        if (turn && error_) [[unlikely]]
            std::rethrow_exception(std::exchange(error_, nullptr));
        return turn;
    }
    /// The owner makes a pass itself, in its turn.
    void pass_here() { pass_(owner_); }
    /// For the owner.
    [[nodiscard]] bool is_lent() const noexcept { return lent_.load(std::memory_order_relaxed); }

private:
    static constexpr std::chrono::microseconds between_looks{50};

    // For size: it looks every 50 us.
    [[gnu::cold]] void work() noexcept;
    outcome one_pass() noexcept {
        const std::lock_guard turn{turn_};
        if (!lent_.load(std::memory_order_acquire) || broken_) return outcome::nothing_to_do;
        try {
            return pass_(owner_);
        } catch (...) {
            error_ = std::current_exception();
            broken_ = true;
            return outcome::nothing_to_do;
        }
    }

    pass pass_;
    void* owner_;
    std::atomic<bool> lent_{false};  // written by the owner alone
    std::mutex turn_;                // held in a pass
    std::exception_ptr error_;       // of a pass; read and written by the thread that has the turn
    bool broken_ = false;
    std::mutex bell_;
    std::condition_variable rung_;
    std::uint64_t rings_ = 0;
    bool over_ = false;
    std::thread thread_;  // last: it uses the others
};

/// The turn for a stretch of work inside another that the thread may use; null: there is no thread. What is to be done
/// for the thread begins first: others may wait for it. An exception that leaves the stretch keeps the turn.
class own_turn {
public:
    explicit own_turn(progress_thread* from) : from_{from != nullptr && from->is_lent() ? from : nullptr} {
        if (from_ == nullptr) return;
        from_->take();
        from_->pass_here();
    }
    own_turn(const own_turn&) = delete;
    own_turn& operator=(const own_turn&) = delete;
    ~own_turn();

private:
    progress_thread* from_;
    int exceptions_ = std::uncaught_exceptions();
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION progress_thread::progress_thread(pass turn, void* owner) : pass_{turn}, owner_{owner} {
    require_threads(thread_use::by_turns, "the plan asks for a progress thread", "leave progress_thread out");
    thread_ = core::quiet_thread([](void* self) noexcept { static_cast<progress_thread*>(self)->work(); }, this,
                                 "the progress thread", "leave progress_thread out, or allow the process more threads");
}

LOCKSTEP_FUNCTION progress_thread::~progress_thread() {
    pause();
    {
        const std::lock_guard at{bell_};
        over_ = true;
    }
    rung_.notify_one();
    thread_.join();
}

LOCKSTEP_FUNCTION void progress_thread::work() noexcept {
    parallel::works_alone = true;
    std::uint64_t heard = 0;
    for (;;) {
        {
            std::unique_lock at{bell_};
            rung_.wait(at, [&] { return over_ || rings_ != heard; });
            if (over_) return;
            heard = rings_;
        }
        for (outcome found = one_pass(); found != outcome::nothing_to_do; found = one_pass()) {
            if (found == outcome::moved) continue;
            // Not a yield: that gives a whole slice of time away where threads share a core, and hardly any where they
            // do not.
            std::unique_lock at{bell_};
            if (rung_.wait_for(at, between_looks, [&] { return over_ || rings_ != heard; })) break;
        }
    }
}

LOCKSTEP_FUNCTION own_turn::~own_turn() {
    if (from_ != nullptr && std::uncaught_exceptions() == exceptions_) from_->lend();
}

#endif

}  // namespace lockstep::comm
