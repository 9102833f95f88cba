// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Messages of a parameter server whose strips lie on all ranks: gradients are pushed, weights pulled, and rank 0 says
// in which order.
// Tested by tests/mpi/sync_push_pull.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/flow.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/watch/watched_collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/sync/sequencer.hpp"

namespace lockstep::sync {

/// Every rank is the server of a strip of the weights, and a learner, or one of `ranks_per_learner` that follow each
/// other and are one together, for which the first of them speaks. A learner that has a gradient tells rank 0, which
/// tells all ranks whose turn it is; each server makes the updates in that order, and sends a learner that starts its
/// strip as it is then: what a learner has read is one version of all weights, which its first rank hands on to the
/// others. A round begins and ends on all ranks together; in between nothing waits for a slower learner but where its
/// bound says so. Servers work in serve(), which learners call between layers, or a thread of its own while they are
/// computed. Memory: 3 n numbers, and 2 of the strip for each learner. Cost of a gradient: n numbers to the servers and
/// n back, n to each other rank of the learner, and a message of 0.7 KB from rank 0 to each rank.
template <class T>
class push_pull {
public:
    /// Collective: all ranks make it in the same order as their operations.
    [[gnu::cold]] push_pull(const comm::group& ranks, std::size_t n, std::size_t ranks_per_learner = 1)
        : ranks_{ranks.size() > 1 ? ranks.split(0, ranks.rank()) : ranks},  // receives wait between rounds: own tags
          what_{ranks_.aborts().watched_by(),
                {.group = ranks_.record().id,
                 .number = ranks_.next_number(),
                 .elements = n,
                 .unit = comm::unit_of<T>,
                 .kind = comm::short_name{"a round"},
                 .what = comm::short_name{"parameter server"}}},
          per_learner_{ranks_per_learner},
          strip_{parallel::split(n, ranks.size(), ranks.rank())},
          gradient_(speaks() ? n : 0),
          pulled_(n),
          served_(strip_.size()),
          told_(ranks.size()),
          notes_(learners()),
          orders_(ranks.size()),
          pushes_(ranks.size()),
          pulls_(ranks.size()),
          from_(learners()),
          to_(learners()),
          note_messages_(learners()),
          order_messages_(ranks.size()),
          shares_(ranks.size()) {
        if (n > std::numeric_limits<int>::max() / sizeof(T))
            core::fail(core::text("a parameter server has ", n, " weights of ", sizeof(T), " bytes"),
                       "use sync::every_step, whose messages are cut in pieces");
        for (int& tag : tags_) tag = ranks_.tag_of(ranks_.next_number(), what_->fingerprint);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
            strips_.push_back(parallel::split(n, ranks.size(), rank));
        for (std::size_t learner = 0; learner < learners(); ++learner) {
            pushed_.emplace_back(speaker_of(learner) == me() ? 0 : strip_.size());
            answers_.emplace_back(speaker_of(learner) == me() ? 0 : strip_.size());
        }
    }

    /// That of a rank.
    [[nodiscard]] std::size_t learner_of(std::size_t rank) const noexcept { return rank / per_learner_; }
    /// Whether this rank is the first one of its learner, which pushes its gradients.
    [[nodiscard]] bool speaks() const noexcept { return me() == speaker_of(mine()); }

    /// The numbers whose updates this rank makes, and those of each rank.
    [[nodiscard]] parallel::block strip() const noexcept { return strip_; }
    [[nodiscard]] std::span<const parallel::block> strips() const noexcept { return strips_; }

    /// A round of `count` updates with minibatches `first` ..; `weights` are those after `first` updates, all of them,
    /// alike on all ranks. `seconds`, of rank 0: after the first minibatches none is handed out that is expected to end
    /// later, by the longest gradient of the round so far.
    void begin(std::span<const T> weights, std::uint64_t first, std::uint64_t count, std::optional<std::uint64_t> bound,
               double seconds = std::numeric_limits<double>::infinity()) {
        ++what_->runs;
        began_ = clock::now();
        seconds_ = seconds;
        longest_ = 0;
        time_is_over_ = false;
        std::copy_n(weights.data() + strip_.first, strip_.size(), served_.data());
        events_.clear();
        handled_ = 0;
        is_over_ = has_task_ = has_pushed_ = false;
        for (std::size_t learner = 0; learner < learners(); ++learner)
            if (speaker_of(learner) != me() && !from_[learner].is_under_way()) receive_gradient(learner);
        receive_weights();
        if (me() != 0) {
            if (!order_messages_[me()].is_under_way()) receive_orders();
            return;
        }
        std::ranges::fill(told_, 0);
        for (std::size_t learner = 1; learner < learners(); ++learner)
            if (!note_messages_[learner].is_under_way()) receive_note(learner);
        desk_.begin(learners(), first, count, bound);
        desk_.start_all(0);
    }

    /// Takes what has come, and does what a server does: update(strip, gradient of the strip, number of the update)
    /// changes the weights of the strip. Does not wait.
    template <class Update>
    void serve(const Update& update) {
        if (events_.empty() && what_->runs == 0) return;
        me() == 0 ? order() : hear();
        for (; handled_ < events_.size(); ++handled_) {
            const server_event& one = events_[handled_];
            if (one.what == server_event::kind::start) {
                if (has_task_ && one.learner == mine()) break;  // the first rank of the learner has finished it already
                if (!answer(one.learner)) break;
                if (one.learner != mine()) continue;
                task_ = one.gradient;
                has_task_ = true;
            } else if (one.what == server_event::kind::update) {
                const bool is_mine = speaker_of(one.learner) == me();
                if (is_mine ? !has_pushed_ : !has_come(from_[one.learner])) break;
                update(std::span<T>{served_},
                       is_mine ? std::span<const T>{gradient_}.subspan(strip_.first, strip_.size())
                               : std::span<const T>{pushed_[one.learner]},
                       one.version);
                is_mine ? void(has_pushed_ = false) : receive_gradient(one.learner);
            } else {
                is_over_ = true;
            }
        }
        for (auto& one : pushes_) (void)one.test(name);
    }

    /// Serves until this learner has a minibatch to work on, or the round is over: false.
    template <class Update>
    [[nodiscard]] bool wait_for_task(const Update& update) {
        for (comm::backoff waiting{pending()};;) {
            serve(update);
            if (has_task_ && weights_are_here()) {
                has_task_ = false;
                share_weights();
                return true;
            }
            if (is_over_ && all_is_told()) return false;
            waiting.wait(ranks_.aborts());
        }
    }
    /// What this learner works on: its minibatch and the version of its weights.
    [[nodiscard]] const sent_gradient& task() const noexcept { return task_; }
    /// Its weights, which are whole.
    [[nodiscard]] std::span<const T> weights() const noexcept { return pulled_; }
    /// Where its first rank puts its gradient before push().
    [[nodiscard]] std::span<T> gradient() noexcept { return gradient_; }
    /// The gradient of the task sets off. On all ranks of the learner, which have all read their weights.
    void push(const sent_gradient& what) {
        if (!speaks()) return receive_weights();
        for (comm::single_message& one : shares_)
            while (!one.test(name)) ranks_.aborts().glance();  // they have come, or there were no gradient
        receive_weights();
        has_pushed_ = true;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (rank == me() || strips_[rank].empty()) continue;
            pushes_[rank].send(over(), rank, tags_[gradients],
                               std::as_bytes(std::span{gradient_}.subspan(strips_[rank].first, strips_[rank].size())));
            bytes_ += strips_[rank].size() * sizeof(T);
        }
        if (me() == 0) return sent(0, what);
        notes_[mine()] = what;
        note_messages_[mine()].send(over(), 0, tags_[notes], bytes_of(notes_[mine()]));
        bytes_ += sizeof what;
    }
    /// On rank 0: whether the round ends because of its seconds.
    [[nodiscard]] bool time_is_over() const noexcept { return time_is_over_; }

    /// After the round: all that has happened in it, alike on all ranks.
    [[nodiscard]] std::span<const server_event> events() const noexcept { return events_; }
    /// The weights of the strip after it.
    [[nodiscard]] std::span<const T> served() const noexcept { return served_; }
    /// How many messages have come to this rank so far.
    [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
    /// Sent by this rank so far.
    [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_; }
    /// Reserved for messages, in bytes.
    [[nodiscard]] std::size_t message_bytes() const noexcept {
        const std::size_t others = learners() - (speaks() ? 1 : 0);
        return (gradient_.size() + pulled_.size() + served_.size() * (2 * others + 1)) * sizeof(T);
    }

private:
    using clock = std::chrono::steady_clock;
    enum tag_of : std::uint8_t { gradients, weights_back, notes, orders, shared_weights };
    static constexpr const char* name = "a round of a parameter server";

    struct order_list {
        std::uint64_t count = 0;
        std::array<server_event, 8> events{};
    };

    [[nodiscard]] std::size_t me() const noexcept { return ranks_.rank(); }
    [[nodiscard]] std::size_t mine() const noexcept { return learner_of(me()); }
    [[nodiscard]] std::size_t learners() const noexcept { return learner_of(ranks_.size() - 1) + 1; }
    [[nodiscard]] std::size_t speaker_of(std::size_t learner) const noexcept { return learner * per_learner_; }
    [[nodiscard]] const comm::transport& over() const noexcept { return ranks_.over(); }
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - began_).count(); }
    template <class U>
    [[nodiscard]] static std::span<std::byte> bytes_of(U& one) noexcept {
        return std::as_writable_bytes(std::span{&one, 1});
    }
    [[nodiscard]] static std::span<std::byte> bytes_of(comm::buffer<T>& all) noexcept {
        return std::as_writable_bytes(std::span{all});
    }
    [[nodiscard]] bool has_come(comm::single_message& one) {
        const bool was_under_way = one.is_under_way(), out = one.test(name);
        if (was_under_way && out) ++received_;
        return out;
    }

    void receive_gradient(std::size_t learner) {
        if (!strip_.empty())
            from_[learner].receive(over(), speaker_of(learner), tags_[gradients], bytes_of(pushed_[learner]));
    }
    void receive_weights() {
        if (!speaks()) {
            auto& share = shares_[me()];
            if (!share.is_under_way())
                share.receive(over(), speaker_of(mine()), tags_[shared_weights], bytes_of(pulled_));
            return;
        }
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            if (rank != me() && !strips_[rank].empty() && !pulls_[rank].is_under_way())
                pulls_[rank].receive(
                    over(), rank, tags_[weights_back],
                    std::as_writable_bytes(std::span{pulled_}.subspan(strips_[rank].first, strips_[rank].size())));
    }
    /// To the other ranks of the learner.
    void share_weights() {
        if (!speaks()) return;
        for (std::size_t rank = me() + 1; rank < std::min(me() + per_learner_, ranks_.size()); ++rank) {
            shares_[rank].send(over(), rank, tags_[shared_weights], std::as_bytes(std::span{pulled_}));
            bytes_ += pulled_.size() * sizeof(T);
        }
    }
    void receive_note(std::size_t learner) {
        note_messages_[learner].receive(over(), speaker_of(learner), tags_[notes], bytes_of(notes_[learner]));
    }

    /// A server sends its strip to a learner that starts. False: the one before has not gone yet.
    [[nodiscard]] bool answer(std::size_t learner) {
        const std::size_t speaker = speaker_of(learner);
        if (speaker == me()) {
            std::copy_n(served_.data(), served_.size(), pulled_.data() + strip_.first);
            return true;
        }
        if (!to_[learner].test(name)) return false;
        if (strip_.empty()) return true;
        std::ranges::copy(served_, answers_[learner].begin());
        to_[learner].send(over(), speaker, tags_[weights_back], std::as_bytes(std::span{answers_[learner]}));
        bytes_ += served_.size() * sizeof(T);
        return true;
    }

    void receive_orders() { order_messages_[me()].receive(over(), 0, tags_[orders], bytes_of(orders_[me()])); }

    /// Rank 0 hears of a gradient.
    void sent(std::size_t learner, const sent_gradient& what) {
        longest_ = std::max(longest_, what.seconds);
        if (seconds() + longest_ > seconds_) {
            time_is_over_ = true;
            desk_.stop();
        }
        desk_.sent(learner, what, seconds());
    }
    /// Rank 0: hears of gradients, and tells all ranks what comes next.
    void order() {
        for (std::size_t learner = 1; learner < learners(); ++learner)
            if (has_come(note_messages_[learner])) {
                const sent_gradient what = notes_[learner];
                receive_note(learner);
                sent(learner, what);
            }
        const auto all = desk_.events();
        events_.insert(events_.end(), all.begin() + static_cast<std::ptrdiff_t>(events_.size()), all.end());
        for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
            if (told_[rank] == events_.size() || !order_messages_[rank].test(name)) continue;
            order_list& out = orders_[rank];
            out.count = std::min(events_.size() - told_[rank], out.events.size());
            std::copy_n(events_.data() + told_[rank], out.count, out.events.begin());
            told_[rank] += out.count;
            order_messages_[rank].send(over(), rank, tags_[orders], bytes_of(out));
            bytes_ += sizeof out;
        }
    }
    /// Other ranks hear of it. Not of the next round, whose begin() is to come.
    void hear() {
        while (order_messages_[me()].is_under_way() && has_come(order_messages_[me()])) {
            const auto heard = std::span{orders_[me()].events}.first(orders_[me()].count);
            events_.insert(events_.end(), heard.begin(), heard.end());
            if (heard.back().what != server_event::kind::end) receive_orders();
        }
    }
    [[nodiscard]] bool weights_are_here() {
        if (!speaks()) return has_come(shares_[me()]);
        bool out = me() == 0 || note_messages_[mine()].test(name);
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            out = has_come(pulls_[rank]) && pushes_[rank].test(name) && out;
        return out;
    }
    [[nodiscard]] bool all_is_told() {
        bool out = true;
        for (std::size_t rank = 1; me() == 0 && rank < ranks_.size(); ++rank)
            out = told_[rank] == events_.size() && order_messages_[rank].test(name) && out;
        return out;
    }

    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return {.what = &*what_,
                .in = &ranks_.record(),
                .self = this,
                .peers = [](const void* self,
                            std::span<std::size_t> out) { return static_cast<const push_pull*>(self)->waits_for(out); },
                .progress = [](const void* of) { return static_cast<const push_pull*>(of)->received_; },
                .of = this};
    }
    /// Of a learner with a task: servers whose weights have not come, or its first rank; else rank 0, and on it all
    /// others.
    [[nodiscard]] std::size_t waits_for(std::span<std::size_t> out) const {
        std::size_t count = 0;
        for (std::size_t rank = 0; rank < ranks_.size() && count < out.size(); ++rank) {
            const bool is_late = speaks() ? pulls_[rank].is_under_way() : rank == speaker_of(mine());
            if (rank != me() && (has_task_ ? is_late : rank == 0 || me() == 0)) out[count++] = rank;
        }
        return count;
    }

    comm::group ranks_;
    comm::watched_collective what_;
    std::array<int, 5> tags_{};
    std::size_t per_learner_;
    parallel::block strip_;
    std::vector<parallel::block> strips_;
    clock::time_point began_{};
    double seconds_ = 0, longest_ = 0;  // of the round, and of a gradient of it
    bool time_is_over_ = false;
    sequencer desk_;                    // on rank 0
    std::vector<server_event> events_;  // of the round, as far as this rank has heard
    std::size_t handled_ = 0;           // of them, as a server
    bool is_over_ = false, has_task_ = false, has_pushed_ = false;
    sent_gradient task_{};
    std::uint64_t received_ = 0;
    std::size_t bytes_ = 0;

    // Memory comes before the messages that use it.
    comm::buffer<T> gradient_, pulled_, served_;
    std::vector<comm::buffer<T>> pushed_, answers_;  // by learner: a gradient of the strip, its weights
    std::vector<std::size_t> told_;                  // events that rank 0 has sent to a rank
    comm::buffer<sent_gradient> notes_;              // what each learner tells rank 0,
    comm::buffer<order_list> orders_;                // and each rank hears from it
    std::vector<comm::single_message> pushes_, pulls_, from_, to_, note_messages_, order_messages_, shares_;
};

}  // namespace lockstep::sync
