// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Failure notices: a rank that fails tells all others why, so that none of them waits for it for ever.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/transport.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// Thrown where a rank waits for others and one of them has failed. what() reads `rank 3: <its error>`.
class remote_failure : public core::error {
public:
    remote_failure(std::size_t origin, const std::string& text)
        : core::error{core::text("rank ", origin, ": ", text)}, text_{text}, origin_{origin} {}

    /// The rank that failed, numbered as in the group that was made from the application's communicator.
    [[nodiscard]] std::size_t origin() const noexcept { return origin_; }
    /// The error as that rank wrote it.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
    std::size_t origin_;
};

/// Keeps a thing until the end of the program: what MPI may still use after a failure. A send whose receiver has failed can be neither
/// completed nor recalled, and MPI reads its memory whenever the receiver's side answers.
template <class T>
[[gnu::cold]] void keep(T thing) {
    static std::vector<T> kept;
    kept.push_back(std::move(thing));
}

/// The channel that a group and all groups split from it share. Once it has seen a failure, its own or another's, every check throws; but a
/// rank that is behind first ends the stretch of work that the failed rank has ended, if it can within a second: then all have ended the same.
class notice_board {
public:
    /// Longer texts are cut. Short enough for MPI to send at once, whether or not the receiver looks.
    static constexpr std::size_t longest = 2000;
    static constexpr int tag = 0;

    explicit notice_board(transport over) : over_{over} {}
    /// The text must not vanish while MPI still sends it.
    ~notice_board() { requests_.settle(std::chrono::milliseconds{500}); }

    /// Sends the text to all other ranks. Does not wait for them. Only the first failure that this rank sees is told, and only if it is its own.
    [[gnu::cold]] void announce(std::string_view text) {
        if (failure_) return;
        failure_.emplace(over_.rank(), std::string{text.substr(0, longest)});
        failed_after_ = passed_;
        std::memcpy(buffer_.data(), &failed_after_, header);
        const std::size_t length = header + failure_->text().copy(buffer_.data() + header, longest);
        requests_.reserve(over_.size());
        for (std::size_t distance = 1; distance < over_.size(); ++distance)
            requests_.send(over_, (over_.rank() + distance) % over_.size(), tag, std::as_bytes(std::span{buffer_}.first(length)));
        (void)requests_.test();
    }

    /// Looks once for a notice; throws remote_failure if there is one, or has been.
    [[gnu::cold]] void check() {
        if (!failure_) {
            if (const auto letter = over_.take(tag, buffer_)) {
                failure_.emplace(letter->from, std::string{buffer_.data() + header, letter->bytes - header});
                std::memcpy(&failed_after_, buffer_.data(), header);
                seen_ = std::chrono::steady_clock::now();
            }
        }
        // The failed rank may have gone before all its messages were out: nobody waits for them for ever.
        if (failure_ && (failed_after_ <= passed_ || std::chrono::steady_clock::now() - seen_ > std::chrono::seconds{1})) {
            (void)requests_.test();
            throw remote_failure{*failure_};
        }
    }

    /// A stretch of work has ended that all ranks end, such as a training step. No rank may end one before all others have done all that can
    /// fail in it. Called equally often on all ranks, or never.
    void passed() noexcept { ++passed_; }

    [[nodiscard]] bool failed() const noexcept { return failure_.has_value(); }

private:
    static constexpr std::size_t header = sizeof(std::uint64_t);  // how many stretches of work came before the failure

    transport over_;
    std::uint64_t passed_ = 0;
    std::uint64_t failed_after_ = 0;
    std::chrono::steady_clock::time_point seen_{};
    std::optional<remote_failure> failure_;
    std::array<char, header + longest> buffer_{};  // what is being sent, or has been received: never both
    requests requests_;
};

}  // namespace lockstep::comm
