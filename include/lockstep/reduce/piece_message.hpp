// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The message of a piece as workers send it: its length, then what a compressor has written.
// Tested by tests/mpi/reduce_gathered_messages.cpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::reduce {

/// Its first bytes: the length of what follows,
using message_header = std::uint64_t;
/// or that there is none, since numbers were not finite.
inline constexpr message_header no_message = std::numeric_limits<message_header>::max();

/// Whether a piece travels as it is.
template <class C>
[[nodiscard]] bool travels_dense(const C& compressor, const piece& of) {
    return compress::is_dense(compressor, compress::matrix{of.rows, of.columns});
}

/// The most bytes of the message of a piece in a step, with its header; a multiple of 8.
template <class T, class C>
[[nodiscard, gnu::cold]] std::size_t message_room(const C& compressor, const piece& of, std::uint64_t step) {
    constexpr std::string_view what = "bytes of a message";
    const std::size_t most = travels_dense(compressor, of)
                                 ? core::checked_product(what, of.count, sizeof(T))
                                 : compress::max_bytes_at<T>(compressor, of.count, step, of.from());
    return core::checked_sum(what, most, sizeof(message_header) + 7) / 8 * 8;
}

/// Who writes a message, and when.
struct message_writer {
    parallel::team team;
    std::uint64_t seed = 0;
    std::uint64_t step = 0;
    std::size_t worker = 0, workers = 1;  ///< which of how many
    bool fixed_room = true;               ///< the message travels with all of its room
};

/// Writes the message of a piece: values has its numbers, state what the compressor keeps for it and the worker.
template <class T, class C>
void write_message(const C& compressor, const piece& of, const message_writer& by, std::span<const T> values,
                   std::span<std::byte> message, tensor::slots<T> state, std::span<T> scratch) {
    constexpr std::size_t header = sizeof(message_header);
    message_header length = no_message;  // a compressor could hide such numbers
    if (kernels::first_non_finite(values, by.team) == values.size()) {
        if (travels_dense(compressor, of)) {
            length = values.size_bytes();
            std::memcpy(message.data() + header, values.data(), length);
        } else {
            const auto series = static_cast<std::uint32_t>(of.tensor * by.workers + by.worker);
            length = compressor.encode(compress::encoding<T>{
                .values = values,
                .message = message.subspan(header),
                .state = state,
                .scratch = scratch,
                .random =
                    core::random_stream{by.seed, core::purpose::rounding, series, static_cast<std::uint32_t>(by.step)}
                        .from(of.offset / 4),
                .step = by.step,
                .from = of.from(),
                .fixed_room = by.fixed_room,
            });
            if (length > message.size() - header)
                core::fail(core::text("encode() of ", C::name, " returned ", length, " bytes for ", of.count,
                                      " numbers, with room for ", message.size() - header),
                           "return the length of the message; max_bytes() is that of the longest one");
        }
    }
    std::memcpy(message.data(), &length, header);
}

/// Adds what a message decodes to. False: the numbers of that worker were not finite.
template <class T, class C>
[[nodiscard]] bool add_message(const C& compressor, const piece& of, std::span<const std::byte> message,
                               std::span<T> sum) noexcept {
    message_header length = 0;
    std::memcpy(&length, message.data(), sizeof(length));
    if (length == no_message) return false;
    if (travels_dense(compressor, of))
        kernels::add(std::span<const T>{reinterpret_cast<const T*>(message.data() + sizeof(length)), of.count}, sum);
    else
        compressor.decode_add(message.subspan(sizeof(length), length), T{1}, sum);
    return true;
}

}  // namespace lockstep::reduce
