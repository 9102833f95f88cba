// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Walks the channels of a pixel in vectors: blocks of four, single ones, and a last one that is not full, with the same
// instructions.
// Tested by tests/unit/kernels/convolution/convolution.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bytes.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::kernels::detail {

/// 0, 1, 2, ..
template <class T>
[[nodiscard]] inline simd::batch<T> counted() noexcept {
    alignas(simd::alignment) static constexpr auto numbers = [] {
        std::array<T, simd::width<T>> out{};
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(i);
        return out;
    }();
    return simd::load(numbers.data());
}

/// Vectors of channels of a pixel.
template <class T>
struct channel_vector {
    [[nodiscard]] static simd::batch<T> load(const T* from) noexcept { return simd::load(from); }
    [[nodiscard]] static simd::batch<T> load(const std::uint8_t* from) noexcept { return simd::load_bytes<T>(from); }
    [[nodiscard]] static auto equal(const std::uint8_t* from, std::uint8_t number) noexcept {
        return simd::equal_bytes<T>(from, number);
    }
    static void store(T* to, const simd::batch<T>& value) noexcept { simd::store(to, value); }
    static void store(std::uint8_t* to, const simd::batch<T>& value) noexcept { simd::store_bytes<T>(to, value); }
    static void store_over(T* to, const simd::batch<T>& value, std::size_t) noexcept { simd::store(to, value); }
};

/// The last vector of channels, of which the first `done` elements belong to the vector before it and stay as they are;
/// store_over() writes them once more, where they have been computed like the others.
template <class T>
struct channel_rest : channel_vector<T> {
    simd::batch<T> number;
    simd::batch<T> done;
    explicit channel_rest(std::size_t count) noexcept : number(counted<T>()), done(static_cast<T>(count)) {}
    template <class U>
    void store(U* to, const simd::batch<T>& value) const noexcept {
        channel_vector<T>::store(to, select(number < done, channel_vector<T>::load(to), value));
    }
};

/// 1 to 8 bytes as the lowest ones of a number, in registers: a vector that is loaded from bytes just written has to
/// wait for them. The lowest byte lies first, as on every machine with the instruction sets that this library knows.
[[nodiscard]] inline std::uint64_t first_bytes(const std::uint8_t* from, std::size_t count) noexcept {
    const auto read = [from]<class Word>(Word word, std::size_t at) {
        std::memcpy(&word, from + at, sizeof(word));
        return std::uint64_t{word} << (8 * at);
    };
    if (count == 8) return read(std::uint64_t{}, 0);
    if (count >= 4) return read(std::uint32_t{}, 0) | read(std::uint32_t{}, count - 4);
    if (count >= 2) return read(std::uint16_t{}, 0) | read(std::uint16_t{}, count - 2);
    return *from;
}

/// All the channels, where they are fewer than a vector has elements.
template <class T>
struct channel_part {
    std::size_t count;
    [[nodiscard]] simd::batch<T> load(const T* from) const noexcept { return simd::load_first(from, count); }
    void store(T* to, const simd::batch<T>& value) const noexcept { simd::store_first(to, value, count); }
    [[nodiscard]] simd::batch<T> load(const std::uint8_t* from) const noexcept {
        const auto copy = bytes(from);
        return channel_vector<T>::load(reinterpret_cast<const std::uint8_t*>(copy.data()));
    }
    [[nodiscard]] auto equal(const std::uint8_t* from, std::uint8_t number) const noexcept {
        const auto copy = bytes(from);
        return channel_vector<T>::equal(reinterpret_cast<const std::uint8_t*>(copy.data()), number);
    }
    /// Where `room` elements may be written, because what lies after the channels is written later: one whole vector is
    /// quicker.
    void store_over(T* to, const simd::batch<T>& value, std::size_t room) const noexcept {
        if (room >= simd::width<T>)
            simd::store(to, value);
        else
            store(to, value);
    }
    void store(std::uint8_t* to, const simd::batch<T>& value) const noexcept {
        std::array<std::uint8_t, simd::width<T>> copy;
        channel_vector<T>::store(copy.data(), value);
        for (std::size_t i = 0; i < count; ++i) to[i] = copy[i];
    }

private:
    [[nodiscard]] std::array<std::uint64_t, 2> bytes(const std::uint8_t* from) const noexcept {
        std::array<std::uint64_t, 2> copy{first_bytes(from, std::min<std::size_t>(count, 8)), 0};
        if (count > 8) copy[1] = first_bytes(from + 8, count - 8);
        return copy;
    }
};

/// Stores a vector of an array that goes past the caches where `streamed` (simd::streams()): then it has whole vectors
/// only.
template <class Part, class T>
LOCKSTEP_FLATTEN inline void put(const Part& part, bool streamed, T* to, const simd::batch<T>& value) noexcept {
    if constexpr (std::is_same_v<Part, channel_vector<T>>)
        if (streamed) return simd::stream(to, value);
    part.store(to, value);
}

/// Calls f(vectors, channel, how many) until all channels are done.
template <class T, class F>
LOCKSTEP_FLATTEN inline void for_channels(std::size_t channels, F&& f) noexcept {
    constexpr std::size_t width = simd::width<T>;
    constexpr std::integral_constant<std::size_t, 1> one;
    constexpr std::integral_constant<std::size_t, 4> four;
    std::size_t c = 0;
    for (; c + four * width <= channels; c += four * width) f(channel_vector<T>{}, c, four);
    for (; c + width <= channels; c += width) f(channel_vector<T>{}, c, one);
    if (c == channels) return;
    if (c == 0)
        f(channel_part<T>{channels}, c, one);
    else
        f(channel_rest<T>{c + width - channels}, channels - width, one);
}

/// parallel::for_blocks with a copy of f on the stack of each thread. To the compiler a vector that is stored may lie
/// anywhere in reach, also over the pointers that a loop body holds: it would load them again and again. Bodies capture
/// by value.
template <class F>
void for_blocks(parallel::team team, std::size_t n, std::size_t grain, const F& f) noexcept {
    parallel::for_blocks(team, n, grain, [&](parallel::block mine) {
        const F body = f;
        body(mine);
    });
}

}  // namespace lockstep::kernels::detail
