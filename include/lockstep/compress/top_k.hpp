// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The largest elements and where they stand: models Compressor.

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
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/selection.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::compress {

/// Sends the k = max(1, ceil(ratio n)) elements of largest magnitude, exactly, of equal ones those with the lowest
/// index; k = 0 for n = 0. A delta-contraction: |v - decoded|^2 <= (1 - k/n) |v|^2. Biased, so it wants error_feedback
/// around it. Message: the k values, then their k indices of 32 bits in ascending order: 8 k bytes for float, 12 k for
/// double. A NaN counts as larger than infinity, so as many numbers that are not finite are sent as fit, and at least
/// one.
struct top_k {
    double ratio = 0.01;

    static constexpr std::string_view name = "top_k";
    static constexpr compress::traits traits{.dense_vectors = true};
    static constexpr bool sends_index_list = true;
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("ratio=", ratio); }

    /// Throws core::error unless 0 < ratio <= 1.
    void check() const {
        if (!(ratio > 0 && ratio <= 1))
            core::fail(core::text("top_k has ratio = ", ratio, ", outside (0, 1]"),
                       "take the share of elements to send, such as 0.01");
    }

    /// Elements sent of n. A product that rounding has lifted above a whole number counts as that number: 0.07 of 100
    /// is 7.
    [[nodiscard]] std::size_t count(std::size_t n) const noexcept {
        if (n == 0) return 0;
        const double exact =
            std::ceil(ratio * static_cast<double>(n) * (1 - 2 * std::numeric_limits<double>::epsilon()));
        return std::clamp(static_cast<std::size_t>(exact), std::size_t{1}, n);
    }

    /// Throws core::error if an index of 32 bits cannot name every element.
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        if (n > std::numeric_limits<std::uint32_t>::max())
            core::fail(core::text("top_k is asked for ", n, " values in one message, but its indices have 32 bits"),
                       "split the gradient into buckets of fewer than 2^32 values");
        return count(n) * pair_bytes<T>;
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t k = count(in.values.size());
        std::byte* values = in.message.data();
        auto* indices = reinterpret_cast<std::uint32_t*>(values + k * sizeof(T));
        std::array<std::uint32_t, kernels::top_k_scratch(parallel::team{})> bins;
        kernels::top_k(in.values, k, {indices, k}, bins, parallel::team{});
        for (std::size_t i = 0; i < k; ++i) std::memcpy(values + i * sizeof(T), &in.values[indices[i]], sizeof(T));
        return k * pair_bytes<T>;
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const std::size_t k = message.size() / pair_bytes<T>;
        const std::byte* indices = message.data() + k * sizeof(T);
        for (std::size_t i = 0; i < k; ++i) {
            T value;
            std::uint32_t index;
            std::memcpy(&value, message.data() + i * sizeof(T), sizeof(T));
            std::memcpy(&index, indices + i * sizeof(index), sizeof(index));
            sum[index] = std::fma(scale, value, sum[index]);
        }
    }

private:
    template <class T>
    static constexpr std::size_t pair_bytes = sizeof(T) + sizeof(std::uint32_t);
};

static_assert(Compressor<top_k>);

}  // namespace lockstep::compress
