// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Bytes between ranks: raw MPI is in this header and flow.hpp; only first_on_host() waits for other ranks.
// Tested by tests/mpi/comm_raw.cpp.

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
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/give_way.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// What MPI has to say about the code that one of its calls returned.
[[nodiscard, gnu::cold]] std::string mpi_error_string(int code);

/// Throws core::error with the name of the call, the rank and MPI's words.
[[noreturn, gnu::cold]] void fail_call(int code, const char* call);

/// Throws core::error where a call of MPI returned something else than success.
inline void check(int code, const char* call) {
    if (code != MPI_SUCCESS) [[unlikely]]
        fail_call(code, call);
}

/// A message that MPI did not carry, or that had not the length of what was to be received.
struct lost_message {
    int code;  ///< MPI_SUCCESS: the length is wrong
    bool sends;
    std::size_t peer;
    std::size_t expected;  ///< bytes
    std::size_t found;     ///< bytes, or more, where the length is wrong

    /// MPI calls a message that is too long an error; here it is one of the wrong length.
    [[nodiscard, gnu::cold]] static lost_message make(int code, bool sends, std::size_t peer, std::size_t expected,
                                                      std::size_t found) noexcept;
    [[nodiscard]] bool has_wrong_length() const noexcept { return code == MPI_SUCCESS; }
    /// With the numbers of both ranks as messages tell them. `call_site`: in what this rank was.
    [[nodiscard, gnu::cold]] core::error error(std::size_t peer_told, std::size_t self_told,
                                               std::string_view call_site) const;
};

/// The bytes that a receive brought.
[[nodiscard]] inline std::size_t bytes_in(const MPI_Status& status) noexcept {
    int found = 0;
    MPI_Get_count(&status, MPI_BYTE, &found);
    return static_cast<std::size_t>(found);
}

/// The handle of a communicator that its owner keeps alive. One without a communicator has one rank and needs no MPI at
/// all.
class transport {
public:
    transport() = default;
    explicit transport(MPI_Comm communicator);

    [[nodiscard]] std::size_t rank() const noexcept { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }
    /// The largest tag.
    [[nodiscard]] int tags() const noexcept { return tags_; }
    [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

    /// The sender of a message with this tag that waits here, if any; it is received into `buffer`, which is long
    /// enough for all of them.
    struct message {
        std::size_t from;
        std::size_t bytes;
    };
    [[nodiscard]] std::optional<message> take(int tag, std::span<char> buffer) const {
        if (communicator_ == MPI_COMM_NULL) return std::nullopt;
        int found = 0;
        MPI_Status status;
        check(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator_, &found, &status), "MPI_Iprobe");
        if (found == 0) return std::nullopt;
        check(MPI_Recv(buffer.data(), static_cast<int>(buffer.size()), MPI_BYTE, status.MPI_SOURCE, tag, communicator_,
                       &status),
              "MPI_Recv");
        return message{static_cast<std::size_t>(status.MPI_SOURCE), bytes_in(status)};
    }

private:
    MPI_Comm communicator_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    int tags_ = 32767;
};

/// What MPI has to permit: threads that never call it beside the one that does (MPI_THREAD_FUNNELED), or some that call
/// it by turns (MPI_THREAD_SERIALIZED).
enum class thread_use : unsigned char { beside, by_turns };

/// Throws core::error where MPI runs in this program and permits less. `what`: asks for the threads; `otherwise`: how
/// to do without.
[[gnu::cold]] void require_threads(thread_use needed, const std::string& what, std::string_view otherwise);

/// A duplicate of a communicator in the making: MPI's blocking call would wait for ever for a rank that does not come.
/// Errors of MPI come back from its calls instead of ending the program. It is there once all ranks have seen that it
/// is made: where one has given up before, none has it. One that is given up leaves its memory to MPI.
class duplication {
public:
    struct duplicate {
        MPI_Comm communicator;
        std::uint64_t number;  ///< the largest that a rank proposed
    };

    duplication(MPI_Comm original, std::uint64_t number) : making_{std::make_unique<making>()} {
        making_->mine = number;
        check(MPI_Comm_idup(original, &making_->made, &making_->request), "MPI_Comm_idup");
    }
    duplication(const duplication&) = delete;
    duplication& operator=(const duplication&) = delete;
    ~duplication() {
        if (making_->request != MPI_REQUEST_NULL) leak_until_exit(std::move(making_));
    }

    /// Whether it is made here, and waits for the others to see that.
    [[nodiscard]] bool is_known() const noexcept { return making_->is_known; }
    /// The duplicate, once it is there.
    [[nodiscard]] std::optional<duplicate> test() {
        int done = 0;
        check(MPI_Test(&making_->request, &done, MPI_STATUS_IGNORE), "MPI_Test of MPI_Comm_idup");
        if (done == 0) return std::nullopt;
        if (making_->is_known) return duplicate{making_->made, making_->largest};
        making_->is_known = true;
        check(MPI_Comm_set_errhandler(making_->made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Iallreduce(&making_->mine, &making_->largest, 1, MPI_UINT64_T, MPI_MAX, making_->made,
                             &making_->request),
              "MPI_Iallreduce");
        return std::nullopt;
    }

private:
    struct making {
        MPI_Comm made = MPI_COMM_NULL;
        MPI_Request request = MPI_REQUEST_NULL;
        bool is_known = false;  // on this rank
        std::uint64_t mine = 0, largest = 0;
    };
    std::unique_ptr<making> making_;
};

/// Whether ranks of this communicator talk to those of another group (MPI_Intercomm_create).
[[nodiscard, gnu::cold]] bool joins_two_groups(MPI_Comm communicator);

/// Whether two communicators have the same ranks in the same order.
[[nodiscard, gnu::cold]] bool same_ranks(MPI_Comm first, MPI_Comm second);

/// The ranks of `part` as numbered in `whole`.
[[nodiscard, gnu::cold]] std::vector<std::size_t> ranks_of(MPI_Comm part, MPI_Comm whole);

/// The lowest rank that shares memory with this one; nothing where MPI does not tell. Collective; MPI waits in it until
/// all ranks have come.
[[nodiscard, gnu::cold]] std::optional<std::size_t> first_on_host(MPI_Comm communicator) noexcept;

/// Whether all ranks of the communicator call this, at most `longest` later. MPI may go on with it where they do not:
/// for the end of a job.
[[nodiscard, gnu::cold]] bool all_come(MPI_Comm communicator, std::chrono::milliseconds longest) noexcept;

/// Whether MPI has been finalized.
[[nodiscard]] inline bool is_over() noexcept {
    int over = 0;
    MPI_Finalized(&over);
    return over != 0;
}

/// Gives messages up; request i is a receive where receives(i), and memory(i) is what it uses. Receives are cancelled.
/// One that is being filled just now has 0.2 s to end. Sends cannot be recalled: their peers have failed too, or will.
/// What has not ended then is abandoned memory.
template <class Receives, class Memory>
[[gnu::cold]] void recall(std::span<MPI_Request> pending, Receives&& receives, Memory&& memory) noexcept {
    if (pending.empty() || is_over()) return;
    for (std::size_t i = 0; i < pending.size(); ++i)
        if (receives(i) && pending[i] != MPI_REQUEST_NULL) MPI_Cancel(&pending[i]);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{200};
    for (bool ended = false; !ended && std::chrono::steady_clock::now() < deadline;) {
        ended = true;
        for (std::size_t i = 0; i < pending.size(); ++i) {
            int done = 1;
            if (pending[i] != MPI_REQUEST_NULL) MPI_Test(&pending[i], &done, MPI_STATUS_IGNORE);
            ended = ended && (done != 0 || !receives(i));
        }
    }
    for (std::size_t i = 0; i < pending.size(); ++i) {
        if (pending[i] == MPI_REQUEST_NULL) continue;
        abandoned_memory::add(memory(i));
        MPI_Request_free(&pending[i]);
    }
}

/// A few messages that are under way together, for setting up and for failures, in memory of their own. What is still
/// under way when it is destroyed is abandoned.
class requests {
public:
    requests() = default;
    requests(const requests&) = delete;
    requests& operator=(const requests&) = delete;
    ~requests() { abandon(); }

    void reserve(std::size_t messages) {
        pending_.reserve(messages), parts_.reserve(messages), statuses_.reserve(messages);
    }

    /// All receives of a round come before its sends. `into` is written by the test() that finds all complete.
    void receive(const transport& over, std::size_t from, int tag, std::span<std::byte> into);
    void send(const transport& over, std::size_t to, int tag, std::span<const std::byte> what);

    /// Makes progress; true when all are complete, and the set is empty again. What MPI did not carry is complete, too.
    [[nodiscard]] bool test() noexcept {
        if (pending_.empty()) return true;
        int done = 0;
        const int code = MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &done, statuses_.data());
        if (code != MPI_SUCCESS || done != 0) look(code, done != 0);
        if (done == 0) return false;
        if (!lost_)
            for (const part& received : parts_)
                if (!received.sends) std::copy(received.memory.begin(), received.memory.end(), received.into);
        clear();
        return true;
    }

    /// The first message that was lost, if any.
    [[nodiscard]] const std::optional<lost_message>& lost() const noexcept { return lost_; }

    /// Makes progress until all are complete, but not longer than this.
    void wait_all(std::chrono::milliseconds longest) noexcept {
        if (pending_.empty() || is_over()) return;
        const auto begun = std::chrono::steady_clock::now();
        for (std::chrono::steady_clock::duration waited{0}; !test() && waited < longest;
             waited = std::chrono::steady_clock::now() - begun)
            give_way(waited);
    }

    /// Gives up, as recall() does.
    [[gnu::cold]] void abandon() noexcept;

private:
    struct part {
        std::size_t peer;
        bool sends;
        std::byte* into;  // of a receive
        buffer<std::byte> memory;
    };

    /// The last part, and the request of its message.
    MPI_Request* next(part&& added) {
        parts_.push_back(std::move(added));
        pending_.resize(parts_.size(), MPI_REQUEST_NULL);
        statuses_.resize(parts_.size());
        return &pending_.back();
    }
    [[gnu::cold]] void lose(int code, const part& lost, std::size_t found = 0) noexcept {
        if (!lost_) lost_ = lost_message::make(code, lost.sends, lost.peer, lost.memory.size(), found);
    }
    /// What became of the messages. `code`: of the call that tested all of them.
    [[gnu::cold]] void look(int code, bool done) noexcept;
    void clear() noexcept {
        pending_.clear();
        parts_.clear();
        statuses_.clear();
        receives_ = 0;
    }

    std::vector<MPI_Request> pending_;
    std::vector<part> parts_;  // what each request is
    std::vector<MPI_Status> statuses_;
    std::optional<lost_message> lost_;
    std::size_t receives_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string mpi_error_string(int code) {
    char words[MPI_MAX_ERROR_STRING] = {};
    int size = 0;
    if (MPI_Error_string(code, words, &size) != MPI_SUCCESS) return core::text("error ", code);
    return {words, static_cast<std::size_t>(size)};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void fail_call(int code, const char* call) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    core::fail(core::text(call, " failed on rank ", rank, " of MPI_COMM_WORLD: ", mpi_error_string(code)),
               "see what MPI and its launcher say: a host or the network may be lost, or communicators are made and "
               "never freed");
}

LOCKSTEP_FUNCTION lost_message lost_message::make(int code, bool sends, std::size_t peer, std::size_t expected,
                                                  std::size_t found) noexcept {
    int kind = code;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
    return {kind == MPI_ERR_TRUNCATE ? MPI_SUCCESS : code, sends, peer, expected, found};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION core::error lost_message::error(std::size_t peer_told, std::size_t self_told,
                                                                    std::string_view call_site) const {
    if (has_wrong_length())
        return {core::text("rank ", peer_told, " sent ", found, " bytes to rank ", self_told, ", which expected ",
                           expected, " in ", call_site),
                "run collectives with the same sizes on all ranks"};
    return {core::text("rank ", self_told, " cannot ", sends ? "send " : "receive ", expected,
                       sends ? " bytes to rank " : " bytes from rank ", peer_told, " in ", call_site, ": ",
                       mpi_error_string(code)),
            "see what MPI and its launcher say: a host or the network may be lost"};
}

LOCKSTEP_FUNCTION transport::transport(MPI_Comm communicator) : communicator_{communicator} {
    int* limit = nullptr;
    int found = 0;
    check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
    // The attribute belongs to MPI_COMM_WORLD (MPI 3.1, section 8.1.2): communicators that were split do not have it.
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found), "MPI_Comm_get_attr");
    if (found != 0) tags_ = *limit;
}

LOCKSTEP_FUNCTION void require_threads(thread_use needed, const std::string& what, std::string_view otherwise) {
    int begun = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    if (begun == 0 || is_over()) return;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    const bool beside = needed == thread_use::beside;
    if (level >= (beside ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED))
        return;  // MPI 3.1, section 12.4.3: the levels grow
    core::fail(
        core::text(what, ", which needs MPI at ", beside ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED",
                   ", and MPI runs at ", level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE"),
        core::text("start it by boost::mpi::environment environment{argc, argv, boost::mpi::threading::",
                   beside ? "funneled" : "serialized", "} or lockstep::program at that level, or ", otherwise));
}

LOCKSTEP_FUNCTION bool same_ranks(MPI_Comm first, MPI_Comm second) {
    int found = MPI_UNEQUAL;
    check(MPI_Comm_compare(first, second, &found), "MPI_Comm_compare");
    return found == MPI_IDENT || found == MPI_CONGRUENT;
}

LOCKSTEP_FUNCTION std::vector<std::size_t> ranks_of(MPI_Comm part, MPI_Comm whole) {
    MPI_Group of_part, of_whole;
    int size = 0;
    check(MPI_Comm_size(part, &size), "MPI_Comm_size");
    std::vector<int> in_part(static_cast<std::size_t>(size)), in_whole(in_part.size());
    check(MPI_Comm_group(part, &of_part), "MPI_Comm_group");
    check(MPI_Comm_group(whole, &of_whole), "MPI_Comm_group");
    for (int rank = 0; rank < size; ++rank) in_part[static_cast<std::size_t>(rank)] = rank;
    MPI_Group_translate_ranks(of_part, size, in_part.data(), of_whole, in_whole.data());
    MPI_Group_free(&of_part);
    MPI_Group_free(&of_whole);
    return {in_whole.begin(), in_whole.end()};
}

LOCKSTEP_FUNCTION std::optional<std::size_t> first_on_host(MPI_Comm communicator) noexcept {
    MPI_Comm host = MPI_COMM_NULL;
    if (MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return std::nullopt;
    MPI_Group on_host = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    const int zero = 0;
    int first = MPI_UNDEFINED;
    bool well = MPI_Comm_group(host, &on_host) == MPI_SUCCESS && MPI_Comm_group(communicator, &all) == MPI_SUCCESS &&
                MPI_Group_translate_ranks(on_host, 1, &zero, all, &first) == MPI_SUCCESS;
    if (on_host != MPI_GROUP_NULL) MPI_Group_free(&on_host);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    well = MPI_Comm_free(&host) == MPI_SUCCESS && well && first != MPI_UNDEFINED;
    return well ? std::optional{static_cast<std::size_t>(first)} : std::nullopt;
}

LOCKSTEP_FUNCTION bool joins_two_groups(MPI_Comm communicator) {
    int joins = 0;
    check(MPI_Comm_test_inter(communicator, &joins), "MPI_Comm_test_inter");
    return joins != 0;
}

LOCKSTEP_FUNCTION bool all_come(MPI_Comm communicator, std::chrono::milliseconds longest) noexcept {
    MPI_Request barrier = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(communicator, &barrier) != MPI_SUCCESS) return false;
    const auto begun = std::chrono::steady_clock::now();
    std::chrono::steady_clock::duration waited{0};
    for (int come = 0; waited < longest; waited = std::chrono::steady_clock::now() - begun) {
        if (MPI_Test(&barrier, &come, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (come != 0) return true;
        give_way(waited);
    }
    return false;
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void requests::receive(const transport& over, std::size_t from, int tag,
                                                           std::span<std::byte> into) {
    MPI_Request* const request = next({from, false, into.data(), buffer<std::byte>(into.size())});
    const int code = MPI_Irecv(parts_.back().memory.data(), static_cast<int>(into.size()), MPI_BYTE,
                               static_cast<int>(from), tag, over.communicator(), request);
    receives_ = pending_.size();
    if (code != MPI_SUCCESS) lose(code, parts_.back());
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void requests::send(const transport& over, std::size_t to, int tag,
                                                        std::span<const std::byte> what) {
    MPI_Request* const request = next({to, true, nullptr, {what.begin(), what.end()}});
    const int code = MPI_Isend(parts_.back().memory.data(), static_cast<int>(what.size()), MPI_BYTE,
                               static_cast<int>(to), tag, over.communicator(), request);
    if (code != MPI_SUCCESS) lose(code, parts_.back());
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void requests::look(int code, bool done) noexcept {
    int kind = code;
    MPI_Error_class(code, &kind);
    if (kind != MPI_SUCCESS && kind != MPI_ERR_IN_STATUS) return lose(code, parts_[0]);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        const int code_of_part = kind == MPI_SUCCESS ? MPI_SUCCESS : statuses_[i].MPI_ERROR;
        const std::size_t expected = parts_[i].memory.size();
        const std::size_t found = i < receives_ && done ? bytes_in(statuses_[i]) : expected;
        if ((code_of_part != MPI_SUCCESS && code_of_part != MPI_ERR_PENDING) || found != expected)
            lose(code_of_part, parts_[i], found);
    }
}

LOCKSTEP_FUNCTION void requests::abandon() noexcept {
    recall(
        pending_, [this](std::size_t i) { return i < receives_; },
        [this](std::size_t i) { return std::as_bytes(std::span{parts_[i].memory}); });
    clear();
}

#endif

}  // namespace lockstep::comm
