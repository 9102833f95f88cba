// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A group of ranks: the application's communicator, duplicated, with an abort channel. The only header that includes
// Boost.MPI.
// Tested by tests/mpi/comm_group.cpp.

#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/give_way.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/comm/watch/abort_channel.hpp"
#include "lockstep/comm/watch/call_site.hpp"
#include "lockstep/comm/watch/watch.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// A collective that a rank may wait for, and what to ask it: for whom it waits, and a number that changes where
/// something has come.
struct pending_operation {
    const collective* what = nullptr;
    const group_record* in = nullptr;
    const void* self = nullptr;
    wait::peers peers = nullptr;
    std::uint64_t (*progress)(const void* of) = nullptr;
    const void* of = nullptr;
    wait::withdrawal withdraw = nullptr;  ///< asked before this rank gives up
    void* agreement = nullptr;

    [[nodiscard]] std::uint64_t came() const { return progress == nullptr ? 0 : progress(of); }
};

/// How a wait loop spends its time: it polls, looks for aborts now and then, and soon gives way to others.
class backoff {
public:
    static constexpr std::size_t spins = 512;
    static constexpr std::size_t check_interval = 64;
    /// Where a poll gives way to others, it may take as long as they like.
    static constexpr std::size_t yielding_interval = 4;

    [[nodiscard]] static constexpr bool looks(std::size_t polls) noexcept {
        return polls % (polls > spins ? yielding_interval : check_interval) == 0;
    }

    backoff() = default;
    explicit backoff(const pending_operation& what) noexcept
        : wait_{what.what, what.in, what.self, what.peers, what.withdraw, what.agreement}, what_{what} {}

    /// After a poll that found nothing. Throws remote_failure, and core::error where the wait has no end or lasts too
    /// long.
    void wait(abort_channel& aborts) {
        // One that sleeps looks at once: what has come ends its sleep.
        const bool sleeps = ++polls_ > spins && sleep_after(wait_.waited()).count() > 0;
        if (sleeps || looks(polls_)) aborts.check(wait_, what_.came());
        if (polls_ > spins) give_way(wait_.waited());
    }

private:
    std::size_t polls_ = 0;
    comm::wait wait_;
    pending_operation what_;
};

/// After a failure elsewhere: whether `progress()` still becomes true, as it does where all ranks have sent their part.
/// Not where nothing of `what` has come for a second: the rank that failed waits at the end of its program for two.
template <class Progress>
[[gnu::cold]] bool comes_still(const pending_operation& what, const Progress& progress) {
    constexpr std::chrono::seconds longest{1};
    auto since = std::chrono::steady_clock::now();
    for (std::uint64_t came = what.came(); !progress();) {
        const auto now = std::chrono::steady_clock::now();
        if (const std::uint64_t next = what.came(); std::exchange(came, next) != next) since = now;
        if (now - since > longest) return false;
        give_way(now - since);
    }
    return true;
}

/// Waits until `progress()` is true, by polls that do not look for failures. A rank that has its part may fail before
/// others have theirs, whose numbers are on their way: they get them. Throws remote_failure where they do not come, and
/// core::error where the wait has no end or lasts too long.
template <class Progress>
void wait_through(abort_channel& aborts, const pending_operation& what, const Progress& progress) {
    try {
        for (backoff waiting{what}; !progress(); waiting.wait(aborts)) continue;
    } catch (const remote_failure&) {
        if (!comes_still(what, progress)) throw;
    }
}

/// MPI's own handle of a communicator.
using raw_communicator = decltype(std::declval<const transport&>().communicator());

/// Boost.MPI is used for communicators only: it has no non-blocking collectives, counts in int, and serialises
/// silently what has no MPI datatype. Copies are the same group. All ranks make the same groups and operations in the
/// same order, from one thread at a time: groups of the same ranks share a watch.
class group {
public:
    /// One rank, without MPI: nothing needs to be initialised.
    group() : state_{std::make_shared<state>(std::nullopt, nullptr, nullptr)} {}

    /// Duplicates the communicator, so no message can be taken for one of the application's. Collective. With MPI
    /// initialised but no mpirun, the world is one rank. `timeout`: the longest wait for other ranks, here and later;
    /// 0: for ever.
    explicit group(const boost::mpi::communicator& communicator,
                   const std::source_location& where = std::source_location::current(),
                   std::chrono::duration<double> timeout = default_timeout())
        : group{communicator, making{where, timeout, nullptr}} {}
    /// The same for MPI's handle, which stays the application's. Not where that is a number (MPICH): any number would
    /// be taken for one.
    template <std::same_as<raw_communicator> Raw>
        requires(!std::is_arithmetic_v<Raw>)
    explicit group(Raw communicator, const std::source_location& where = std::source_location::current(),
                   std::chrono::duration<double> timeout = default_timeout())
        : group{boost::mpi::communicator{communicator, boost::mpi::comm_attach}, where, timeout} {}

    group(const group&) = default;
    group(group&&) noexcept = default;
    group& operator=(const group&) = default;
    group& operator=(group&&) noexcept = default;
    ~group();  // of which there is one copy

    [[nodiscard]] std::size_t rank() const noexcept { return state_->over.rank(); }
    [[nodiscard]] std::size_t size() const noexcept { return state_->over.size(); }
    [[nodiscard]] const transport& over() const noexcept { return state_->over; }
    [[nodiscard]] abort_channel& aborts() const noexcept { return state_->aborts(); }
    /// How its collectives are numbered, and who its ranks are in the whole.
    [[nodiscard]] group_record& record() const noexcept { return state_->record; }

    /// The same group; collectives that are made with it say what they are for.
    [[nodiscard, gnu::cold]] group named(std::string_view what) const;
    [[nodiscard]] const short_name& what() const noexcept { return what_; }

    /// The same ranks, with messages and aborts of their own. Collective.
    [[nodiscard, gnu::cold]] group duplicated(const std::source_location& where,
                                              std::chrono::duration<double> timeout) const {
        return state_->communicator ? group{*state_->communicator, making{where, timeout, &aborts()}} : *this;
    }

    /// The ranks with an equal color, ordered by key, then by rank. Collective. Shares the aborts of this group.
    [[nodiscard, gnu::cold]] group split(std::size_t color, std::size_t key,
                                         const std::source_location& where = std::source_location::current()) const;

    /// The value of each rank, in the order of ranks, on all of them. For setup: allocates. log2(p) messages (Bruck et
    /// al. 1997).
    template <class T>
        requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_array_v<T>)
    [[nodiscard, gnu::cold]] std::vector<T> gather_all(
        const T& value, const std::source_location& where = std::source_location::current()) const {
        const std::vector<std::byte> all = gather_bytes(std::as_bytes(std::span{&value, 1}), where);
        std::vector<T> out(size());
        for (std::size_t k = 0; k < out.size(); ++k) {
            T one{};  // a vector<bool> has no elements to write to
            std::memcpy(&one, all.data() + k * sizeof(T), sizeof(T));
            out[k] = one;
        }
        return out;
    }

    [[nodiscard, gnu::cold]] std::vector<std::string> gather_all(
        std::string_view text, const std::source_location& where = std::source_location::current()) const;

    /// For each rank the lowest rank on the same host: equal numbers share memory, whatever the hosts are called.
    /// Collective.
    [[nodiscard, gnu::cold]] std::vector<std::size_t> hosts() const;

    /// Tells all ranks, also those outside this part of a split group, that this one has failed. Does not wait for
    /// them; the first call counts.
    void announce(std::string_view text) const { aborts().announce(text); }

    /// Announces and throws what became of a message of this collective. Throws remote_failure where another rank has
    /// told why.
    [[noreturn, gnu::cold]] void refuse(const lost_message& lost, const collective& in) const;

    /// Looks once for an abort. Throws remote_failure.
    void check() const { aborts().check(); }

    /// Ends a stretch of work of all ranks: none leaves before all have done what can fail in it, and one that hears of
    /// a later failure on its way out leaves first. Collective. For setup: allocates.
    [[gnu::cold]] void end_together(const std::source_location& where = std::source_location::current()) const;

    /// The number of the next operation: equal on all ranks that make their operations in the same order.
    [[nodiscard]] std::uint64_t next_number() const noexcept { return ++state_->record.last; }
    /// The tag of its messages. Where MPI has room, other fingerprints have other tags: messages that do not belong
    /// together are never matched.
    [[nodiscard]] int tag_of(std::uint64_t number, std::uint64_t fingerprint) const noexcept {
        constexpr std::uint64_t low = 1U << 15U;
        const std::uint64_t room = (static_cast<std::uint64_t>(state_->over.tags()) + 1) / low;
        const std::uint64_t tag = number == 0 ? setup_tag : first_tag + (number - 1) % (low - first_tag);
        return static_cast<int>(tag + low * (fingerprint % std::max<std::uint64_t>(room, 1)));
    }

private:
    /// gather_all, whatever the type.
    [[nodiscard, gnu::cold]] std::vector<std::byte> gather_bytes(std::span<const std::byte> value,
                                                                 const std::source_location& where) const;

    static constexpr int setup_tag = 1;
    static constexpr int first_tag = 2;

    struct state {
        /// `number`: of its abort channel, or of a part of `top`.
        [[gnu::cold]] state(std::optional<boost::mpi::communicator> made, std::shared_ptr<state> top,
                            std::shared_ptr<watch> by, std::uint64_t number = 0);

        state(const state&) = delete;
        state& operator=(const state&) = delete;
        /// After a failure messages may still be on their way, and MPI would deliver them to the next communicator that
        /// gets this one's number: it is not given back.
        [[gnu::cold]] ~state();

        [[nodiscard]] abort_channel& aborts() noexcept { return root ? root->own : own; }
        [[nodiscard]] watch* watched_by() noexcept { return aborts().watched_by().get(); }

        std::optional<boost::mpi::communicator> communicator;
        transport over;
        std::shared_ptr<state> root;  // keeps the communicator of the aborts alive
        abort_channel own;
        group_record record;
    };

    using neighbours = std::array<std::size_t, 2>;
    [[gnu::cold, gnu::noinline]] static std::size_t write_neighbours(const void* self, std::span<std::size_t> out) {
        const auto& two = *static_cast<const neighbours*>(self);
        std::copy_n(two.begin(), two.size(), out.begin());
        return two[0] == two[1] ? 1 : 2;
    }

    /// The tag of the next collective of setup.
    [[gnu::cold, gnu::noinline]] int begin_setup(std::size_t bytes, const std::source_location& where) const {
        // Messages of a gather that others have given up would be taken for those of the next one.
        if (aborts().failed()) check();
        collective& setup = state_->record.setup;
        ++setup.runs;
        setup.elements = bytes;
        setup.unit = "bytes";
        setup.where = where;
        setup.identify();
        // Such gathers have few sizes: those of different calls are no pair.
        if (const watch* by = state_->watched_by()) setup.fingerprint = core::hash(by->called(), setup.fingerprint);
        return tag_of(0, setup.fingerprint);
    }
    [[gnu::cold]] void wait_all(requests& under_way, const neighbours& two) const;

    struct making {
        const std::source_location& where;
        std::chrono::duration<double> timeout;
        abort_channel* of;  // of the group of which one is made, whose failures end it; null: none
    };
    /// A duplicate, or an error where not all ranks come to make it. `by`: none for the watch itself.
    [[nodiscard, gnu::cold]] static duplication::duplicate duplicate(const boost::mpi::communicator& original,
                                                                     watch* by, const making& how);

    /// The watch of the ranks of a communicator. Collective for the first group on them.
    [[nodiscard, gnu::cold]] static std::shared_ptr<watch> watch_of(const boost::mpi::communicator& communicator,
                                                                    const making& how);

    explicit group(std::shared_ptr<state> made) : state_{std::move(made)} {}
    [[gnu::cold]] group(const boost::mpi::communicator& communicator, const making& how);

    std::shared_ptr<state> state_;
    short_name what_;
};

/// A group of the ranks of a communicator, or of another group, that is made at `where`.
[[nodiscard]] inline group make_group(const group& ranks, const std::source_location& where,
                                      std::chrono::duration<double> timeout) {
    return ranks.duplicated(where, timeout);
}
[[nodiscard]] inline group make_group(const boost::mpi::communicator& communicator, const std::source_location& where,
                                      std::chrono::duration<double> timeout) {
    return group{communicator, where, timeout};
}
template <std::same_as<raw_communicator> Raw>
[[nodiscard]] group make_group(Raw communicator, const std::source_location& where,
                               std::chrono::duration<double> timeout) {
    return group{communicator, where, timeout};
}

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION group::group(const boost::mpi::communicator& communicator, const making& how) : group{} {
    require_timeout(how.timeout);
    if (!boost::mpi::environment::initialized() || boost::mpi::environment::finalized())
        core::fail("a group of ranks was made while MPI is not running",
                   "begin MPI before it, by ls::program or MPI_Init, or make a group of one rank with group{}");
    if (!communicator)
        core::fail("a group was made of a communicator that this rank does not belong to",
                   "make it only on the ranks of the communicator");
    if (joins_two_groups(communicator))
        core::fail("a group was made of an inter-communicator, which joins two groups of ranks",
                   "merge them (MPI_Intercomm_merge), or pass a communicator of one group");
    auto by = watch_of(communicator, how);
    try {
        const auto made = duplicate(communicator, by.get(), how);
        state_ = std::make_shared<state>(boost::mpi::communicator{made.communicator, boost::mpi::comm_take_ownership},
                                         nullptr, by, made.number);
    } catch (...) {
        if (by != nullptr) by->remember_call_site(call_record{"group", how.where});
        throw;
    }
    aborts().set_timeout(how.timeout);
}

[[gnu::noinline]] LOCKSTEP_FUNCTION group::~group() {}

LOCKSTEP_FUNCTION group group::split(std::size_t color, std::size_t key, const std::source_location& where) const {
    if (!state_->communicator) return *this;
    // No rank enters MPI's own, blocking split before all ranks have arrived.
    short_name& kind = state_->record.setup.kind;
    const short_name usual = std::exchange(kind, short_name{"dividing a group"});
    const auto all = gather_all(std::array{color, key}, where);
    kind = usual;
    // MPI's numbers are shorter: the first rank of a color stands for it, and a key for those below it.
    int number = 0, place = 0;
    while (all[static_cast<std::size_t>(number)][0] != color) ++number;
    for (const auto& other : all) place += other[1] < key ? 1 : 0;
    return group{std::make_shared<state>(state_->communicator->split(number, place),
                                         state_->root ? state_->root : state_, nullptr,
                                         core::mix(core::mix(state_->record.id + ++state_->record.splits) + color))};
}

LOCKSTEP_FUNCTION std::vector<std::byte> group::gather_bytes(std::span<const std::byte> value,
                                                             const std::source_location& where) const {
    const std::size_t bytes = value.size();
    std::vector<std::byte> turned(size() * bytes), out(turned.size());  // turned: value k is that of rank + k
    std::copy(value.begin(), value.end(), turned.begin());
    const auto part = [&](std::size_t first, std::size_t count) {
        return std::span{turned}.subspan(first * bytes, count * bytes);
    };
    requests under_way;
    const int tag = begin_setup(bytes, where);
    for (std::size_t have = 1; have < size(); have *= 2) {
        const std::size_t count = std::min(have, size() - have);
        const neighbours two{(rank() + have) % size(), (rank() + size() - have) % size()};
        under_way.receive(over(), two[0], tag, part(have, count));
        under_way.send(over(), two[1], tag, part(0, count));
        wait_all(under_way, two);
    }
    // In the order of ranks.
    std::rotate_copy(turned.begin(), turned.end() - static_cast<std::ptrdiff_t>(rank() * bytes), turned.end(),
                     out.begin());
    return out;
}

LOCKSTEP_FUNCTION std::vector<std::string> group::gather_all(std::string_view text,
                                                             const std::source_location& where) const {
    const auto lengths = gather_all(text.size(), where);
    const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
    const std::size_t part = longest > 1024 ? 2048 : 64;  // which MPI sends at once
    std::vector<std::string> out(size());
    std::string mine;
    for (std::size_t at = 0; at < longest; at += part) {
        mine.assign(text.substr(std::min(at, text.size()), part)).resize(part);
        const auto pieces = gather_bytes(std::as_bytes(std::span{mine}), where);
        for (std::size_t other = 0; other < size(); ++other)
            if (at < lengths[other])
                out[other].append(reinterpret_cast<const char*>(&pieces[other * part]),
                                  std::min(part, lengths[other] - at));
    }
    return out;
}

LOCKSTEP_FUNCTION void group::end_together(const std::source_location& where) const {
    (void)gather_all(rank(), where);
    aborts().passed();
}

LOCKSTEP_FUNCTION std::vector<std::size_t> group::hosts() const {
    if (!state_->communicator) return {0};
    // No rank enters MPI's own, blocking call before all ranks have arrived.
    (void)gather_all(size());
    const auto all = gather_all(first_on_host(over().communicator()).value_or(size()));
    for (std::size_t rank = 0; rank < size(); ++rank)
        if (all[rank] == size())
            core::fail(core::text("MPI does not tell rank ", rank, " which ranks share its memory"),
                       "free communicators that are not needed any more: MPI makes one for this");
    return all;
}

LOCKSTEP_FUNCTION group::state::state(std::optional<boost::mpi::communicator> made, std::shared_ptr<state> top,
                                      std::shared_ptr<watch> by, std::uint64_t number)
    : communicator{std::move(made)},
      over{communicator ? transport{*communicator} : transport{}},
      root{std::move(top)},
      own{std::move(by), number} {
    record.id = root ? number : core::mix(number);
    if (root) record.members = ranks_of(over.communicator(), root->over.communicator());
    record.setup.group = record.id;
    record.setup.kind = short_name{"setup"};
    if (watched_by() != nullptr) watched_by()->add(record);
}

LOCKSTEP_FUNCTION group::state::~state() {
    if (watched_by() != nullptr) watched_by()->remove(record);
    if (communicator && aborts().failed()) leak_until_exit(*communicator);
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void group::wait_all(requests& under_way, const neighbours& two) const {
    for (backoff waiting{pending_operation{&state_->record.setup, &state_->record, &two, &write_neighbours}};;
         waiting.wait(aborts())) {
        aborts().move_on_beside();
        const bool done = under_way.test();
        if (under_way.lost()) refuse(*under_way.lost(), state_->record.setup);
        if (done) return;
    }
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void group::refuse(const lost_message& lost, const collective& in) const {
    if (!lost.has_wrong_length()) check();  // a rank that is gone may have said why before
    short_line call_site;
    describe(call_site, in, nullptr);
    const core::error failure =
        lost.error(record().rank_in_whole(lost.peer), record().rank_in_whole(rank()), call_site.text());
    announce(failure.what());
    throw failure;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION duplication::duplicate group::duplicate(const boost::mpi::communicator& original,
                                                                            watch* by, const making& how) {
    // Before there is a watch ranks give up one after the other: the first one ends the job, with one message.
    const auto limit = how.timeout;
    const auto own_limit = limit + std::chrono::milliseconds{by != nullptr ? 0 : 300 * std::min(original.rank(), 20)};
    duplication made{original, by != nullptr ? by->next_channel() : 0};
    const auto rank = static_cast<std::size_t>(original.rank()), size = static_cast<std::size_t>(original.size());
    const neighbours two{(rank + 1) % size, (rank + size - 1) % size};
    if (by != nullptr) ++by->groups.setup.runs, by->groups.setup.where = how.where;
    wait waiting{by != nullptr ? &by->groups.setup : nullptr, nullptr, &two, &write_neighbours};
    for (std::size_t polls = 1;; ++polls) {
        if (const auto done = made.test()) return *done;
        if (!backoff::looks(polls)) continue;
        give_way(waiting.waited());
        bool hopeless = false;
        waiting.look(made.is_known() ? 1 : 0);
        if (how.of != nullptr) how.of->check();
        if (by != nullptr) by->glance();
        if (by != nullptr && waiting.waited() > std::chrono::milliseconds{2})
            hopeless = by->goes_on(waiting, by->next_channel());
        if (!hopeless && (limit.count() <= 0 || waiting.waited() < own_limit)) continue;
        if (by == nullptr) {
            short_line at;
            at.add(how.where);
            throw stalled{core::text("rank ", rank, " has waited ", limit.count(),
                                     " s for other ranks to make their first group", at.text()),
                          "make it on all ranks of the communicator; if one is only slow, raise the plan's timeout or "
                          "LOCKSTEP_TIMEOUT"};
        }
        throw by->failure(by->next_channel(), hopeless, limit);
    }
}

[[gnu::noinline]] LOCKSTEP_FUNCTION std::shared_ptr<watch> group::watch_of(const boost::mpi::communicator& communicator,
                                                                           const making& how) {
    // Never given back: a message may still be under way to a rank that did not look, and MPI would deliver it to the
    // next communicator that gets this one's number. A program that makes communicators of the same ranks again and
    // again needs one.
    static std::vector<std::pair<boost::mpi::communicator, std::shared_ptr<watch>>> all;
    static std::mutex one_at_a_time;
    if (communicator.size() == 1) return nullptr;
    std::unique_lock guard{one_at_a_time};
    for (const auto& [ranks, by] : all)
        if (same_ranks(communicator, ranks)) return by;
    guard.unlock();  // ranks wait for each other, and threads do that in another order there
    const boost::mpi::communicator over{duplicate(communicator, nullptr, how).communicator,
                                        boost::mpi::comm_take_ownership};
    guard.lock();
    return all.emplace_back(over, std::make_shared<watch>(transport{over})).second;
}

LOCKSTEP_FUNCTION group group::named(std::string_view what) const {
    group out{*this};
    out.what_ = short_name{what};
    return out;
}

#endif

}  // namespace lockstep::comm
