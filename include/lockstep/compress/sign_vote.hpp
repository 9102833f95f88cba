// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Majority vote of signs: models Reduction.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/parts/ternary_fields.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bytes.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::compress {

/// signSGD with majority vote (Bernstein et al., ICML 2018, ICLR 2019): the result is scale x sign(sum over workers of
/// sign(v_w)), exactly, so the size of a step is the learning rate x scale for every number. With momentum > 0 it is
/// Signum: m_w = momentum m_w + (1 - momentum) g_w is kept for each worker, and its signs vote; combine it with an
/// optimizer without momentum. Zero has no sign: a worker abstains from that number, and a tie changes nothing. A
/// worker whose numbers of a segment are all zero, as without rows in a short minibatch, abstains from all of them, and
/// keeps its momentum there. No unbiased estimate of a mean, and with few workers there are problems on which it
/// diverges (Karimireddy et al., ICML 2019): scaled_sign with error_feedback does not. Elements: ceil(n / f) words with
/// f = floor(32 / b) fields of b = ceil(log2(2W + 1)) bits, each sign + 1, so the counts of all workers add up without
/// a carry; the vote goes back as the same words. Every rank knows the counts: the result is on all of them.
struct sign_vote {
    double scale = 1;
    double momentum = 0;  ///< of Signum, such as 0.9: a slot for each worker

    static constexpr std::string_view name = "sign_vote";
    static constexpr std::size_t slot_count = 1;
    static constexpr std::array rounds{algebra::exact_sum};

    [[nodiscard]] std::string settings() const { return core::text("scale=", scale, " momentum=", momentum); }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return momentum > 0 ? 1 : 0; }

    /// Throws core::error unless scale is positive and 0 <= momentum < 1, both also as floats.
    void check() const {
        if (!(scale >= 1e-37 && scale < 1e30))
            core::fail(core::text("sign_vote has scale = ", scale),
                       "give the size of a number of the result, such as 1, and the step by the learning rate");
        if (!core::is_fraction_as_float(momentum))
            core::fail(core::text("sign_vote has momentum = ", momentum, ", outside [0, 1) as a float"),
                       "take 0.9 for Signum, or 0 for signs of gradients");
    }
    /// Throws core::error: a sign says nothing about size, so what is left out has no bound.
    void check_feedback() const {
        core::fail("error_feedback around sign_vote would keep what a vote without sizes leaves out",
                   "use sign_vote alone, or error_feedback around scaled_sign");
    }

    [[nodiscard]] reduction_sizes<1> sizes(const matrix& shape, std::size_t workers) const noexcept {
        return {.elements = {ternary_fields{workers}.words(shape.size())}};
    }

    template <class T>
    void encode(round_number<0>, const worker_pass<T>& in, std::span<std::uint32_t> out) const noexcept {
        const std::size_t n = in.values.size();
        std::span<const T> voters = in.values;
        if (momentum > 0) {
            const bool abstains = std::ranges::all_of(in.values, [](T value) { return value == 0; });
            if (abstains) return write_signs(in, std::span<const T>{}, out);
            const std::span<T> mean = in.state[0];
            const T old = static_cast<T>(momentum), fresh = static_cast<T>(1 - momentum);
            parallel::for_blocks(in.team, n, 4096, [&](parallel::block part) {
                for (std::size_t i = part.first; i < part.last; ++i) mean[i] = old * mean[i] + fresh * in.values[i];
            });
            voters = mean;
        }
        write_signs(in, voters, out);
    }

    template <class T>
    void finish(const shared_pass<T>& all, std::span<const std::uint32_t> result, std::span<T> mean) const noexcept {
        using vector = simd::batch<T>;
        const vector none(static_cast<T>(all.workers)), zero(T{0}), size(static_cast<T>(scale)), less(-size);
        ternary_fields{all.workers}.read(all.team, result, mean, [&](const vector& sum, const vector&) {
            return select(sum > none, size, select(sum < none, less, zero));
        });
    }

    /// scale x sign / workers, as if votes were added.
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const std::uint32_t> elements, T factor,
                    std::span<T> sum) const noexcept {
        const T part = factor * static_cast<T>(scale / static_cast<double>(in.workers));
        using vector = simd::batch<T>;
        const vector one(T{1}), size(part);
        ternary_fields{in.workers}.read(
            in.team, elements, sum, [&](const vector& vote, const vector& old) { return old + size * (vote - one); });
    }

private:
    /// No voters: all abstain.
    template <class T>
    static void write_signs(const worker_pass<T>& in, std::span<const T> voters,
                            std::span<std::uint32_t> out) noexcept {
        using vector = simd::batch<T>;
        const vector zero(T{0}), one(T{1}), two(T{2});
        ternary_fields{in.workers}.write_runs(
            in.team, in.values.size(), out, [&](std::size_t first, std::span<std::uint8_t> codes) {
                if (voters.empty()) return (void)std::ranges::fill(codes, std::uint8_t{1});
                const auto code = [&](const vector& value) {
                    return select(value > zero, two, select(value < zero, zero, one));
                };
                const T* const from = voters.data() + first;
                std::size_t i = 0;
                for (; i + simd::width<T> <= codes.size(); i += simd::width<T>)
                    simd::store_bytes<T>(codes.data() + i, code(simd::load(from + i)));
                if (i == codes.size()) return;
                std::array<std::uint8_t, simd::width<T>> rest;
                simd::store_bytes<T>(rest.data(), code(simd::load_first(from + i, codes.size() - i)));
                std::copy_n(rest.begin(), codes.size() - i, codes.begin() + static_cast<std::ptrdiff_t>(i));
            });
    }
};

static_assert(Reduction<sign_vote> && Reduction<sign_vote, double>);

}  // namespace lockstep::compress
