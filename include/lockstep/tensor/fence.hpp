// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Fences and poison, for builds with LOCKSTEP_CHECK_MEMORY: memory that holds no value is NaN everywhere, and gaps lie
// between arrays.
// Tested by tests/unit/train/engine/memory_check.cpp.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/simd/batch.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(LOCKSTEP_ADDRESS_SANITIZER) && defined(LOCKSTEP_CHECK_MEMORY)
#include <sanitizer/asan_interface.h>
#endif

namespace lockstep::tensor {

/// The program checks the memory of its steps. All translation units of a program agree on it, and so does the compiled
/// form (kernels/library.hpp): CMake's option LOCKSTEP_CHECK_MEMORY sees to that.
#if defined(LOCKSTEP_CHECK_MEMORY)
inline constexpr bool checks_memory = true;
#else
inline constexpr bool checks_memory = false;
#endif

/// Bytes of the gap on each side of an array: 0 where nothing is checked.
inline constexpr std::size_t fence_bytes = checks_memory ? simd::alignment : 0;

/// Four bytes of poison: a NaN as float; two of them are a signalling NaN as double. An operation on it keeps the rest
/// of its bits.
inline constexpr std::uint32_t poison_word = 0x7FF5A5A5U;

/// The number came out of poison: it, or the quiet NaN that arithmetic makes of it.
template <std::floating_point T>
[[nodiscard]] constexpr bool is_poison(T number) noexcept {
    if constexpr (sizeof(T) == 4) {
        return (std::bit_cast<std::uint32_t>(number) & 0x7FFFFFFFU) == poison_word;
    } else {
        static_assert(sizeof(T) == 8);
        constexpr std::uint64_t sign_and_quiet = (std::uint64_t{1} << 63U) | (std::uint64_t{1} << 51U);
        return (std::bit_cast<std::uint64_t>(number) & ~sign_and_quiet) ==
               (std::uint64_t{poison_word} << 32U | poison_word);
    }
}

#if defined(LOCKSTEP_CHECK_MEMORY)

/// The first number that came out of poison, or `count`.
template <std::floating_point T>
[[nodiscard]] std::size_t find_poison(const T* first, std::size_t count) noexcept {
    std::size_t at = 0;
    for (constexpr std::size_t some = 64; at + some <= count; at += some) {  // without a branch for each: vectors
        unsigned found = 0;
        for (std::size_t i = 0; i < some; ++i) found |= is_poison(first[at + i]) ? 1U : 0U;
        if (found != 0) break;
    }
    while (at < count && !is_poison(first[at])) ++at;
    return at;
}
LOCKSTEP_TEMPLATE(find_poison<float>);
LOCKSTEP_TEMPLATE(find_poison<double>);

/// Fills memory with poison; under the address sanitizer every access is an error from then on.
void poison(std::span<std::byte> memory) noexcept;
/// Memory may be used again. It still holds poison.
void unpoison(std::span<const std::byte> memory) noexcept;
/// The first byte that has been written since poison() filled this memory, or memory.size(). No access is allowed
/// afterwards.
[[nodiscard]] std::size_t find_damage(std::span<const std::byte> memory) noexcept;

/// The gaps of an arena: one before each array, and one after the last.
class fences {
public:
    /// Of the gaps so far, with the one before the next array.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_ + fence_bytes; }
    /// An array that does not count, with its gap.
    void skip(std::size_t bytes) noexcept { bytes_ += bytes; }
    /// An array of `bytes`, which takes the memory from `begin` to `end`.
    void add(std::size_t begin, std::size_t bytes, std::size_t end, const std::source_location& where) {
        bytes_ += fence_bytes;
        if (bytes > 0) arrays_.push_back({begin, begin + bytes, end + fence_bytes, where});
    }
    [[gnu::cold]] void fill(std::byte* memory) const noexcept;
    /// Throws core::error where something was written beside an array.
    void check(std::byte* memory) const;

private:
    struct array {
        std::size_t begin, end, next;
        std::source_location where;
    };
    std::size_t bytes_ = 0;
    std::vector<array> arrays_;
};

#if LOCKSTEP_BODIES

namespace detail {
inline constexpr auto poison_bytes = std::bit_cast<std::array<std::byte, sizeof(poison_word)>>(poison_word);

inline constexpr auto poison_line = [] {
    std::array<std::uint64_t, simd::alignment / sizeof(std::uint64_t)> out{};
    out.fill(std::uint64_t{poison_word} << 32U | poison_word);
    return out;
}();

/// Which byte of a word lies there.
[[nodiscard]] inline std::size_t byte_of_word(const std::byte* at) noexcept {
    return std::bit_cast<std::uintptr_t>(at) % sizeof(poison_word);
}

inline void close_memory([[maybe_unused]] std::span<const std::byte> memory) noexcept {
#if defined(LOCKSTEP_ADDRESS_SANITIZER)
    __asan_poison_memory_region(memory.data(), memory.size());
#endif
}
}  // namespace detail

LOCKSTEP_FUNCTION void unpoison([[maybe_unused]] std::span<const std::byte> memory) noexcept {
#if defined(LOCKSTEP_ADDRESS_SANITIZER)
    __asan_unpoison_memory_region(memory.data(), memory.size());
#endif
}

LOCKSTEP_FUNCTION void poison(std::span<std::byte> memory) noexcept {
    unpoison(memory);
    std::byte *at = memory.data(), *const end = at + memory.size();
    for (; at != end && detail::byte_of_word(at) != 0; ++at) *at = detail::poison_bytes[detail::byte_of_word(at)];
    for (; end - at >= static_cast<std::ptrdiff_t>(sizeof(detail::poison_line)); at += sizeof(detail::poison_line))
        std::memcpy(at, detail::poison_line.data(), sizeof(detail::poison_line));
    for (; at != end; ++at) *at = detail::poison_bytes[detail::byte_of_word(at)];
    detail::close_memory(memory);
}

LOCKSTEP_FUNCTION std::size_t find_damage(std::span<const std::byte> memory) noexcept {
    unpoison(memory);
    const std::byte *at = memory.data(), *const end = at + memory.size();
    const auto is_whole = [&] { return *at == detail::poison_bytes[detail::byte_of_word(at)]; };
    while (at != end && detail::byte_of_word(at) != 0 && is_whole()) ++at;
    // Whole lines: nearly all of them are as they were.
    constexpr std::size_t line = sizeof(detail::poison_line);
    for (bool same = at == end || detail::byte_of_word(at) == 0;
         same && end - at >= static_cast<std::ptrdiff_t>(line);) {
        auto found = detail::poison_line;
        std::memcpy(found.data(), at, line);
        std::uint64_t changed = 0;
        for (std::size_t word = 0; word < found.size(); ++word) changed |= found[word] ^ detail::poison_line[word];
        same = changed == 0;
        if (same) at += line;
    }
    while (at != end && is_whole()) ++at;
    detail::close_memory(memory);
    return static_cast<std::size_t>(at - memory.data());
}

LOCKSTEP_FUNCTION void fences::fill(std::byte* memory) const noexcept {
    for (const array& one : arrays_) {
        poison({memory + one.begin - fence_bytes, fence_bytes});
        poison({memory + one.end, one.next - one.end});
    }
}

LOCKSTEP_FUNCTION void fences::check(std::byte* memory) const {
    for (const array& one : arrays_) {
        const std::span<const std::byte> gap{memory + one.end, one.next - one.end};
        const bool past = find_damage(gap) < gap.size();
        if (!past && find_damage({memory + one.begin - fence_bytes, fence_bytes}) == fence_bytes) continue;
        std::string_view file = one.where.file_name();
        file.remove_prefix(file.rfind('/') + 1);
        core::fail(core::text("memory ", past ? "past the end" : "before the start", " of an array of ",
                              one.end - one.begin, " bytes was written, of ", file, ":", one.where.line()),
                   "what was given this array, or a neighbour, writes more than it asked for");
    }
}

#endif

#else

/// Without checks: no gaps.
struct fences {
    static constexpr std::size_t bytes() noexcept { return 0; }
    static constexpr void skip(std::size_t) noexcept {}
    static constexpr void add(std::size_t, std::size_t, std::size_t, const std::source_location&) noexcept {}
    static constexpr void fill(std::byte*) noexcept {}
    static constexpr void check(std::byte*) noexcept {}
};

#endif

}  // namespace lockstep::tensor
