// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums of -1, 0 and 1 over workers in fields of 32-bit words, which add without a carry from one to the next.
// Tested by tests/unit/compress/sign_vote.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/bytes.hpp"
#include "lockstep/simd/part.hpp"

namespace lockstep::compress {

/// A field has b = ceil(log2(2W + 1)) bits and holds the number of a worker plus 1, so the sum of W of them plus W; a
/// word has f = floor(32 / b) fields, the lowest bits first.
class ternary_fields {
    static constexpr std::size_t most = 16;   // fields of a word
    static constexpr std::size_t chunk = 64;  // words at a time: a multiple of 4 fields

public:
    /// Fields that write_runs asks for at once, at most; runs start at multiples of 4.
    static constexpr std::size_t longest_run = chunk * most;

    constexpr explicit ternary_fields(std::size_t workers) noexcept
        : bits_{static_cast<std::size_t>(std::bit_width(2 * workers))}, each_{32 / bits_} {}

    [[nodiscard]] constexpr std::size_t bits() const noexcept { return bits_; }
    /// Fields of a word.
    [[nodiscard]] constexpr std::size_t each() const noexcept { return each_; }
    [[nodiscard]] constexpr std::size_t words(std::size_t n) const noexcept { return (n + each_ - 1) / each_; }

    /// out_i = f(field i as a number, out_i) for all numbers of `out`, in vectors, on the threads of the team. Exact
    /// for fewer than 2^23 workers.
    template <class T, class F>
    void read(parallel::team team, std::span<const std::uint32_t> words, std::span<T> out, const F& f) const noexcept {
        constexpr std::size_t width = simd::width<T>;
        parallel::for_blocks(team, words.size(), 1024, [&](parallel::block part) {
            for (std::size_t at = part.first; at < part.last; at += chunk) {
                const std::size_t last = std::min(part.last, at + chunk), first = at * each_;
                const std::span<T> here = out.subspan(first, std::min(out.size(), last * each_) - first);
                const auto put = [&](const auto& fields_from) {
                    std::size_t i = 0;
                    for (; i + width <= here.size(); i += width)
                        simd::store(&here[i], f(fields_from(i), simd::load(&here[i])));
                    if (const std::size_t rest = here.size() - i; rest > 0)
                        simd::store_first(&here[i], f(fields_from(i), simd::load_first(&here[i], rest)), rest);
                };
                if (is_narrow()) {
                    std::array<std::uint8_t, longest_run + std::max<std::size_t>(8, width)> codes;
                    for (std::size_t word = at; word < last; ++word)
                        spread(words[word], codes.data() + (word - at) * each_);
                    std::fill_n(codes.data() + (last - at) * each_, width, std::uint8_t{0});
                    put([&](std::size_t i) { return simd::load_bytes<T>(codes.data() + i); });
                } else {
                    std::array<T, 3 * chunk + width> numbers{};
                    const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits_) - 1);
                    T* to = numbers.data();
                    for (std::size_t word = at; word < last; ++word)
                        for (std::size_t field = 0; field < each_; ++field)
                            *to++ = static_cast<T>(words[word] >> (field * bits_) & mask);
                    put([&](std::size_t i) { return simd::load(numbers.data() + i); });
                }
            }
        });
    }
    /// Writes 0, 1 or 2 to fields 0 .. n - 1, from f(first, codes), which writes the numbers of fields first .. first +
    /// codes.size() - 1.
    template <class F>
    void write_runs(parallel::team team, std::size_t n, std::span<std::uint32_t> words, const F& f) const noexcept {
        parallel::for_blocks(team, words.size(), 1024, [&](parallel::block part) {
            std::array<std::uint8_t, longest_run + 8> codes;
            for (std::size_t at = part.first; at < part.last; at += chunk) {
                const std::size_t last = std::min(part.last, at + chunk), first = at * each_;
                const std::size_t count = std::min(n, last * each_) - first;
                f(first, std::span{codes}.first(count));
                std::fill(codes.begin() + static_cast<std::ptrdiff_t>(count),
                          codes.begin() + static_cast<std::ptrdiff_t>((last - at) * each_ + 8), std::uint8_t{0});
                for (std::size_t word = at; word < last; ++word)
                    words[word] = gather(codes.data() + (word - at) * each_);
            }
        });
    }

private:
    /// Whether fields fit bytes, of which the processor can make words.
    [[nodiscard]] constexpr bool is_narrow() const noexcept { return bits_ <= 8; }
    /// The lower bits of `count` bytes.
    [[nodiscard]] constexpr std::uint64_t lower(std::size_t count) const noexcept {
        return ((std::uint64_t{1} << bits_) - 1) * 0x0101010101010101ULL >> (64 - 8 * count);
    }
    /// There are 8 bytes to read after the fields of the word.
    [[nodiscard]] std::uint32_t gather(const std::uint8_t* codes) const noexcept {
        std::uint32_t out = 0;
#if defined(__BMI2__)
        if (is_narrow()) {
            for (std::size_t i = 0; i < each_; i += 8) {
                const std::size_t count = std::min<std::size_t>(8, each_ - i);
                std::uint64_t bytes;
                std::memcpy(&bytes, codes + i, sizeof(bytes));
                out |= static_cast<std::uint32_t>(_pext_u64(bytes, lower(count))) << (i * bits_);
            }
            return out;
        }
#endif
        for (std::size_t i = 0; i < each_; ++i) out |= std::uint32_t{codes[i]} << (i * bits_);
        return out;
    }
    /// Up to 8 bytes after the fields of the word become 0: those of the next word come later.
    void spread(std::uint32_t word, std::uint8_t* codes) const noexcept {
#if defined(__BMI2__)
        for (std::size_t i = 0; i < each_; i += 8) {
            const std::size_t count = std::min<std::size_t>(8, each_ - i);
            const std::uint64_t bytes = _pdep_u64(word >> (i * bits_), lower(count));
            std::memcpy(codes + i, &bytes, sizeof(bytes));
        }
#else
        for (std::size_t i = 0; i < each_; ++i)
            codes[i] = static_cast<std::uint8_t>(word >> (i * bits_) & ((1U << bits_) - 1));
#endif
    }

    std::size_t bits_;
    std::size_t each_;
};

}  // namespace lockstep::compress
