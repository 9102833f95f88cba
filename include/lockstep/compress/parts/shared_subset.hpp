// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What reductions share that add up the same elements of all workers, drawn anew in each step: one sum of plain
// numbers.
// Tested by tests/unit/compress/random_k.cpp.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress::detail {

/// A subset says `each(n, random, f)`: calls f(i, k, chances) for each element i that is drawn and its position k in
/// the message, where i had one chance in `chances`; and `is_unbiased`. Scaled by `chances` the expectation is the
/// vector.
template <class Subset, class T>
[[nodiscard]] T factor_of(const Subset& of, double chances) noexcept {
    return of.unbiased ? static_cast<T>(chances) : T{1};
}
template <class Subset, class T>
void encode_subset(const Subset& of, const worker_pass<T>& in, std::span<T> out) noexcept {
    of.each(in.values.size(), in.common, [&](std::size_t i, std::size_t k, double) { out[k] = in.values[i]; });
}
template <class Subset, class T>
void finish_subset(const Subset& of, const shared_pass<T>& all, std::span<const T> result, std::span<T> mean) noexcept {
    std::fill(mean.begin(), mean.end(), T{0});
    of.each(mean.size(), all.random, [&](std::size_t i, std::size_t k, double chances) {
        mean[i] = factor_of<Subset, T>(of, chances) * result[k];
    });
}
template <class Subset, class T>
void decode_own_subset(const Subset& of, const worker_pass<T>& in, std::span<const T> elements, T scale,
                       std::span<T> sum) noexcept {
    of.each(sum.size(), in.common, [&](std::size_t i, std::size_t k, double chances) {
        sum[i] += scale * (factor_of<Subset, T>(of, chances) * elements[k]);
    });
}
template <class Subset>
void check_subset_feedback(const Subset& of) {
    if (of.unbiased)
        core::fail(
            core::text("error_feedback around ", Subset::name, " with .unbiased = true would send more than there is"),
            "leave unbiased out, or error_feedback");
}

}  // namespace lockstep::compress::detail
