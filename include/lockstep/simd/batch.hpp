// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The vector type of this build: the only header that includes xsimd.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "lockstep/core/floating_point.hpp"

// GCC's own AVX-512 intrinsics start from undefined registers and warn about it wherever they are inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace lockstep::simd {

/// As many T as one register of the widest instruction set that the compiler flags allow.
template <class T>
using batch = xsimd::batch<T>;

template <class T>
inline constexpr std::size_t width = batch<T>::size;

/// Architectural vector registers: what a register-blocked loop may keep its accumulators in.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr std::size_t registers = 32;
#else
inline constexpr std::size_t registers = 16;
#endif

/// Bytes that arrays are aligned to, so that a vector never straddles a cache line.
inline constexpr std::size_t alignment = 64;

template <class T>
[[nodiscard]] inline batch<T> load(const T* from) noexcept {
    return batch<T>::load_unaligned(from);
}
template <class T>
inline void store(T* to, const batch<T>& value) noexcept {
    value.store_unaligned(to);
}

/// Whether fma() rounds once: the processor has the instruction.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool fma_rounds_once = true;
#else
inline constexpr bool fma_rounds_once = false;
#endif

/// Past the caches, to an aligned address: other threads see it after stream_end().
template <class T>
inline void stream(T* to, const batch<T>& value) noexcept {
#if defined(__AVX512F__)
    if constexpr (sizeof(batch<T>) == 64) {
        __m512i bits;
        std::memcpy(&bits, &value, sizeof(bits));
        return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits);
    }
#elif defined(__AVX__)
    if constexpr (sizeof(batch<T>) == 32) {
        __m256i bits;
        std::memcpy(&bits, &value, sizeof(bits));
        return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits);
    }
#endif
    simd::store(to, value);
}
inline void stream_end() noexcept {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
/// Bytes of a result that is far larger than the caches: it will not be read from them.
inline constexpr std::size_t beyond_caches = std::size_t{32} << 20;
/// Whether a result of `count` numbers is to be stored past the caches: many, and rows of `row` that are whole lines.
/// Time alone depends on it. Results in place are never stored so. `count` is what a thread writes of activations,
/// and what a lane has of normalised columns.
template <class T>
[[nodiscard]] inline bool streams(const T* to, std::size_t count, std::size_t row) noexcept {
    return count * sizeof(T) >= beyond_caches && row * sizeof(T) % alignment == 0 &&
           reinterpret_cast<std::uintptr_t>(to) % alignment == 0;
}

/// The bits of each element, as an element of another type of that size.
template <class To, class From>
[[nodiscard]] inline batch<To> bits_as(const batch<From>& from) noexcept {
#if XSIMD_VERSION_MAJOR < 11
    return xsimd::bitwise_cast<batch<To>>(from);
#else
    return xsimd::bitwise_cast<To>(from);
#endif
}

/// Keeps a value in its register, where the compiler may prefer to load it again at every use.
template <class T>
[[gnu::always_inline]] inline void pin([[maybe_unused]] batch<T>& value) noexcept {
#if defined(__GNUC__) && defined(__AVX__)
    asm("" : "+v"(value.data));
#endif
}

/// a b + c, rounded once.
template <class T>
[[nodiscard]] inline batch<T> fma(const batch<T>& a, const batch<T>& b, const batch<T>& c) noexcept {
#if defined(__AVX512F__)
    // xsimd 8 has no fused instruction for 512 bits: it multiplies and adds, which rounds twice and takes twice as
    // long.
    if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, float>)
        return batch<T>(_mm512_fmadd_ps(a, b, c));
    else if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, double>)
        return batch<T>(_mm512_fmadd_pd(a, b, c));
    else
#endif
        return xsimd::fma(a, b, c);
}

/// Of each element, rounded as IEEE 754 says.
template <class T>
[[nodiscard]] inline batch<T> sqrt(const batch<T>& x) noexcept {
#if defined(__AVX512F__)
    // The plain intrinsic begins with an undefined register, and precompiled headers lose the pragma above.
    if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, float>)
        return batch<T>(_mm512_maskz_sqrt_ps(0xffff, x));
    else if constexpr (sizeof(batch<T>) == 64 && std::is_same_v<T, double>)
        return batch<T>(_mm512_maskz_sqrt_pd(0xff, x));
    else
#endif
        return xsimd::sqrt(x);
}

/// Whether a number that is used once is to be broadcast from memory inside of its multiply-add: with AVX-512 an
/// instruction less for each, but on AMD's processors it is the loads that are scarce. Known by an extension that only
/// those have. One that is used twice would be loaded twice, which costs more. The address sanitizer does not see what
/// such an instruction reads.
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__SSE4A__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool broadcasts_in_place = true;
#else
inline constexpr bool broadcasts_in_place = false;
#endif

/// sum += a b, rounded once, with one number of memory for all elements. Compilers would load it once for several of
/// these.
template <class T>
[[gnu::always_inline]] inline void add_product(batch<T>& sum, const T& a, const batch<T>& b) noexcept {
#if defined(__AVX512F__) && defined(__GNUC__)
    if constexpr (broadcasts_in_place) {
        auto to = sum.data;
        static_assert(sizeof(to) == 64 && std::is_floating_point_v<T>);
        if constexpr (std::is_same_v<T, float>)
            asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(to) : "v"(b.data), "m"(a));
        else
            asm("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(to) : "v"(b.data), "m"(a));
        sum = batch<T>(to);
        return;
    }
#endif
    sum = fma(batch<T>(a), b, sum);
}
/// The same of registers. Beside the other it keeps the sum where it is: compilers would write it over `a` and copy.
template <class T>
[[gnu::always_inline]] inline void add_product(batch<T>& sum, const batch<T>& a, const batch<T>& b) noexcept {
#if defined(__AVX512F__) && defined(__GNUC__)
    if constexpr (broadcasts_in_place) {
        auto to = sum.data;
        static_assert(sizeof(to) == 64 && std::is_floating_point_v<T>);
        if constexpr (std::is_same_v<T, float>)
            asm("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(b.data), "v"(a.data));
        else
            asm("vfmadd231pd %2, %1, %0" : "+v"(to) : "v"(b.data), "v"(a.data));
        sum = batch<T>(to);
        return;
    }
#endif
    sum = fma(a, b, sum);
}

/// The instruction set of this build, as printed at the start of a run.
[[nodiscard]] inline std::string_view instruction_set() noexcept { return xsimd::default_arch::name(); }

}  // namespace lockstep::simd
