// SPDX-License-Identifier: BSD-3-Clause
// operator new and delete that count bytes.
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "readers.hpp"

namespace {

std::atomic<std::size_t> live{0}, at_reset{0}, peak{0}, largest{0};

[[gnu::noinline]] void* take(std::size_t bytes, std::size_t alignment) {
    void* const out = alignment > alignof(std::max_align_t)
                          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                          : std::malloc(bytes > 0 ? bytes : 1);
    if (out == nullptr) throw std::bad_alloc{};
    const std::size_t now = live += malloc_usable_size(out);
    if (now > peak) peak = now;
    if (bytes > largest) largest = bytes;
    return out;
}
[[gnu::noinline]] void release(void* memory) noexcept {
    if (memory != nullptr) live -= malloc_usable_size(memory);
    std::free(memory);
}

}  // namespace

void lockstep::fuzz::reset_memory_use() noexcept {
    at_reset = live.load();
    peak = live.load();
    largest = 0;
}
lockstep::fuzz::memory_use lockstep::fuzz::memory_used() noexcept { return {peak - at_reset, largest}; }

void* operator new(std::size_t bytes) { return take(bytes, 0); }
void* operator new[](std::size_t bytes) { return take(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try { return take(bytes, 0); } catch (...) {
    return nullptr;
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept try { return take(bytes, 0); } catch (...) {
    return nullptr;
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
