// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compression of the sum as well, as if it travelled back: a decorator of a compressor that models the same.

#include <algorithm>
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
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// Messages are those of the inner compressor; their sum S over workers then goes through it as well, with state of its
/// own, and the update gets what that message decodes to. two_sided{error_feedback{one_bit{}}} is 1-bit SGD (Seide et
/// al., Interspeech 2014), which quantises both ways with a residual for each: p = S + r, the update is decoded(p),
/// and the new r is p - decoded(p). With others it is DoubleSqueeze (Tang et al., ICML 2019). All ranks decode all
/// messages and so know S: each computes the second message by itself, and nothing is sent for it. Its residual is the
/// same on all ranks and belongs to no worker. Cost beside the inner one: encoding and decoding a vector once more, on
/// every rank; memory: the inner state once more, and a message. It is the outermost combinator.
template <class Inner>
struct two_sided {
    static constexpr bool fits = Compressor<Inner>;
    static_assert(fits,
                  "lockstep: two_sided goes around a compressor; write two_sided{compress::error_feedback{"
                  "compress::one_bit{}}}");
    static_assert(!is_outermost<Inner>, "lockstep: two_sided goes around a compressor once; leave out one of the two");
    using inner_type = std::conditional_t<fits, Inner, none>;
    inner_type inner;

    static constexpr std::string_view name = "two_sided";
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr std::size_t slot_count = inner_type::slot_count;

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", inner_type::name, "(", std::string{inner.settings()}, ")");
    }
    void check() const {
        detail::refuse_seal(name, inner);
        detail::check(inner);
    }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] constexpr std::size_t shared_slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return compress::sends_all(inner, step, from);
    }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] bool varies() const { return compress::varies(inner); }
    [[nodiscard]] std::vector<std::uint64_t> changes() const { return changes_of(inner); }

    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const {
        return inner.template max_bytes<T>(n);
    }
    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return max_bytes_at<T>(inner, n, step, from);
    }
    template <class T>
    [[nodiscard]] constexpr std::size_t scratch_size(std::size_t n) const {
        return compress::scratch_size<T>(inner, n);
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return inner.encode(in);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }

    template <class T>
    void seal(const sealing<T>& in) const noexcept {
        const std::size_t bytes = inner.encode(encoding<T>{.values = in.sum,
                                                           .message = in.message,
                                                           .state = in.state,
                                                           .scratch = in.scratch,
                                                           .random = in.random,
                                                           .step = in.step,
                                                           .from = in.from,
                                                           .is_sent = false});
        std::fill(in.sum.begin(), in.sum.end(), T{0});
        inner.decode_add(std::span<const std::byte>{in.message.first(bytes)}, T{1}, in.sum);
    }
};

template <class Inner>
two_sided(Inner) -> two_sided<Inner>;

}  // namespace lockstep::compress
