// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a reduction of gradients in rounds must offer: elements of known number in each round, and plain code between
// the rounds. No I/O.
// Tested by tests/unit/compress/terngrad.cpp.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/compress/concept.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/slots.hpp"

namespace lockstep::compress {

/// How the elements of a round are combined over workers, so that the bits do not depend on the number of ranks. max:
/// of numbers, in any order. exact_sum: of unsigned integers of 32 bits, in any order; fields of a word that do not
/// overflow are added at once. ordered_sum: of numbers, over the binary tree of workers. Messages that cannot be
/// combined on the way are those of a Compressor. What needs the values of all workers, as their median does, has
/// `workers` times as many elements: each worker writes its n numbers from n worker_pass::worker on, and zeros
/// elsewhere.
enum class algebra : std::uint8_t { max, exact_sum, ordered_sum };

/// The element type of a round whose reduction names none.
template <class T, algebra Combine>
using round_element = std::conditional_t<Combine == algebra::exact_sum, std::uint32_t, T>;

namespace detail {
template <class R, class T, algebra Combine>
struct element_for {
    using type = round_element<T, Combine>;
};
template <class R, class T>
    requires requires { typename R::template element<T>; }
struct element_for<R, T, algebra::ordered_sum> {
    using type = typename R::template element<T>;
};
}  // namespace detail

/// The element type of round K of a reduction. In rounds of ordered_sum it may be its own, `template <class T> using
/// element`: with a + that commutes, zero as E{}, construction from a NaN of float, ==, and comm::is_addable; where
/// there is a function add_rounded(E* to, const E* from, n), it adds arrays. simd/half.hpp has two of them.
template <class R, class T, std::size_t K>
using element_of = typename detail::element_for<R, T, R::rounds[K]>::type;

/// The number of a round as a type: an overload of `encode` or `combined` for each.
template <std::size_t Number>
using round_number = std::integral_constant<std::size_t, Number>;

/// What a reduction needs for one matrix.
template <std::size_t Rounds>
struct reduction_sizes {
    std::array<std::size_t, Rounds> elements{};  ///< of each round
    std::size_t shared = 0;                      ///< numbers that are the same on all ranks and last from step to step
    std::size_t kept = 0;                        ///< numbers of each worker that last from round to round
};

/// One matrix of one worker.
template <class T>
struct worker_pass {
    matrix shape;               ///< of values
    std::size_t workers = 1;    ///< in all
    std::size_t worker = 0;     ///< number of this one, from 0
    std::span<const T> values;  ///< in row-major order
    tensor::slots<T> state;     ///< slot_count of them, as long as values, zero before the first step
    std::span<T> kept;          ///< of this step
    std::span<const T> shared;  ///< where earlier rounds have left their results
    core::random_stream random{
        0, core::purpose::rounding};  ///< of this worker, matrix and step; word i is for value i
    parallel::team team{};            ///< the threads of this rank
    core::random_stream common{0, core::purpose::reduction};  ///< that of shared_pass
    std::uint64_t step = 0;                                   ///< of the run, from 0
    origin from{};                                            ///< which tensor
    bool is_sent = true;                                      ///< false: of a trial
};

/// One matrix, for what every rank does alike.
template <class T>
struct shared_pass {
    matrix shape;                                             ///< of the matrix
    std::size_t workers = 1;                                  ///< in all
    std::span<T> shared;                                      ///< zero before the first step
    core::random_stream random{0, core::purpose::reduction};  ///< of this matrix and step, the same on all ranks
    parallel::team team{};                                    ///< the threads of this rank
    std::uint64_t step = 0;  ///< of the run, from 0
    origin from{};           ///< which tensor
    bool is_sent = true;     ///< false: of a trial
};

namespace detail {

/// What a reduction says for one of its rounds.
template <class R, class T, std::size_t Number>
concept has_encode = requires(const R& reduction, const worker_pass<T>& in, std::span<element_of<R, T, Number>> out) {
    requires noexcept(reduction.encode(round_number<Number>{}, in, out));
};
template <class R, class T, std::size_t Number>
concept has_combined = requires(const R& reduction, const shared_pass<T>& all,
                                std::span<const element_of<R, T, Number>> result) {
    requires noexcept(reduction.combined(round_number<Number>{}, all, result));
};
template <class R, class T>
inline constexpr bool has_rounds = []<std::size_t... Number>(std::index_sequence<Number...>) {
    return ((has_encode<R, T, Number> && (Number + 1 == R::rounds.size() || has_combined<R, T, Number>)) && ...);
}
(std::make_index_sequence<R::rounds.size()>{});

}  // namespace detail

/// From the gradients of all workers to their sum, in rounds that are known to the compiler: `rounds`, an array of
/// `algebra`. Gradients are scaled by 1 / samples of the global minibatch, so the sum over workers is the mean. What
/// runs in a step is noexcept and allocates nothing.
/// `sizes(shape, workers)`: a reduction_sizes, the same on all ranks.
/// `encode(round_number<k>{}, in, out)`: writes all elements of a worker for round k; what earlier rounds have given is
/// in `in.shared`.
/// `combined(round_number<k>{}, all, result)`, for all rounds but the last: once for each matrix, on every rank alike,
/// after round k; leaves in `all.shared` what later rounds need, because `result` is gone then.
/// `finish(all, result, mean)`: the same after the last round; writes all of `mean`.
/// `decode_own(in, elements, scale, sum)`: sum += scale x the worker's part of the mean, from the elements that it has
/// encoded for the last round; the parts of all workers add up to the mean but for rounding. `sum` may be in.values.
/// A rule that is no sum, such as a median, has no such parts: its check_feedback() says so.
/// Optional: `check()` throws core::error on settings that make no sense; `check_feedback()` on settings with which
/// error feedback would not keep its residual bounded; `initialise(all)`, noexcept, fills all.shared before the first
/// step; `is_dense(shape)`: a matrix is added as it is, over the tree of workers, and the reduction does not see it;
/// `slots()` and `sees_whole_tensors()`, as of a Compressor; `plain_steps()`: in the first so many steps of a run all
/// numbers are added as they are, and the reduction does not see them.
/// A worker whose values are not finite is not encoded: the sums of its bucket become NaN. What overflows later must
/// not vanish.
template <class R, class T = float>
concept Reduction = std::copy_constructible<R> && requires {
    requires R::rounds.size() > 0;
} && requires(const R& reduction, const matrix& shape, std::size_t workers, const worker_pass<T>& in,
              const shared_pass<T>& all, std::span<const element_of<R, T, R::rounds.size() - 1>> result, T scale,
              std::span<T> mean) {
    { R::slot_count } -> std::convertible_to<std::size_t>;
    { R::name } -> std::convertible_to<std::string_view>;
    requires !core::slot_count_is_of_objects<R> && !core::name_is_of_objects<R>;
    { reduction.settings() } -> std::convertible_to<std::string>;
    { reduction.sizes(shape, workers) } -> std::same_as<reduction_sizes<R::rounds.size()>>;
    requires noexcept(reduction.finish(all, result, mean));
    requires noexcept(reduction.decode_own(in, result, scale, mean));
} && detail::has_rounds<R, T>;

/// For numbers of one type or the other.
template <class R>
inline constexpr bool is_reduction = Reduction<R> || Reduction<R, double>;

/// See Reduction; 0 where a reduction does not say.
template <class R>
[[nodiscard]] constexpr std::uint64_t plain_steps(const R& reduction) {
    if constexpr (requires { reduction.plain_steps(); })
        return reduction.plain_steps();
    else
        return 0;
}

/// Whether something lasts from step to step.
template <class C>
inline constexpr bool keeps_state = C::slot_count > 0;
template <class R>
    requires requires { R::rounds.size(); }
inline constexpr bool keeps_state<R> = true;

namespace detail {

/// Which optional members of a compressor or a reduction can be called for an object of this type, const or not.
// clang-format off
template <class C, class T>
inline constexpr std::array callable_members{
    requires(C& of) { of.slots(); },
    requires(C& of) { of.shared_slots(); },
    requires(C& of, const matrix& shape) { of.is_dense(shape); },
    requires(C& of) { of.sees_whole_tensors(); },
    requires(C& of) { of.varies(); },
    requires(C& of) { of.seals(); },
    requires(C& of) { of.changes(); },
    requires(C& of) { of.check_feedback(); },
    requires(C& of) { of.plain_steps(); },
    requires(C& of, std::uint64_t step, const origin& from) { of.sends_all(step, from); },
    requires(C& of, std::size_t n) { of.template scratch_size<T>(n); },
    requires(C& of, std::uint64_t step, const origin& from) { of.template max_bytes<T>(1, step, from); },
    requires(C& of, std::span<T> values) { of.snap(values); },
    requires(C& of, const encoding<T>& in, std::span<T> p) { of.encode_snapped(in, p); },
    requires(C& of, const shared_pass<T>& all) { of.initialise(all); },
};
// clang-format on

}  // namespace detail

/// Whether optional members are const, as they are called: one that is not would be passed over in silence. Of the
/// parts of a combinator as well.
template <class C, class T>
inline constexpr bool keeps_members = detail::callable_members<const C, T> == detail::callable_members<C, T>;
template <template <class...> class Around, class... Parts, class T>
inline constexpr bool keeps_members<Around<Parts...>, T> = detail::callable_members<const Around<Parts...>, T> ==
                                                               detail::callable_members<Around<Parts...>, T> &&
                                                           (keeps_members<Parts, T> && ...);

}  // namespace lockstep::compress
