// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Aborts that have arrived here, of all channels of a watch.
// Tested by tests/mpi/comm_abort_channel.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/transport.hpp"
#include "lockstep/core/compiled.hpp"

namespace lockstep::comm {

/// An abort as it travels: a header and a text. On the communicator of the watch, which is never given back: one that
/// arrives late is never taken for a message of something else.
struct abort_message {
    /// Longer texts are cut. Short enough for MPI to send at once, whether or not the receiver looks.
    static constexpr std::size_t longest = 3000;
    static constexpr int tag = 1;

    struct header {
        std::uint64_t channel;
        std::uint64_t passed;  ///< stretches of work before the failure
    };
    std::array<char, sizeof(header) + longest> bytes{};

    /// What is to be sent.
    [[gnu::cold]] std::span<const char> write(const header& head, std::string_view text) noexcept {
        std::memcpy(bytes.data(), &head, sizeof head);
        return std::span{bytes}.first(sizeof head + text.copy(bytes.data() + sizeof head, longest));
    }
};

/// What failed ranks have told, by channel.
class abort_store {
public:
    struct told {
        std::uint64_t channel;
        std::uint64_t passed;
        std::size_t from;
        std::string text;
    };

    /// Takes what has arrived; what is_over(channel) says of is nothing to anybody any more.
    template <class Over>
    void take(const transport& over, const Over& is_over) {
        while (const auto message = over.take(abort_message::tag, inbox_.bytes)) {
            abort_message::header head;
            std::memcpy(&head, inbox_.bytes.data(), sizeof head);
            if (!is_over(head.channel)) add(head, message->from, message->bytes);
        }
    }
    /// The first abort on a channel; null: none.
    [[nodiscard]] const told* of(std::uint64_t channel) const noexcept {
        for (const told& one : all_)
            if (one.channel == channel) return &one;
        return nullptr;
    }
    /// On any other one: null if there is none.
    [[nodiscard, gnu::cold]] const told* beside(std::uint64_t channel) const noexcept {
        for (const told& one : all_)
            if (one.channel != channel) return &one;
        return nullptr;
    }
    [[gnu::cold]] void forget(std::uint64_t channel) noexcept {
        std::erase_if(all_, [&](const told& one) { return one.channel == channel; });
    }

private:
    [[gnu::cold]] void add(const abort_message::header& head, std::size_t from, std::size_t bytes);

    abort_message inbox_;
    std::vector<told> all_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void abort_store::add(const abort_message::header& head, std::size_t from, std::size_t bytes) {
    all_.push_back({head.channel, head.passed, from, {inbox_.bytes.data() + sizeof head, bytes - sizeof head}});
}

#endif

}  // namespace lockstep::comm
