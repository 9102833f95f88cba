// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a schedule over MPI: started, polled between kernels, finished; the same object again in the next step, without
// an allocation.
// Tested by tests/mpi/comm_executor.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/flow.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/watch/watched_collective.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::comm {

/// Element types that a schedule with additions may run over.
template <class T>
inline constexpr bool is_addable = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// to = to + from, element by element.
template <class T>
    requires is_addable<T>
inline void add(parallel::team team, T* to, const T* from, std::size_t n) noexcept {
    parallel::for_blocks(team, n, 4096, [=](parallel::block part) {
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
            simd::map(
                part.size(), [](auto& sum, const auto& other) { sum = sum + other; }, to + part.first,
                from + part.first);
        else if constexpr (requires { add_rounded(to, from, n); })
            add_rounded(to + part.first, from + part.first, part.size());
        else
            for (std::size_t i = part.first; i < part.last; ++i) to[i] = static_cast<T>(to[i] + from[i]);
    });
}

namespace detail {

/// What an element type is to the executor: its size, and how its elements are added. With `merge` elements are of
/// varying length: each begins with its length in bytes, a number of 64 bits, and has room for `size`. Each of them is
/// a message, which has no more bytes than that. merge(how, to, from, scratch): to = to + from, with scratch of `size`.
struct element {
    std::size_t size = 1;
    const char* unit = "elements";
    void (*add)(parallel::team, std::byte* to, const std::byte* from, std::size_t n) noexcept = nullptr;
    void (*merge)(const void* how, std::byte* to, const std::byte* from, std::byte* scratch) noexcept = nullptr;
    const void* how = nullptr;
    [[nodiscard]] bool varies() const noexcept { return merge != nullptr; }
};

template <class T>
[[nodiscard]] constexpr element element_of() noexcept {
    constexpr const char* unit = unit_of<T>;
    if constexpr (is_addable<T>)
        return {sizeof(T), unit, [](parallel::team team, std::byte* to, const std::byte* from, std::size_t n) noexcept {
                    comm::add(team, reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), n);
                }};
    else
        return {sizeof(T), unit, nullptr};
}

/// An operation without its element type, so that one copy of the code serves all of them.
class untyped_operation {
public:
    [[gnu::cold]] untyped_operation(group ranks, collectives::schedule program, parallel::team team, std::size_t piece,
                                    urgency soon, element type);
    untyped_operation(untyped_operation&&) noexcept = default;
    ~untyped_operation();  // of which there is one copy, whatever holds operations

    void start(std::byte* data, std::size_t data_size, std::byte* work, std::size_t work_size,
               const std::source_location& where);

    bool progress() { return running_ ? advance() : !stopped_; }

    bool poll() {
        if (progress()) return true;
        if (++polls_ % backoff::check_interval == 0) check();
        return false;
    }

    void finish();

    [[nodiscard]] bool running() const noexcept { return running_; }
    [[nodiscard]] const collectives::schedule& program() const noexcept { return program_; }
    [[nodiscard]] const flow& under_way() const noexcept { return under_way_; }
    [[nodiscard]] const collective& what() const noexcept { return *what_; }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return {.what = &*what_,
                .in = &ranks_.record(),
                .self = this,
                .peers = [](const void* self,
                            std::span<std::size_t> out) { return operation_of(self).under_way_.peers(out); },
                .progress = [](const void* self) -> std::uint64_t { return operation_of(self).under_way_.completed(); },
                .of = this};
    }

private:
    [[nodiscard]] static const untyped_operation& operation_of(const void* self) noexcept {
        return *static_cast<const untyped_operation*>(self);
    }

    /// Where a message stands in its stream.
    struct link {
        bool leads = true;
        std::size_t next = flow::none;
    };

    /// What start() needs to know, for each message and local operation; and room for the largest round.
    [[gnu::cold]] void prepare();

    /// Links the messages of one round and direction with the same peer; they have the numbers from `first` on. Returns
    /// the pieces in flight.
    [[nodiscard, gnu::cold]] std::size_t chain(const std::vector<collectives::message>& all, parallel::block part,
                                               std::size_t first, std::vector<link>& links) const {
        std::size_t slots = 0;
        for (std::size_t i = part.first; i < part.last; ++i) {
            slots += std::min(flow::window, under_way_.pieces(all[i].what.count * type_.size));
            for (std::size_t next = i + 1; next < part.last && links[i].next == flow::none; ++next) {
                if (all[next].peer != all[i].peer) continue;
                links[i].next = first + next - part.first;
                links[next].leads = false;
            }
        }
        return slots;
    }

    /// The message whose pieces a local operation may use as they arrive, if nothing else of the round touches what it
    /// writes and it needs nothing else: so an element is added at the same position of the same order, only earlier.
    [[nodiscard, gnu::cold]] std::size_t source(const collectives::schedule::round& round,
                                                std::size_t number) const noexcept;

    [[nodiscard]] std::byte* at(const collectives::range& what) const noexcept {
        return arrays_[static_cast<std::size_t>(what.in)] + what.first * type_.size;
    }
    [[nodiscard]] std::span<std::byte> bytes(const collectives::range& what) const noexcept {
        return {at(what), what.count * type_.size};
    }
    [[nodiscard]] static std::size_t length_of(const std::byte* element) noexcept {
        std::uint64_t out = 0;
        std::memcpy(&out, element, sizeof(out));
        return out;
    }

    void post();

    bool advance();

    /// Elements first .. first + count - 1 of a local operation.
    void apply(const collectives::local_operation& local, std::size_t first, std::size_t count) const noexcept {
        if (type_.varies())
            combine(local);
        else if (local.what == collectives::action::copy)
            std::copy_n(at(local.from) + first * type_.size, count * type_.size, at(local.to) + first * type_.size);
        else
            type_.add(team_, at(local.to) + first * type_.size, at(local.from) + first * type_.size, count);
    }

    /// Whole elements of varying length. Scratch lies after what the schedule uses.
    void combine(const collectives::local_operation& local) const noexcept {
        std::byte* const scratch = arrays_[1] + program_.work_size() * type_.size;
        for (std::size_t i = 0; i < local.to.count; ++i) {
            std::byte* const to = at(local.to) + i * type_.size;
            const std::byte* const from = at(local.from) + i * type_.size;
            if (local.what == collectives::action::copy)
                std::copy_n(from, length_of(from), to);
            else
                type_.merge(type_.how, to, from, scratch);
        }
    }

    [[gnu::cold]] void check() {
        try {
            ranks_.check();
        } catch (...) {
            stop();
            throw;
        }
    }

    /// A message was lost, or had another length than this schedule says.
    [[noreturn, gnu::cold]] void refuse();

    [[gnu::cold]] void stop() noexcept {
        under_way_.abandon();
        running_ = false;
        stopped_ = true;
    }

    group ranks_;
    collectives::schedule program_;
    parallel::team team_;
    element type_;
    watched_collective what_;
    flow under_way_;
    std::vector<link> send_links_;
    std::vector<link> receive_links_;
    std::vector<std::size_t> early_;  // of each local operation: the message whose pieces it uses as they arrive
    std::vector<std::size_t> early_begin_, early_list_;  // the same, of each message
    std::byte* arrays_[2] = {nullptr, nullptr};
    std::size_t round_ = 0;
    std::size_t polls_ = 0;
    bool running_ = false;
    bool stopped_ = false;  // before its end, by a failure
};

}  // namespace detail

/// One schedule, ready to run over one group. Made in the same order on all ranks: that gives the messages of each
/// operation their own tag, so many operations may be in flight, started and polled in any order: all but two of a
/// group that are 32,766 operations apart and alike. finish()
/// moves its own operation only: ranks finish several in the same order. Several starts of one operation never overlap.
template <class T>
class operation {
    static_assert(std::is_trivially_copyable_v<T>, "messages are bytes: elements must be trivially copyable");

public:
    /// `team`: threads for the additions. `piece`: longer messages travel in parts of so many bytes, equal on all
    /// ranks. `soon`: how urgent its messages are among those of other operations in flight (see comm/send_order.hpp);
    /// ranks need not agree.
    operation(group ranks, collectives::schedule program, parallel::team team = {},
              std::size_t piece = flow::usual_piece, urgency soon = {})
        : run_{std::move(ranks), std::move(program), team, piece, soon, detail::element_of<T>()} {}

    /// `data` and `work` hold at least what the schedule says and stay where they are until the end; after a failure,
    /// until the end of the program, as a `buffer` does by itself. Sends at once what can be sent. Throws core::error
    /// if they are too short or the operation is running.
    void start(std::span<T> data, std::span<T> work,
               const std::source_location& where = std::source_location::current()) {
        run_.start(reinterpret_cast<std::byte*>(data.data()), data.size(), reinterpret_cast<std::byte*>(work.data()),
                   work.size(), where);
    }
    /// Makes what progress it can without waiting; true when the operation is over. Now and then looks for a failure:
    /// throws remote_failure.
    bool poll() { return run_.poll(); }
    /// The same without a look for failures: the operation can still end when others have failed. Never true where
    /// poll() or finish() has thrown: they take the messages back.
    bool progress() { return run_.progress(); }
    /// Waits until the operation is over. Throws remote_failure if a rank of the group has announced one, and
    /// core::error, on all ranks alike, if the wait has no end or lasts longer than the timeout (see
    /// comm/watch/watch.hpp). Where poll() or finish() has thrown, it throws again, and so does start().
    void finish() { run_.finish(); }

    void run(std::span<T> data, std::span<T> work,
             const std::source_location& where = std::source_location::current()) {
        start(data, work, where);
        finish();
    }

    [[nodiscard]] bool running() const noexcept { return run_.running(); }
    [[nodiscard]] const collectives::schedule& program() const noexcept { return run_.program(); }
    /// What the watch knows of it.
    [[nodiscard]] const collective& what() const noexcept { return run_.what(); }
    /// For a wait of one's own that polls it.
    [[nodiscard]] comm::pending_operation pending() const noexcept { return run_.pending(); }
    /// Messages and bytes handed to MPI by this rank since construction.
    [[nodiscard]] std::size_t sent_messages() const noexcept { return run_.under_way().sent_messages(); }
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return run_.under_way().sent_bytes(); }

private:
    detail::untyped_operation run_;
};

/// Runs a schedule to its end, with scratch of its own. For setup and tests: allocates.
template <class T>
void run(const group& ranks, collectives::schedule program, buffer<T>& data,
         const std::source_location& where = std::source_location::current()) {
    buffer<T> work(program.work_size());
    operation<T> once{ranks, std::move(program)};
    once.run(data, work, where);
}
/// The same for memory that goes with an exception: MPI is given a copy.
template <class T>
void run(const group& ranks, collectives::schedule program, std::span<T> data,
         const std::source_location& where = std::source_location::current()) {
    buffer<T> copy(data.begin(), data.end());
    run(ranks, std::move(program), copy, where);
    std::copy(copy.begin(), copy.end(), data.begin());
}

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION untyped_operation::untyped_operation(group ranks, collectives::schedule program, parallel::team team,
                                                       std::size_t piece, urgency soon, element type)
    : ranks_{std::move(ranks)},
      program_{type.varies() ? collectives::in_single_elements(program) : std::move(program)},
      team_{team},
      type_{type},
      what_{ranks_.aborts().watched_by(),
            {.group = ranks_.record().id,
             .number = ranks_.next_number(),
             .elements = program_.elements(),
             .unit = type.unit,
             .kind = short_name{program_.name()},
             .what = ranks_.what()}},
      // Pieces hold whole elements but where these are used as a whole.
      under_way_{ranks_.over().communicator(), ranks_.tag_of(what_->number, core::mix(what_->fingerprint + type.size)),
                 type.varies() ? std::min(piece, flow::largest_piece)
                               : std::max<std::size_t>(1, std::min(piece, flow::largest_piece) / type.size) * type.size,
                 soon} {
    if (type.add == nullptr && type.merge == nullptr && program_.added() > 0)
        core::fail(core::text("the schedule '", program_.name(), "' adds elements of a type that has no sum"),
                   "use a gathering schedule, or an arithmetic element type");
    prepare();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION untyped_operation::~untyped_operation() {}

[[gnu::noinline]] LOCKSTEP_FUNCTION void untyped_operation::start(std::byte* data, std::size_t data_size,
                                                                  std::byte* work, std::size_t work_size,
                                                                  const std::source_location& where) {
    if (stopped_) finish();  // others may still send what was for the broken run
    if (running_)
        core::fail(core::text("the operation '", program_.name(), "' was started while it is running"),
                   "call finish() first");
    const std::size_t scratch = program_.work_size() + (type_.varies() ? 1 : 0);
    if (data_size < program_.data_size() || work_size < scratch)
        core::fail(core::text("the operation '", program_.name(), "' needs ", program_.data_size(), " elements and ",
                              scratch, " of scratch, and was given ", data_size, " and ", work_size),
                   "provide at least data_size() and work_size() elements");
    arrays_[0] = data;
    arrays_[1] = work;
    running_ = true;
    round_ = 0;
    ++what_->runs;
    what_->where = where;
    post();
    (void)advance();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void untyped_operation::finish() {
    if (progress()) return;
    // One that was given up is never over: the wait throws what ended it.
    backoff waiting{pending()};
    while (!progress()) {
        try {
            waiting.wait(ranks_.aborts());
        } catch (...) {
            stop();
            throw;
        }
    }
}

LOCKSTEP_FUNCTION void untyped_operation::prepare() {
    std::size_t messages = 0;
    std::size_t slots = 0;
    send_links_.resize(program_.sends().size());
    receive_links_.resize(program_.receives().size());
    early_.assign(program_.locals().size(), flow::none);
    for (const auto& round : program_.rounds()) {
        messages = std::max(messages, round.sends.size() + round.receives.size());
        slots = std::max(slots, chain(program_.sends(), round.sends, 0, send_links_) +
                                    chain(program_.receives(), round.receives, round.sends.size(), receive_links_));
        for (std::size_t i = round.locals.first; i < round.locals.last; ++i)
            early_[i] = type_.varies() ? flow::none : source(round, i);
    }
    under_way_.reserve(messages, slots + 1);
    // For each receive its local operations, in their order.
    early_begin_.assign(program_.receives().size() + 1, 0);
    for (const std::size_t receive : early_)
        if (receive != flow::none) ++early_begin_[receive + 1];
    for (std::size_t i = 1; i < early_begin_.size(); ++i) early_begin_[i] += early_begin_[i - 1];
    early_list_.resize(early_begin_.back());
    std::vector<std::size_t> next = early_begin_;
    for (std::size_t i = 0; i < early_.size(); ++i)
        if (early_[i] != flow::none) early_list_[next[early_[i]]++] = i;
}

LOCKSTEP_FUNCTION std::size_t untyped_operation::source(const collectives::schedule::round& round,
                                                        std::size_t number) const noexcept {
    const collectives::local_operation& local = program_.locals()[number];
    std::size_t found = flow::none;
    for (std::size_t i = round.receives.first; i < round.receives.last; ++i) {
        const collectives::range& what = program_.receives()[i].what;
        if (collectives::overlap(what, local.to)) return flow::none;
        if (what.in == local.from.in && what.first <= local.from.first && local.from.last() <= what.last()) found = i;
    }
    for (std::size_t i = round.sends.first; i < round.sends.last; ++i)
        if (overlap(program_.sends()[i].what, local.to)) return flow::none;
    for (std::size_t i = round.locals.first; i < number; ++i) {
        const collectives::local_operation& before = program_.locals()[i];
        if (collectives::overlap(before.to, local.to) || collectives::overlap(before.to, local.from) ||
            collectives::overlap(before.from, local.to))
            return flow::none;
    }
    return found;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void untyped_operation::post() {
    if (round_ == program_.rounds().size()) return;
    const auto& round = program_.rounds()[round_];
    for (std::size_t i = round.sends.first; i < round.sends.last; ++i) {
        const collectives::message& sent = program_.sends()[i];
        const auto all = bytes(sent.what);
        under_way_.send(sent.peer, type_.varies() ? all.first(length_of(all.data())) : all, send_links_[i].leads,
                        send_links_[i].next);
    }
    for (std::size_t i = round.receives.first; i < round.receives.last; ++i) {
        const collectives::message& received = program_.receives()[i];
        under_way_.receive(received.peer, bytes(received.what), receive_links_[i].leads, receive_links_[i].next,
                           type_.varies());
    }
    under_way_.start();
}

LOCKSTEP_FUNCTION bool untyped_operation::advance() {
    for (; round_ < program_.rounds().size(); ++round_, post()) {
        const auto& round = program_.rounds()[round_];
        const auto arrived = [&](std::size_t number, std::size_t first, std::size_t size) {
            const std::size_t receive = round.receives.first + number - round.sends.size();
            const std::size_t begin = program_.receives()[receive].what.first + first / type_.size;
            for (std::size_t entry = early_begin_[receive]; entry < early_begin_[receive + 1]; ++entry) {
                const std::size_t i = early_list_[entry];
                const collectives::range& from = program_.locals()[i].from;
                const std::size_t low = std::max(begin, from.first),
                                  high = std::min(begin + size / type_.size, from.last());
                if (low < high) apply(program_.locals()[i], low - from.first, high - low);
            }
        };
        const bool complete = under_way_.test(arrived);
        if (under_way_.lost()) [[unlikely]]
            refuse();
        if (!complete) return false;
        for (std::size_t i = round.locals.first; i < round.locals.last; ++i)
            if (early_[i] == flow::none) apply(program_.locals()[i], 0, program_.locals()[i].to.count);
    }
    under_way_.leave();
    running_ = false;
    return true;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void untyped_operation::refuse() {
    const lost_message what = *under_way_.lost();
    stop();
    ranks_.refuse(what, *what_);
}

}  // namespace detail

#endif

}  // namespace lockstep::comm
