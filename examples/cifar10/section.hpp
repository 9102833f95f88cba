// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Neighbouring samples of a data set; a model of Dataset.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace example {

/// Samples first .. first + count - 1 of a set, numbered from 0.
template <class Set>
struct section {
    using sample = typename Set::sample;
    using label = typename Set::label;

    Set of;
    std::size_t first = 0;
    std::size_t count = 0;

    [[nodiscard]] std::size_t size() const noexcept { return count; }
    [[nodiscard]] std::string name() const { return of.name(); }
    [[nodiscard]] std::string settings() const { return lockstep::core::text("first=", first, " count=", count, " ", of.settings()); }

    template <class T>
    void read(std::span<const std::uint64_t> rows, lockstep::tensor::batch<T, sample> x,
              std::span<lockstep::tensor::label_element<label, T>> y) const {
        lockstep::data::require_readable(*this, rows, x, y);
        std::vector<std::uint64_t> there(rows.begin(), rows.end());
        for (std::uint64_t& row : there) row += first;
        of.read(std::span<const std::uint64_t>{there}, x, y);
    }
};

}  // namespace example
