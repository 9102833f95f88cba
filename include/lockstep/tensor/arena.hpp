// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One block of memory for everything a trainer owns, sized before the first step and never again; what other processes
// see lies in theirs.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/huge_pages.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/fence.hpp"

namespace lockstep::tensor {

/// Where an array lies in the arena. A slice is worth something only together with the arena it was reserved for.
template <class T>
struct slice {
    std::size_t offset = 0;  ///< bytes
    std::size_t count = 0;   ///< elements
    bool shared = false;     ///< in memory that other processes see, too
};

namespace detail {
struct release {
    std::size_t alignment = simd::alignment;
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{alignment}); }
};
struct release_untouched {
    void operator()(void* memory) const noexcept { std::free(memory); }
};
}  // namespace detail

/// First `reserve` everything, then `allocate` once, then ask for spans. Arrays start on cache lines and are zero. With
/// LOCKSTEP_CHECK_MEMORY there are gaps between them, for check(); not in memory that others share.
/// Reserving throws core::error where the sizes exceed core::largest_size.
class arena {
public:
    /// `spare`: bytes after the array that do not count, for gaps inside of it.
    template <class T>
    [[nodiscard]] slice<T> reserve(std::size_t count, std::size_t spare = 0,
                                   const std::source_location& where = std::source_location::current()) {
        static_assert(std::is_trivially_copyable_v<T>, "the arena holds plain numbers");
        const std::size_t size = footprint(core::checked_product("bytes of an array", count, sizeof(T)));
        const std::size_t all = core::checked_sum("bytes of an arena", bytes_, size);
        const slice<T> out{bytes_ + fences_.bytes(), count};
        bytes_ = all;
        fences_.add(out.offset, count * sizeof(T) + spare, out.offset + size + spare, where);
        fences_.skip(spare);
        return out;
    }

    /// Memory that the caller owns, on a cache line and zero, for what reserve_shared() reserves.
    void share(std::span<std::byte> memory) noexcept { shared_ = memory; }

    /// The same with memory of its own, of which pages that nothing is written to take none: for arrays of which a part
    /// is used.
    void share_untouched(std::size_t bytes, std::string_view what, std::string_view remedy);

    /// An offset in the memory that was given to share(): processes that reserve the same in the same order find it at
    /// the same offset. Without such memory the same as reserve(). Throws core::error where there is no room.
    template <class T>
    [[nodiscard]] slice<T> reserve_shared(std::size_t count,
                                          const std::source_location& where = std::source_location::current()) {
        if (shared_.data() == nullptr) return reserve<T>(count, 0, where);
        const slice<T> out{shared_bytes_, count, true};
        take_shared(footprint(core::checked_product("bytes of a shared array", count, sizeof(T))));
        return out;
    }

    /// The calling thread touches every page first. Large arenas ask for large pages: kernels that walk over megabytes
    /// else spend a tenth of their time on looking up where the next page lies. Throws core::error with the number of
    /// bytes where they are not there.
    void allocate(std::string_view what = "the arena, which holds weights, gradients and activations",
                  std::string_view remedy =
                      "use a smaller batch or network, more ranks, or a machine with more memory; see ulimit -v");

    template <class T>
    [[nodiscard]] std::span<T> operator[](slice<T> where) const noexcept {
        return {reinterpret_cast<T*>((where.shared ? shared_.data() : memory_.get()) + where.offset), where.count};
    }

    /// All that is reserved, without gaps.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_ + shared_bytes_; }
    [[nodiscard]] std::size_t gap_bytes() const noexcept { return fences_.bytes(); }

    /// Throws core::error where something was written beside an array. Nothing without LOCKSTEP_CHECK_MEMORY.
    void check() const { fences_.check(memory_.get()); }

    /// Bytes that an array takes.
    [[nodiscard]] static constexpr std::size_t footprint(std::size_t bytes) noexcept {
        return (bytes + simd::alignment - 1) / simd::alignment * simd::alignment;
    }

private:
    [[gnu::cold]] void take_shared(std::size_t bytes);

    [[nodiscard]] std::size_t page() const noexcept {
        return bytes_ >= 2 * core::huge_page ? core::huge_page : simd::alignment;
    }

    std::size_t bytes_ = 0;
    std::size_t shared_bytes_ = 0;
    std::unique_ptr<std::byte[], detail::release> memory_;
    std::unique_ptr<void, detail::release_untouched> untouched_;
    std::span<std::byte> shared_;
    [[no_unique_address]] fences fences_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void arena::take_shared(std::size_t bytes) {
    shared_bytes_ = core::checked_sum("bytes of shared arrays", shared_bytes_, bytes);
    if (shared_bytes_ > shared_.size())
        core::fail(core::text("shared memory of ", shared_.size(), " bytes is to hold ", shared_bytes_),
                   "make the window larger");
}

LOCKSTEP_FUNCTION void arena::share_untouched(std::size_t bytes, std::string_view what, std::string_view remedy) {
    std::size_t room = core::checked_sum("bytes of an arena", footprint(bytes), simd::alignment);
    void* memory = core::with_memory(what, room, remedy, [&] {
        untouched_.reset(std::calloc(room, 1));
        if (untouched_ == nullptr) throw std::bad_alloc{};
        return untouched_.get();
    });
    share({static_cast<std::byte*>(std::align(simd::alignment, footprint(bytes), memory, room)), footprint(bytes)});
}

LOCKSTEP_FUNCTION void arena::allocate(std::string_view what, std::string_view remedy) {
    const std::size_t bytes = bytes_ + fences_.bytes();
    void* const memory = core::with_memory(
        what, bytes, remedy, [&] { return ::operator new[](bytes + simd::alignment, std::align_val_t{page()}); });
    memory_ = std::unique_ptr<std::byte[], detail::release>{static_cast<std::byte*>(memory), detail::release{page()}};
    if (page() > simd::alignment) core::ask_for_huge_pages(memory_.get(), bytes);
    std::memset(memory_.get(), 0, bytes);
    fences_.fill(memory_.get());
}

#endif

}  // namespace lockstep::tensor
