// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// TernGrad with one scale for all workers: models Reduction.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/draws.hpp"
#include "lockstep/compress/parts/level_codes.hpp"
#include "lockstep/compress/parts/moments.hpp"
#include "lockstep/compress/parts/ternary_fields.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::compress {

/// TernGrad (Wen et al., NIPS 2017) with scaler sharing. Tensors of one extent are added as they are; for each other
/// tensor v_w of worker w, with its standard deviation sigma_w:
///   clipping   u_w = v_w cut off at -+ clip sigma_w; all of it where clip or sigma_w is 0
///   round 1    s = max over workers and elements of |u_w|
///   round 2    t_w = sign(u_w) with probability |u_w| / s, else 0; k = sum of t_w over workers, exactly
///   mean       s k
/// The expectation of s t_w is u_w, up to 2^-31 of s and the rounding of a quotient: clipping is the only bias.
/// Randomness: half a word of the stream of (tensor, worker) for each element, see quantize. sigma_w: sums of v - v_0
/// and its square in double, over blocks of 4,096 elements, whose sums are added in order. A worker without rows has
/// zeros and sends zeros. What is not finite, or 2^126 (float) or 2^1022 (double) or more, makes the tensor NaN.
/// Elements: one number, then ceil(n / f) words with f = floor(32 / b) fields of b = ceil(log2(2W + 1)) bits, each of
/// them t_w + 1: fields of all workers add up without a carry. Bytes with 2, 4, 8 workers: 10, 8, 6 elements in a word,
/// so 4n/10, 4n/8, 4n/6. Two passes over v to encode, with half a random word for each element in the second one. No
/// state.
struct terngrad {
    double clip = 2.5;  ///< in standard deviations of the worker's tensor; 0: no clipping

    static constexpr std::string_view name = "terngrad";
    static constexpr compress::traits traits{.dense_vectors = true, .whole_tensors = true};
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{algebra::max, algebra::exact_sum};

    [[nodiscard]] std::string settings() const { return core::text("clip=", clip); }

    /// Throws core::error unless clip is 0, or from 1e-6 to below 1e9.
    void check() const {
        if (!(clip == 0 || (clip >= 1e-6 && clip < 1e9)))
            core::fail(core::text("terngrad has clip = ", clip),
                       "give a number of standard deviations, such as 2.5, or 0 for no clipping");
    }
    /// Throws core::error: what is decoded may exceed p by the scale, so residuals grow like the square root of the
    /// number of elements, and clipping holds the large ones back.
    void check_feedback() const {
        core::fail("error_feedback around terngrad leaves residuals that are many times as large as the gradients",
                   "use terngrad alone, which is unbiased but for clipping, or error_feedback around quantize with 3 "
                   "bits or more");
    }

    [[nodiscard]] reduction_sizes<2> sizes(const matrix& shape, std::size_t workers) const noexcept {
        return {.elements = {1, ternary_fields{workers}.words(shape.size())}, .shared = 1, .kept = 1};
    }

    template <class T>
    void encode(round_number<0>, const worker_pass<T>& in, std::span<T> out) const noexcept {
        // With a number that is none the scale is infinite, and so is the sum none: it must not get lost.
        T most = level_codes::largest_of(in.values);
        if (std::isnan(most)) most = std::numeric_limits<T>::infinity();
        if (clip > 0)
            if (const auto bound = static_cast<T>(clip * moments_of(in.values).deviation); bound > 0)
                most = std::min(most, bound);
        // A cut at the largest magnitude that is left is a cut at the bound.
        out[0] = in.kept[0] = most;
    }

    template <class T>
    void combined(round_number<0>, const shared_pass<T>& all, std::span<const T> result) const noexcept {
        all.shared[0] = result[0];
    }

    template <class T>
    void encode(round_number<1>, const worker_pass<T>& in, std::span<std::uint32_t> out) const noexcept {
        const ternary_fields fields{in.workers};
        const T scale = in.shared[0], most = in.kept[0];
        using vector = simd::batch<T>;
        const vector least(-most), largest(most);
        fields.write_runs(in.team, in.values.size(), out, [&](std::size_t first, std::span<std::uint8_t> codes) {
            if (!std::isfinite(scale)) return (void)std::ranges::fill(codes, std::uint8_t{1});
            std::array<T, ternary_fields::longest_run> cut;
            simd::map_to(
                codes.size(), false, [&](const vector& value) { return min(max(value, least), largest); }, cut.data(),
                in.values.data() + first);
            stochastic_draws<ternary_fields::longest_run> draws;
            draws.fill(in.random, first, codes.size());
            level_codes::write_codes(std::span<const T>{cut}.first(codes.size()), scale, 1, draws, 0, codes.data());
        });
    }

    template <class T>
    void finish(const shared_pass<T>& all, std::span<const std::uint32_t> result, std::span<T> mean) const noexcept {
        using vector = simd::batch<T>;
        const vector zero(static_cast<T>(all.workers)), size(all.shared[0]);
        ternary_fields{all.workers}.read(all.team, result, mean,
                                         [&](const vector& sum, const vector&) { return size * (sum - zero); });
    }

    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const std::uint32_t> elements, T scale,
                    std::span<T> sum) const noexcept {
        using vector = simd::batch<T>;
        const vector one(T{1}), factor(scale), size(in.shared[0]);
        ternary_fields{in.workers}.read(in.team, elements, sum, [&](const vector& number, const vector& old) {
            return old + factor * (size * (number - one));
        });
    }
};

static_assert(Reduction<terngrad> && Reduction<terngrad, double>);

}  // namespace lockstep::compress
