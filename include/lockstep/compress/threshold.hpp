// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// All elements above an absolute value, and where they stand: models Sparsifier.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"

namespace lockstep::compress {

/// Sends the elements with |v| >= value (Strom, Interspeech 2015; Dryden et al., MLHPC 2016, who send a constant for
/// each). A message has room for cap = max(1, ceil(most_share n)) of them: if more reach the threshold, the cap largest
/// are sent, of equal ones those with the lowest indices. What is sent of k elements are the k largest, so |v -
/// decoded|^2 <= (1 - k/n) |v|^2, where k may be 0. Tensors of one extent travel as they are. Biased, so it wants
/// error_feedback around it. Message: 8 k bytes for float, 12 k for double, as those of top_k. A NaN is sent as the
/// largest. Cost: one pass, and a selection among a few times the cap if more reach the threshold.
struct threshold {
    double value = 1e-3;      ///< of a worker's part of the mean gradient: about 1/workers of its local gradient
    double most_share = 0.1;  ///< of all elements

    static constexpr std::string_view name = "threshold";
    static constexpr compress::traits traits{.dense_vectors = true, .varying_lengths = true};
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("value=", value, " most_share=", most_share); }

    /// Throws core::error unless value is positive and finite, also as a float, and 0 < most_share <= 1.
    void check() const {
        if (!(value >= 1e-37 && value <= 3e38))
            core::fail(core::text("threshold has value = ", value),
                       "give the magnitude from which elements are sent, such as 0.001");
        check_share(name, "most_share", most_share);
    }

    [[nodiscard]] std::size_t most(std::size_t n) const noexcept { return share_of(most_share, n); }
    template <class T>
    std::size_t select(const encoding<T>& in, std::span<std::uint32_t> indices) const noexcept {
        const std::size_t cap = most(in.values.size());
        return std::min(cap, kernels::select_largest_above(in.values, static_cast<T>(value), cap, indices, in.scratch));
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

static_assert(Sparsifier<threshold> && Sparsifier<threshold, double>);

}  // namespace lockstep::compress
