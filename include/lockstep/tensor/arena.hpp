// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One block of memory for everything a trainer owns, sized before the first step and never again.

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

    /// The calling thread touches every page first.
    void allocate() {
        memory_.reset(static_cast<std::byte*>(::operator new[](bytes_ + simd::alignment, std::align_val_t{simd::alignment})));
        std::memset(memory_.get(), 0, bytes_);
    }

    template <class T>
    [[nodiscard]] std::span<T> operator[](slice<T> where) const noexcept {
        return {reinterpret_cast<T*>(memory_.get() + where.offset), where.count};
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    struct release {
        void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{simd::alignment}); }
    };
    std::size_t bytes_ = 0;
    std::unique_ptr<std::byte[], release> memory_;
};

}  // namespace lockstep::tensor
