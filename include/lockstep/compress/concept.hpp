// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a compressor of gradients must offer: messages of known size, and adding a decoded message to a sum.
// Tested by tests/unit/compress/none.cpp.

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/random.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::compress {

/// What a compressor or a reduction asks for, in an optional member `static constexpr compress::traits traits{..}`.
struct traits {
    bool dense_vectors = false;  ///< tensors of one extent (biases, scales) travel as they are
    bool whole_tensors =
        false;  ///< pieces are whole tensors with their rows and columns, whatever the segment of the plan
};

/// What is compressed at once, in row-major order: a whole tensor, or a segment of one as a single row.
struct matrix {
    std::size_t rows = 1;
    std::size_t columns = 1;
    [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// One vector to be written as a message.
template <class T>
struct encoding {
    std::span<const T> values;
    std::span<std::byte> message;  ///< at least max_bytes(values.size()), starting at a multiple of 8 bytes
    tensor::slots<T> state;        ///< slot_count of them, as long as values, zero before the first message
    std::span<T> scratch;          ///< scratch_size(values.size()) elements, whose content means nothing
    matrix shape{};                ///< of the values, where they are all of a matrix
    core::random_stream random{0, core::purpose::rounding};
};

/// `encode(in)` writes a message and returns its length in bytes, which is at most `max_bytes<T>(n)`, and the same for
/// all vectors of one length where it can be. `decode_add(message, scale, sum)` does sum += scale x decoded; the
/// message is one that `encode` wrote for sum.size() values, and starts at any byte. A number that is not finite must
/// not vanish: what is decoded then holds one too. `settings` is what distinguishes two compressors of one type: it
/// enters the fingerprint of the recipe. Optional: `check()` throws core::error on settings that make no sense;
/// `scratch_size<T>(n)`, the elements of scratch that encode needs; `max_bytes<T>(shape)`, where the bound
/// for a whole matrix is another one than that for its numbers (encode then sees the shape); `snap(values)` rounds
/// values so little that value - decoded is afterwards exact in T: error_feedback calls it before it encodes;
/// `check_feedback()` throws core::error on settings with which error feedback would not keep its residual bounded.
template <class C, class T = float>
concept Compressor = std::copy_constructible<C> &&
    requires(const C& compressor, std::size_t n, const encoding<T>& in, std::span<const std::byte> message, T scale,
             std::span<T> sum) {
    { C::slot_count } -> std::convertible_to<std::size_t>;
    { C::name } -> std::convertible_to<std::string_view>;
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

/// Bytes that the message of a matrix has at most.
template <class T, Compressor<T> C>
[[nodiscard]] constexpr std::size_t max_bytes(const C& compressor, const matrix& shape) {
    if constexpr (requires { compressor.template max_bytes<T>(shape); })
        return compressor.template max_bytes<T>(shape);
    else
        return compressor.template max_bytes<T>(shape.size());
}

/// The traits of a compressor: what it says, or the defaults.
template <class C>
inline constexpr compress::traits traits_of{};
template <class C>
    requires requires { compress::traits{C::traits}; }
inline constexpr compress::traits traits_of<C> = C::traits;

}  // namespace lockstep::compress
