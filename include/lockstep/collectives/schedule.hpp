// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A collective as plain data: the program of one rank, in rounds of messages and local operations over ranges. Knows
// neither MPI nor the element type.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::collectives {

/// Which array a range lies in: the caller's, or the scratch whose size the schedule states.
enum class space : std::uint8_t { data, work };

/// A run of elements.
struct range {
    space in = space::data;
    std::size_t first = 0;
    std::size_t count = 0;
    [[nodiscard]] constexpr std::size_t last() const noexcept { return first + count; }
    friend constexpr bool operator==(const range&, const range&) = default;
};

[[nodiscard]] constexpr range in_data(std::size_t first, std::size_t count) noexcept {
    return {space::data, first, count};
}
[[nodiscard]] constexpr range in_data(parallel::block block) noexcept {
    return {space::data, block.first, block.size()};
}
[[nodiscard]] constexpr range in_work(std::size_t first, std::size_t count) noexcept {
    return {space::work, first, count};
}

[[nodiscard]] constexpr bool overlap(const range& a, const range& b) noexcept {
    return a.in == b.in && a.first < b.last() && b.first < a.last();
}

/// One message: `what` goes to the peer, or is overwritten by what comes from it.
struct message {
    std::size_t peer = 0;
    range what;
};

enum class action : std::uint8_t { add, copy };

/// add: to = to + from. copy: to = from. The ranges are equally long and disjoint.
struct local_operation {
    action what = action::add;
    range to;
    range from;
};

/// Messages and elements that one rank sends.
struct traffic {
    std::size_t messages = 0;
    std::size_t elements = 0;
    constexpr traffic& operator+=(const traffic& other) noexcept {
        messages += other.messages;
        elements += other.elements;
        return *this;
    }
    friend constexpr traffic operator+(traffic a, const traffic& b) noexcept { return a += b; }
    friend constexpr bool operator==(const traffic&, const traffic&) = default;
};

/// Elements of all strips together.
[[nodiscard, gnu::cold]] inline std::size_t total(std::span<const parallel::block> strips) noexcept {
    std::size_t sum = 0;
    for (const auto& strip : strips) sum += strip.size();
    return sum;
}

/// The program of one rank. All messages of a round are under way at once; when they are complete, its local operations
/// run in order, or as if they did. The k-th message that a rank sends to a peer is the k-th that the peer receives
/// from it, whatever the rounds are called on either side.
class schedule {
public:
    /// Index ranges into sends(), receives() and locals().
    struct round {
        parallel::block sends;
        parallel::block receives;
        parallel::block locals;
    };

    schedule() = default;
    /// `invariant`: every element is added in an order that the number of ranks does not change. `elements`: of the
    /// whole collective.
    explicit schedule(std::string name, bool invariant, std::size_t elements = 0)
        : name_{std::move(name)}, invariant_{invariant}, elements_{elements} {}

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] bool invariant() const noexcept { return invariant_; }
    /// Elements of the whole collective; 0: not said. Equal on all ranks, as the name is: with the type they tell it
    /// from others (comm/watch/watch.hpp).
    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    /// Elements of data and of scratch that the program touches.
    [[nodiscard]] std::size_t data_size() const noexcept { return size_[0]; }
    [[nodiscard]] std::size_t work_size() const noexcept { return size_[1]; }
    [[nodiscard]] const std::vector<message>& sends() const noexcept { return sends_; }
    [[nodiscard]] const std::vector<message>& receives() const noexcept { return receives_; }
    [[nodiscard]] const std::vector<local_operation>& locals() const noexcept { return locals_; }
    [[nodiscard]] const std::vector<round>& rounds() const noexcept { return rounds_; }

    [[nodiscard]] traffic sent() const noexcept { return count(sends_); }
    [[nodiscard]] traffic received() const noexcept { return count(receives_); }
    /// Elements that this rank adds.
    [[nodiscard]] std::size_t added() const noexcept {
        std::size_t sum = 0;
        for (const auto& local : locals_) sum += local.what == action::add ? local.to.count : 0;
        return sum;
    }

    /// Into the round that is being written. Nothing is noted for an empty range, on either side.
    [[gnu::cold]] void send(std::size_t peer, range what) {
        if (what.count == 0) return;
        touch(what);
        sends_.push_back({peer, what});
    }
    [[gnu::cold]] void receive(std::size_t peer, range what) {
        if (what.count == 0) return;
        touch(what);
        receives_.push_back({peer, what});
    }
    void add(range to, range from) { append({action::add, to, from}); }
    void copy(range to, range from) { append({action::copy, to, from}); }

    /// Closes the round that is being written; what follows belongs to the next. An empty round leaves no trace.
    [[gnu::cold]] void end_round();

    /// This program, then another of the same rank, whose data begins at element `shift` of ours. Scratch is shared.
    /// Elements are those of the larger one.
    schedule& then(const schedule& next, std::size_t shift = 0);

private:
    void touch(const range& what) {
        auto& size = size_[static_cast<std::size_t>(what.in)];
        size = std::max(size, core::checked_sum("elements of a schedule", what.first, what.count));
    }

    /// Neighbouring operations of one kind become one, so that a loop runs over as many elements as it can.
    [[gnu::cold]] void append(const local_operation& next);

    static traffic count(const std::vector<message>& messages) noexcept {
        traffic sum;
        for (const message& sent : messages) sum += {1, sent.what.count};
        return sum;
    }

    std::string name_;
    bool invariant_ = true;
    std::size_t elements_ = 0;
    std::size_t size_[2] = {0, 0};
    std::vector<message> sends_;
    std::vector<message> receives_;
    std::vector<local_operation> locals_;
    std::vector<round> rounds_;
};

/// The same program with a message for each element, for elements of varying length.
[[nodiscard, gnu::cold]] schedule in_single_elements(const schedule& program);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION schedule in_single_elements(const schedule& program) {
    schedule out{program.name(), program.invariant(), program.elements()};
    const auto each = [](const range& what, const auto& f) {
        for (std::size_t i = 0; i < what.count; ++i) f(range{what.in, what.first + i, 1});
    };
    for (const auto& round : program.rounds()) {
        for (std::size_t i = round.sends.first; i < round.sends.last; ++i)
            each(program.sends()[i].what, [&](const range& one) { out.send(program.sends()[i].peer, one); });
        for (std::size_t i = round.receives.first; i < round.receives.last; ++i)
            each(program.receives()[i].what, [&](const range& one) { out.receive(program.receives()[i].peer, one); });
        for (std::size_t i = round.locals.first; i < round.locals.last; ++i) {
            const local_operation& local = program.locals()[i];
            local.what == action::add ? out.add(local.to, local.from) : out.copy(local.to, local.from);
        }
        out.end_round();
    }
    return out;
}

LOCKSTEP_FUNCTION void schedule::end_round() {
    const round last = rounds_.empty() ? round{} : rounds_.back();
    const round now{
        {last.sends.last, sends_.size()}, {last.receives.last, receives_.size()}, {last.locals.last, locals_.size()}};
    if (!now.sends.empty() || !now.receives.empty() || !now.locals.empty()) rounds_.push_back(now);
}

LOCKSTEP_FUNCTION void schedule::append(const local_operation& next) {
    if (next.to.count == 0) return;
    touch(next.to);
    touch(next.from);
    const std::size_t begun = rounds_.empty() ? 0 : rounds_.back().locals.last;
    if (locals_.size() > begun) {
        local_operation& last = locals_.back();
        const local_operation joined{last.what,
                                     {last.to.in, last.to.first, last.to.count + next.to.count},
                                     {last.from.in, last.from.first, last.from.count + next.from.count}};
        if (last.what == next.what && last.to.in == next.to.in && last.from.in == next.from.in &&
            last.to.last() == next.to.first && last.from.last() == next.from.first &&
            !overlap(joined.to, joined.from)) {
            last = joined;
            return;
        }
    }
    locals_.push_back(next);
}

LOCKSTEP_FUNCTION schedule& schedule::then(const schedule& next, std::size_t shift) {
    end_round();
    const auto moved = [shift](range what) {
        if (what.in == space::data) what.first += shift;
        return what;
    };
    for (const round& part : next.rounds_) {
        for (std::size_t i = part.sends.first; i < part.sends.last; ++i)
            send(next.sends_[i].peer, moved(next.sends_[i].what));
        for (std::size_t i = part.receives.first; i < part.receives.last; ++i)
            receive(next.receives_[i].peer, moved(next.receives_[i].what));
        for (std::size_t i = part.locals.first; i < part.locals.last; ++i)
            append({next.locals_[i].what, moved(next.locals_[i].to), moved(next.locals_[i].from)});
        end_round();
    }
    name_ += name_.empty() ? next.name_ : " + " + next.name_;
    invariant_ = invariant_ && next.invariant_;
    elements_ = std::max(elements_, next.elements_);
    return *this;
}

#endif

}  // namespace lockstep::collectives
