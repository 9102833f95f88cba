// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Error feedback around any compressor: what a message left out is added to the next vector. A decorator that models Compressor.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise.hpp"

namespace lockstep::compress {

/// What error feedback can go around.
template <class Inner>
inline constexpr bool is_inner = Compressor<Inner>;

/// p = g + e, the message is the inner compressor's for p, and e = p - decoded: Seide et al. (Interspeech 2014); Karimireddy et al. (ICML
/// 2019). decoded + e = p holds exactly, not up to rounding, for every inner compressor here: top_k sends or keeps a whole number, and
/// quantize snaps p first. It holds up to one rounding for another inner compressor without `snap` whose decoded numbers do not subtract
/// exactly. One slot more: e. The messages are the inner ones. A number that is not finite in g is in the message and stays in e. Memory
/// traffic beside that of the inner compressor: 3 n numbers to form p, and the decoding.
template <class Inner>
struct error_feedback {
    static_assert(is_inner<Inner>,
                  "lockstep: error_feedback goes around a compressor; write error_feedback{compress::top_k{.ratio = 0.01}}");
    using inner_type = std::conditional_t<is_inner<Inner>, Inner, none>;
    inner_type inner;

    static constexpr std::string_view name = "error_feedback";
    static constexpr auto kind = inner_type::kind;
    static constexpr std::size_t slot_count = 1 + inner_type::slot_count;

    [[nodiscard]] std::string settings() const { return core::text("inner=", inner_type::name, "(", std::string{inner.settings()}, ")"); }

    /// Throws core::error if the inner compressor's own check does, or if its residual would grow without end.
    void check() const {
        if constexpr (requires { inner.check(); }) inner.check();
        if constexpr (requires { inner.check_feedback(); }) inner.check_feedback();
    }

    template <class T>
    [[nodiscard]] constexpr std::size_t max_bytes(std::size_t n) const {
        return inner.template max_bytes<T>(n);
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
        if constexpr (requires { inner.snap(residual); }) inner.snap(residual);

        auto inside = in;
        inside.values = residual;
        inside.state = in.state.from(1, inner_type::slot_count);
        const std::size_t bytes = inner.encode(inside);
        inner.decode_add(std::span<const std::byte>{in.message.first(bytes)}, T{-1}, residual);
        return bytes;
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }
};
template <class Inner>
error_feedback(Inner) -> error_feedback<Inner>;

}  // namespace lockstep::compress
