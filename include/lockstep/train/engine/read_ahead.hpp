// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reading the next minibatch on a thread of its own while this one is trained.

#include <pthread.h>
#include <sched.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/core/quiet_thread.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::train {

/// A thread that runs one job at a time and sleeps in between. It takes no signals: handlers of the application run
/// where they did before.
class side_thread {
public:
    [[gnu::cold]] side_thread() {
        thread_ = core::quiet_thread([](void* self) noexcept { static_cast<side_thread*>(self)->work(); }, this,
                                     "the thread that is to read ahead",
                                     "set prefetch to false, or allow the process more threads");
    }
    side_thread(const side_thread&) = delete;
    side_thread& operator=(const side_thread&) = delete;
    /// Waits for the job that is running.
    [[gnu::cold]] ~side_thread() {
        {
            const std::lock_guard lock{mutex_};
            over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    /// Starts job(of). The last one has to be ended.
    void begin(void (*job)(void*), void* of) {
        {
            const std::lock_guard lock{mutex_};
            job_ = job;
            of_ = of;
        }
        changed_.notify_all();
    }
    /// Waits for the job; what it has thrown is for end().
    void wait() {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return job_ == nullptr; });
    }
    /// Waits for the job, and throws what it has thrown.
    void end() {
        wait();
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }

private:
    void work() noexcept {
        parallel::works_alone = true;
#if defined(SCHED_BATCH)
        // Else Linux lets it take the core of the thread that wakes it, though another one is idle.
        const sched_param none{};
        (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
#endif
        std::unique_lock lock{mutex_};
        for (;;) {
            changed_.wait(lock, [&] { return job_ != nullptr || over_; });
            if (over_) return;
            lock.unlock();
            std::exception_ptr error;
            try {
                job_(of_);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            error_ = std::move(error);
            job_ = nullptr;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    void (*job_)(void*) = nullptr;
    void* of_ = nullptr;
    std::exception_ptr error_;
    bool over_ = false;
    std::thread thread_;  // last: it uses the others
};

/// A step of a fit: its place in the data set, and its number in the run.
struct step_place {
    std::uint64_t epoch = 0;
    std::size_t position = 0;  ///< samples of the epoch that are done before it
    std::uint64_t step = 0;
};

/// The minibatches of a fit, one after the other. `load(place, ahead)` reads that of a step: in take(), or since
/// begin() on a thread that lives as long as this object. An error of a minibatch that is read ahead is thrown by the
/// take() that wanted it.
template <class Load>
class read_ahead {
public:
    read_ahead(const Load& load, bool ahead) : load_{load} {
        if (ahead) thread_.emplace();
    }
    read_ahead(const Load&&, bool) = delete;  // `load` is called until the end

    /// `rooms.swap()` is called where the minibatch lies in the spare room.
    template <class Rooms>
    [[nodiscard]] auto take(const step_place& place, Rooms& rooms) {
        if (!begun_) return load_(place, false);
        begun_ = false;
        thread_->end();
        rooms.swap();
        return next_;
    }

    /// The next minibatch that will be taken. Does nothing where there is no thread.
    void begin(const step_place& place) {
        if (!thread_) return;
        place_ = place;
        begun_ = true;
        thread_->begin(
            [](void* of) {
                auto& me = *static_cast<read_ahead*>(of);
                me.next_ = me.load_(me.place_, true);
            },
            this);
    }
    /// Waits for what is being read. Its error is for take().
    void wait() {
        if (begun_) thread_->wait();
    }

private:
    const Load& load_;
    step_place place_;
    bool begun_ = false;
    decltype(std::declval<const Load&>()(step_place{}, true)) next_{};
    std::optional<side_thread> thread_;  // last: it uses the others
};

}  // namespace lockstep::train
