// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages of one round of a schedule, under way in pieces. And one message by itself (tests/mpi/sync_push_pull).
// Tested by tests/mpi/comm_executor.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/comm/send_order.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/core/compiled.hpp"

namespace lockstep::comm {

/// Messages of one round, cut into pieces. A few pieces of each stream, the messages to or from one peer, are under way
/// at a time: control messages of MPI get through between them (a long message would hold back the answer that the
/// other direction waits for), what has arrived can be used while the rest travels, and no stream waits for another.
/// Both ends cut alike. A message of varying length begins with its length in bytes, a number of 64 bits: its receiver
/// has room for the longest one, and learns from the first piece how many more there are. Storage is reserved once.
class flow {
public:
    /// Less than 64 KiB: Open MPI sends it over TCP without asking first. Longer ones wait for an answer of the
    /// receiver, which stands in line after the data that the receiver sends: two ranks that exchange long messages use
    /// their link in one direction at a time.
    static constexpr std::size_t usual_piece = (std::size_t{64} << 10) - 512;
    static constexpr std::size_t largest_piece = std::size_t{1} << 30;  ///< MPI counts in int
    static constexpr std::size_t window = 16;
    /// Each so many-th piece is complete only when its receiver has asked for it. Before that at most window x
    /// acknowledged pieces of a stream can lie in MPI's memory.
    static constexpr std::size_t acknowledged = 16;
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    [[gnu::cold]] flow(MPI_Comm over, int tag, std::size_t piece, urgency priority = {})
        : over_{over}, tag_{tag}, piece_{piece}, entry_{priority} {}
    flow(flow&&) noexcept = default;  // a vector that was moved from is empty
    flow& operator=(flow&&) = delete;
    ~flow();

    [[nodiscard]] std::size_t pieces(std::size_t bytes) const noexcept { return (bytes + piece_ - 1) / piece_; }
    /// Room for so many messages, and for the pieces that may be under way.
    [[gnu::cold]] void reserve(std::size_t messages, std::size_t slots);

    /// Adds a message to the round: number 0, 1, .. in this order. `next`: the number of the next one in the same
    /// direction with the same peer; `leads`: there is none before it. At least one byte.
    void send(std::size_t to, std::span<std::byte> what, bool leads, std::size_t next) {
        put(to, what, true, leads, next);
    }
    /// `varies`: the message may be shorter, and begins with its length.
    void receive(std::size_t from, std::span<std::byte> into, bool leads, std::size_t next, bool varies = false) {
        put(from, into, false, leads, next, varies);
    }

    /// Lets the first pieces go. Sends go first: the peer then knows of ours when it answers our answer to its own.
    void start() noexcept;
    /// The operation is over.
    void leave() noexcept { entry_.leave(); }

    /// Makes progress; true when the round is over, and empty again. arrived(number, first, bytes) for each piece that
    /// has been received.
    template <class Arrived>
    [[nodiscard]] bool test(Arrived&& arrived) noexcept {
        while (live_ > 0) {
            if (held_back_ > 0) post_held_back();
            int count = 0;
            const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                                          statuses_.data());
            bool in_status = false;
            if (code != MPI_SUCCESS) [[unlikely]]
                in_status = is_in_status(code);
            if (count <= 0) return false;
            completed_ += static_cast<std::uint64_t>(count);
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                const auto at = static_cast<std::size_t>(done_[i]);
                slot piece = slots_[at];
                compare(piece, statuses_[i], in_status);
                if (piece.sends) taken(piece);
                post_or_hold(at);
                if (!piece.sends) arrived(piece.message, piece.first, piece.size);
            }
        }
        clear();
        return true;
    }

    /// Gives up, as recall() does.
    [[gnu::cold]] void abandon() noexcept;

    /// The first piece that was lost, if any: the round has failed.
    [[nodiscard]] const std::optional<lost_message>& lost() const noexcept { return lost_; }

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
        bool awaits_length;  // until its first piece is there: `size` is the most that it can have
    };
    /// All messages to or from one peer: the one that is being posted, the pieces so far, and those of them that are
    /// under way.
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

    void put(std::size_t peer, std::span<std::byte> bytes, bool sends, bool leads, std::size_t next,
             bool varies = false);

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
        entry_.received(piece.size);
    }

    /// The next piece of a stream. Pieces of a stream are posted in order on both sides, so they match.
    post_result post(std::size_t stream, std::size_t at) noexcept;

    void compare(slot& piece, const MPI_Status& status, bool in_status) noexcept {
        const int code = in_status ? status.MPI_ERROR : MPI_SUCCESS;
        const std::size_t found = piece.sends ? piece.size : bytes_in(status);
        if (transfers_[piece.message].awaits_length && code == MPI_SUCCESS)
            piece.size = learn_length(transfers_[piece.message], found);
        if (code != MPI_SUCCESS || found != piece.size) [[unlikely]]
            lose(code, piece, found);
    }
    /// The first piece of a message of varying length is there, with `found` bytes. How many it should have.
    [[nodiscard]] std::size_t learn_length(transfer& message, std::size_t found) const noexcept {
        std::uint64_t length = 0;
        if (found >= sizeof(length)) std::memcpy(&length, message.data, sizeof(length));
        if (length < sizeof(length) || length > message.size) return 0;  // it was cut off, or is none of these
        message.size = length;
        message.posted = std::min(piece_, message.size);
        message.awaits_length = false;
        return message.posted;
    }
    [[gnu::cold]] void lose(int code, const slot& piece, std::size_t found) noexcept {
        if (!lost_)
            lost_ = lost_message::make(code, piece.sends, static_cast<std::size_t>(transfers_[piece.message].peer),
                                       piece.size, found);
    }
    /// Whether statuses say which pieces have failed. Else the call that tests all of them has: one of those under way
    /// stands for all.
    [[nodiscard, gnu::cold]] bool is_in_status(int code) noexcept;

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
    send_entry entry_;
    std::vector<transfer> transfers_;
    std::vector<stream_state> streams_;
    std::vector<slot> slots_;  // what each request is
    std::vector<MPI_Request> requests_;
    std::vector<int> done_;
    std::vector<MPI_Status> statuses_;
    std::optional<lost_message> lost_;
    std::uint64_t completed_ = 0;
    std::size_t live_ = 0;
    std::size_t held_back_ = 0;  // of them: pieces that yield
    std::size_t sent_messages_ = 0;
    std::size_t sent_bytes_ = 0;
};

/// One message in memory of the caller, a `buffer` that stays where it is until the message has come or gone. What is
/// still under way when it is destroyed is given up, as recall() does.
class single_message {
public:
    single_message() = default;
    single_message(const single_message&) = delete;
    single_message& operator=(const single_message&) = delete;
    ~single_message();

    void receive(const transport& over, std::size_t from, int tag, std::span<std::byte> into);
    void send(const transport& over, std::size_t to, int tag, std::span<const std::byte> what);
    [[nodiscard]] bool is_under_way() const noexcept { return request_ != MPI_REQUEST_NULL; }
    /// Makes progress; true when it has come or gone, and where there is none. Throws core::error where MPI did not
    /// carry it, or it has another length; `what` names the call.
    [[nodiscard]] bool test(std::string_view what);

private:
    MPI_Request request_ = MPI_REQUEST_NULL;
    std::size_t peer_ = 0, self_ = 0;
    bool sends_ = false;
    std::span<const std::byte> memory_{};
};

#if LOCKSTEP_BODIES

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
    entry_.enter();
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
        std::size_t left = 0;
        for (std::size_t i = streams_[stream].message; i != none; i = transfers_[i].next)
            left += pieces(transfers_[i].size);
        for (std::size_t i = 0; i < std::min(window, left); ++i) {
            slots_.push_back({.stream = stream});
            requests_.push_back(MPI_REQUEST_NULL);
        }
    }
    done_.resize(slots_.size());
    live_ = held_back_ = slots_.size();
    post_held_back();
}

[[gnu::noinline]] LOCKSTEP_FUNCTION bool flow::is_in_status(int code) noexcept {
    int kind = code;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_IN_STATUS) return true;
    for (std::size_t i = 0; i < slots_.size() && !lost_; ++i)
        if (requests_[i] != MPI_REQUEST_NULL) lose(code, slots_[i], 0);
    return false;
}

LOCKSTEP_FUNCTION void flow::abandon() noexcept {
    if (live_ > 0)
        recall(
            requests_, [this](std::size_t i) { return !slots_[i].sends; },
            [this](std::size_t i) {
                return std::span<const std::byte>{transfers_[slots_[i].message].data + slots_[i].first, slots_[i].size};
            });
    clear();
    entry_.leave();
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

[[gnu::noinline]] LOCKSTEP_FUNCTION void flow::put(std::size_t peer, std::span<std::byte> bytes, bool sends, bool leads,
                                                   std::size_t next, bool varies) {
    if (leads) streams_.push_back({transfers_.size(), 0, 0});
    transfers_.push_back({bytes.data(), bytes.size(), 0, next, static_cast<int>(peer), sends, varies});
}

[[gnu::noinline]] LOCKSTEP_FUNCTION flow::post_result flow::post(std::size_t stream, std::size_t at) noexcept {
    auto& [current, pieces_posted, pieces_under_way] = streams_[stream];
    while (current != none && transfers_[current].posted == transfers_[current].size)
        current = transfers_[current].next;
    if (current == none) return post_result::nothing_left;
    transfer& message = transfers_[current];
    if (message.awaits_length && message.posted > 0) return post_result::held_back;
    const std::size_t size = std::min(piece_, message.size - message.posted);
    std::byte* const data = message.data + message.posted;
    const bool yields = message.sends && entry_.yields();
    if (yields && pieces_under_way > 0 && !entry_.admits(size)) return post_result::held_back;
    slots_[at] = {stream, current, message.posted, size, message.sends, false};
    message.posted += size;
    if (message.sends) {
        // One that yields is under way until its receiver has it: others are complete as soon as the system takes them,
        // which takes megabytes.
        const bool counted = ++pieces_posted % acknowledged == 0 || yields;
        const int code = (counted ? MPI_Issend : MPI_Isend)(data, static_cast<int>(size), MPI_BYTE, message.peer, tag_,
                                                            over_, &requests_[at]);
        if (code != MPI_SUCCESS) [[unlikely]]
            lose(code, slots_[at], 0);
        ++pieces_under_way;
        entry_.handed_over(size);
        ++sent_messages_;
        sent_bytes_ += size;
    } else {
        const int code = MPI_Irecv(data, static_cast<int>(size), MPI_BYTE, message.peer, tag_, over_, &requests_[at]);
        if (code != MPI_SUCCESS) [[unlikely]]
            lose(code, slots_[at], 0);
    }
    return post_result::under_way;
}

LOCKSTEP_FUNCTION single_message::~single_message() {
    recall(
        std::span{&request_, is_under_way() ? std::size_t{1} : 0}, [this](std::size_t) { return !sends_; },
        [this](std::size_t) { return memory_; });
}

LOCKSTEP_FUNCTION void single_message::receive(const transport& over, std::size_t from, int tag,
                                               std::span<std::byte> into) {
    peer_ = from, self_ = over.rank(), sends_ = false, memory_ = into;
    check(MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, static_cast<int>(from), tag,
                    over.communicator(), &request_),
          "MPI_Irecv");
}

LOCKSTEP_FUNCTION void single_message::send(const transport& over, std::size_t to, int tag,
                                            std::span<const std::byte> what) {
    peer_ = to, self_ = over.rank(), sends_ = true, memory_ = what;
    check(MPI_Isend(what.data(), static_cast<int>(what.size()), MPI_BYTE, static_cast<int>(to), tag,
                    over.communicator(), &request_),
          "MPI_Isend");
}

LOCKSTEP_FUNCTION bool single_message::test(std::string_view what) {
    if (!is_under_way()) return true;
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&request_, &done, &status);
    const std::size_t found = code == MPI_SUCCESS && done != 0 && !sends_ ? bytes_in(status) : memory_.size();
    if (code != MPI_SUCCESS || found != memory_.size()) [[unlikely]]
        throw lost_message::make(code, sends_, peer_, memory_.size(), found).error(peer_, self_, what);
    return done != 0;
}

#endif

}  // namespace lockstep::comm
