// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Stochastic quantisation to a few bits with one scale for each bucket: models Compressor.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/level_codes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// QSGD (Alistarh et al., NIPS 2017). Buckets of `bucket` values, the last one shorter; levels -s .. s with s =
/// 2^(bits-1) - 1. x = |v| / step is rounded up with probability x - floor(x), else down, so the expectation of what is
/// decoded is v, up to the rounding of the quotient and 2^-31 of a step. Randomness: half a word of the stream for each
/// element, and one word more for one in 65,536 (parts/draws.hpp). The scale is the largest magnitude of the bucket,
/// not its Euclidean norm: the step is then up to sqrt(bucket) times smaller and so is the error, at most one step for
/// each element. The step is rounded up to a whole number of `grid` = 2^(e - 22) for float (e - 51 for double), 2^e <=
/// largest < 2^(e+1), but no finer than the smallest normal number. Message: ceil(n / bucket) steps of type T, then
/// ceil(n bits / 8) bytes of level + s. A bucket that holds an infinity, a NaN or a magnitude of 2^126 (float) or
/// 2^1022 (double) or more decodes to NaN throughout.
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
        return format().bytes<T>(n);
    }

    /// Rounds each value to the nearest multiple of its bucket's grid: by at most 2^-23 of the bucket's largest
    /// magnitude for float (2^-52 for double), or half the smallest normal number. Value, level x step and their
    /// difference are then whole numbers of grids below 2^24 (2^53), so the difference is exact. Leaves buckets that
    /// are not finite as they are.
    template <class T>
    void snap(std::span<T> values) const noexcept {
        for (std::size_t first = 0; first < values.size(); first += bucket) {
            const auto part = values.subspan(first, std::min(bucket, values.size() - first));
            level_codes::snap(part, level_codes::largest_of(std::span<const T>{part}));
        }
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return format().encode(in, [](std::span<const T> values) { return level_codes::largest_of(values); });
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        format().decode_add(message, scale, sum);
    }

private:
    [[nodiscard]] constexpr level_codes::format format() const noexcept {
        return {(std::size_t{1} << (bits - 1)) - 1, bits, bucket, stochastic};
    }
};

static_assert(Compressor<quantize>);

}  // namespace lockstep::compress
