// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Asks that the messages of a compressor be added on their way as index-value streams (SparCML). A decorator that
// models Compressor.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// The algorithms of collectives/sparse_sum.hpp, or the choice between them.
enum class sparse_algorithm : std::uint8_t { automatic, recursive_doubling, split_all_gather };
[[nodiscard]] constexpr std::string_view name_of(sparse_algorithm one) noexcept {
    return one == sparse_algorithm::automatic            ? "by costs"
           : one == sparse_algorithm::recursive_doubling ? "recursive_doubling"
                                                         : "split_all_gather";
}

template <class C, class T = float>
inline constexpr bool is_list_compressor =
    Compressor<C, T>&& sends_index_list<C> && !adds_streams<C> && !hides_streams<C>;
template <class Second>
inline constexpr bool is_second_half = std::is_same_v<Second, none> || std::is_same_v<Second, quantize>;

/// The messages of `inner` are those of a list (compress/parts/index_list.hpp). In place of gathering all of them,
/// ranks add them over the tree of workers, as streams that turn dense past break-even (Renggli et al., SparCML, SC
/// 2019): reduce/sparse_sum.hpp. The sums are those of the gathered messages but for the order of additions. Write
/// error_feedback inside or around it: the bits are the same.
/// `second`: where a sum over W workers is expected to turn dense, E[K] = N (1 - (1 - k/N)^W) >= N c / (c + 4) for a
/// segment of N numbers of c bytes of which a worker sends k, the owner of each 4,096 numbers of a segment sends their
/// sum quantised (DSAR_Split_allgather). It is no part of error feedback, so its rounding has to be unbiased:
/// stochastic. With compress::none such sums travel exactly. Where k falls in the first steps (warm_up), it is the last
/// one that decides. What decides bits: inner and second. `algorithm` changes
/// none; automatic: by expected bytes and measured costs.
template <class Inner, class Second = none>
struct sparse_sum {
    static_assert(is_list_compressor<Inner>,
                  "lockstep: sparse_sum goes around a compressor that sends indices and values, and around no other "
                  "sparse_sum; write "
                  "sparse_sum{compress::top_k{.ratio = 0.01}}, with error_feedback inside or around it");
    static_assert(is_second_half<Second>,
                  "lockstep: the second half of a sparse_sum is quantised by compress::quantize, or left out");
    using inner_type = std::conditional_t<is_list_compressor<Inner>, Inner, top_k>;
    using second_type = std::conditional_t<is_second_half<Second>, Second, none>;
    inner_type inner;
    second_type second{};
    sparse_algorithm algorithm = sparse_algorithm::automatic;

    static constexpr std::string_view name = "sparse_sum";
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr bool sends_index_list = true;
    static constexpr std::size_t slot_count = inner_type::slot_count;

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", inner_type::name, "(", std::string{inner.settings()},
                          ") second=", second_type::name, "(", second.settings(), ")");
    }
    /// Throws core::error if a part does, or if the second half is not stochastic.
    void check() const {
        detail::check(inner);
        if constexpr (std::is_same_v<second_type, quantize>) {
            second.check();
            if (!second.stochastic)
                core::fail("the second half of a sparse_sum rounds to nearest, and no error feedback knows of it",
                           "leave .stochastic = true, or leave the second half out");
        }
    }
    void check_feedback() const { detail::check_feedback(inner); }

    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return compress::sends_all(inner, step, from);
    }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }

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
        return inner.encode(in);
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return compress::encode_snapped(inner, in, p);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }
    template <class T>
    [[nodiscard]] index_list<T> list_in(std::span<const std::byte> message) const noexcept {
        return compress::list_in<T>(inner, message);
    }
    template <class T>
    [[nodiscard]] compress::list_room list_room(std::size_t n) const {
        return compress::list_room_of<T>(inner, n);
    }
};

template <class Inner>
sparse_sum(Inner) -> sparse_sum<Inner>;
template <class Inner, class Second>
sparse_sum(Inner, Second) -> sparse_sum<Inner, Second>;
template <class Inner>
sparse_sum(Inner, sparse_algorithm) -> sparse_sum<Inner>;
template <class Inner, class Second>
sparse_sum(Inner, Second, sparse_algorithm) -> sparse_sum<Inner, Second>;

/// How the streams of a compressor are summed.
struct stream_settings {
    sparse_algorithm algorithm = sparse_algorithm::automatic;
    bool cuts = false;  ///< each addition keeps as many entries of a segment as a worker has there
};

/// What reduce::sparse_sum asks a compressor: the settings, and the quantisation of the second half. Error feedback
/// around one passes it on.
template <class Inner, class Second>
[[nodiscard]] constexpr stream_settings stream_settings_of(const sparse_sum<Inner, Second>& of) noexcept {
    return {.algorithm = of.algorithm};
}
template <class Inner, class Second>
[[nodiscard]] constexpr const auto& second_half_of(const sparse_sum<Inner, Second>& of) noexcept {
    return of.second;
}
template <class Inner>
    requires requires(const Inner& inner) { stream_settings_of(inner); }
[[nodiscard]] constexpr stream_settings stream_settings_of(const error_feedback<Inner>& of) noexcept {
    return stream_settings_of(of.inner);
}
template <class Inner>
    requires requires(const Inner& inner) { second_half_of(inner); }
[[nodiscard]] constexpr decltype(auto) second_half_of(const error_feedback<Inner>& of) noexcept {
    return second_half_of(of.inner);
}

/// Whether additions cut what workers have sent: what has stream_settings::cuts says so by this member.
template <class C>
inline constexpr bool cuts_streams = requires {
    C::cuts_streams;
};
template <class Inner>
inline constexpr bool cuts_streams<error_feedback<Inner>> = cuts_streams<Inner>;

/// A compressor whose messages are added as streams.
template <class C, class T>
concept StreamCompressor = Compressor<C, T> && requires(const C& compressor) {
    { stream_settings_of(compressor) } -> std::same_as<stream_settings>;
    second_half_of(compressor);
};

static_assert(StreamCompressor<sparse_sum<top_k>, float> &&
              StreamCompressor<error_feedback<sparse_sum<top_k>>, double> && !StreamCompressor<top_k, float>);

}  // namespace lockstep::compress
