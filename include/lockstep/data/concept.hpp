// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The concepts Dataset (numbered, labelled samples) and Sampler (the order in which an epoch visits them).

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::data {

/// Samples 0 .. size() - 1 of one compile-time shape. `read(rows, x, y)` fills x (rows.size() samples) and y
/// (rows.size() * label_size<label> elements) for these sample numbers, in any order and with repeats. What is read for a number
/// depends on that number alone, so any rank may read any sample. An optional `name() -> std::string` appears in messages.
template <class D, class T = float>
concept Dataset = tensor::Shape<typename D::sample> && tensor::Label<typename D::label> &&
    requires(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
             std::span<tensor::label_element<typename D::label, T>> y) {
    { set.size() } -> std::convertible_to<std::size_t>;
    set.read(rows, x, y);
};

/// The order of an epoch: out (n entries) becomes a list of sample numbers below n. A pure function of its arguments.
template <class S>
concept Sampler = requires(const S& sampler, std::uint64_t n, std::uint64_t epoch, std::uint64_t seed, std::span<std::uint64_t> out) {
    sampler.order(n, epoch, seed, out);
};

/// What a data set calls itself in messages; "data set" where it does not say.
template <class D>
[[nodiscard]] std::string name_of(const D& set) {
    if constexpr (requires {
                      { set.name() } -> std::convertible_to<std::string>;
                  })
        return set.name();
    else
        return "data set";
}

/// The check at the start of a read(): buffers as long as the list of rows, and rows that exist. Throws core::error.
/// Cost: one comparison per row.
template <class D, class T>
void require_readable(const D& set, std::span<const std::uint64_t> rows, tensor::batch<T, typename D::sample> x,
                      std::span<tensor::label_element<typename D::label, T>> y) {
    constexpr std::size_t per_label = tensor::label_size<typename D::label>;
    core::require(
        x.rows == rows.size() && y.size() == rows.size() * per_label,
        [&] {
            return core::text(name_of(set), ": ", rows.size(), " samples were asked for, with room for ", x.rows, " samples and ", y.size(),
                              " label elements");
        },
        [&] { return core::text("pass x with ", rows.size(), " rows and y with ", rows.size() * per_label, " elements"); });
    for (const std::uint64_t row : rows)
        core::require(
            row < set.size(), [&] { return core::text(name_of(set), ": sample ", row, " of ", set.size(), " was asked for"); },
            [] { return std::string{"number samples from 0 to size() - 1"}; });
}

}  // namespace lockstep::data
