// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One bit for each number, two means for each column: models Compressor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/packing.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bits.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::compress {

/// 1-bit SGD (Seide et al., Interspeech 2014). A number that is not negative is decoded as the mean of those in its
/// column that are not, a negative one as the mean of the negative ones: the projection onto what two values for each
/// column can say, so |p - decoded|_2^2 = |p|_2^2 - |decoded|_2^2. Columns are those of the tensor's matrix (of a dense
/// layer: one for each output); a tensor of one extent, and with by_column = false each segment, is one column. Biased:
/// it wants error_feedback around it, and with `two_sided` around that the sum is quantised on the way back as well.
/// Message: for each column the two means, then ceil(n / 8) bytes of bits: n/8 + 8 c bytes for float. Means: sums of
/// T over blocks of 256 rows, added in order in double; of a single column over blocks of 256 numbers. A number that is
/// not finite makes a mean of its column so.
struct one_bit {
    bool by_column = true;

    static constexpr std::string_view name = "one_bit";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return core::text("by_column=", by_column); }
    [[nodiscard]] constexpr bool sees_whole_tensors() const noexcept { return by_column; }

    /// Of one column.
    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const noexcept {
        return n == 0 ? 0 : 2 * sizeof(T) + packed_bytes(n, 1);
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t, const origin& from) const {
        if (n == 0) return 0;
        return core::checked_sum("bytes of a message",
                                 core::checked_product("bytes of a message", columns(n, from), 2 * sizeof(T)),
                                 packed_bytes(n, 1));
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t n = in.values.size();
        if (n == 0) return 0;
        const std::size_t count = columns(n, in.from);
        if (count == 1) {
            const auto [high, low] = means_of(in.values);
            std::memcpy(in.message.data(), &high, sizeof(T));
            std::memcpy(in.message.data() + sizeof(T), &low, sizeof(T));
        } else {
            // The message begins at a multiple of 8 bytes.
            T* const means = reinterpret_cast<T*>(in.message.data());
            find_means(in.values, {means, count}, {means + count, count});
        }
        simd::store_signs(in.values.data(), n, in.message.data() + 2 * count * sizeof(T));
        return 2 * count * sizeof(T) + packed_bytes(n, 1);
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const std::size_t n = sum.size();
        if (n == 0) return;
        const std::size_t count = (message.size() - packed_bytes(n, 1)) / (2 * sizeof(T));
        const std::byte* const high = message.data();
        const std::byte* const low = high + count * sizeof(T);
        const std::byte* const bits = low + count * sizeof(T);
        if (count == 1) {
            T up, down;
            std::memcpy(&up, high, sizeof(T));
            std::memcpy(&down, low, sizeof(T));
            return simd::add_chosen(bits, 0, scale, up, down, sum.data(), n);
        }
        const simd::batch<T> factor(scale);
        for (std::size_t first = 0; first < n; first += count)
            for (std::size_t at = 0; at < count; at += simd::width<T>) {
                const std::size_t here = std::min(simd::width<T>, count - at);
                const auto chosen = select(simd::mask_of<T>(simd::load_bits(bits, first + at, here)),
                                           simd::load_bytes_of<T>(high + at * sizeof(T), here),
                                           simd::load_bytes_of<T>(low + at * sizeof(T), here));
                T* const to = sum.data() + first + at;
                if (here == simd::width<T>)
                    simd::store(to, simd::fma(factor, chosen, simd::load(to)));
                else
                    simd::store_first(to, simd::fma(factor, chosen, simd::load_first(to, here)), here);
            }
    }

private:
    static constexpr std::size_t block = 256;  // numbers that are added in T

    template <class T>
    struct pair {
        T high, low;
    };

    [[nodiscard]] constexpr std::size_t columns(std::size_t n, const origin& from) const noexcept {
        return by_column && !from.is_vector() && n == from.rows * from.columns ? from.columns : 1;
    }

    /// Of a single column.
    template <class T>
    [[nodiscard]] static pair<T> means_of(std::span<const T> values) noexcept {
        double high = 0, low = 0;
        std::size_t count = 0;
        for (std::size_t first = 0; first < values.size(); first += block) {
            using vector = simd::batch<T>;
            const vector zero(T{0}), one(T{1});
            vector up = zero, down = zero, number = zero;
            const std::size_t here = std::min(block, values.size() - first);
            for (std::size_t at = 0; at < here; at += simd::width<T>) {
                const std::size_t some = std::min(simd::width<T>, here - at);
                const vector value = simd::load_first(values.data() + first + at, some);
                const auto negative = value < zero;
                up = up + select(negative, zero, value);
                down = down + select(negative, value, zero);
                number = number + select(negative, one, zero);
            }
            high += sum_of(up);
            low += sum_of(down);
            count += static_cast<std::size_t>(sum_of(number));
        }
        const std::size_t others = values.size() - count;
        return {others == 0 ? T{0} : static_cast<T>(high / static_cast<double>(others)),
                count == 0 ? T{0} : static_cast<T>(low / static_cast<double>(count))};
    }
    template <class T>
    [[nodiscard]] static double sum_of(const simd::batch<T>& values) noexcept {
        std::array<T, simd::width<T>> ways;
        simd::store(ways.data(), values);
        double out = 0;
        for (const T one : ways) out += static_cast<double>(one);
        return out;
    }

    /// Of each column, row by row, some columns at a time.
    template <class T>
    static void find_means(std::span<const T> values, std::span<T> high, std::span<T> low) noexcept {
        const std::size_t count = high.size(), rows = values.size() / count;
        std::size_t at = 0;
        for (; at + 4 * simd::width<T> <= count; at += 4 * simd::width<T>)
            find_means<4>(values.data() + at, rows, count, simd::width<T>, high.data() + at, low.data() + at);
        for (; at < count; at += simd::width<T>)
            find_means<1>(values.data() + at, rows, count, std::min(simd::width<T>, count - at), high.data() + at,
                          low.data() + at);
    }
    /// Of the columns of so many vectors, of which the last one has `last` elements.
    template <std::size_t Vectors, class T>
    static void find_means(const T* values, std::size_t rows, std::size_t stride, std::size_t last, T* high,
                           T* low) noexcept {
        using vector = simd::batch<T>;
        constexpr std::size_t width = simd::width<T>;
        const vector zero(T{0}), one(T{1});
        std::array<double, Vectors * width> highs{}, lows{}, negatives{};
        const auto add = [](const vector& from, double* to) {
            std::array<T, width> ways;
            simd::store(ways.data(), from);
            for (std::size_t way = 0; way < width; ++way) to[way] += static_cast<double>(ways[way]);
        };
        for (std::size_t first = 0; first < rows; first += block) {
            vector up[Vectors], down[Vectors], below[Vectors];
            for (std::size_t i = 0; i < Vectors; ++i) up[i] = down[i] = below[i] = zero;
            const std::size_t end = std::min(rows, first + block);
            for (std::size_t row = first; row < end; ++row, values += stride)
                for (std::size_t i = 0; i < Vectors; ++i) {
                    const vector value =
                        last == width ? simd::load(values + i * width) : simd::load_first(values, last);
                    const auto negative = value < zero;
                    up[i] = up[i] + select(negative, zero, value);
                    down[i] = down[i] + select(negative, value, zero);
                    below[i] = below[i] + select(negative, one, zero);
                }
            for (std::size_t i = 0; i < Vectors; ++i) {
                add(up[i], highs.data() + i * width);
                add(down[i], lows.data() + i * width);
                add(below[i], negatives.data() + i * width);
            }
        }
        // Without numbers of a kind their sum is 0, and so is their mean.
        for (std::size_t i = 0; i < (Vectors - 1) * width + last; ++i) {
            high[i] = static_cast<T>(highs[i] / std::max(1.0, static_cast<double>(rows) - negatives[i]));
            low[i] = static_cast<T>(lows[i] / std::max(1.0, negatives[i]));
        }
    }
};

static_assert(Compressor<one_bit> && Compressor<one_bit, double>);

}  // namespace lockstep::compress
