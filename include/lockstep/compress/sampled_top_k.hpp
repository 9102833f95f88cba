// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// About the largest elements, by a threshold from a sample, and where they stand: models Sparsifier.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"

namespace lockstep::compress {

/// The selection of deep gradient compression (Lin et al., ICLR 2018, and its published code), k = max(1, ceil(ratio
/// n)):
///   sample     s = max(n / 100, 2 / ratio) elements, at most n, one of each n / s consecutive ones
///   threshold  the magnitude of rank ceil(ratio s) in the sample
///   adapted    up to 10 times: fewer than 0.8 k reach it: x 0.8; more than 1.3 k: the k largest of these are sent
/// At most k elements are sent: of those that reach the threshold the largest, where the published code takes the first
/// ones; of equal ones those with the lowest indices. m elements are the m largest, so |v - decoded|^2 <= (1 - m/n)
/// |v|^2. Biased, so it wants error_feedback around it. Message: 8 m bytes for float, 12 m for double, as those of
/// top_k; it takes the room of k. A NaN counts as larger than infinity, so one of them is sent at least.
/// Tensors of one extent travel as they are. Positions of the sample are those of a fixed hash, the same in every step.
/// Cost: a pass for each threshold.
struct sampled_top_k {
    double ratio = 0.01;

    static constexpr std::string_view name = "sampled_top_k";
    static constexpr compress::traits traits{.dense_vectors = true};
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio); }

    /// Throws core::error unless 0 < ratio <= 1.
    void check() const { check_share(name, "ratio", ratio); }

    [[nodiscard]] bool sends_all(std::uint64_t, const origin&) const noexcept { return ratio >= 1; }

    [[nodiscard]] std::size_t most(std::size_t n) const noexcept { return share_of(ratio, n); }
    template <class T>
    std::size_t select(const encoding<T>& in, std::span<std::uint32_t> indices) const noexcept {
        constexpr int most_adapted = 10;
        const std::size_t n = in.values.size(), k = most(n);
        if (k == n) return kernels::top_k_by_sample(in.values, k, indices, in.scratch);
        const std::span<T> some = in.scratch.first(sample_size(n));
        kernels::sample(in.values, some);
        T least = kernels::magnitude_of_rank(some, share_of(ratio, some.size()));
        std::size_t count = 0;
        for (int adapted = 0; adapted <= most_adapted; ++adapted, least *= T{0.8F}) {
            count = kernels::select_largest_above(in.values, least, k, indices, in.scratch);
            if (5 * count >= 4 * k) return std::min(count, k);
        }
        // Magnitudes of which the sample knows nothing.
        return count > 0 ? count : kernels::top_k_by_sample(in.values, 1, indices, in.scratch);
    }

    [[nodiscard]] std::size_t sample_size(std::size_t n) const noexcept {
        return static_cast<std::size_t>(
            std::min(static_cast<double>(n), std::max(std::ceil(static_cast<double>(n) / 100), std::ceil(2 / ratio))));
    }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return pairs_bytes<T>(*this, n);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const noexcept {
        return std::max(kernels::selection_room(n, most(n)), sample_size(n));
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

static_assert(Sparsifier<sampled_top_k> && Sparsifier<sampled_top_k, double>);

}  // namespace lockstep::compress
