// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The largest elements and where they stand: models Compressor.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"

namespace lockstep::compress {

/// Sends the k = max(1, ceil(ratio n)) elements of largest magnitude, exactly, of equal ones those with the lowest
/// index; k = 0 for n = 0. A delta-contraction: |v - decoded|^2 <= (1 - k/n) |v|^2. Biased, so it wants error_feedback
/// around it. Message: the k values, then their k indices of 32 bits in ascending order: 8 k bytes for float, 12 k for
/// double. Tensors of one extent travel as they are. A NaN counts as larger than infinity, so as many numbers that are
/// not finite are sent as fit, and at least one.
struct top_k {
    double ratio = 0.01;

    static constexpr std::string_view name = "top_k";
    static constexpr compress::traits traits{.dense_vectors = true};
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio); }

    /// Throws core::error unless 0 < ratio <= 1.
    void check() const { check_share(name, "ratio", ratio); }

    [[nodiscard]] bool sends_all(std::uint64_t, const origin&) const noexcept { return ratio >= 1; }

    /// Elements sent of n.
    [[nodiscard]] std::size_t count(std::size_t n) const noexcept { return share_of(ratio, n); }
    [[nodiscard]] std::size_t most(std::size_t n) const noexcept { return count(n); }
    template <class T>
    std::size_t select(const encoding<T>& in, std::span<std::uint32_t> indices) const noexcept {
        return kernels::top_k_by_sample(in.values, count(in.values.size()), indices, in.scratch);
    }

    /// Throws core::error if an index of 32 bits cannot name every element.
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return pairs_bytes<T>(*this, n);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const noexcept {
        return kernels::selection_room(n, count(n));
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

static_assert(Sparsifier<top_k> && Sparsifier<top_k, double>);

}  // namespace lockstep::compress
