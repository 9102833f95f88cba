// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// No compression: the message is the vector. Models Compressor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"

namespace lockstep::compress {

/// n sizeof(T) bytes, exact.
struct none {
    static constexpr std::string_view name = "none";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return {}; }
    [[nodiscard]] static constexpr bool sends_all(std::uint64_t, const origin&) noexcept { return true; }

    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const noexcept {
        return n * sizeof(T);
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        if (!in.values.empty()) std::memcpy(in.message.data(), in.values.data(), in.values.size_bytes());
        return in.values.size_bytes();
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        // By way of a buffer, since a message may start at any byte.
        std::array<T, 512> values;
        for (std::size_t first = 0; first < sum.size(); first += values.size()) {
            const std::size_t count = std::min(values.size(), sum.size() - first);
            std::memcpy(values.data(), message.data() + first * sizeof(T), count * sizeof(T));
            kernels::axpy(scale, std::span<const T>{values.data(), count}, sum.subspan(first, count));
        }
    }
};

static_assert(Compressor<none>);

}  // namespace lockstep::compress
