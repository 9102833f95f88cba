// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Some elements of a vector, and these compressed once more: a combinator that models Compressor.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/compress/parts/index_value.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

template <class C>
inline constexpr bool is_sparsifier = Sparsifier<C>;
/// A compressor that keeps nothing from step to step.
template <class C>
inline constexpr bool is_stateless = false;
template <Compressor C>
inline constexpr bool is_stateless<C> = C::slot_count == 0;

/// Sends the elements that `sparsifier` selects, their values as `values` compresses them: top-k, then quantised
/// (SparCML, Renggli et al., SC'19; Qsparse-local-SGD, Basu et al., NeurIPS 2019). The k values are cut in blocks of
/// 1,024 in the order of their indices, each a message of its own, so that decoding needs no memory; random words are
/// those of positions 0 .. k - 1. Message: those blocks, each filled up to a multiple of 8 bytes; k indices of 32 bits;
/// the ceil(k / 1024) lengths of the blocks and k, of 32 bits each. With quantize of b bits: about k (4 + b/8 + 4/512)
/// bytes. Values of a compressor that takes whole tensors, such as one_bit, are vectors without columns. Biased, so it
/// wants error_feedback around it; sent + residual are then gradient + old residual exactly, if
/// they are for `values`. `values` keeps no state: elements move from step to step.
template <class S, class V>
struct chain {
    static_assert(is_sparsifier<S> && is_stateless<V>,
                  "lockstep: chain takes a sparsifier such as top_k, and a compressor without state for its values, "
                  "such as quantize");
    static_assert(!is_outermost<V>, "lockstep: two_sided goes around chain; write two_sided{chain{..}}");
    // What does not fit is replaced, so that a sentence above stays the only error.
    using sparsifier_type = std::conditional_t<Sparsifier<S>, S, top_k>;
    using values_type = std::conditional_t<is_stateless<V>, V, none>;
    sparsifier_type sparsifier{};
    values_type values{};

    static constexpr std::string_view name = "chain";
    static constexpr compress::traits traits = traits_of<sparsifier_type>;
    static constexpr std::size_t slot_count = sparsifier_type::slot_count;

    [[nodiscard]] std::string settings() const {
        return core::text(sparsifier_type::name, "(", std::string{sparsifier.settings()}, ") ", values_type::name, "(",
                          std::string{values.settings()}, ")");
    }
    void check() const {
        detail::check(sparsifier);
        detail::check(values);
    }
    [[nodiscard]] bool varies() const { return compress::varies(sparsifier) || compress::varies(values); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(sparsifier, shape); }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(sparsifier); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return compress::sends_all(sparsifier, step, from) && compress::sends_all(values, step, selected(from, 0, 0));
    }
    void check_feedback() const { detail::check_feedback(values); }
    /// For warm_up: the share of elements, and the same with another one.
    [[nodiscard]] double own_ratio() const requires requires(sparsifier_type one) { one.ratio = 0.5; }
    { return sparsifier.ratio; }
    [[nodiscard]] chain with_ratio(double ratio) const requires requires(sparsifier_type one) { one.ratio = 0.5; }
    {
        chain out = *this;
        out.sparsifier.ratio = ratio;
        return out;
    }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        require_short_indices(name, n);
        const std::size_t most = sparsifier.most(n);
        return values_room<T>(most) + (most + blocks(most) + 1) * sizeof(std::uint32_t);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return std::max({compress::scratch_size<T>(sparsifier, n), compress::scratch_size<T>(values, block)});
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return encode_block_by_block(in, [&](const encoding<T>& inside, std::span<T>, const std::uint32_t*) noexcept {
            return values.encode(inside);
        });
    }
    /// Snaps what is sent, block by block.
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return encode_block_by_block(
            in, [&](const encoding<T>& inside, std::span<T> some, const std::uint32_t* indices) noexcept {
                const std::size_t length = compress::encode_snapped(values, inside, some);
                for (std::size_t i = 0; i < some.size(); ++i) p[indices[i]] = some[i];
                return length;
            });
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        const std::byte* const end = message.data() + message.size() - sizeof(std::uint32_t);
        const std::size_t k = index_at(end, 0);
        const std::byte* const lengths = end - blocks(k) * sizeof(std::uint32_t);
        const std::byte* const indices = lengths - k * sizeof(std::uint32_t);
        std::array<T, block> some;
        std::size_t at = 0;
        for (std::size_t first = 0; first < k; first += block) {
            const std::size_t count = std::min(block, k - first), length = index_at(lengths, first / block);
            std::fill_n(some.begin(), count, T{0});
            values.decode_add(message.subspan(at, length), T{1}, std::span{some}.first(count));
            for (std::size_t i = 0; i < count; ++i) {
                T& to = sum[index_at(indices, first + i)];
                to = std::fma(scale, some[i], to);
            }
            at += whole(length);
        }
    }

private:
    static constexpr std::size_t block = 1024;
    [[nodiscard]] static constexpr std::size_t blocks(std::size_t k) noexcept { return (k + block - 1) / block; }
    [[nodiscard]] static constexpr std::size_t whole(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }
    /// Bytes that the messages of all blocks take at most.
    template <class T>
    [[nodiscard]] std::size_t values_room(std::size_t k) const {
        const std::size_t rest = k % block;
        return k / block * whole(values.template max_bytes<T>(block)) +
               (rest > 0 ? whole(values.template max_bytes<T>(rest)) : 0);
    }

    /// What is selected has no columns, not even where it is all of a matrix.
    [[nodiscard]] origin selected(const origin& from, std::size_t first, std::size_t count) const {
        if (!compress::sees_whole_tensors(values)) return from;
        return {.tensor = from.tensor, .columns = count, .offset = first};
    }

    /// encode_block(encoding of a block, its values to write to, their indices) gives the length of its message.
    template <class T, class Encode>
    std::size_t encode_block_by_block(const encoding<T>& in, const Encode& encode_block) const noexcept {
        constexpr std::size_t word = sizeof(std::uint32_t);
        const std::size_t most = sparsifier.most(in.values.size()), room = values_room<T>(most);
        // Indices are selected after the room of the values, and move to their end.
        const auto indices = std::span{reinterpret_cast<std::uint32_t*>(in.message.data() + room), most};
        const std::size_t k = sparsifier.select(in, indices);
        std::uint32_t* const lengths = indices.data() + k;
        std::array<T, block> some;
        std::size_t at = 0;
        for (std::size_t first = 0; first < k; first += block) {
            const auto part = std::span{some}.first(std::min(block, k - first));
            for (std::size_t i = 0; i < part.size(); ++i) part[i] = in.values[indices[first + i]];
            auto inside = in;
            inside.values = part;
            inside.message = in.message.subspan(at, room - at);
            inside.state = {};
            inside.from = selected(in.from, first, part.size());
            inside.random = in.random.from(first / 4);
            const std::size_t length = encode_block(inside, part, &indices[first]);
            lengths[first / block] = static_cast<std::uint32_t>(length);
            std::fill(inside.message.begin() + static_cast<std::ptrdiff_t>(length),
                      inside.message.begin() + static_cast<std::ptrdiff_t>(whole(length)), std::byte{0});
            at += whole(length);
        }
        lengths[blocks(k)] = static_cast<std::uint32_t>(k);
        const std::size_t rest = (k + blocks(k) + 1) * word;
        std::memmove(in.message.data() + at, indices.data(), rest);
        return at + rest;
    }
};

template <class S, class V>
chain(S, V) -> chain<S, V>;

}  // namespace lockstep::compress
