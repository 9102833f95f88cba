// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// QSGD with any number of levels, either norm, packed or in codes of Elias: models Compressor.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/elias.hpp"
#include "lockstep/compress/parts/level_codes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// What the levels of a bucket reach to.
enum class bucket_norm : std::uint8_t { l2, largest };
/// How levels are written.
enum class level_coding : std::uint8_t { packed, elias };

/// QSGD (Alistarh et al., NIPS 2017). In each bucket v of `bucket` numbers, the last one shorter: x = |v_i| / step with
/// step = |v| / levels becomes the whole number above with probability x - floor(x), else the one below, and decoded_i
/// = sign(v_i) x step. So the mean of what is decoded is v, and its variance at most min(d / levels^2, sqrt(d) /
/// levels) |v|_2^2 in a bucket of d. (The reference code of ATOMO rounds the other way round, which is biased.) |v| is
/// the Euclidean norm, or the largest magnitude, which makes the step up to sqrt(d) times smaller for the same bits.
/// The step is rounded up to whole grids, see quantize, as are draws; what is not finite, or 2^126 (float) or 2^1022
/// (double) or more, makes its bucket NaN. Message: ceil(n / bucket) steps, then the levels. packed: b = ceil(log2(2
/// levels + 1)) bits each. elias: for each bucket the shortest of three forms, after two bits that say which: packed;
/// for each number omega(|level| + 1), and a sign if it is not 0; the count of levels that are not 0 and for each of
/// these omega(distance), sign, omega(|level|). Such a message has the length that its numbers need, at most 2 bits a
/// bucket more than packed.
struct qsgd {
    std::size_t levels = 7;  ///< on each side of zero
    std::size_t bucket = 512;
    bucket_norm norm = bucket_norm::l2;
    level_coding coding = level_coding::packed;

    static constexpr std::string_view name = "qsgd";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const {
        return core::text("levels=", levels, " bucket=", bucket, " norm=", norm == bucket_norm::l2 ? "l2" : "largest",
                          " coding=", coding == level_coding::packed ? "packed" : "elias");
    }

    [[nodiscard]] constexpr bool varies() const noexcept { return coding == level_coding::elias; }

    /// Throws core::error unless 1 <= levels <= 127 and bucket >= 1.
    void check() const {
        if (levels < 1 || levels > 127)
            core::fail(core::text("qsgd has levels = ", levels, ", outside 1 .. 127"),
                       "take 7 for 4 bits a number, 1 for the least, 127 for 8 bits");
        if (bucket == 0)
            core::fail(core::text("qsgd has bucket = ", bucket), "give the numbers that share a norm, such as 512");
    }
    /// Throws core::error where what is left out of p may be larger than p: residuals would not stay bounded.
    void check_feedback() const {
        const double d = static_cast<double>(bucket), s = static_cast<double>(levels);
        if (norm == bucket_norm::l2 && std::min(d / (s * s), std::sqrt(d) / s) >= 1)
            core::fail(core::text("error_feedback around qsgd with levels = ", levels, " for the Euclidean norm of ",
                                  bucket, " numbers leaves residuals that may be larger than the gradients"),
                       "take .norm = bucket_norm::largest, more levels than the root of the bucket, or qsgd alone");
        if (norm == bucket_norm::largest && levels < 2)
            core::fail(core::text("error_feedback around qsgd with levels = ", levels, " leaves residuals of about ",
                                  core::fixed(std::sqrt(d) / 4, 1), " times the gradients for bucket = ", bucket),
                       "take 2 levels or more, or qsgd alone");
    }

    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const noexcept {
        const auto how = format();
        if (coding == level_coding::packed) return how.template bytes<T>(n);
        const std::size_t forms = how.buckets(n);
        return forms * sizeof(T) + packed_bytes(n, how.bits) + (forms + 3) / 4 + 1;
    }
    /// Codes of a bucket.
    template <class T>
    [[nodiscard]] constexpr std::size_t scratch_size(std::size_t n) const noexcept {
        return coding == level_coding::packed ? 0 : (std::min(n, bucket) + sizeof(T) - 1) / sizeof(T);
    }

    /// Rounds each value to the nearest multiple of its bucket's grid, see quantize: value - decoded is then exact. The
    /// rounding is at most 2^-23 of the bucket's scale; by the L2 norm that is up to sqrt(bucket) times its largest
    /// number, and what is below a half of the grid is rounded to 0.
    template <class T>
    void snap(std::span<T> values) const noexcept {
        for (std::size_t first = 0; first < values.size(); first += bucket) {
            const auto part = values.subspan(first, std::min(bucket, values.size() - first));
            level_codes::snap(part, size_of(std::span<const T>{part}));
        }
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const auto how = format();
        if (coding == level_coding::packed)
            return how.encode(in, [this](std::span<const T> values) { return size_of(values); });
        const std::size_t n = in.values.size();
        bit_writer out{in.message.data() + how.buckets(n) * sizeof(T)};
        auto* const codes = reinterpret_cast<std::uint8_t*>(in.scratch.data());
        for (std::size_t first = 0, which = 0; first < n; ++which) {
            const std::size_t count = std::min(bucket, n - first);
            const auto values = in.values.subspan(first, count);
            const T step = level_codes::step_of(size_of(values), levels);
            std::memcpy(in.message.data() + which * sizeof(T), &step, sizeof(T));
            stochastic_draws<level_codes::chunk> draws;
            for (std::size_t at = 0; at < count; at += level_codes::chunk) {
                const std::size_t some = std::min(level_codes::chunk, count - at);
                draws.fill(in.random, first + at, some);
                level_codes::write_codes(values.subspan(at, some), step, levels, draws, 0, codes + at);
            }
            write({codes, count}, out);
            first += count;
        }
        return static_cast<std::size_t>(out.finish() - in.message.data());
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const auto how = format();
        if (coding == level_coding::packed) return how.decode_add(message, scale, sum);
        const std::size_t n = sum.size(), steps = how.buckets(n) * sizeof(T);
        if (message.size() < steps) return;
        bit_reader in{message.subspan(steps)};
        for (std::size_t first = 0, which = 0; first < n; ++which) {
            const std::size_t count = std::min(bucket, n - first);
            T step;
            std::memcpy(&step, message.data() + which * sizeof(T), sizeof(T));
            reader from{*this, in};
            std::array<std::uint8_t, level_codes::chunk> codes;
            for (std::size_t at = 0; at < count; at += codes.size()) {
                const std::size_t some = std::min(codes.size(), count - at);
                from.read(std::span{codes}.first(some));
                level_codes::add_codes(codes.data(), levels, step, scale, sum.subspan(first + at, some));
            }
            first += count;
        }
    }

private:
    enum form : std::uint8_t { plain, dense, sparse };

    [[nodiscard]] constexpr level_codes::format format() const noexcept {
        return {levels, static_cast<std::size_t>(std::bit_width(2 * levels)), bucket, true};
    }
    template <class T>
    [[nodiscard]] T size_of(std::span<const T> values) const noexcept {
        return norm == bucket_norm::l2 ? level_codes::norm_of(values) : level_codes::largest_of(values);
    }
    [[nodiscard]] std::uint32_t magnitude(std::uint8_t code) const noexcept {
        return static_cast<std::uint32_t>(code < levels ? levels - code : code - levels);
    }

    /// A bucket in the shortest of its forms.
    void write(std::span<const std::uint8_t> codes, bit_writer& out) const noexcept {
        const std::size_t bits = format().bits;
        std::size_t of_dense = 0, of_sparse = 0;
        std::uint32_t some = 0, distance = 1;
        for (const std::uint8_t code : codes) {
            const std::uint32_t level = magnitude(code);
            of_dense += elias_omega(level + 1).length;
            if (level == 0) {
                ++distance;
                continue;
            }
            ++some;
            ++of_dense;
            of_sparse += elias_omega(distance).length + 1 + elias_omega(level).length;
            distance = 1;
        }
        of_sparse += elias_omega(some + 1).length;
        const form how = of_sparse <= of_dense ? sparse : dense;
        if (std::min(of_sparse, of_dense) >= codes.size() * bits) {
            out.put({plain, 2});
            for (const std::uint8_t code : codes) out.put({code, static_cast<unsigned>(bits)});
            return;
        }
        out.put({how, 2});
        if (how == sparse) out.put(elias_omega(some + 1));
        distance = 1;
        for (const std::uint8_t code : codes) {
            const std::uint32_t level = magnitude(code);
            if (how == dense) {
                out.put(elias_omega(level + 1));
            } else if (level == 0) {
                ++distance;
                continue;
            } else {
                out.put(elias_omega(distance));
            }
            if (level > 0) out.put({code < levels ? 1U : 0U, 1});
            if (how == sparse) out.put(elias_omega(level));
            distance = 1;
        }
    }

    /// The codes of a bucket, some at a time.
    struct reader {
        const qsgd& of;
        bit_reader& in;
        std::uint32_t how = in.take(2);
        std::uint32_t left = how == sparse ? in.omega() : 0;  // levels that are not 0, plus 1 until the first is read,
        std::uint32_t zeros = 0;                              // and zeros before the next of them
        bool begun = false;

        void read(std::span<std::uint8_t> codes) noexcept {
            for (std::uint8_t& code : codes) code = how == plain ? plain_code() : how == dense ? dense_code() : next();
        }

    private:
        /// A level that is no level of the plan decodes to the largest.
        [[nodiscard]] std::uint8_t signed_code(bool negative, std::uint32_t level) const noexcept {
            const std::size_t size = std::min<std::size_t>(level, of.levels);
            return static_cast<std::uint8_t>(negative ? of.levels - size : of.levels + size);
        }
        [[nodiscard]] std::uint8_t plain_code() noexcept {
            return static_cast<std::uint8_t>(
                std::min<std::size_t>(in.take(static_cast<unsigned>(of.format().bits)), 2 * of.levels));
        }
        [[nodiscard]] std::uint8_t dense_code() noexcept {
            const std::uint32_t level = std::max(in.omega(), 1U) - 1;
            return level == 0 ? signed_code(false, 0) : signed_code(in.take(1) != 0, level);
        }
        [[nodiscard]] std::uint8_t next() noexcept {
            if (!begun) {
                begun = true;
                begin();
            }
            if (left == 0) return signed_code(false, 0);
            if (zeros > 0) {
                --zeros;
                return signed_code(false, 0);
            }
            const bool negative = in.take(1) != 0;
            const auto code = signed_code(negative, in.omega());
            begin();
            return code;
        }
        void begin() noexcept {
            left = left == 0 ? 0 : left - 1;
            if (left > 0) zeros = std::max(in.omega(), 1U) - 1;
        }
    };
};

static_assert(Compressor<qsgd> && Compressor<qsgd, double>);

}  // namespace lockstep::compress
