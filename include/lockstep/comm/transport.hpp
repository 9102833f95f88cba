// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Bytes between ranks: the only header with raw MPI calls, all of them non-blocking and on the calling thread.

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

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// The handle of a communicator that somebody else keeps alive. One without a communicator has one rank and needs no MPI at all.
class transport {
public:
    transport() = default;
    explicit transport(MPI_Comm communicator) : communicator_{communicator} {
        int* limit = nullptr;
        int found = 0;
        MPI_Comm_rank(communicator_, &rank_);
        MPI_Comm_size(communicator_, &size_);
        MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&limit), &found);
        if (found != 0) tags_ = *limit;
    }

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

/// Messages that are under way together. Storage is reserved once; messages longer than `piece` bytes travel in several pieces, because MPI
/// counts in int. What is still under way when it is destroyed is abandoned.
class requests {
public:
    static constexpr std::size_t largest_piece = std::size_t{1} << 30;

    explicit requests(std::size_t piece = largest_piece) noexcept : piece_{piece} {}
    requests(requests&& other) noexcept
        : piece_{other.piece_},
          pending_{std::move(other.pending_)},
          receives_{other.receives_},
          messages_{other.messages_},
          bytes_{other.bytes_} {
        other.pending_.clear();
        other.receives_ = 0;
    }
    requests& operator=(requests&&) = delete;
    ~requests() { abandon(); }

    [[nodiscard]] std::size_t pieces(std::size_t bytes) const noexcept { return (bytes + piece_ - 1) / piece_; }
    void reserve(std::size_t pieces) { pending_.reserve(pieces); }

    /// All receives of a round come before its sends.
    [[gnu::cold]] void receive(const transport& over, std::size_t from, int tag, std::span<std::byte> into) {
        for_pieces(into, [&](std::span<std::byte> part) {
            MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, static_cast<int>(from), tag, over.communicator(), next());
        });
        receives_ = pending_.size();
    }
    [[gnu::cold]] void send(const transport& over, std::size_t to, int tag, std::span<const std::byte> what) {
        for_pieces(what, [&](std::span<const std::byte> part) {
            MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, static_cast<int>(to), tag, over.communicator(), next());
            ++messages_;
            bytes_ += part.size();
        });
    }

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
    [[gnu::cold]] void abandon() noexcept {
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

    /// What was really handed to MPI since construction.
    [[nodiscard]] std::size_t sent_messages() const noexcept { return messages_; }
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return bytes_; }

private:
    [[nodiscard]] static bool finalized() noexcept {
        int over = 0;
        MPI_Finalized(&over);
        return over != 0;
    }

    MPI_Request* next() {
        pending_.push_back(MPI_REQUEST_NULL);
        return &pending_.back();
    }

    template <class Bytes, class F>
    void for_pieces(Bytes all, F&& f) {
        for (std::size_t at = 0; at < all.size(); at += piece_) f(all.subspan(at, std::min(piece_, all.size() - at)));
    }

    std::size_t piece_;
    std::vector<MPI_Request> pending_;
    std::size_t receives_ = 0;
    std::size_t messages_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace lockstep::comm
