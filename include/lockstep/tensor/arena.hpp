// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One block of memory for everything a trainer owns, sized before the first step and never again.

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "lockstep/simd/batch.hpp"

namespace lockstep::tensor {

/// Where an array lies in the arena. A slice is worth something only together with the arena it was reserved for.
template <class T>
struct slice {
    std::size_t offset = 0;  ///< bytes
    std::size_t count = 0;   ///< elements
};

namespace detail {
struct release {
    std::size_t alignment = simd::alignment;
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{alignment}); }
};
}  // namespace detail

/// First `reserve` everything, then `allocate` once, then ask for spans. Arrays start on cache lines and are zero.
class arena {
public:
    template <class T>
    [[nodiscard]] slice<T> reserve(std::size_t count) noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "the arena holds plain numbers");
        const slice<T> out{bytes_, count};
        const std::size_t bytes = count * sizeof(T);
        bytes_ += (bytes + simd::alignment - 1) / simd::alignment * simd::alignment;
        return out;
    }

    /// The calling thread touches every page first. Large arenas ask for large pages: kernels that walk over megabytes else spend a tenth of
    /// their time on looking up where the next page lies.
    void allocate() {
        memory_ = std::unique_ptr<std::byte[], detail::release>{
            static_cast<std::byte*>(::operator new[](bytes_ + simd::alignment, std::align_val_t{page()})), detail::release{page()}};
#if defined(MADV_HUGEPAGE)
        if (page() > simd::alignment) (void)::madvise(memory_.get(), bytes_ / page() * page(), MADV_HUGEPAGE);
#endif
        std::memset(memory_.get(), 0, bytes_);
    }

    template <class T>
    [[nodiscard]] std::span<T> operator[](slice<T> where) const noexcept {
        return {reinterpret_cast<T*>(memory_.get() + where.offset), where.count};
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    static constexpr std::size_t large_page = std::size_t{1} << 21U;
    [[nodiscard]] std::size_t page() const noexcept { return bytes_ >= 2 * large_page ? large_page : simd::alignment; }

    std::size_t bytes_ = 0;
    std::unique_ptr<std::byte[], detail::release> memory_;
};

}  // namespace lockstep::tensor
