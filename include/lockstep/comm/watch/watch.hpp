// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The watch of some ranks: those that wait for long tell each other where they are, and find waits without an end.
// Tested by tests/mpi/comm_watch.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/transport.hpp"
#include "lockstep/comm/watch/abort_store.hpp"
#include "lockstep/comm/watch/call_site.hpp"
#include "lockstep/comm/watch/wait.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// One for all communicators with the same ranks in the same order, made with the first group on one of them, for good.
/// Messages have a communicator of their own; ranks that have waited for 20 ms send them, or one that gives up, to all.
class watch {
public:
    /// `made`: a duplicate for these messages alone.
    [[gnu::cold]] explicit watch(const transport& over) : over_{over}, ranks_(over.size()) {
        groups.setup.kind = short_name{"making a group of ranks"};
        groups.setup.identify();
        add(groups);
    }
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    ~watch() = default;

    /// Everything that is made is entered here, and taken out.
    [[gnu::cold]] void add(const collective& added) { collectives_.push_back(&added); }
    [[gnu::cold]] void add(const group_record& added) {
        groups_.push_back(&added), collectives_.push_back(&added.setup);
    }
    [[gnu::cold]] void remove(const collective& removed) noexcept;
    [[gnu::cold]] void remove(const group_record& removed) noexcept {
        std::erase(groups_, &removed);
        remove(removed.setup);
    }
    /// Abort channels are numbered in the order in which groups are made. All ranks have agreed on the number of each:
    /// one of them may have made others in vain.
    [[gnu::cold]] void open_channel(std::uint64_t channel) {
        channels_.push_back(channel);
        channels_made_ = channel;
    }
    /// What this rank proposes for the channel that is being made.
    [[nodiscard]] std::uint64_t next_channel() const noexcept { return channels_made_ + 1; }
    [[gnu::cold]] void close_channel(std::uint64_t channel) noexcept {
        std::erase(channels_, channel);
        aborts_.forget(channel);
    }
    [[nodiscard]] const transport& over() const noexcept { return over_; }
    /// What has arrived on the open channels, and on those that this rank has still to make.
    [[nodiscard]] const abort_store& aborts() {
        aborts_.take(over_, [this](std::uint64_t channel) { return is_closed(channel); });
        return aborts_;
    }

    /// A call of the user begins, until leave(); one inside another stands where that does. Throws as calling_thread.
    void enter(call_record& call) {
        thread_.enter(call.name);
        note(call);
    }
    void note(call_record& call) noexcept {  // whatever the thread
        call.outer = call_;
        if (call_ != nullptr) call.where = call_->where;
        call.exceptions = std::uncaught_exceptions();
        call_ = &call;
    }
    /// The name of the call that this rank is in; empty: none.
    [[nodiscard]] std::string_view called() const noexcept { return call_ ? call_->name : std::string_view{}; }
    void leave(const call_record& call) noexcept {
        // Constructors tell of a failure when their call has been left.
        thrown_from_ = short_line{};
        if (std::uncaught_exceptions() > call.exceptions) describe_call_site(thrown_from_);
        call_ = call.outer;
        last_call_ = {call.name, call.where, nullptr};
        if (call_ == nullptr) thread_.leave();
    }
    /// The error that this rank is about to tell comes from here.
    [[gnu::cold]] void remember_call_site() noexcept {
        failed_at_ = short_line{};
        if (call_ == nullptr && std::current_exception() != nullptr) failed_at_ = thrown_from_;
        if (failed_at_.text().empty()) describe_call_site(failed_at_);
    }
    /// The same where no call has been entered yet.
    [[gnu::cold]] void remember_call_site(call_record call) noexcept {
        note(call);
        remember_call_site();
        call_ = call.outer;
    }
    [[nodiscard]] std::string_view failed_at() const noexcept { return failed_at_.text(); }

    /// Takes what has arrived and answers, at most every millisecond: between two layers.
    void glance() {
        const auto now = std::chrono::steady_clock::now();
        if (now - glanced_ < std::chrono::milliseconds{1}) return;
        glanced_ = now;
        take();
    }

    /// Goes on with a wait; true if it is known to have no end.
    [[nodiscard, gnu::cold]] bool goes_on(wait& waiting, std::uint64_t channel);

    /// The error of a rank that gives up: asks all where they are, in half a second. check(self) looks for aborts.
    [[nodiscard, gnu::cold]] stalled failure(std::uint64_t channel, bool hopeless, std::chrono::duration<double> wait,
                                             void (*check)(void*) = nullptr, void* self = nullptr);
    /// Where this rank is. Allocates nothing: a signal handler may ask.
    [[gnu::cold]] void describe_call_site(short_line& out) const noexcept;
    /// `rank 3 was told to end: <call site>, waits for rank 1`, for a signal handler.
    [[gnu::cold]] void describe_end(short_line& out) const noexcept;
    /// The making of groups is a collective, too.
    group_record groups;

private:
    friend class wait;
    static constexpr int tag = 0;
    static constexpr std::size_t most_peers = 6;
    enum class kind : std::uint32_t { waits, blocked, gone, differs, halt, here };
    enum class reason : std::uint8_t { none, order, differs, gone };

    struct message {
        kind what = kind::here;
        std::uint32_t peers = 0;
        std::uint64_t channel = 0;
        ticket about;  ///< the wait of the rank that asked first
        ticket own;    ///< what the sender waits in
        std::array<std::uint32_t, most_peers> waits_for{};
        std::uint64_t size = 0;
        std::array<char, short_line::longest> call_site{};

        [[nodiscard]] std::string_view text() const noexcept { return {call_site.data(), std::size_t{size}}; }
    };
    static_assert(std::is_trivially_copyable_v<message> && sizeof(message) < 1024, "short enough to be sent at once");

    /// What is known of another rank.
    struct entry {
        message last;              // message from it
        message question;          // where it waits for this rank,
        bool asks = false;         // if it does
        bool answered = false;     // since this rank asked all
        std::uint64_t halted = 0;  // the channel on which it gives up
    };

    [[gnu::cold]] void ask_all(std::uint64_t channel, void (*check)(void*), void* self);

    [[nodiscard, gnu::cold]] message compose(kind what, std::uint64_t channel, const ticket& about) const noexcept;

    [[nodiscard, gnu::cold]] std::span<const std::size_t> waits_for(std::span<std::size_t> out) const noexcept {
        if (current_ == nullptr || current_->peers_ == nullptr) return {};
        const std::size_t count = current_->peers_(current_->self_, out);
        for (std::size_t& rank : out.first(count))
            rank = current_->in_ == nullptr ? rank : current_->in_->rank_in_whole(rank);
        return out.first(count);
    }

    [[gnu::cold]] void send(std::size_t to, const message& what);

    void take();

    [[gnu::cold]] void handle(std::size_t from);

    /// To a rank that waits for this one: nothing if that has done its part; later, if it still may.
    [[gnu::cold]] void answer(std::size_t to);

    void give_up(reason why, std::size_t because) noexcept {
        if (halts_ || hopeless_ != reason::none) return;
        hopeless_ = why;
        culprit_ = because;
        given_up_ = std::chrono::steady_clock::now();
    }

    [[nodiscard, gnu::cold]] bool is_closed(std::uint64_t channel) const noexcept {
        return channel <= channels_made_ && std::find(channels_.begin(), channels_.end(), channel) == channels_.end();
    }
    [[nodiscard, gnu::cold]] bool knows(std::uint64_t group) const noexcept {
        return std::any_of(groups_.begin(), groups_.end(),
                           [&](const group_record* record) { return record->id == group; });
    }
    [[nodiscard, gnu::cold]] const collective* find(const ticket& wanted) const noexcept {
        for (const collective* other : collectives_)
            if (other->group == wanted.group && other->number == wanted.number) return other;
        return nullptr;
    }
    /// Whether this rank has begun that run. A collective that is no more has been run as often as it ever will be.
    [[nodiscard, gnu::cold]] bool started(const ticket& wanted) const noexcept {
        if (const collective* found = find(wanted)) return found->runs >= wanted.run;
        for (const ticket& other : past_)
            if (other.run > 0 && other.group == wanted.group && other.number == wanted.number)
                return other.run >= wanted.run;
        for (const group_record* record : groups_)
            if (record->id == wanted.group)
                return wanted.number <=
                       (wanted.number > group_record::shared_memory ? record->last_shared : record->last);
        return false;
    }

    [[nodiscard, gnu::cold]] static std::string list(const std::vector<bool>& ranks);

    /// All call sites that are known, one line for ranks at the same one.
    [[nodiscard, gnu::cold]] std::string report() const;
    /// Why a wait has no end, for the first line of a message.
    [[nodiscard, gnu::cold]] std::string why() const;
    /// `rank 1`, `ranks 0-2, 5`: for whom this rank waits now.
    [[nodiscard, gnu::cold]] std::string waited_for() const;

    transport over_;
    std::vector<entry> ranks_;
    std::vector<const collective*> collectives_;
    std::vector<const group_record*> groups_;
    std::array<ticket, 512> past_{};  // what was made and is no more, the last ones
    std::size_t removed_ = 0;
    std::vector<std::uint64_t> channels_;
    std::uint64_t channels_made_ = 0;
    abort_store aborts_;
    calling_thread thread_;
    const call_record* call_ = nullptr;
    call_record last_call_;
    wait* current_ = nullptr;
    std::chrono::steady_clock::time_point glanced_{};
    reason hopeless_ = reason::none;
    std::chrono::steady_clock::time_point given_up_{};
    bool halts_ = false;
    std::size_t culprit_ = 0;
    short_line failed_at_;
    short_line thrown_from_;  // where an exception has left the last call
    message inbox_;
    std::vector<std::unique_ptr<requests>> outbox_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void watch::remove(const collective& removed) noexcept {
    std::erase(collectives_, &removed);
    past_[removed_++ % past_.size()] = removed.now();
}

LOCKSTEP_FUNCTION bool watch::goes_on(wait& waiting, std::uint64_t channel) {
    if (waiting.watch_ == nullptr) {
        waiting.watch_ = this;
        waiting.ended_ = [](wait& over) noexcept { over.watch_->current_ = over.outer_; };
        waiting.outer_ = current_;
        current_ = &waiting;
        hopeless_ = reason::none;
    }
    if (!waiting.told_ && waiting.waited_ >= std::chrono::milliseconds{20}) {
        waiting.told_ = true;
        hopeless_ = reason::none;
        std::array<std::size_t, most_peers> peers;
        const message mine = compose(kind::waits, channel, waiting.now());
        for (const std::size_t rank : waits_for(peers)) send(rank, mine);
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            if (ranks_[rank].asks) answer(rank);
    }
    // What is on its way may still come.
    return waiting.told_ && hopeless_ != reason::none &&
           std::chrono::steady_clock::now() - given_up_ > std::chrono::milliseconds{250};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION stalled watch::failure(std::uint64_t channel, bool hopeless,
                                                           std::chrono::duration<double> timeout, void (*check)(void*),
                                                           void* self) {
    std::string problem = hopeless ? why() : core::text("rank ", over_.rank(), " has waited ", timeout.count(), " s");
    if (!hopeless) {
        const std::string others = waited_for();
        if (!others.empty()) problem += core::text(" for ", others);
    }
    const std::string remedy =
        hopeless ? "make the same calls in the same order, with the same sizes and types, on all ranks:\n"
                 : "see where the ranks are; if one is only slow, raise LOCKSTEP_TIMEOUT or the plan's timeout:\n";
    ask_all(channel, check, self);
    std::string where = report();
    if (const auto* other = aborts().beside(channel))
        where += core::text("\n    rank ", other->from, " has failed in another group of these ranks: ", other->text);
    return {problem, remedy + where};
}

LOCKSTEP_FUNCTION void watch::describe_call_site(short_line& out) const noexcept {
    if (current_ != nullptr && current_->what_ != nullptr) {
        describe(out, *current_->what_, call_);
    } else if (call_ != nullptr) {
        out.add(current_ != nullptr ? "waiting in " : "computing in ");
        out.add(std::string_view{call_->name});
        out.add(call_->where);
    } else {
        out.add("outside lockstep");
        if (last_call_.name == nullptr) return;
        out.add(", after ");
        out.add(std::string_view{last_call_.name});
        out.add(last_call_.where);
    }
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void watch::ask_all(std::uint64_t channel, void (*check)(void*), void* self) {
    for (auto& other : ranks_) other.answered = false;
    halts_ = true;
    const message mine = compose(kind::halt, channel, {});
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        if (rank != over_.rank()) send(rank, mine);
    const auto begin = std::chrono::steady_clock::now();
    const auto goes_on = [&] {
        bool all = true, lower = false;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            all = all && (rank == over_.rank() || ranks_[rank].answered);
            lower = lower || (check != nullptr && rank < over_.rank() && ranks_[rank].halted == channel);
        }
        // The lowest rank speaks for all that give up at the same time.
        const auto most = std::chrono::milliseconds{lower ? 2000 : 500};
        return (lower || !all) && std::chrono::steady_clock::now() - begin < most;
    };
    struct end {
        bool& halts;
        ~end() { halts = false; }
    } const over{halts_};
    for (;;) {
        take();
        const bool more = goes_on();
        // After the answers: a rank that has failed meanwhile sent its abort before it answered from where it is now.
        if (check != nullptr) check(self);
        if (!more) return;
        std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
}

LOCKSTEP_FUNCTION watch::message watch::compose(kind what, std::uint64_t channel, const ticket& about) const noexcept {
    message out;
    out.what = what;
    out.channel = channel;
    out.about = about;
    if (current_ != nullptr) out.own = current_->now();
    std::array<std::size_t, most_peers> peers;
    for (const std::size_t rank : waits_for(peers)) out.waits_for[out.peers++] = static_cast<std::uint32_t>(rank);
    short_line line;
    describe_call_site(line);
    out.size = line.text().copy(out.call_site.data(), out.call_site.size());
    return out;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void watch::send(std::size_t to, const message& what) {
    std::erase_if(outbox_, [](const auto& sent) { return sent->test(); });  // a rank that is stopped takes nothing
    auto& sending = *outbox_.emplace_back(std::make_unique<requests>());
    sending.send(over_, to, tag, std::as_bytes(std::span{&what, 1}));
    (void)sending.test();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void watch::handle(std::size_t from) {
    entry& sender = ranks_[from];
    sender.last = inbox_;
    const ticket waiting = current_ == nullptr ? ticket{} : current_->now();
    const bool mine = waiting.run > 0 && waiting.group == inbox_.about.group && waiting.number == inbox_.about.number &&
                      waiting.run == inbox_.about.run;
    switch (inbox_.what) {
        case kind::waits:
            sender.question = inbox_;
            answer(from);
            return;
        case kind::blocked:
            // Both wait, each for something that the other has not begun: by the rule of equal order neither will.
            if (mine && knows(inbox_.own.group) && !started(inbox_.own)) give_up(reason::order, from);
            return;
        case kind::gone:
            if (mine) give_up(reason::gone, from);
            return;
        case kind::differs:
            if (mine) give_up(reason::differs, from);
            return;
        case kind::halt:
            sender.halted = inbox_.channel;
            sender.answered = true;
            send(from, compose(kind::here, inbox_.channel, {}));
            return;
        case kind::here:
            sender.answered = true;
            return;
    }
}

LOCKSTEP_FUNCTION void watch::answer(std::size_t to) {
    entry& asking = ranks_[to];
    const ticket& about = asking.question.about;
    asking.asks = false;
    const std::uint64_t channel = asking.question.channel;
    // Collectives of setup have one record, which tells of the last run only.
    const collective* const found = find(about);
    if (found != nullptr && found->fingerprint != about.fingerprint &&
        (about.number != 0 || found->runs == about.run)) {
        send(to, compose(kind::differs, channel, about));
        return;
    }
    // Another rank may have made a group that this one gave up to make.
    const bool makes = about.group == groups.setup.group && about.number == groups.setup.number;
    if (started(about) && !(makes && is_closed(channel))) return;
    if (is_closed(channel)) {
        send(to, compose(kind::gone, channel, about));
        return;
    }
    if (current_ != nullptr && current_->now().run > 0 && current_->waited_ >= std::chrono::milliseconds{20})
        send(to, compose(kind::blocked, channel, about));
    else
        asking.asks = true;
}

LOCKSTEP_FUNCTION std::string watch::list(const std::vector<bool>& ranks) {
    std::string out;
    std::size_t count = 0;
    for (std::size_t first = 0; first < ranks.size(); ++first) {
        if (!ranks[first]) continue;
        std::size_t last = first;
        while (last + 1 < ranks.size() && ranks[last + 1]) ++last;
        out += core::text(out.empty() ? "" : ", ", first);
        if (last > first) out += core::text("-", last);
        count += last - first + 1;
        first = last;
    }
    return count == 0 ? out : core::text(count == 1 ? "rank " : "ranks ", out);
}

LOCKSTEP_FUNCTION std::string watch::report() const {
    std::vector<entry> all = ranks_;
    all[over_.rank()].last = compose(kind::here, 0, {});
    std::string out;
    std::vector<bool> done(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (done[rank]) continue;
        const bool known = rank == over_.rank() || all[rank].answered;
        std::vector<bool> together(all.size()), waited_for(all.size());
        for (std::size_t other = rank; other < all.size(); ++other) {
            const bool other_known = other == over_.rank() || all[other].answered;
            if (done[other] || known != other_known || all[rank].last.text() != all[other].last.text()) continue;
            together[other] = done[other] = true;
            for (std::size_t i = 0; known && i < all[other].last.peers; ++i)
                waited_for[all[other].last.waits_for[i]] = true;
        }
        for (std::size_t other = 0; other < all.size(); ++other)
            waited_for[other] = waited_for[other] && !together[other];
        out += core::text(out.empty() ? "    " : "\n    ", list(together), ": ");
        if (!known) out += "no answer: stopped, cut off, or outside of calls on these ranks";
        if (!known && !all[rank].last.text().empty()) out += "; last heard of in ";
        out += all[rank].last.text();
        const std::string waits = list(waited_for);
        if (!waits.empty()) out += core::text(", waits for ", waits);
    }
    return out;
}

LOCKSTEP_FUNCTION std::string watch::why() const {
    if (hopeless_ == reason::gone) return core::text("rank ", culprit_, " has left what others wait for");
    const bool alike = ranks_[culprit_].last.text() == compose(kind::here, 0, {}).text();
    return core::text("ranks ", std::min(culprit_, over_.rank()), " and ", std::max(culprit_, over_.rank()),
                      hopeless_ == reason::differs
                          ? " are in collectives of different kind, size or type, or of different calls"
                          : " wait in different calls",
                      alike ? ", of different trainers or groups" : "");
}

LOCKSTEP_FUNCTION std::string watch::waited_for() const {
    std::array<std::size_t, most_peers> peers;
    std::vector<bool> all(ranks_.size());
    for (const std::size_t rank : waits_for(peers)) all[rank] = true;
    return list(all);
}

LOCKSTEP_FUNCTION void watch::describe_end(short_line& out) const noexcept {
    out.add("    rank ");
    out.add(over_.rank());
    out.add(" was told to end: ");
    describe_call_site(out);
    std::array<std::size_t, most_peers> peers;
    const char* before = ", waits for rank ";
    for (const std::size_t rank : waits_for(peers)) {
        out.add(std::string_view{before});
        out.add(rank);
        before = ", ";
    }
    out.end();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void watch::take() {
    while (const auto from = over_.take(tag, {reinterpret_cast<char*>(&inbox_), sizeof inbox_})) handle(from->from);
}

#endif

}  // namespace lockstep::comm
