// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a compressor or reduction does to each tensor, in bytes, error and time: a decorator that models the same.

#include <algorithm>
#include <chrono>
#include <cmath>
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
#include "lockstep/compress/parts/index_list.hpp"
#include "lockstep/compress/parts/ratio.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// Sums over all messages of a tensor that this rank has encoded.
struct tensor_statistics {
    std::uint64_t messages = 0;
    std::uint64_t numbers = 0;
    std::uint64_t bytes = 0;
    double squares = 0;  ///< of the numbers that were to be encoded,
    double lost = 0;     ///< and of what was left out of them
    double encode_seconds = 0;
    double decode_seconds = 0;

    /// Bytes of the numbers over bytes of the messages; 0 without messages, or where all of them are empty.
    [[nodiscard]] double ratio(std::size_t element_bytes) const noexcept {
        return bytes == 0 ? 0 : static_cast<double>(numbers * element_bytes) / static_cast<double>(bytes);
    }
    /// How many bytes fewer than the numbers themselves; below 0 where messages are longer.
    [[nodiscard]] double saved_bytes(std::size_t element_bytes) const noexcept {
        return static_cast<double>(numbers * element_bytes) - static_cast<double>(bytes);
    }
    /// |p - decoded| / |p| over all messages; 0 where p is 0.
    [[nodiscard]] double relative_error() const noexcept { return squares > 0 ? std::sqrt(lost / squares) : 0; }
    /// Adds the squares of p and of what was left out of it.
    template <class T>
    void compare(std::span<const T> p, std::span<const T> decoded) noexcept {
        for (std::size_t i = 0; i < p.size(); ++i) {
            const auto value = static_cast<double>(p[i]);
            const double rest = value - static_cast<double>(decoded[i]);
            squares += value * value;
            lost += rest * rest;
        }
    }
    void add(const tensor_statistics& other) noexcept {
        messages += other.messages;
        numbers += other.numbers;
        bytes += other.bytes;
        squares += other.squares;
        lost += other.lost;
        encode_seconds += other.encode_seconds;
        decode_seconds += other.decode_seconds;
    }
};

/// Statistics for each tensor of a network, in the order of its parameters.
class statistics {
public:
    /// Messages of tensors from number `tensors` on are counted as one more.
    explicit statistics(std::size_t tensors = 256) : rows_(tensors + 1) {}

    void add(std::size_t tensor, const tensor_statistics& message) noexcept {
        rows_[std::min(tensor, rows_.size() - 1)].add(message);
    }
    [[nodiscard]] const tensor_statistics& of(std::size_t tensor) const { return rows_.at(tensor); }
    /// Numbers of tensors that it can tell apart, and one for all others.
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
    /// What a row is of, by the names of all tensors: the last one may be of several. Without a name a tensor has
    /// `before` and its number.
    [[nodiscard, gnu::cold]] std::string name_of(std::size_t row, std::span<const std::string> names = {},
                                                 std::string_view before = "") const {
        if (row + 1 == rows_.size() && names.size() != rows_.size()) return core::text(before, row, " and later");
        return row < names.size() ? names[row] : core::text(before, row);
    }
    [[nodiscard]] tensor_statistics total() const noexcept {
        tensor_statistics out;
        for (const auto& row : rows_) out.add(row);
        return out;
    }
    void clear() noexcept { std::fill(rows_.begin(), rows_.end(), tensor_statistics{}); }

    /// A line for each tensor that has messages, and one for all. Without a name a tensor has its number.
    [[nodiscard, gnu::cold]] std::string text(std::span<const std::string> names = {},
                                              std::size_t element_bytes = sizeof(float)) const {
        std::string out =
            "tensor                    messages       numbers         bytes    ratio    error   encode   decode ns "
            "each\n";
        for (std::size_t tensor = 0; tensor < rows_.size(); ++tensor)
            if (rows_[tensor].messages > 0) out += line(name_of(tensor, names), rows_[tensor], element_bytes);
        return out + line("all", total(), element_bytes);
    }

private:
    [[nodiscard, gnu::cold]] static std::string line(const std::string& name, const tensor_statistics& of,
                                                     std::size_t element_bytes) {
        const auto column = [](std::string word, std::size_t width) {
            return std::string(width > word.size() ? width - word.size() : 1, ' ') + word;
        };
        const double each = 1e9 / std::max(1.0, static_cast<double>(of.numbers));
        const std::string ratio = of.bytes == 0 ? "-" : core::fixed(of.ratio(element_bytes), 1);
        return name + column(core::text(of.messages), name.size() < 34 ? 34 - name.size() : 10) +
               column(core::text(of.numbers), 14) + column(core::text(of.bytes), 14) + column(ratio, 9) +
               column(core::fixed(of.relative_error(), 4), 9) + column(core::fixed(of.encode_seconds * each, 2), 9) +
               column(core::fixed(of.decode_seconds * each, 2), 9) + "\n";
    }

    std::vector<tensor_statistics> rows_;
};

namespace detail {
template <class F>
[[nodiscard]] double seconds_of(const F& f) {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    f();
    return std::chrono::duration<double>(clock::now() - begin).count();
}
}  // namespace detail

/// The messages, bits and recipe of the compressor inside; nothing more is done unless `to` is given. Then each message
/// is decoded once more, to compare: encoding takes about twice as long, and n numbers of scratch more. Inside
/// error_feedback, error_feedback{measured{top_k{}, &statistics}}, the error is that of gradient + residual. `to` lives
/// longer than the trainer, and is written by the thread that encodes: read it between calls of fit().
template <class Inner>
struct measured {
    static_assert(Compressor<Inner>,
                  "lockstep: measured goes around a compressor or reduction; write measured{compress::top_k{}, "
                  "&statistics}");
    using inner_type = std::conditional_t<Compressor<Inner>, Inner, none>;
    inner_type inner{};
    statistics* to = nullptr;

    static constexpr std::string_view name = inner_type::name;
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr std::size_t slot_count = inner_type::slot_count;

    [[nodiscard]] std::string settings() const { return inner.settings(); }
    void check() const { detail::check(inner); }
    void check_feedback() const { detail::check_feedback(inner); }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] constexpr std::size_t shared_slots() const noexcept { return shared_slots_of(inner); }
    [[nodiscard]] bool seals() const noexcept requires requires(const inner_type& one) { one.seals(); }
    { return inner.seals(); }
    /// For sparse_sum, and for warm_up.
    static constexpr bool sends_index_list = compress::sends_index_list<inner_type>;
    template <class T>
    [[nodiscard]] index_list<T> list_in(std::span<const std::byte> message) const noexcept {
        return compress::list_in<T>(inner, message);
    }
    template <class T>
    [[nodiscard]] compress::list_room list_room(std::size_t n) const {
        return compress::list_room_of<T>(inner, n);
    }
    [[nodiscard]] double own_ratio() const requires has_ratio<inner_type> { return compress::ratio_of(inner); }
    [[nodiscard]] measured with_ratio(double ratio) const requires has_ratio<inner_type> {
        return {compress::with_ratio(inner, ratio), to};
    }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sends_all(std::uint64_t step, const origin& from) const {
        return compress::sends_all(inner, step, from);
    }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] bool varies() const { return compress::varies(inner); }
    [[nodiscard]] std::vector<std::uint64_t> changes() const { return changes_of(inner); }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return inner.template max_bytes<T>(n);
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t step, const origin& from) const {
        return max_bytes_at<T>(inner, n, step, from);
    }
    template <class T>
    [[nodiscard]] std::size_t scratch_size(std::size_t n) const {
        return compress::scratch_size<T>(inner, n) + (to != nullptr ? n : 0);
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        return observed(in, [&](const encoding<T>& inside) { return inner.encode(inside); });
    }
    template <class T>
    std::size_t encode_snapped(const encoding<T>& in, std::span<T> p) const noexcept {
        return observed(in, [&](const encoding<T>& inside) { return compress::encode_snapped(inner, inside, p); });
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        inner.decode_add(message, scale, sum);
    }
    /// Is not counted, nor is what two_sided encodes and adaptive tries: nothing is sent.
    template <class T>
        requires has_seal<inner_type, T>
    void seal(const sealing<T>& in) const noexcept { inner.seal(in); }

private:
    template <class T, class Encode>
    std::size_t observed(const encoding<T>& in, const Encode& encode) const noexcept {
        if (to == nullptr || !in.is_sent) return encode(in);
        const std::size_t n = in.values.size();
        auto inside = in;
        inside.scratch = in.scratch.subspan(n);
        std::size_t bytes = 0;
        tensor_statistics one{.messages = 1, .numbers = n};
        one.encode_seconds = detail::seconds_of([&] { bytes = encode(inside); });
        one.bytes = in.fixed_room ? max_bytes_at<T>(inner, n, in.step, in.from) : bytes;
        const std::span<T> decoded = in.scratch.first(n);
        std::fill(decoded.begin(), decoded.end(), T{0});
        one.decode_seconds = detail::seconds_of(
            [&] { inner.decode_add(std::span<const std::byte>{in.message.first(bytes)}, T{1}, decoded); });
        one.compare(in.values, std::span<const T>{decoded});
        to->add(in.from.tensor, one);
        return bytes;
    }
};

/// The same around a reduction, error_feedback{measured{power_sgd{}, &statistics}}: the elements and bits are those of
/// the reduction inside. A message is what a worker adds in all rounds; what it says is decode_own(), which is called
/// once more, for |p - decoded|. `decode_seconds` are those of `combined` and `finish`, once for all workers. What is
/// added as it is, such as vectors, and all of it in plain steps, is not counted. n numbers for each worker of the rank
/// more.
template <Reduction Inner>
struct measured<Inner> {
    Inner inner{};
    statistics* to = nullptr;

    static constexpr std::string_view name = Inner::name;
    static constexpr compress::traits traits = traits_of<Inner>;
    static constexpr std::size_t slot_count = Inner::slot_count;
    static constexpr auto rounds = Inner::rounds;
    template <class T>
    using element = typename detail::element_for<Inner, T, algebra::ordered_sum>::type;

    [[nodiscard]] std::string settings() const { return std::string{inner.settings()}; }
    void check() const { detail::check(inner); }
    void check_feedback() const { detail::check_feedback(inner); }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return compress::is_dense(inner, shape); }
    [[nodiscard]] bool sees_whole_tensors() const { return compress::sees_whole_tensors(inner); }
    [[nodiscard]] std::uint64_t plain_steps() const { return compress::plain_steps(inner); }
    [[nodiscard]] auto sizes(const matrix& shape, std::size_t workers) const {
        auto out = inner.sizes(shape, workers);
        if (to != nullptr) out.kept += shape.size();
        return out;
    }

    template <class T>
    void initialise(const shared_pass<T>& all) const noexcept {
        if constexpr (requires { inner.initialise(all); }) inner.initialise(all);
    }
    template <std::size_t Number, class T>
    void encode(round_number<Number> round, const worker_pass<T>& in,
                std::span<element_of<Inner, T, Number>> out) const noexcept {
        if (to == nullptr) return inner.encode(round, in, out);
        const worker_pass<T> inside = inside_of(in);
        if (!in.is_sent) return inner.encode(round, inside, out);
        tensor_statistics one{.bytes = out.size_bytes(),
                              .encode_seconds = detail::seconds_of([&] { inner.encode(round, inside, out); })};
        if constexpr (Number + 1 == rounds.size()) {
            one.messages = 1;
            one.numbers = in.values.size();
            const std::span<T> decoded = in.kept.last(in.values.size());
            std::fill(decoded.begin(), decoded.end(), T{0});
            inner.decode_own(inside, std::span<const element_of<Inner, T, Number>>{out}, T{1}, decoded);
            one.compare(in.values, std::span<const T>{decoded});
        }
        to->add(in.from.tensor, one);
    }
    template <std::size_t Number, class T>
    void combined(round_number<Number> round, const shared_pass<T>& all,
                  std::span<const element_of<Inner, T, Number>> result) const noexcept {
        timed(all, [&] { inner.combined(round, all, result); });
    }
    template <class T>
    void finish(const shared_pass<T>& all, std::span<const element_of<Inner, T, rounds.size() - 1>> result,
                std::span<T> mean) const noexcept {
        timed(all, [&] { inner.finish(all, result, mean); });
    }
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const element_of<Inner, T, rounds.size() - 1>> elements,
                    T scale, std::span<T> sum) const noexcept {
        inner.decode_own(to == nullptr ? in : inside_of(in), elements, scale, sum);
    }

private:
    template <class T>
    [[nodiscard]] static worker_pass<T> inside_of(worker_pass<T> in) noexcept {
        in.kept = in.kept.first(in.kept.size() - in.values.size());
        return in;
    }
    template <class T, class F>
    void timed(const shared_pass<T>& all, const F& f) const noexcept {
        if (to == nullptr || !all.is_sent) return f();
        to->add(all.from.tensor, {.decode_seconds = detail::seconds_of(f)});
    }
};

template <class I>
measured(I, statistics*) -> measured<I>;

}  // namespace lockstep::compress
