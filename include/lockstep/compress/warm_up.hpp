// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A compressor that becomes stronger in the first steps of a run: a combinator that models Compressor; a reduction that
// begins later: one that models Reduction.

#include <algorithm>
#include <array>
#include <cmath>
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
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/compress/parts/ratio.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// Steps 0 .. start - 1: `first`, all numbers as they are. Then `each` steps (an epoch) for each of four ratios, those
/// of deep gradient compression (Lin et al., ICLR 2018), of which the fifth is 0.001, but none below that of `inner`;
/// then `inner` for good. each = 0, or an inner compressor without a ratio: no such ratios, `inner` from `start` on.
/// error_feedback goes around it. Message: that of the compressor of the step, then a byte that says whose it is; it
/// takes the room of that step.
template <class Inner, class First = none>
struct warm_up {
    static_assert((Compressor<Inner> && Compressor<First>) || is_reduction<Inner> || is_reduction<First>,
                  "lockstep: warm_up goes around a compressor or a reduction; write warm_up{compress::top_k{.ratio = "
                  "0.001}, 100}");
    static_assert(!is_reduction<Inner> && !is_reduction<First>,
                  "lockstep: a warm_up around a reduction begins with all numbers, and no reduction is .first: leave "
                  ".first and .ratios out");
    static_assert(!is_outermost<Inner> && !is_outermost<First>,
                  "lockstep: two_sided goes around warm_up; write two_sided{warm_up{..}}");
    // What does not fit is replaced, so that a sentence above stays the only error.
    using inner_type = std::conditional_t<Compressor<Inner>, Inner, none>;
    using first_type = std::conditional_t<Compressor<First>, First, none>;
    inner_type inner{};
    std::uint64_t each = 0;   ///< steps
    std::uint64_t start = 0;  ///< steps
    std::array<double, 4> ratios{0.25, 0.063, 0.015, 0.004};
    first_type first{};

    static constexpr std::string_view name = "warm_up";
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr std::size_t slot_count =
        std::max(std::size_t{inner_type::slot_count}, std::size_t{first_type::slot_count});
    /// For sparse_sum: the message of `first` may have all numbers.
    static constexpr bool sends_index_list =
        compress::sends_index_list<inner_type> &&
        (std::is_same_v<first_type, none> || compress::sends_index_list<first_type>);

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", detail::describe(inner), " each=", each, " ratios=", ratios[0], ",", ratios[1], ",",
                          ratios[2], ",", ratios[3], " start=", start, " first=", detail::describe(first),
                          each > 0 && ratios.back() < least_ratio() ? " none below inner" : "");
    }
    /// Throws core::error if a part does or changes the sum, if only `first` takes whole tensors, if a ratio is outside
    /// (0, 1] or larger than one before it, or if `each` is given for a compressor without a ratio.
    void check() const {
        detail::refuse_seal(name, inner);
        detail::refuse_seal(name, first);
        detail::check(inner);
        detail::check(first);
        if (compress::sees_whole_tensors(first) && !compress::sees_whole_tensors(inner))
            core::fail(
                core::text("warm_up begins with ", detail::describe(first), ", which takes whole tensors, before ",
                           detail::describe(inner), ", which takes segments"),
                "leave .first out, or use two of a kind");
        if (each > 0 && !has_ratio<inner_type>)
            core::fail(core::text("warm_up has each = ", each, " for ", inner_type::name, ", which has no ratio"),
                       "leave it out, and give the steps before it as .start");
        for (const double ratio : ratios)
            if (!(ratio > 0 && ratio <= 1))
                core::fail(core::text("warm_up has a ratio of ", ratio, ", outside (0, 1]"),
                           "take shares of elements to send, such as 0.25, 0.063, 0.015, 0.004");
        for (std::size_t k = 1; k < ratios.size(); ++k)
            if (each > 0 && ratios[k] > ratios[k - 1])
                core::fail(core::text("warm_up has a ratio of ", ratios[k], " after one of ", ratios[k - 1]),
                           "give ratios that fall, such as 0.25, 0.063, 0.015, 0.004");
        if (each > (~std::uint64_t{0} - start) / ratios.size())
            core::fail(core::text("warm_up has start = ", start, " and each = ", each, ", which no run reaches"),
                       "give numbers of steps");
    }
    void check_feedback() const {
        detail::check_feedback(inner);
        detail::check_feedback(first);
    }

    [[nodiscard]] std::size_t slots() const noexcept { return std::max(slots_of(inner), slots_of(first)); }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] bool varies() const { return compress::varies(inner) || compress::varies(first); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return at(step, [&](std::size_t, const auto& one) -> std::size_t {
                   return compress::sends_all(one, step, from) ? 1 : 0;
               }) == 1;
    }
    [[nodiscard]] std::vector<std::uint64_t> changes() const {
        std::vector<std::uint64_t> all = changes_of(inner);
        for (std::size_t k = 0; k <= ratios.size(); ++k) all.push_back(start + k * each);
        for (const std::uint64_t more : changes_of(first)) all.push_back(more);
        return detail::changes(std::move(all));
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        std::size_t most =
            std::max(std::size_t{first.template max_bytes<T>(n)}, std::size_t{inner.template max_bytes<T>(n)});
        if constexpr (has_ratio<inner_type>)
            for (std::size_t k = 0; k < ratios.size(); ++k)
                most = std::max(most, std::size_t{of_stage(k).template max_bytes<T>(n)});
        return 1 + most;
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return 1 + at(step, [&](std::size_t, const auto& one) { return max_bytes_at<T>(one, n, step, from); });
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        std::size_t most = std::max(compress::scratch_size<T>(first, n), compress::scratch_size<T>(inner, n));
        if constexpr (has_ratio<inner_type>)
            for (std::size_t k = 0; k < ratios.size(); ++k)
                most = std::max(most, compress::scratch_size<T>(of_stage(k), n));
        return most;
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return at(in.step, [&](std::size_t which, const auto& one) { return detail::encode_as(which, one, in); });
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return at(in.step,
                  [&](std::size_t which, const auto& one) { return detail::encode_snapped_as(which, one, in, p); });
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        with(detail::which_of(message), [&](std::size_t, const auto& one) {
            one.decode_add(message.first(message.size() - 1), scale, sum);
            return std::size_t{0};
        });
    }

    template <class T>
    [[nodiscard]] index_list<T> list_in(std::span<const std::byte> message) const noexcept {
        index_list<T> out{std::span<const std::byte>{}};
        with(detail::which_of(message), [&](std::size_t, const auto& one) {
            out = list_of<T>(one, message.first(message.size() - 1));
            return std::size_t{0};
        });
        return out;
    }
    template <class T>
    [[nodiscard]] compress::list_room list_room(std::size_t n) const {
        const compress::list_room last = list_room_of<T>(inner, n);
        std::size_t most = last.most;
        if (start > 0) most = std::max(most, std::is_same_v<first_type, none> ? n : list_room_of<T>(first, n).most);
        if constexpr (has_ratio<inner_type>)
            for (std::size_t k = 0; k < ratios.size() && each > 0; ++k)
                most = std::max(most, list_room_of<T>(of_stage(k), n).most);
        return {most, last.usual};
    }

private:
    template <class T, class C>
    [[nodiscard]] static index_list<T> list_of(const C& one, std::span<const std::byte> message) noexcept {
        if constexpr (std::is_same_v<C, none>)
            return index_list<T>::of_all(message);
        else
            return compress::list_in<T>(one, message);
    }

    // 0: first; 1 .. 4: a ratio; 5: inner.
    static constexpr std::size_t stages = 6;

    [[nodiscard]] double least_ratio() const {
        if constexpr (has_ratio<inner_type>)
            return ratio_of(inner);
        else
            return 0;
    }
    /// It never sends less than afterwards.
    [[nodiscard]] auto of_stage(std::size_t which) const requires has_ratio<inner_type> {
        return with_ratio(inner, std::max(ratios[which], least_ratio()));
    }

    template <class F>
    std::size_t at(std::uint64_t step, const F& f) const {
        std::size_t which = 0;
        if (step >= start)
            which = each == 0 || (step - start) / each >= ratios.size() ? stages - 1 : 1 + (step - start) / each;
        return with(which, f);
    }
    template <class F>
    std::size_t with(std::size_t which, const F& f) const {
        if (which == 0) return f(which, first);
        if constexpr (has_ratio<inner_type>)
            if (which < stages - 1) return f(which, of_stage(which - 1));
        return f(which, inner);
    }
};

/// The same around a reduction: in steps 0 .. start - 1 all numbers are added as they are, over the tree of workers, as
/// the hook for PowerSGD in PyTorch begins (Vogels et al., NeurIPS 2019); then `inner` for good, whose residual is zero
/// until then. error_feedback goes inside or around it. Its messages have one size, so there are no ratios and no
/// `first`. Memory: one more array of the bucket for each worker of a rank.
template <class Inner>
    requires is_reduction<Inner>
struct warm_up<Inner, none> {
    Inner inner{};
    std::uint64_t each = 0;   ///< 0
    std::uint64_t start = 0;  ///< steps

    static constexpr std::string_view name = "warm_up";
    static constexpr compress::traits traits = traits_of<Inner>;
    static constexpr std::size_t slot_count = Inner::slot_count;
    static constexpr auto rounds = Inner::rounds;
    template <class T>
    using element = typename detail::element_for<Inner, T, algebra::ordered_sum>::type;

    [[nodiscard]] std::string settings() const {
        return core::text("inner=", detail::describe(inner), " start=", start);
    }
    /// Throws core::error if the inner reduction's own check does, or if `each` is given.
    void check() const {
        detail::check(inner);
        if (each > 0)
            core::fail(core::text("warm_up has each = ", each, " for ", Inner::name, ", whose messages have one size"),
                       "leave it out, and give the steps before it as .start");
    }
    void check_feedback() const { detail::check_feedback(inner); }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] auto sizes(const matrix& shape, std::size_t workers) const { return inner.sizes(shape, workers); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] std::uint64_t plain_steps() const { return std::max(start, compress::plain_steps(inner)); }

    template <class T>
    void initialise(const shared_pass<T>& all) const noexcept {
        if constexpr (requires { inner.initialise(all); }) inner.initialise(all);
    }
    template <std::size_t Number, class T>
    void encode(round_number<Number> round, const worker_pass<T>& in,
                std::span<element_of<Inner, T, Number>> out) const noexcept {
        inner.encode(round, in, out);
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

namespace detail {
/// The last one where it is a compressor: only `first` stands at the end of a warm_up and is one.
template <class... More>
struct last_compressor : std::type_identity<none> {};
template <class One>
struct last_compressor<One> : std::conditional<Compressor<One> || is_reduction<One>, One, none> {};
template <class One, class Next, class... More>
struct last_compressor<One, Next, More...> : last_compressor<Next, More...> {};
}  // namespace detail

template <class I, class... More>
warm_up(I, More...) -> warm_up<I, typename detail::last_compressor<More...>::type>;

}  // namespace lockstep::compress
