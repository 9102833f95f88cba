// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the compressor tests share: vectors, messages with a guard after them, and exact sums of two numbers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/compress/concept.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::compress::testing {

/// Normal deviates; with `spread` > 0 each is scaled by a power of two between 2^-spread and 2^spread.
template <class T>
std::vector<T> normals(std::size_t n, std::uint64_t seed, int spread = 0) {
    const core::random_stream random{seed, core::purpose::user};
    std::vector<T> out(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto power =
            static_cast<int>(random.below(static_cast<std::uint64_t>(2 * spread + 1), 1'000'000'000 + i)) - spread;
        out[i] = static_cast<T>(std::ldexp(random.normal(i), power));
    }
    return out;
}

/// Everything that a trainer owns for one compressor and one vector length.
template <class T, Compressor<T> C>
struct channel {
    C compressor;
    std::size_t n;
    std::vector<std::uint64_t> words;  // messages start at a multiple of 8 bytes
    std::size_t most;
    std::vector<T> slots, scratch;
    std::uint64_t step = 0;
    origin from{};

    channel(const C& which, std::size_t size, const origin& tensor = {})
        : compressor{which},
          n{size},
          words(longest(which, size, tensor) / 8 + 4, 0xA5A5A5A5A5A5A5A5ULL),
          most{longest(which, size, tensor)},
          slots(compress::slots_of(which) * size),
          scratch(compress::scratch_size<T>(which, size)),
          from{tensor} {}

    /// For a tensor of any shape, of all steps, or for this one, of the first step.
    [[nodiscard]] static std::size_t longest(const C& which, std::size_t size, const origin& tensor) {
        return std::max(std::size_t{which.template max_bytes<T>(size)}, max_bytes_at<T>(which, size, 0, tensor));
    }

    std::span<const std::byte> encode(std::span<const T> values,
                                      core::random_stream random = {1, core::purpose::rounding}) {
        const auto whole = std::as_writable_bytes(std::span{words});
        const std::size_t bytes =
            compressor.encode(encoding<T>{.values = values,
                                          .message = whole.first(most),
                                          .state = tensor::slots<T>{slots.data(), compress::slots_of(compressor), n, n},
                                          .scratch = scratch,
                                          .random = random,
                                          .step = step,
                                          .from = from});
        return whole.first(bytes);
    }

    /// No byte after max_bytes was written.
    [[nodiscard]] bool guard_holds() const {
        for (const std::byte byte : std::as_bytes(std::span{words}).subspan(most))
            if (byte != std::byte{0xA5}) return false;
        return true;
    }

    [[nodiscard]] std::vector<T> decode(std::span<const std::byte> message) const {
        // From an odd address, as messages of odd length arrive one after the other.
        std::vector<std::byte> moved{std::byte{0}};
        moved.insert(moved.end(), message.begin(), message.end());
        std::vector<T> out(n);
        compressor.decode_add(std::span<const std::byte>{moved}.subspan(1), T{1}, std::span<T>{out});
        return out;
    }
};

/// Whether a + b = whole as real numbers: Knuth's two-sum yields the rounding error of the addition itself.
template <class T>
bool is_exact_sum(T first, T second, T whole) {
    const long double a = first;
    const long double b = second;
    const long double sum = a + b;
    const long double of_b = sum - a;
    const long double error = (a - (sum - of_b)) + (b - of_b);
    return error == 0 && sum == static_cast<long double>(whole);
}

/// By sorting all of them: magnitude falling, index rising.
template <class T>
std::vector<T> by_sorting(const std::vector<T>& values, std::size_t k) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
    std::vector<T> out(values.size());
    for (std::size_t i = 0; i < k; ++i) out[order[i]] = values[order[i]];
    return out;
}

template <class T>
long double square(const std::vector<T>& values) {
    long double sum = 0;
    for (T value : values) sum += static_cast<long double>(value) * static_cast<long double>(value);
    return sum;
}

/// Sum of the squares of what was left out.
template <class T>
long double square_of_rest(std::vector<T> values, const std::vector<T>& decoded) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= decoded[i];
    return square(values);
}

/// 0, 1, around the vector width, the bytes of packed bits and the buckets, and primes.
template <class T>
std::vector<std::size_t> sizes() {
    constexpr std::size_t width = simd::width<T>;
    return {0, 1, width - 1, width, width + 1, 31, 255, 256, 257, 511, 512, 513, 1009, 2053};
}

}  // namespace lockstep::compress::testing
