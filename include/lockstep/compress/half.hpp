// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Formats of 16 bits for the sum over the tree of workers: models Reduction.
// Tested by tests/unit/compress/half.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/half.hpp"
#include "lockstep/simd/random_words.hpp"

namespace lockstep::compress {

/// The exact sum with numbers of 16 bits in place of T: that of each worker is rounded, and so is each inner node of
/// the binary tree over workers, whether or not it travels. Rounding is to nearest, ties to even, with a relative error
/// of at most 2^-11 (half) or 2^-8 (bfloat16) for each node; or stochastic for the workers' numbers, by word i of the
/// stream of (tensor, worker) for element i, which makes their expectation the number itself (to 2^-24 of a step for
/// float, 2^-12 for double). Inner nodes are rounded to nearest in both: nodes have no random words. A sum beyond the
/// format is infinite, which is an error of the step; half reaches 65,504 and loses what is below 2^-25, as small
/// gradients may be, bfloat16 has the range of float. Bytes: 2 n for 4 n, all tensors alike. With error_feedback around
/// it, sent + residual = p holds exactly for the rounding of a worker's own float numbers, but for those below 2^-24
/// that a stochastic half rounds up: there it holds up to 2^-49.
template <class Number>
struct wire_format {
    bool stochastic = false;

    static constexpr std::string_view name = Number::name;
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{algebra::ordered_sum};
    template <class T>
    using element = Number;

    [[nodiscard]] std::string settings() const { return core::text("stochastic=", stochastic); }
    [[nodiscard]] reduction_sizes<1> sizes(const matrix& shape, std::size_t) const noexcept {
        return {.elements = {shape.size()}};
    }

    template <class T>
    void encode(round_number<0>, const worker_pass<T>& in, std::span<element<T>> out) const noexcept {
        parallel::for_blocks(in.team, out.size(), chunk, [&](parallel::block part) {
            std::array<float, chunk> values;
            std::array<std::uint32_t, chunk> words;
            for (std::size_t first = part.first; first < part.last; first += chunk) {
                const std::size_t count = std::min(chunk, part.last - first);
                const std::span<float> some = std::span{values}.first(count);
                for (std::size_t i = 0; i < count; ++i) {
                    if constexpr (std::is_same_v<T, float>)
                        some[i] = in.values[first + i];
                    else
                        some[i] = stochastic ? static_cast<float>(in.values[first + i])
                                             : simd::round_to_odd(in.values[first + i]);
                }
                Number* const to = out.data() + first;
                if (stochastic) {
                    simd::random_words(in.random, first, std::span{words}.first(count));
                    simd::narrow(std::span<const float>{some}, std::span<const std::uint32_t>{words}, to);
                } else {
                    simd::narrow(std::span<const float>{some}, to);
                }
            }
        });
    }

    template <class T>
    void finish(const shared_pass<T>& all, std::span<const element<T>> result, std::span<T> mean) const noexcept {
        decode(all.team, result, [&](std::size_t i, float value) { mean[i] = static_cast<T>(value); });
    }

    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const element<T>> elements, T scale,
                    std::span<T> sum) const noexcept {
        decode(in.team, elements, [&](std::size_t i, float value) { sum[i] += scale * static_cast<T>(value); });
    }

private:
    static constexpr std::size_t chunk = 256;

    template <class F>
    static void decode(parallel::team team, std::span<const Number> numbers, const F& f) noexcept {
        parallel::for_blocks(team, numbers.size(), chunk, [&](parallel::block part) {
            std::array<float, chunk> values;
            for (std::size_t first = part.first; first < part.last; first += chunk) {
                const std::size_t count = std::min(chunk, part.last - first);
                const Number* const from = numbers.data() + first;
                simd::widen(from, std::span{values}.first(count));
                for (std::size_t i = 0; i < count; ++i) f(first + i, values[i]);
            }
        });
    }
};

/// IEEE binary16 on the wire.
using half = wire_format<simd::float16>;
/// The upper half of a float on the wire.
using bfloat16 = wire_format<simd::bfloat16>;

static_assert(Reduction<half> && Reduction<bfloat16> && Reduction<half, double>);

}  // namespace lockstep::compress
