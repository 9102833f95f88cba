// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Aborts: a rank that fails tells all others why, so that none of them waits for it for ever.
// Tested by tests/mpi/comm_abort_channel.cpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/transport.hpp"
#include "lockstep/comm/watch/abort_store.hpp"
#include "lockstep/comm/watch/watch.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// Thrown where a rank waits for others and one of them has failed. what() reads `rank 3: <its error>`.
class remote_failure : public core::error {
public:
    remote_failure(std::size_t origin, const std::string& text);

    /// The rank that failed, numbered as in the group that was made from the application's communicator.
    [[nodiscard]] std::size_t origin() const noexcept { return origin_; }
    /// The error as that rank wrote it.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
    std::size_t origin_;
};

/// The channel that a group and all groups split from it share. Once it has seen a failure, its own or another's, every
/// check throws; but a slower rank first ends the stretch of work that the failed rank has ended, unless nothing comes
/// for a second: then all have ended the same. With a watch, waits that last longer than timeout() without progress, or
/// that can have no end, fail with the call sites of all ranks.
class abort_channel {
public:
    /// Longer texts are cut.
    static constexpr std::size_t longest = abort_message::longest;

    /// `by`: shared by all groups that were made from communicators with these ranks; null: there is one rank.
    [[gnu::cold]] explicit abort_channel(std::shared_ptr<watch> by = nullptr, std::uint64_t number = 0)
        : watch_{std::move(by)}, number_{number} {
        if (watch_ == nullptr) return;
        watch_->open_channel(number_);
        timeout_ = default_timeout();
    }
    abort_channel(const abort_channel&) = delete;
    abort_channel& operator=(const abort_channel&) = delete;
    /// The text must not vanish while MPI still sends it.
    [[gnu::cold]] ~abort_channel();

    /// Sends the text to all other ranks. Does not wait for them. Only the first failure that this rank sees is told,
    /// and only if it is its own.
    [[gnu::cold]] void announce(std::string_view text);

    /// Looks once for an abort; throws remote_failure if there is one, or has been.
    [[gnu::cold]] void check();

    /// Answers those who ask where this rank is. Costs a look at the clock, and one at MPI every millisecond.
    void glance() {
        if (watch_ != nullptr) watch_->glance();
    }

    /// check() in a wait. `progress`: any number that changes where something has come. Throws core::error where the
    /// wait has no end.
    [[gnu::cold]] void check(wait& waiting, std::uint64_t progress);

    /// How long a wait without progress may last; 0: for ever.
    [[nodiscard]] std::chrono::duration<double> timeout() const noexcept { return timeout_; }
    void set_timeout(std::chrono::duration<double> longest_wait) noexcept { timeout_ = longest_wait; }
    [[nodiscard]] const std::shared_ptr<watch>& watched_by() const noexcept { return watch_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

    /// A stretch of work has ended that all ranks end, such as a training step. No rank may end one before all others
    /// have done all that can fail in it. Called equally often on all ranks, or never.
    void passed() noexcept { ++passed_; }

    [[nodiscard]] bool failed() const noexcept { return failure_.has_value(); }

    /// While a rank waits for others in a gather they may wait for what is under way here: move_on(self) goes on with
    /// it, from now on.
    [[gnu::cold]] void add_beside(void* self, void (*move_on)(void*)) { beside_.push_back({self, move_on}); }
    [[gnu::cold]] void remove_beside(const void* self) noexcept {
        std::erase_if(beside_, [&](const auto& one) { return one.self == self; });
    }
    void move_on_beside() const {
        for (const auto& one : beside_) one.move_on(one.self);
    }

private:
    struct moved_on {
        void* self;
        void (*move_on)(void*);
    };

    std::shared_ptr<watch> watch_;
    std::uint64_t number_ = 0;  // of this channel, the same on all ranks
    std::chrono::duration<double> timeout_{0};
    std::uint64_t passed_ = 0;
    std::uint64_t failed_after_ = 0;
    std::chrono::steady_clock::time_point seen_{};  // the failure, or what came since for a wait that ends a stretch
    std::uint64_t grace_progress_ = 0;
    std::optional<remote_failure> failure_;
    abort_message sent_;
    std::vector<moved_on> beside_;
    requests requests_;
};

/// A call of a public function, from its beginning to its end.
class watched_call {
public:
    watched_call(abort_channel& aborts, const char* name, const std::source_location& where)
        : by_{aborts.watched_by().get()}, call_{name, where, nullptr} {
        if (by_ != nullptr) by_->enter(call_);
    }
    watched_call(const watched_call&) = delete;
    watched_call& operator=(const watched_call&) = delete;
    ~watched_call() {
        if (by_ != nullptr) by_->leave(call_);
    }

private:
    watch* by_;
    call_record call_;
};

/// One in which ranks send to each other. Throws core::error where MPI has ended.
class collective_call : public watched_call {
public:
    collective_call(abort_channel& aborts, const char* name, const std::source_location& where)
        : watched_call{aborts, name, where} {
        if (aborts.watched_by() != nullptr && is_over())
            core::fail(core::text(name, "() was called after the end of MPI"), "call it before MPI_Finalize()");
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION remote_failure::remote_failure(std::size_t origin, const std::string& text)
    : core::error{core::text("rank ", origin, ": ", text)}, text_{text}, origin_{origin} {}

LOCKSTEP_FUNCTION abort_channel::~abort_channel() {
    requests_.wait_all(std::chrono::milliseconds{500});
    if (watch_ != nullptr) watch_->close_channel(number_);
}

LOCKSTEP_FUNCTION void abort_channel::announce(std::string_view text) {
    if (failure_) return;
    if (watch_ != nullptr) watch_->remember_call_site();
    failure_.emplace(watch_ != nullptr ? watch_->over().rank() : 0, std::string{text.substr(0, longest)});
    failed_after_ = passed_;
    if (watch_ == nullptr) return;
    const transport& over = watch_->over();
    const auto bytes = std::as_bytes(sent_.write({number_, failed_after_}, failure_->text()));
    requests_.reserve(over.size());
    for (std::size_t distance = 1; distance < over.size(); ++distance)
        requests_.send(over, (over.rank() + distance) % over.size(), abort_message::tag, bytes);
    (void)requests_.test();
}

LOCKSTEP_FUNCTION void abort_channel::check() {
    if (!failure_ && watch_ != nullptr) {
        if (const auto* told = watch_->aborts().of(number_)) {
            failure_.emplace(told->from, told->text);
            failed_after_ = told->passed;
            seen_ = std::chrono::steady_clock::now();
        }
    }
    // The failed rank may have gone before all its messages were out: no rank waits for them for ever.
    if (failure_ && (failed_after_ <= passed_ || std::chrono::steady_clock::now() - seen_ > std::chrono::seconds{1})) {
        (void)requests_.test();
        throw remote_failure{*failure_};
    }
    glance();
}

LOCKSTEP_FUNCTION void abort_channel::check(wait& waiting, std::uint64_t progress) {
    if (failure_ && progress != grace_progress_) {
        grace_progress_ = progress;
        seen_ = std::chrono::steady_clock::now();
    }
    check();
    if (watch_ == nullptr) return;
    waiting.look(progress);
    if (waiting.waited() < std::chrono::milliseconds{2}) return;
    const bool hopeless = watch_->goes_on(waiting, number_);
    if (!hopeless && (timeout_.count() <= 0 || waiting.waited() < timeout_)) return;
    if (!waiting.may_give_up()) return;
    // A rank that another one tells first repeats what that one says.
    const stalled failure = watch_->failure(
        number_, hopeless, timeout_, [](void* self) { static_cast<abort_channel*>(self)->check(); }, this);
    if (!waiting.may_give_up()) return;  // it has come while this rank asked
    announce(failure.what());
    throw failure;
}

#endif

}  // namespace lockstep::comm
