// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counter-based random numbers: a pure function of (seed, stream, index), so no rank, thread or order of calls shows in
// them.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/core/floating_point.hpp"

namespace lockstep::core {

/// What a number is drawn for. Two purposes never share a counter.
enum class purpose : std::uint8_t {
    initialise,
    shuffle,
    dropout,
    rounding,
    augmentation,
    generator,
    user,
    reduction,
    split,
    gossip,
    arrivals
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11): four words for each 128-bit counter. About 10 ns a call.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint32_t key0,
                                                            std::uint32_t key1) noexcept {
    auto [c0, c1, c2, c3] = counter;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53U} * c0;
        const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c2;
        c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ key0;
        c1 = static_cast<std::uint32_t>(b);
        c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ key1;
        c3 = static_cast<std::uint32_t>(a);
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
}

/// One sequence of random words, addressed by index: word i is the same for every caller and in every order.
class random_stream {
public:
    /// Numbers of series for each purpose.
    static constexpr std::uint32_t series_count = std::uint32_t{1} << 24U;

    /// `series`, below series_count, tells apart what has one purpose: the layer, the tensor. `step` is the training
    /// step or the epoch. It enters modulo 2^32. Messages of a compressor: series = tensor x workers + worker, word =
    /// number of the element in the tensor, or half of it and one far away (compress/parts/draws.hpp).
    constexpr random_stream(std::uint64_t seed, purpose what, std::uint32_t series = 0, std::uint32_t step = 0) noexcept
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          series_{(static_cast<std::uint32_t>(what) << 24) ^ series},
          step_{step} {}

    /// The words from number 4 `blocks` on: what a part of a longer vector draws from.
    [[nodiscard]] constexpr random_stream from(std::uint64_t blocks) const noexcept {
        random_stream out = *this;
        out.first_ += blocks;
        return out;
    }

    /// Words 4 block .. 4 block + 3.
    [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t block) const noexcept {
        block += first_;
        return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step_, series_},
                      key_[0], key_[1]);
    }

    [[nodiscard]] constexpr std::uint32_t word(std::uint64_t index) const noexcept {
        return block(index / 4)[index % 4];
    }

    /// Words first .. first + out.size() - 1, several counters at a time.
    constexpr void words(std::uint64_t first, std::span<std::uint32_t> out) const noexcept {
        std::size_t done = 0;
        while (done < out.size() && (first + done) % 4 != 0) {
            out[done] = word(first + done);
            ++done;
        }
        for (; done + 4 <= out.size(); done += 4) {
            const auto four = block((first + done) / 4);
            for (std::size_t i = 0; i < 4; ++i) out[done + i] = four[i];
        }
        if (done < out.size()) {
            const auto four = block((first + done) / 4);
            for (std::size_t i = 0; i < 4 && done < out.size(); ++i) out[done++] = four[i];
        }
    }

    /// What its words are a function of, for code that computes many of them at once.
    struct address {
        std::array<std::uint32_t, 2> key;
        std::uint32_t series;
        std::uint32_t step;
        std::uint64_t first;  ///< block
    };
    [[nodiscard]] constexpr address location() const noexcept { return {key_, series_, step_, first_}; }

    /// In [0, 1), a multiple of 2^-24: exact in float.
    [[nodiscard]] constexpr float uniform(std::uint64_t index) const noexcept { return to_uniform(word(index)); }
    [[nodiscard]] static constexpr float to_uniform(std::uint32_t word) noexcept {
        return static_cast<float>(word >> 8) * 0x1p-24F;
    }

    /// In 0 .. bound - 1, bias below bound / 2^64.
    [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t index) const noexcept {
        const auto four = block(index);
        __extension__ typedef unsigned __int128 product;
        const auto wide = (std::uint64_t{four[0]} << 32) | four[1];
        return static_cast<std::uint64_t>((static_cast<product>(wide) * bound) >> 64);
    }

    /// Standard normal deviate, Box-Muller on 53-bit uniforms.
    [[nodiscard]] double normal(std::uint64_t index) const noexcept {
        const auto four = block(index);
        const auto u = (static_cast<double>((std::uint64_t{four[0]} << 21) ^ (four[1] >> 11)) + 1.0) * 0x1p-53;
        const auto v = static_cast<double>((std::uint64_t{four[2]} << 21) ^ (four[3] >> 11)) * 0x1p-53;
        return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
    }

private:
    std::array<std::uint32_t, 2> key_;
    std::uint32_t series_;
    std::uint32_t step_;
    std::uint64_t first_ = 0;
};

}  // namespace lockstep::core
