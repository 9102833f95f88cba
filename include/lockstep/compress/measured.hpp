// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a compressor does to each tensor, in bytes, error and time: a decorator that models Compressor.

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

    /// Bytes of the numbers over bytes of the messages; 0 without messages.
    [[nodiscard]] double ratio(std::size_t element_bytes) const noexcept {
        return bytes == 0 ? 0 : static_cast<double>(numbers * element_bytes) / static_cast<double>(bytes);
    }
    /// How many bytes fewer than the numbers themselves; below 0 where messages are longer.
    [[nodiscard]] double saved_bytes(std::size_t element_bytes) const noexcept {
        return static_cast<double>(numbers * element_bytes) - static_cast<double>(bytes);
    }
    /// |p - decoded| / |p| over all messages; 0 where p is 0.
    [[nodiscard]] double relative_error() const noexcept { return squares > 0 ? std::sqrt(lost / squares) : 0; }
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
            if (rows_[tensor].messages > 0)
                out += line(tensor < names.size() ? names[tensor] : core::text(tensor), rows_[tensor], element_bytes);
        return out + line("all", total(), element_bytes);
    }

private:
    [[nodiscard, gnu::cold]] static std::string line(const std::string& name, const tensor_statistics& of,
                                                     std::size_t element_bytes) {
        const auto column = [](std::string word, std::size_t width) {
            return std::string(width > word.size() ? width - word.size() : 1, ' ') + word;
        };
        const double each = 1e9 / std::max(1.0, static_cast<double>(of.numbers));
        return name + column(core::text(of.messages), name.size() < 34 ? 34 - name.size() : 10) +
               column(core::text(of.numbers), 14) + column(core::text(of.bytes), 14) +
               column(core::fixed(of.ratio(element_bytes), 1), 9) + column(core::fixed(of.relative_error(), 4), 9) +
               column(core::fixed(of.encode_seconds * each, 2), 9) +
               column(core::fixed(of.decode_seconds * each, 2), 9) + "\n";
    }

    std::vector<tensor_statistics> rows_;
};

/// The messages, bits and recipe of the compressor inside; nothing more is done unless `to` is given. Then each message
/// is decoded once more, to compare: encoding takes about twice as long, and n numbers of scratch more. Inside
/// error_feedback, error_feedback{measured{top_k{}, &statistics}}, the error is that of gradient + residual. `to` lives
/// longer than the trainer, and is written by the thread that encodes: read it between calls of fit().
template <class Inner>
struct measured {
    static_assert(Compressor<Inner>,
                  "lockstep: measured goes around a compressor; write measured{compress::top_k{}, &statistics}");
    using inner_type = std::conditional_t<Compressor<Inner>, Inner, none>;
    inner_type inner{};
    statistics* to = nullptr;

    static constexpr std::string_view name = inner_type::name;
    static constexpr compress::traits traits = traits_of<inner_type>;
    static constexpr std::size_t slot_count = inner_type::slot_count;

    [[nodiscard]] std::string settings() const { return inner.settings(); }
    void check() const {
        if constexpr (requires { inner.check(); }) inner.check();
    }
    void check_feedback() const {
        if constexpr (requires { inner.check_feedback(); }) inner.check_feedback();
    }
    [[nodiscard]] constexpr std::size_t slots() const noexcept { return slots_of(inner); }
    [[nodiscard]] constexpr std::size_t shared_slots() const noexcept { return shared_slots_of(inner); }
    [[nodiscard]] bool seals() const noexcept requires requires(const inner_type& one) { one.seals(); }
    { return inner.seals(); }
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
    /// Is not counted, nor is what two_sided encodes: nothing is sent.
    template <class T>
        requires has_seal<inner_type, T>
    void seal(const sealing<T>& in) const noexcept { inner.seal(in); }

private:
    template <class T, class Encode>
    std::size_t observed(const encoding<T>& in, const Encode& encode) const noexcept {
        if (to == nullptr || !in.is_sent) return encode(in);
        using clock = std::chrono::steady_clock;
        const auto seconds = [](clock::duration some) { return std::chrono::duration<double>(some).count(); };
        const std::size_t n = in.values.size();
        auto inside = in;
        inside.scratch = in.scratch.subspan(n);
        const auto begin = clock::now();
        const std::size_t bytes = encode(inside);
        const auto encoded = clock::now();
        const std::span<T> decoded = in.scratch.first(n);
        std::fill(decoded.begin(), decoded.end(), T{0});
        const auto cleared = clock::now();
        inner.decode_add(std::span<const std::byte>{in.message.first(bytes)}, T{1}, decoded);
        const auto end = clock::now();

        tensor_statistics one{.messages = 1,
                              .numbers = n,
                              .bytes = bytes,
                              .encode_seconds = seconds(encoded - begin),
                              .decode_seconds = seconds(end - cleared)};
        for (std::size_t i = 0; i < n; ++i) {
            const auto value = static_cast<double>(in.values[i]);
            const double rest = value - static_cast<double>(decoded[i]);
            one.squares += value * value;
            one.lost += rest * rest;
        }
        to->add(in.from.tensor, one);
        return bytes;
    }
};

template <class I>
measured(I, statistics*) -> measured<I>;

}  // namespace lockstep::compress
