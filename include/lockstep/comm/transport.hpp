// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Bytes between ranks: the only header with raw MPI calls beside shared_window.hpp, all of them non-blocking.

// The C++ bindings that MPI 3 removed, and their warnings, stay outside; Boost.MPI does the same.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/send_order.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// The handle of a communicator that somebody else keeps alive. One without a communicator has one rank and needs no MPI at all.
class transport {
public:
    transport() = default;
    explicit transport(MPI_Comm communicator);

    [[nodiscard]] std::size_t rank() const noexcept { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }
    /// The largest tag.
    [[nodiscard]] int tags() const noexcept { return tags_; }
    [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

    /// Who has sent a message with this tag that waits here, if any; it is received into `buffer`, which is long enough for all of them.
    struct letter {
        std::size_t from;
        std::size_t bytes;
    };
    [[nodiscard]] std::optional<letter> take(int tag, std::span<char> buffer) const {
        if (communicator_ == MPI_COMM_NULL) return std::nullopt;
        int here = 0;
        int bytes = 0;
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator_, &here, &status);
        if (here == 0) return std::nullopt;
        MPI_Recv(buffer.data(), static_cast<int>(buffer.size()), MPI_BYTE, status.MPI_SOURCE, tag, communicator_, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        return letter{static_cast<std::size_t>(status.MPI_SOURCE), static_cast<std::size_t>(bytes)};
    }

private:
    MPI_Comm communicator_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    int tags_ = 32767;
};

/// What threads MPI permits in this program, as in MPI_THREAD_FUNNELED; `by_turns`: any of them may call MPI, one at a time.
struct thread_level {
    const char* name;
    bool by_turns;
};
[[nodiscard, gnu::cold]] inline thread_level permitted_threads() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    const char* const name = level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
                             : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
                             : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                                              : "MPI_THREAD_MULTIPLE";
    return {name, level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE};
}

/// Keeps a thing until the end of the program: what MPI may still use after a failure. A send whose receiver has failed can be neither
/// completed nor recalled, and MPI reads its memory whenever the receiver's side answers.
template <class T>
[[gnu::cold]] void keep(T thing) {
    static std::vector<T> kept;
    kept.push_back(std::move(thing));
}

/// A duplicate of a communicator in the making: MPI's blocking call would wait for ever for a rank that does not come. Errors of MPI come back
/// from its calls instead of ending the program.
class duplication {
public:
    explicit duplication(MPI_Comm of) { MPI_Comm_idup(of, &made_, &request_); }
    duplication(const duplication&) = delete;
    duplication& operator=(const duplication&) = delete;

    /// The communicator, once it is there.
    [[nodiscard]] std::optional<MPI_Comm> test() {
        int done = 0;
        MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
        if (done == 0) return std::nullopt;
        MPI_Comm_set_errhandler(made_, MPI_ERRORS_RETURN);
        return made_;
    }

private:
    MPI_Comm made_ = MPI_COMM_NULL;
    MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Something that goes with a communicator of the application: kept there as an attribute (MPI 3.1, section 6.7), and not part of its duplicates.
template <class Thing>
class attached {
public:
    [[nodiscard]] static Thing* find(MPI_Comm communicator) {
        void* value = nullptr;
        int found = 0;
        MPI_Comm_get_attr(communicator, key(), static_cast<void*>(&value), &found);
        return found != 0 ? static_cast<Thing*>(value) : nullptr;
    }
    /// The thing outlives the communicator.
    static void put(MPI_Comm communicator, Thing* thing) { MPI_Comm_set_attr(communicator, key(), thing); }

private:
    [[nodiscard]] static int key() {
        static const int made = [] {
            int number = MPI_KEYVAL_INVALID;
            MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &number, nullptr);
            return number;
        }();
        return made;
    }
};

/// The ranks of `part` as numbered in `whole`.
[[nodiscard, gnu::cold]] std::vector<std::size_t> ranks_of(MPI_Comm part, MPI_Comm whole);

/// A few short messages that are under way together, for setting up and for failures. What is still under way when it is destroyed is abandoned.
class requests {
public:
    requests() = default;
    requests(const requests&) = delete;
    requests& operator=(const requests&) = delete;
    ~requests() { abandon(); }

    void reserve(std::size_t messages) { pending_.reserve(messages); }

    /// All receives of a round come before its sends.
    void receive(const transport& over, std::size_t from, int tag, std::span<std::byte> into);
    void send(const transport& over, std::size_t to, int tag, std::span<const std::byte> what);

    /// Makes progress; true when all are complete, and the set is empty again.
    [[nodiscard]] bool test() noexcept {
        if (pending_.empty()) return true;
        int done = 0;
        MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &done, MPI_STATUSES_IGNORE);
        if (done == 0) return false;
        pending_.clear();
        receives_ = 0;
        return true;
    }

    /// Makes progress until all are complete, but not longer than this.
    void settle(std::chrono::milliseconds longest) noexcept {
        if (pending_.empty() || finalized()) return;
        const auto deadline = std::chrono::steady_clock::now() + longest;
        while (!test() && std::chrono::steady_clock::now() < deadline) {
        }
    }

    /// Gives up: receives are cancelled, so that nothing is written later into memory that may be gone. A receive that is being filled just
    /// now has 0.2 s to end. Sends cannot be recalled: their peers have failed too, or will.
    [[gnu::cold]] void abandon() noexcept;

    [[nodiscard]] static bool finalized() noexcept {
        int over = 0;
        MPI_Finalized(&over);
        return over != 0;
    }

private:
    MPI_Request* next() {
        pending_.push_back(MPI_REQUEST_NULL);
        return &pending_.back();
    }

    std::vector<MPI_Request> pending_;
    std::size_t receives_ = 0;
};

/// Messages of one round, cut into pieces. A few pieces of each stream, the messages to or from one peer, are under way at a time: control
/// messages of MPI get through between them (a long message would hold back the answer that the other direction waits for), what has arrived
/// can be used while the rest travels, and no stream waits for another. Both ends cut alike. Storage is reserved once.
class flow {
public:
    /// Less than 64 KiB: Open MPI sends it over TCP without asking first. Longer ones wait for an answer of the receiver, which stands in line
    /// behind the data that the receiver sends: two ranks that exchange long messages use their link in one direction at a time.
    static constexpr std::size_t usual_piece = (std::size_t{64} << 10) - 512;
    static constexpr std::size_t largest_piece = std::size_t{1} << 30;  ///< MPI counts in int
    static constexpr std::size_t window = 16;
    /// Each so many-th piece is complete only when its receiver has asked for it. Before that at most window x acknowledged pieces of a stream
    /// can lie in MPI's memory.
    static constexpr std::size_t acknowledged = 16;
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    [[gnu::cold]] flow(MPI_Comm over, int tag, std::size_t piece, urgency of = {}) : over_{over}, tag_{tag}, piece_{piece}, place_{of} {}
    flow(flow&&) noexcept = default;  // a vector that was moved from is empty
    flow& operator=(flow&&) = delete;
    ~flow();

    [[nodiscard]] std::size_t pieces(std::size_t bytes) const noexcept { return (bytes + piece_ - 1) / piece_; }
    /// Room for so many messages, and for the pieces that may be under way.
    [[gnu::cold]] void reserve(std::size_t messages, std::size_t slots);

    /// Adds a message to the round: number 0, 1, .. in this order. `next`: the number of the next one in the same direction with the same peer;
    /// `leads`: there is none before it. At least one byte.
    void send(std::size_t to, std::span<std::byte> what, bool leads, std::size_t next) { put(to, what, true, leads, next); }
    void receive(std::size_t from, std::span<std::byte> into, bool leads, std::size_t next) { put(from, into, false, leads, next); }

    /// Lets the first pieces go. Sends go first: the peer then knows of ours when it answers our answer to its own.
    void start() noexcept;
    /// The operation is over.
    void leave() noexcept { place_.leave(); }

    /// Makes progress; true when the round is over, and empty again. arrived(number, first, bytes) for each piece that has been received.
    template <class Arrived>
    [[nodiscard]] bool test(Arrived&& arrived) noexcept {
        while (live_ > 0) {
            if (held_back_ > 0) post_held_back();
            int count = 0;
            const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
            if (count <= 0) return false;
            completed_ += static_cast<std::uint64_t>(count);
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                const auto at = static_cast<std::size_t>(done_[i]);
                const slot piece = slots_[at];
                if (piece.sends)
                    taken(piece);
                else
                    compare(piece, statuses_[i], code != MPI_SUCCESS);
                post_or_hold(at);
                if (!piece.sends) arrived(piece.message, piece.first, piece.size);
            }
        }
        clear();
        return true;
    }

    /// As requests::abandon().
    [[gnu::cold]] void abandon() noexcept;

    /// A message that had not the length of what was to be received.
    struct wrong_length {
        std::size_t peer;
        std::size_t expected;
        std::size_t found;  ///< or more
    };
    [[nodiscard]] const std::optional<wrong_length>& wrong() const noexcept { return wrong_; }

    /// Grows with each piece that is complete.
    [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }
    /// The peers of messages that are under way, those to be received first.
    [[gnu::cold]] std::size_t peers(std::span<std::size_t> out) const noexcept;

    /// What was really handed to MPI since construction.
    [[nodiscard]] std::size_t sent_messages() const noexcept { return sent_messages_; }
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return sent_bytes_; }

private:
    struct transfer {
        std::byte* data;
        std::size_t size;
        std::size_t posted;
        std::size_t next;
        int peer;
        bool sends;
    };
    /// All messages to or from one peer: the one that is being posted, the pieces so far, and those of them that are under way.
    struct stream_state {
        std::size_t message;
        std::size_t posted;
        std::size_t under_way;
    };
    struct slot {
        std::size_t stream = 0;
        std::size_t message = 0;
        std::size_t first = 0;
        std::size_t size = 0;
        bool sends = false;
        bool held_back = true;
    };
    enum class post_result : unsigned char { under_way, held_back, nothing_left };

    void put(std::size_t peer, std::span<std::byte> bytes, bool sends, bool leads, std::size_t next);

    /// What more urgent operations have left room for by now.
    [[gnu::noinline]] void post_held_back() noexcept {
        for (std::size_t at = 0; at < slots_.size(); ++at) {
            if (!slots_[at].held_back) continue;
            --held_back_;
            post_or_hold(at);
        }
    }
    void post_or_hold(std::size_t at) noexcept {
        const post_result found = post(slots_[at].stream, at);
        slots_[at].held_back = found == post_result::held_back;
        if (found == post_result::held_back) ++held_back_;
        if (found == post_result::nothing_left) --live_;
    }
    void taken(const slot& piece) noexcept {
        --streams_[piece.stream].under_way;
        place_.received(piece.size);
    }

    /// The next piece of a stream. Pieces of a stream are posted in order on both sides: so they meet.
    post_result post(std::size_t stream, std::size_t at) noexcept;

    void compare(const slot& piece, const MPI_Status& status, bool failed) noexcept {
        int found = 0;
        MPI_Get_count(&status, MPI_BYTE, &found);
        if (static_cast<std::size_t>(found) != piece.size || (failed && status.MPI_ERROR != MPI_SUCCESS)) [[unlikely]]
            wrong_ = {static_cast<std::size_t>(transfers_[piece.message].peer), piece.size, static_cast<std::size_t>(found)};
    }

    void clear() noexcept {
        transfers_.clear();
        streams_.clear();
        slots_.clear();
        requests_.clear();
        live_ = 0;
        held_back_ = 0;
    }

    MPI_Comm over_;
    int tag_;
    std::size_t piece_;
    send_place place_;
    std::vector<transfer> transfers_;
    std::vector<stream_state> streams_;
    std::vector<slot> slots_;  // what each request is
    std::vector<MPI_Request> requests_;
    std::vector<int> done_;
    std::vector<MPI_Status> statuses_;
    std::optional<wrong_length> wrong_;
    std::uint64_t completed_ = 0;
    std::size_t live_ = 0;
    std::size_t held_back_ = 0;  // of them: pieces that yield
    std::size_t sent_messages_ = 0;
    std::size_t sent_bytes_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION transport::transport(MPI_Comm communicator) : communicator_{communicator} {
    int* limit = nullptr;
    int found = 0;
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&limit), &found);
    if (found != 0) tags_ = *limit;
}

LOCKSTEP_FUNCTION std::vector<std::size_t> ranks_of(MPI_Comm part, MPI_Comm whole) {
    MPI_Group of_part, of_whole;
    int size = 0;
    MPI_Comm_size(part, &size);
    MPI_Comm_group(part, &of_part);
    MPI_Comm_group(whole, &of_whole);
    std::vector<int> here(static_cast<std::size_t>(size)), there(here.size());
    for (int rank = 0; rank < size; ++rank) here[static_cast<std::size_t>(rank)] = rank;
    MPI_Group_translate_ranks(of_part, size, here.data(), of_whole, there.data());
    MPI_Group_free(&of_part);
    MPI_Group_free(&of_whole);
    return {there.begin(), there.end()};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void requests::receive(const transport& over, std::size_t from, int tag, std::span<std::byte> into) {
    MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, static_cast<int>(from), tag, over.communicator(), next());
    receives_ = pending_.size();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void requests::send(const transport& over, std::size_t to, int tag, std::span<const std::byte> what) {
    MPI_Isend(what.data(), static_cast<int>(what.size()), MPI_BYTE, static_cast<int>(to), tag, over.communicator(), next());
}

LOCKSTEP_FUNCTION void requests::abandon() noexcept {
    if (!pending_.empty() && !finalized()) {
        for (std::size_t i = 0; i < receives_; ++i)
            if (pending_[i] != MPI_REQUEST_NULL) MPI_Cancel(&pending_[i]);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{200};
        for (int done = 0; done == 0 && std::chrono::steady_clock::now() < deadline;)
            MPI_Testall(static_cast<int>(receives_), pending_.data(), &done, MPI_STATUSES_IGNORE);
        for (MPI_Request& one : pending_)
            if (one != MPI_REQUEST_NULL) MPI_Request_free(&one);
    }
    pending_.clear();
    receives_ = 0;
}

LOCKSTEP_FUNCTION flow::~flow() { abandon(); }

LOCKSTEP_FUNCTION void flow::reserve(std::size_t messages, std::size_t slots) {
    transfers_.reserve(messages);
    streams_.reserve(messages);
    slots_.reserve(slots);
    requests_.reserve(slots);
    done_.reserve(slots);
    statuses_.resize(slots);
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void flow::start() noexcept {
    place_.enter();
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
        std::size_t left = 0;
        for (std::size_t i = streams_[stream].message; i != none; i = transfers_[i].next) left += pieces(transfers_[i].size);
        for (std::size_t i = 0; i < std::min(window, left); ++i) {
            slots_.push_back({.stream = stream});
            requests_.push_back(MPI_REQUEST_NULL);
        }
    }
    done_.resize(slots_.size());
    live_ = held_back_ = slots_.size();
    post_held_back();
}

LOCKSTEP_FUNCTION void flow::abandon() noexcept {
    if (live_ > 0 && !requests::finalized()) {
        for (std::size_t i = 0; i < slots_.size(); ++i)
            if (!slots_[i].sends && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{200};
        for (bool ended = false; !ended && std::chrono::steady_clock::now() < deadline;) {
            ended = true;
            for (std::size_t i = 0; i < slots_.size(); ++i) {
                int done = 1;
                if (!slots_[i].sends) MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
                ended = ended && done != 0;
            }
        }
        for (MPI_Request& one : requests_)
            if (one != MPI_REQUEST_NULL) MPI_Request_free(&one);
    }
    clear();
    place_.leave();
}

LOCKSTEP_FUNCTION std::size_t flow::peers(std::span<std::size_t> out) const noexcept {
    std::size_t count = 0;
    for (const bool sends : {false, true})
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL || slots_[i].sends != sends) continue;
            const auto peer = static_cast<std::size_t>(transfers_[slots_[i].message].peer);
            if (count < out.size() && std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), peer) ==
                                          out.begin() + static_cast<std::ptrdiff_t>(count))
                out[count++] = peer;
        }
    return count;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void flow::put(std::size_t peer, std::span<std::byte> bytes, bool sends, bool leads, std::size_t next) {
    if (leads) streams_.push_back({transfers_.size(), 0, 0});
    transfers_.push_back({bytes.data(), bytes.size(), 0, next, static_cast<int>(peer), sends});
}

[[gnu::noinline]] LOCKSTEP_FUNCTION flow::post_result flow::post(std::size_t stream, std::size_t at) noexcept {
    auto& [current, pieces_posted, pieces_under_way] = streams_[stream];
    while (current != none && transfers_[current].posted == transfers_[current].size) current = transfers_[current].next;
    if (current == none) return post_result::nothing_left;
    transfer& one = transfers_[current];
    const std::size_t size = std::min(piece_, one.size - one.posted);
    std::byte* const data = one.data + one.posted;
    const bool yields = one.sends && place_.yields();
    if (yields && pieces_under_way > 0 && !place_.admits(size)) return post_result::held_back;
    slots_[at] = {stream, current, one.posted, size, one.sends, false};
    one.posted += size;
    if (one.sends) {
        // One that yields is under way until its receiver has it: others are complete as soon as the system takes them, which takes megabytes.
        const bool counted = ++pieces_posted % acknowledged == 0 || yields;
        (counted ? MPI_Issend : MPI_Isend)(data, static_cast<int>(size), MPI_BYTE, one.peer, tag_, over_, &requests_[at]);
        ++pieces_under_way;
        place_.handed_over(size);
        ++sent_messages_;
        sent_bytes_ += size;
    } else {
        MPI_Irecv(data, static_cast<int>(size), MPI_BYTE, one.peer, tag_, over_, &requests_[at]);
    }
    return post_result::under_way;
}

#endif

}  // namespace lockstep::comm
