// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// About the largest elements, by a threshold for normal deviates, and where they stand: models Sparsifier.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/compress/parts/moments.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"

namespace lockstep::compress {

/// Gaussian-k (Shi et al., arXiv 1911.08772), k = max(1, ceil(ratio n)): with mean m and standard deviation s of the
/// vector the threshold is |m| + s z, of which z is exceeded in magnitude by k/n of all normal deviates. Up to 4 times:
/// x 0.5 where fewer than 2k/3 elements reach it, x 1.5 where more than 4k/3 do. Then at least one and at most cap =
/// ceil(4k/3) of these are sent, the largest, of equal ones those with the lowest indices. m elements are the m
/// largest, so |v - decoded|^2 <= (1 - m/n) |v|^2. Biased, so it wants error_feedback around it. Message: 8 m bytes
/// for float, 12 m for double, as those of top_k. Tensors of one extent travel as they are. A NaN counts as larger than
/// infinity, so one of them is sent at least. Cost: a pass for the moments, whose sums have a fixed order, and one for
/// each threshold.
struct gaussian_top_k {
    double ratio = 0.01;

    static constexpr std::string_view name = "gaussian_top_k";
    static constexpr compress::traits traits{.dense_vectors = true, .varying_lengths = true};
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio); }

    /// Throws core::error unless 0 < ratio <= 1.
    void check() const { check_share(name, "ratio", ratio); }

    [[nodiscard]] bool sends_all(std::uint64_t, const origin&) const noexcept { return ratio >= 1; }

    [[nodiscard]] std::size_t most(std::size_t n) const noexcept {
        const std::size_t k = share_of(ratio, n);
        return std::min(n, k + (k + 2) / 3);
    }
    template <class T>
    std::size_t select(const encoding<T>& in, std::span<std::uint32_t> indices) const noexcept {
        constexpr int most_changes = 4;
        const std::size_t n = in.values.size(), cap = most(n), k = share_of(ratio, n);
        if (n == 0) return 0;
        if (k == n) return kernels::top_k_by_sample(in.values, n, indices, in.scratch);
        const auto [mean, deviation] = moments_of(in.values);
        const double share = static_cast<double>(k) / static_cast<double>(n);
        auto least = static_cast<T>(std::abs(mean) - deviation * normal_quantile(share / 2));
        std::size_t count = 0;
        for (int change = 0;; ++change) {
            count = kernels::select_largest_above(in.values, least, cap, indices, in.scratch);
            const bool few = 3 * count<2 * k, many = count> cap;
            if (change == most_changes || !(few || many)) break;
            least *= few ? T{0.5F} : T{1.5F};
        }
        return count > 0 ? std::min(count, cap) : kernels::top_k_by_sample(in.values, 1, indices, in.scratch);
    }

    /// x with P(deviate < x) = p for a standard normal deviate, 0 < p < 1: the rational approximation of P. J. Acklam,
    /// whose relative error is below 1.2e-9.
    [[nodiscard]] static double normal_quantile(double p) noexcept {
        constexpr std::array a{-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                               1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
        constexpr std::array b{-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                               6.680131188771972e+01,  -1.328068155288572e+01, 1.0};
        constexpr std::array c{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                               -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
        constexpr std::array d{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00, 1.0};
        const auto polynomial = [](const auto& factors, double x) {
            double sum = 0;
            for (const double factor : factors) sum = sum * x + factor;
            return sum;
        };
        constexpr double edge = 0.02425;
        if (p > 1 - edge) return -normal_quantile(1 - p);
        if (p < edge) {
            const double q = std::sqrt(-2 * std::log(p));
            return polynomial(c, q) / polynomial(d, q);
        }
        const double q = p - 0.5, r = q * q;
        return polynomial(a, r) * q / polynomial(b, r);
    }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return pairs_bytes<T>(*this, n);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const noexcept {
        return kernels::selection_room(n, most(n));
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return encode_pairs(*this, in);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        add_pairs(message, scale, sum);
    }
};

static_assert(Sparsifier<gaussian_top_k> && Sparsifier<gaussian_top_k, double>);

}  // namespace lockstep::compress
