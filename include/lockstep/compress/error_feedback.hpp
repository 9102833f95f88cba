// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Error feedback around any compressor or reduction: what was left out is added to the next vector. A decorator that
// models the same.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/compress/parts/ratio.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"

namespace lockstep::compress {

/// What error feedback can go around.
template <class Inner>
inline constexpr bool is_inner = Compressor<Inner> || Compressor<Inner, double>;

namespace detail {
/// Each of two residuals would be fed what the other one keeps: they grow without end.
[[noreturn, gnu::cold]] inline void refuse_second_feedback(std::string_view inner) {
    core::fail(core::text("there is error_feedback inside another error_feedback, around ", inner,
                          ": two residuals of one gradient grow without end"),
               "leave one of them out");
}
}  // namespace detail

/// p = g + e, the message is the inner compressor's for p, and e = p - decoded: Seide et al. (Interspeech 2014);
/// Karimireddy et al. (ICML 2019). decoded + e = p holds exactly for top_k and its relatives, which send or keep a
/// whole number, and for those that snap what they send of p first, such as quantize, qsgd and a chain of both kinds:
/// then for p after that rounding, which their `snap` bounds by the scale of a bucket.
/// It holds up to one rounding where decoded numbers do not subtract exactly, as those of one_bit and scaled_sign. One
/// slot more: e. The messages are the inner ones. A number that is not finite in g is in the message and stays in e.
/// Memory traffic beside that of the inner compressor: 3 n numbers to form p, and the decoding.
template <class Inner>
struct error_feedback {
    static_assert(
        is_inner<Inner>,
        "lockstep: error_feedback goes around a compressor; write error_feedback{compress::top_k{.ratio = 0.01}}");
    static_assert(!is_outermost<Inner>,
                  "lockstep: two_sided goes around error_feedback; write two_sided{error_feedback{..}}");
    using inner_type = std::conditional_t<is_inner<Inner>, Inner, none>;
    inner_type inner;

    static constexpr std::string_view name = "error_feedback";
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr std::size_t slot_count = 1 + inner_type::slot_count;

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", inner_type::name, "(", std::string{inner.settings()}, ")");
    }

    /// Throws core::error if the inner compressor's own check does, if its residual would grow without end, or if it
    /// changes the sum.
    void check() const {
        detail::refuse_seal(name, inner);
        detail::check(inner);
        detail::check_feedback(inner);
    }
    void check_feedback() const { detail::refuse_second_feedback(inner_type::name); }

    [[nodiscard]] constexpr std::size_t slots() const noexcept { return 1 + slots_of(inner); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return compress::sends_all(inner, step, from);
    }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] bool varies() const { return compress::varies(inner); }
    [[nodiscard]] std::vector<std::uint64_t> changes() const { return changes_of(inner); }
    /// For warm_up: that of the inner compressor.
    [[nodiscard]] double own_ratio() const requires has_ratio<inner_type> { return compress::ratio_of(inner); }
    [[nodiscard]] error_feedback with_ratio(double ratio) const requires has_ratio<inner_type> {
        return {compress::with_ratio(inner, ratio)};
    }

    template <class T>
        requires Compressor<inner_type, T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const { return inner.template max_bytes<T>(n); }
    template <class T>
        requires Compressor<inner_type, T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return max_bytes_at<T>(inner, n, step, from);
    }
    template <class T>
    [[nodiscard]] constexpr std::size_t scratch_size(std::size_t n) const {
        return compress::scratch_size<T>(inner, n);
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        // The residual becomes p in its own place, so p needs no memory.
        const std::span<T> residual = in.state[0];
        kernels::add(in.values, residual);
        auto inside = in;
        inside.values = residual;
        inside.state = in.state.from(1, slots() - 1);
        const std::size_t bytes = encode_snapped(inner, inside, residual);
        inner.decode_add(std::span<const std::byte>{in.message.first(bytes)}, T{-1}, residual);
        return bytes;
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }
};

/// The same around a reduction: the first round is that of p = g + e, and e = p - (the worker's own part of the mean)
/// as soon as the last one is encoded. Summed over workers, mean + e = p up to one rounding of each number of a worker
/// and those of the reduction.
template <class Inner>
    requires is_reduction<Inner>
struct error_feedback<Inner> {
    Inner inner;

    static constexpr std::string_view name = "error_feedback";
    static constexpr compress::traits traits = traits_of<Inner>;
    static constexpr std::size_t slot_count = 1 + Inner::slot_count;
    static constexpr auto rounds = Inner::rounds;
    template <class T>
    using element = typename detail::element_for<Inner, T, algebra::ordered_sum>::type;

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", Inner::name, "(", std::string{inner.settings()}, ")");
    }

    /// Throws core::error if the inner reduction's own check does, or if its residual would grow without end.
    void check() const {
        detail::check(inner);
        detail::check_feedback(inner);
    }
    void check_feedback() const { detail::refuse_second_feedback(Inner::name); }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return 1 + slots_of(inner); }
    [[nodiscard]] auto sizes(const matrix& shape, std::size_t workers) const { return inner.sizes(shape, workers); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] std::uint64_t plain_steps() const { return compress::plain_steps(inner); }

    template <class T>
    void initialise(const shared_pass<T>& all) const noexcept {
        if constexpr (requires { inner.initialise(all); }) inner.initialise(all);
    }
    template <std::size_t Number, class T>
    void encode(round_number<Number> round, const worker_pass<T>& in,
                std::span<element_of<Inner, T, Number>> out) const noexcept {
        // The residual becomes p in its own place, and stays it for all rounds.
        const std::span<T> residual = in.state[0];
        if constexpr (Number == 0) kernels::add(in.values, residual);
        auto inside = in;
        inside.values = residual;
        inside.state = in.state.from(1, slots() - 1);
        inner.encode(round, inside, out);
        if constexpr (Number + 1 == rounds.size())
            inner.decode_own(inside, std::span<const element_of<Inner, T, Number>>{out}, T{-1}, residual);
    }
    template <std::size_t Number, class T>
    void combined(round_number<Number> round, const shared_pass<T>& all,
                  std::span<const element_of<Inner, T, Number>> result) const noexcept {
        inner.combined(round, all, result);
    }
    template <class T>
    void finish(const shared_pass<T>& all, std::span<const element_of<Inner, T, rounds.size() - 1>> result,
                std::span<T> mean) const noexcept {
        inner.finish(all, result, mean);
    }
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const element_of<Inner, T, rounds.size() - 1>> elements,
                    T scale, std::span<T> sum) const noexcept {
        inner.decode_own(in, elements, scale, sum);
    }
};

template <class Inner>
error_feedback(Inner) -> error_feedback<Inner>;

}  // namespace lockstep::compress
