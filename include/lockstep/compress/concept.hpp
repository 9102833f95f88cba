// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a compressor of gradients must offer: messages of known size, and adding a decoded message to a sum.
// Tested by tests/unit/compress/none.cpp.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/member.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::compress {

/// What a compressor or a reduction asks for, in an optional member `static constexpr compress::traits traits{..}`.
struct traits {
    bool dense_vectors = false;  ///< tensors of one extent (biases, scales) travel as they are
    bool whole_tensors =
        false;  ///< pieces are whole tensors with their rows and columns, whatever the segment of the plan
    bool varying_lengths = false;  ///< messages are often shorter than max_bytes: each travels with no more than it has
};

/// What is compressed at once, in row-major order: a whole tensor, or a segment of one as a single row.
struct matrix {
    std::size_t rows = 1;     ///< 1 for a segment
    std::size_t columns = 1;  ///< numbers of a row
    /// Of all numbers.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// The tensor that a vector is, or is a segment of.
struct origin {
    std::size_t tensor = 0;  ///< number among all of the network; each shard of a model partition is one of its own
    std::size_t rows = 1;    ///< of the whole tensor
    std::size_t columns = 1;  ///< the same
    std::size_t window = 0;  ///< of a convolution's weights: positions of its window; 0: of none
    std::size_t offset = 0;  ///< of the vector in the tensor

    /// A tensor of one extent: a bias, a scale.
    [[nodiscard]] constexpr bool is_vector() const noexcept { return rows == 1 || columns == 1; }
    /// Of `count` numbers of it: all of the tensor, or a segment as a row.
    [[nodiscard]] constexpr matrix shape(std::size_t count) const noexcept {
        return count == rows * columns ? matrix{rows, columns} : matrix{1, count};
    }
};

/// One vector to be written as a message.
template <class T>
struct encoding {
    std::span<const T> values;     ///< of one worker: its part of the mean gradient; in error feedback, with residual
    std::span<std::byte> message;  ///< room for max_bytes_at of this step and tensor, from a multiple of 8 bytes on
    tensor::slots<T> state;        ///< slot_count of them, as long as values, zero before the first message
    std::span<T> scratch;          ///< scratch_size(values.size()) elements, whose content means nothing
    core::random_stream random{0, core::purpose::rounding};  ///< word i is for value i, unless a method says more
    std::uint64_t step = 0;                                  ///< of the run, from 0
    origin from{};                                           ///< which tensor
    bool is_sent = true;                                     ///< false: of a sum that is sealed, or a trial
    bool fixed_room = false;  ///< the message travels with max_bytes_at, whatever encode() returns
};

/// The sum of a piece over all workers, on who owns it: every rank that decodes the messages.
template <class T>
struct sealing {
    std::span<T> sum;              ///< to be changed in place
    tensor::slots<T> state;        ///< shared_slots of them, as long as sum, zero before the first step
    std::span<std::byte> message;  ///< room for max_bytes_at of this step, starting at a multiple of 8 bytes
    std::span<T> scratch;          ///< scratch_size(sum.size()) elements
    core::random_stream random{0, core::purpose::reduction};  ///< word i belongs to number i
    std::uint64_t step = 0;                                   ///< of the run, from 0
    origin from{};                                            ///< which tensor
};

/// `encode(in)` writes a message and returns its length in bytes, which is at most `max_bytes<T>(n)`, or
/// `max_bytes<T>(n, step, from)` where it has that, and the same for all vectors of one length where it can be.
/// `decode_add(message, scale, sum)` does sum += scale x decoded; the message is one that `encode` wrote for sum.size()
/// values, and starts at any byte. A number that is not finite must not vanish: what is decoded then holds one too.
/// `settings` is what distinguishes two compressors of one type: it enters the fingerprint of the recipe. Optional:
/// `check()` throws core::error on settings that make no sense; `scratch_size<T>(n)`, the elements of scratch that
/// encode needs; `snap(values)` rounds values so little that value - decoded is afterwards exact in T: error_feedback
/// calls it before it encodes; `check_feedback()` throws core::error on settings with which error feedback would not
/// keep its residual bounded; `encode_snapped(in, p)`, where p is in.values to write to: snaps what it sends of p and
/// encodes it, for compressors that choose what they send. For those that know more at run time than their type says:
/// `slots()`, how many of slot_count are in use; `is_dense(shape)`, whether a tensor of that shape travels as it is;
/// `sends_all(step, from)`, whether its message of a step has all numbers as they are (default: no);
/// `sees_whole_tensors()` and `varies()`, in place of the traits whole_tensors and varying_lengths; `max_bytes<T>(n,
/// step, from)`, the longest message of a step and tensor, and `changes()`, the steps at which that differs from the
/// step before, ascending: messages then take no more room than that. `seal(sealing)`, noexcept, changes the sum of all
/// workers before the update, with `shared_slots()` arrays of state that belong to no worker; `seals()`, whether it
/// does, where the type does not say. It is for the outermost combinator alone.
template <class C, class T = float>
concept Compressor = std::copy_constructible<C> &&
    requires(const C& compressor, std::size_t n, const encoding<T>& in, std::span<const std::byte> message, T scale,
             std::span<T> sum) {
    { C::slot_count } -> std::convertible_to<std::size_t>;
    { C::name } -> std::convertible_to<std::string_view>;
    requires !core::slot_count_is_of_objects<C> && !core::name_is_of_objects<C>;
    { compressor.settings() } -> std::convertible_to<std::string>;
    { compressor.template max_bytes<T>(n) } -> std::convertible_to<std::size_t>;
    { compressor.encode(in) } -> std::convertible_to<std::size_t>;
    compressor.decode_add(message, scale, sum);
    requires noexcept(compressor.encode(in));
    requires noexcept(compressor.decode_add(message, scale, sum));
};

/// Elements of scratch for a vector of n: what the compressor says, or none.
template <class T, Compressor<T> C>
[[nodiscard]] constexpr std::size_t scratch_size(const C& compressor, std::size_t n) {
    if constexpr (requires { compressor.template scratch_size<T>(n); })
        return compressor.template scratch_size<T>(n);
    else
        return 0;
}

/// The traits of a compressor: what it says, or the defaults.
template <class C>
inline constexpr compress::traits traits_of{};
template <class C>
    requires requires { compress::traits{C::traits}; }
inline constexpr compress::traits traits_of<C> = C::traits;

/// Whether a tensor of that shape travels as it is, or is added as it is.
template <class C>
[[nodiscard]] constexpr bool is_dense(const C& compressor, const matrix& shape) {
    if (traits_of<C>.dense_vectors && (shape.rows == 1 || shape.columns == 1)) return true;
    if constexpr (requires { compressor.is_dense(shape); })
        return compressor.is_dense(shape);
    else
        return false;
}

/// Whether a message of that step, for a tensor that does not travel as it is, has all of its numbers as they are.
template <class C>
[[nodiscard]] bool sends_all(const C& compressor, [[maybe_unused]] std::uint64_t step,
                             [[maybe_unused]] const origin& from) {
    if constexpr (requires { compressor.sends_all(step, from); })
        return compressor.sends_all(step, from);
    else
        return false;
}

/// Whether it chooses among compressors while a run goes on (compress::adaptive).
template <class C>
inline constexpr bool adapts = requires {
    C::is_adaptive;
};

/// Whether its messages are added on their way (compress/sparse_sum.hpp).
template <class C>
inline constexpr bool adds_streams = requires(const C& compressor) {
    stream_settings_of(compressor);
};
/// Whether a part of a compressor asks for that, which is not asked itself.
template <class C>
inline constexpr bool hides_streams = false;
template <template <class...> class Around, class... Parts>
    requires(!adds_streams<Around<Parts...>>)
inline constexpr bool hides_streams<Around<Parts...>> = ((adds_streams<Parts> || hides_streams<Parts>) || ...);

/// Whether pieces are whole tensors, whatever the segment of the plan.
template <class C>
[[nodiscard]] constexpr bool sees_whole_tensors(const C& compressor) {
    if constexpr (requires { compressor.sees_whole_tensors(); })
        return compressor.sees_whole_tensors();
    else
        return traits_of<C>.whole_tensors;
}

/// Whether messages are often shorter than their room.
template <class C>
[[nodiscard]] constexpr bool varies(const C& compressor) {
    if constexpr (requires { compressor.varies(); })
        return compressor.varies();
    else
        return traits_of<C>.varying_lengths;
}

/// Slots that are in use.
template <class C>
[[nodiscard]] constexpr std::size_t slots_of(const C& compressor) noexcept {
    if constexpr (requires { compressor.slots(); })
        return compressor.slots();
    else
        return C::slot_count;
}

/// Slots of state that belong to no worker.
template <class C>
[[nodiscard]] constexpr std::size_t shared_slots_of(const C& compressor) noexcept {
    if constexpr (requires { compressor.shared_slots(); })
        return compressor.shared_slots();
    else
        return 0;
}

/// Whether a compressor changes the sum before the update.
template <class C, class T>
inline constexpr bool has_seal = requires(const C& compressor, const sealing<T>& in) {
    requires noexcept(compressor.seal(in));
};

/// Whether a seal() of its own is the one that is called: one that is not noexcept, say, would be passed over in
/// silence.
template <class C, class T>
inline constexpr bool keeps_seal = has_seal<C, T> || !requires(C & compressor, const sealing<T>& in) {
    compressor.seal(in);
};

/// Whether it does, as far as that is known when a program runs: compress::any says it of what it holds.
template <class C>
[[nodiscard]] constexpr bool seals(const C& compressor) noexcept {
    if constexpr (requires { compressor.seals(); })
        return compressor.seals();
    else
        return has_seal<C, float>;
}

/// Goes around everything else: a combinator around it would not change the sum.
template <class C>
inline constexpr bool is_outermost = has_seal<C, float> && !requires(const C& compressor) {
    compressor.seals();
};

/// The longest message of n numbers of this tensor in this step.
template <class T, Compressor<T> C>
[[nodiscard]] constexpr std::size_t max_bytes_at(const C& compressor, std::size_t n, std::uint64_t step,
                                                 const origin& from) {
    if constexpr (requires { compressor.template max_bytes<T>(n, step, from); })
        return compressor.template max_bytes<T>(n, step, from);
    else
        return compressor.template max_bytes<T>(n);
}
/// The steps at which that changes.
template <class C>
[[nodiscard]] std::vector<std::uint64_t> changes_of(const C& compressor) {
    if constexpr (requires { compressor.changes(); })
        return compressor.changes();
    else
        return {};
}

/// Writes the message of p, which is in.values, after rounding p so little that p - decoded is exact.
template <class T, Compressor<T> C>
std::size_t encode_snapped(const C& compressor, const encoding<T>& in, std::span<T> p) noexcept {
    if constexpr (requires { compressor.encode_snapped(in, p); }) {
        return compressor.encode_snapped(in, p);
    } else {
        if constexpr (requires { compressor.snap(p); }) compressor.snap(p);
        return compressor.encode(in);
    }
}

}  // namespace lockstep::compress
