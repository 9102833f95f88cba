// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Stochastic quantisation to a few bits with one scale for each bucket: models Compressor.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/packing.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::compress {

/// QSGD (Alistarh et al., NIPS 2017). Buckets of `bucket` values, the last one shorter; levels -s .. s with s =
/// 2^(bits-1) - 1. x = |v| / step is rounded up with probability x - floor(x), else down, so the expectation of what is
/// decoded is v, up to the rounding of the quotient and 2^-31 of a step. Randomness: word i of the stream for element
/// i. The scale is the largest magnitude of the bucket, not its Euclidean norm: the step is then up to sqrt(bucket)
/// times smaller and so is the error, at most one step for each element. The step is rounded up to a whole number of
/// `grid` = 2^(e - 22) for float (e - 51 for double), 2^e <= largest < 2^(e+1), but no finer than the smallest normal
/// number. Message: ceil(n / bucket) steps of type T, then ceil(n bits / 8) bytes of level + s. A bucket that holds an
/// infinity, a NaN or a magnitude of 2^126 (float) or 2^1022 (double) or more decodes to NaN throughout.
struct quantize {
    std::size_t bits = 4;
    std::size_t bucket = 512;
    bool stochastic = true;  ///< false: round to nearest, which is biased but has half the largest error

    static constexpr std::string_view name = "quantize";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const {
        return core::text("bits=", bits, " bucket=", bucket, " stochastic=", stochastic);
    }

    /// Throws core::error unless 2 <= bits <= 8 and bucket >= 1: one bit has no room for a sign and a level.
    void check() const {
        if (bits < 2 || bits > 8)
            core::fail(core::text("quantize has bits = ", bits, ", outside 2 .. 8"),
                       "take 2 bits for the levels -1, 0, 1, or 4 or 8 for less noise");
        if (bucket == 0)
            core::fail(core::text("quantize has bucket = ", bucket),
                       "give the number of values that share a scale, such as 512");
    }

    /// A residual is smaller than p's step, max |p| / s, so with s >= 2 none exceeds G / (s - 1) where no gradient
    /// exceeds G; rounding to nearest halves the step. With s = 1 stochastic rounding may return as much as p:
    /// residuals then settle near sqrt(bucket) / 4 times the gradients (measured: normal deviates cut off at 1, buckets
    /// of 64 to 4096), so this throws core::error.
    void check_feedback() const {
        if (bits < 3 && stochastic)
            core::fail(core::text("error_feedback around quantize with bits = ", bits,
                                  " and stochastic rounding leaves residuals of about ",
                                  core::fixed(std::sqrt(static_cast<double>(bucket)) / 4, 1),
                                  " times the gradients for bucket = ", bucket),
                       "take .stochastic = false, or 3 bits or more, or quantize without error_feedback");
    }

    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const noexcept {
        return buckets(n) * sizeof(T) + packed_bytes(n, bits);
    }

    /// Rounds each value to the nearest multiple of its bucket's grid: by at most 2^-23 of the bucket's largest
    /// magnitude for float (2^-52 for double), or half the smallest normal number. Value, level x step and their
    /// difference are then whole numbers of grids below 2^24 (2^53), so the difference is exact. Leaves buckets that
    /// are not finite as they are.
    template <class T>
    void snap(std::span<T> values) const noexcept {
        for (std::size_t first = 0; first < values.size(); first += bucket) {
            const auto part = values.subspan(first, std::min(bucket, values.size() - first));
            const T largest = largest_of(std::span<const T>{part});
            if (!(largest > 0)) continue;
            const simd::batch<T> grid(grid_of(largest));
            const simd::batch<T> per_grid(1 / grid_of(largest));
            simd::map(
                part.size(), [&](auto& value) { value = nearbyint(value * per_grid) * grid; }, part.data());
        }
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t n = in.values.size();
        std::byte* steps = in.message.data();
        std::byte* packed = steps + buckets(n) * sizeof(T);
        std::array<std::uint8_t, chunk> codes;
        std::array<std::uint32_t, chunk> words;
        T step{};
        // Half a step as the draw: up if the fraction is above one half.
        if (!stochastic) words.fill(1U << 31);
        for (std::size_t first = 0; first < n; first += chunk) {
            const std::size_t last = std::min(n, first + chunk);
            if (stochastic) in.random.words(first, std::span{words}.first(last - first));
            for (std::size_t at = first; at < last;) {
                if (at % bucket == 0) {
                    step = step_of(largest_of(in.values.subspan(at, std::min(bucket, n - at))));
                    std::memcpy(steps + at / bucket * sizeof(T), &step, sizeof(T));
                }
                const std::size_t end = end_of_run(at, last);
                write_codes(in.values.subspan(at, end - at), step, words.data() + (at - first),
                            codes.data() + (at - first));
                at = end;
            }
            pack(std::span<const std::uint8_t>{codes}.first(last - first), bits, packed + first / 8 * bits);
        }
        return max_bytes<T>(n);
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const std::size_t n = sum.size();
        const std::byte* packed = message.data() + buckets(n) * sizeof(T);
        std::array<std::uint8_t, chunk> codes;
        std::array<T, chunk + simd::width<T>>
            values;  // a vector longer than used: else g++ 12 warns of a read that does not happen
        for (std::size_t first = 0; first < n; first += chunk) {
            const std::size_t last = std::min(n, first + chunk);
            unpack(packed + first / 8 * bits, bits, std::span{codes}.first(last - first));
            for (std::size_t at = first; at < last;) {
                T step;
                std::memcpy(&step, message.data() + at / bucket * sizeof(T), sizeof(T));
                const std::size_t end = end_of_run(at, last);
                for (; at < end; ++at)
                    values[at - first] = static_cast<T>(static_cast<int>(codes[at - first]) - levels()) * step;
            }
            kernels::axpy(scale, std::span<const T>{values}.first(last - first), sum.subspan(first, last - first));
        }
    }

private:
    /// Values coded at a time: a multiple of 8, so that each chunk starts at a whole byte.
    static constexpr std::size_t chunk = 256;

    [[nodiscard]] constexpr std::size_t buckets(std::size_t n) const noexcept {
        return n / bucket + (n % bucket != 0 ? 1 : 0);
    }
    [[nodiscard]] constexpr int levels() const noexcept { return (1 << (bits - 1)) - 1; }
    /// Where the bucket of element `at` ends, or `last` if that comes first.
    [[nodiscard]] constexpr std::size_t end_of_run(std::size_t at, std::size_t last) const noexcept {
        const std::size_t left = bucket - at % bucket;
        return left < last - at ? at + left : last;
    }

    /// NaN if the bucket is to decode to NaN.
    template <class T>
    [[nodiscard]] static T largest_of(std::span<const T> values) noexcept {
        using vector = simd::batch<T>;
        vector most(T{0});
        vector poison(T{0});
        simd::map(
            values.size(),
            [&](const vector& value) {
                most = max(most, abs(value));
                poison = poison + (value - value);
            },
            values.data());
        std::array<T, simd::width<T>> lanes, poisons;
        simd::store(lanes.data(), most);
        simd::store(poisons.data(), poison);
        const T largest = *std::max_element(lanes.begin(), lanes.end());
        const bool finite = std::none_of(poisons.begin(), poisons.end(), [](T lane) { return std::isnan(lane); });
        return finite && largest < std::ldexp(T{1}, std::numeric_limits<T>::max_exponent - 2)
                   ? largest
                   : std::numeric_limits<T>::quiet_NaN();
    }

    template <class T>
    [[nodiscard]] static T grid_of(T largest) noexcept {
        using limits = std::numeric_limits<T>;
        return std::ldexp(T{1}, std::max(std::ilogb(largest) - (limits::digits - 2), limits::min_exponent - 1));
    }

    /// The smallest whole number of grids with levels x step >= largest. 0 for a bucket of zeros, NaN for NaN.
    template <class T>
    [[nodiscard]] T step_of(T largest) const noexcept {
        if (!(largest > 0)) return largest;
        const T grid = grid_of(largest);
        const auto grids = static_cast<std::uint64_t>(std::ceil(largest / grid));
        const auto s = static_cast<std::uint64_t>(levels());
        return static_cast<T>((grids + s - 1) / s) * grid;
    }

    template <class T>
    void write_codes(std::span<const T> values, T step, const std::uint32_t* words,
                     std::uint8_t* codes) const noexcept {
        const int s = levels();
        if (!(step > 0)) {
            std::fill_n(codes, values.size(), static_cast<std::uint8_t>(s));
            return;
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
            const T x = std::abs(values[i]) / step;
            const int below = static_cast<int>(x);
            const T fraction = x - static_cast<T>(below);
            const int level =
                below + (static_cast<int>(words[i] >> 1) < static_cast<int>(fraction * T{0x1p31F}) ? 1 : 0);
            codes[i] = static_cast<std::uint8_t>(values[i] < 0 ? s - level : s + level);
        }
    }
};

static_assert(Compressor<quantize>);

}  // namespace lockstep::compress
