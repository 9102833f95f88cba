// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Algorithms of a convolution that are chosen at run time: one for each pass, and how many samples it takes at once.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/core/text.hpp"
#include "lockstep/kernels/convolution/algorithm.hpp"

namespace lockstep::kernels {

/// How many samples a kernel takes at once: runs of these lengths in turn, the last one again until all samples are
/// done. No length: all at once. Forward passes and data gradients have the same bits however a minibatch is divided:
/// it serves cache and scratch.
struct micro_batches {
    static constexpr std::size_t capacity = 8;

    std::array<std::uint32_t, capacity> runs{};
    std::size_t count = 0;

    /// Calls f(first sample, samples) for each run.
    template <class F>
    constexpr void each(std::size_t samples, F&& f) const {
        std::size_t which = 0;
        for (std::size_t first = 0; first < samples;) {
            const std::size_t size = count == 0 ? samples : std::min<std::size_t>(runs[which], samples - first);
            f(first, size);
            first += size;
            which += which + 1 < count;
        }
    }
    /// The longest run of at most so many samples.
    [[nodiscard]] constexpr std::size_t longest(std::size_t samples) const noexcept {
        if (count == 0) return samples;
        return std::min<std::size_t>(
            samples, *std::max_element(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(count)));
    }
    friend constexpr bool operator==(const micro_batches&, const micro_batches&) = default;
};

/// The algorithm of one pass. Weight gradients are chains over the samples of a lane: they are never divided.
struct pass_choice {
    algorithm which = algorithm::direct;
    micro_batches micro{};

    friend constexpr bool operator==(const pass_choice&, const pass_choice&) = default;
};

/// `direct`, or `winograd4 micro 8 16`.
[[nodiscard]] inline std::string to_text(const pass_choice& of) {
    std::string out{name(of.which)};
    for (std::size_t i = 0; i < of.micro.count; ++i) out += core::text(i == 0 ? " micro " : " ", of.micro.runs[i]);
    return out;
}

/// rows x columns x channels - kernel rows x kernel columns x filters, `/` and strides, `+` and padding at the top,
/// left, bottom and right where there are any: 32x32x16-3x3x32/2x2+1,1,1,1.
[[nodiscard]] inline std::string to_text(const kernels::convolution& g) {
    std::string out =
        core::text(g.rows, "x", g.columns, "x", g.channels, "-", g.kernel_rows, "x", g.kernel_columns, "x", g.filters);
    if (g.stride_rows != 1 || g.stride_columns != 1) out += core::text("/", g.stride_rows, "x", g.stride_columns);
    if (g.pad_top + g.pad_left + g.pad_bottom + g.pad_right > 0)
        out += core::text("+", g.pad_top, ",", g.pad_left, ",", g.pad_bottom, ",", g.pad_right);
    return out;
}

/// The algorithms of a convolution, by pass.
struct convolution_choice {
    std::array<pass_choice, convolution_passes.size()> passes{};

    [[nodiscard]] constexpr const pass_choice& operator[](convolution_pass pass) const noexcept {
        return passes[static_cast<std::size_t>(pass)];
    }
    [[nodiscard]] constexpr pass_choice& operator[](convolution_pass pass) noexcept {
        return passes[static_cast<std::size_t>(pass)];
    }
    friend constexpr bool operator==(const convolution_choice&, const convolution_choice&) = default;
};

/// What a rule picks.
[[nodiscard]] constexpr convolution_choice choice_of(algorithm_rule rule, const convolution& g) noexcept {
    convolution_choice out;
    for (const convolution_pass pass : convolution_passes) out[pass].which = rule(g, pass);
    return out;
}

}  // namespace lockstep::kernels
