// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Another compressor for dense weights, for convolutions and for tensors of one extent: a combinator that models
// Compressor.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// `vectors` is for tensors of one extent (biases, scales), `convolutions` for weights of convolutions, `dense` for all
/// others. `convolutions`, left out, is the type of `dense` with its default settings, not a copy of it. Message: that
/// of the part, then a byte that says whose it is; vectors with `none` travel as they are. State of a tensor is that of
/// its part. error_feedback goes around all of it, or inside around those that want it. Dense weights and convolutions
/// take whole tensors both or neither, vectors only with them: else this is one error.
template <class Dense, class Convolutions = Dense, class Vectors = none>
struct by_layer {
    static_assert(Compressor<Dense> && Compressor<Convolutions> && Compressor<Vectors>,
                  "lockstep: by_layer takes three compressors: for dense weights, for convolutions and for vectors");
    static_assert(!is_outermost<Dense> && !is_outermost<Convolutions> && !is_outermost<Vectors>,
                  "lockstep: two_sided goes around by_layer; write two_sided{by_layer{..}}");
    // What does not fit is replaced, so that a sentence above stays the only error.
    using dense_type = std::conditional_t<Compressor<Dense>, Dense, none>;
    using convolutions_type = std::conditional_t<Compressor<Convolutions>, Convolutions, none>;
    using vectors_type = std::conditional_t<Compressor<Vectors>, Vectors, none>;
    dense_type dense{};
    convolutions_type convolutions{};
    vectors_type vectors{};

    static constexpr std::string_view name = "by_layer";
    static constexpr std::size_t slot_count =
        std::max({std::size_t{dense_type::slot_count}, std::size_t{convolutions_type::slot_count},
                  std::size_t{vectors_type::slot_count}});

    [[nodiscard]] std::string settings() const {
        return core::text("dense=", detail::describe(dense), " convolutions=", detail::describe(convolutions),
                          " vectors=", detail::describe(vectors));
    }
    void check() const {
        detail::refuse_seal(name, dense);
        detail::refuse_seal(name, convolutions);
        detail::refuse_seal(name, vectors);
        detail::check(dense);
        detail::check(convolutions);
        detail::check(vectors);
        const bool all = compress::sees_whole_tensors(dense);
        if (all != compress::sees_whole_tensors(convolutions))
            core::fail("by_layer has a compressor that takes whole tensors beside one that takes segments",
                       "use two of a kind for dense weights and convolutions");
        if (!all && compress::sees_whole_tensors(vectors))
            core::fail("by_layer has a compressor for vectors that takes whole tensors beside ones that take segments",
                       "use another one for vectors, or leave them as they are");
    }
    void check_feedback() const {
        detail::check_feedback(dense);
        detail::check_feedback(convolutions);
        detail::check_feedback(vectors);
    }

    [[nodiscard]] std::size_t slots() const noexcept {
        return std::max({slots_of(dense), slots_of(convolutions), slots_of(vectors)});
    }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(dense); }
    /// Vectors without a compressor are added as they are, as without by_layer, and have no message; so are matrices
    /// that both compressors for them leave so.
    [[nodiscard]] bool is_dense(const matrix& shape) const {
        if (shape.rows == 1 || shape.columns == 1) return std::is_same_v<vectors_type, none>;
        return compress::is_dense(dense, shape) && compress::is_dense(convolutions, shape);
    }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return with(kind_of(from), [&](std::size_t, const auto& one) -> std::size_t {
                   return compress::sends_all(one, step, from) ? 1 : 0;
               }) == 1;
    }
    [[nodiscard]] bool varies() const {
        return compress::varies(dense) || compress::varies(convolutions) || compress::varies(vectors);
    }
    [[nodiscard]] std::vector<std::uint64_t> changes() const {
        std::vector<std::uint64_t> all = changes_of(dense);
        for (const auto& more : {changes_of(convolutions), changes_of(vectors)})
            all.insert(all.end(), more.begin(), more.end());
        return detail::changes(std::move(all));
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return 1 + std::max({std::size_t{dense.template max_bytes<T>(n)},
                             std::size_t{convolutions.template max_bytes<T>(n)},
                             std::size_t{vectors.template max_bytes<T>(n)}});
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return 1 +
               with(kind_of(from), [&](std::size_t, const auto& one) { return max_bytes_at<T>(one, n, step, from); });
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return std::max({compress::scratch_size<T>(dense, n), compress::scratch_size<T>(convolutions, n),
                         compress::scratch_size<T>(vectors, n)});
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return with(kind_of(in.from),
                    [&](std::size_t which, const auto& one) { return detail::encode_as(which, one, in); });
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return with(kind_of(in.from),
                    [&](std::size_t which, const auto& one) { return detail::encode_snapped_as(which, one, in, p); });
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        with(detail::which_of(message), [&](std::size_t, const auto& one) {
            one.decode_add(message.first(message.size() - 1), scale, sum);
            return std::size_t{0};
        });
    }

private:
    [[nodiscard]] static constexpr std::size_t kind_of(const origin& from) noexcept {
        return from.is_vector() ? 2 : from.window > 0 ? 1 : 0;
    }
    template <class F>
    std::size_t with(std::size_t which, const F& f) const {
        return which == 0 ? f(which, dense) : which == 1 ? f(which, convolutions) : f(which, vectors);
    }
};

template <class D>
by_layer(D) -> by_layer<D>;
template <class D, class C>
by_layer(D, C) -> by_layer<D, C>;
template <class D, class C, class V>
by_layer(D, C, V) -> by_layer<D, C, V>;

}  // namespace lockstep::compress
