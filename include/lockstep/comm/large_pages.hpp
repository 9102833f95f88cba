// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Large pages for memory that processes share, where Linux can give them: a second view of the memory at an address that suits them.

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>

#include <cstdio>

#include "lockstep/core/compiled.hpp"
#endif

namespace lockstep::comm {

/// A second view of shared memory that this process has already mapped, which lasts longer than the first. Files in /dev/shm have pages of
/// 4 KiB, and loops over many megabytes then spend most of their time on looking them up; MADV_COLLAPSE (Linux 6.1) makes large ones of
/// them, if address and place in the file fit. Where there can be no second view, or for 0 bytes, data() is the memory as it was.
class large_page_view {
public:
    static constexpr std::size_t large_page = std::size_t{1} << 21U;

    [[gnu::cold]] large_page_view(std::byte* memory, [[maybe_unused]] std::size_t bytes) noexcept;
    large_page_view(const large_page_view&) = delete;
    large_page_view(large_page_view&& other) noexcept
        : data_{other.data_}, bytes_{other.bytes_}, reserved_{other.reserved_}, space_{other.space_} {
        other.reserved_ = nullptr;
    }
    large_page_view& operator=(const large_page_view&) = delete;
    ~large_page_view() {
#if defined(__linux__)
        if (reserved_ != nullptr) (void)::munmap(reserved_, space_);
#endif
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    /// Whether data() is a view of its own.
    [[nodiscard]] bool separate() const noexcept { return reserved_ != nullptr; }

    /// Asks for large pages: once by the process that has touched the memory, then by all others.
    [[gnu::cold]] void collapse() const noexcept {
#if defined(__linux__)
        if (reserved_ == nullptr || bytes_ < 4 * large_page) return;
        const std::size_t skip = (large_page - reinterpret_cast<std::uintptr_t>(data_) % large_page) % large_page;
        constexpr int madv_collapse = 25;  // not in the headers of older C libraries
        (void)::madvise(data_ + skip, (bytes_ - skip) / large_page * large_page, madv_collapse);
#endif
    }

private:
    static constexpr std::size_t small_page = 4096;

#if defined(__linux__)
    /// Where in its file the memory lies; false if it is no part of one mapping of a file.
    [[gnu::cold]] static bool find(std::uintptr_t address, std::size_t bytes, std::size_t& place) noexcept;
#endif

    std::byte* data_;
    std::size_t bytes_ = 0;
    void* reserved_ = nullptr;
    std::size_t space_ = 0;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION large_page_view::large_page_view(std::byte* memory, [[maybe_unused]] std::size_t bytes) noexcept : data_{memory} {
#if defined(__linux__) && defined(MREMAP_FIXED)
    if (bytes == 0) return;
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    std::size_t place = 0;
    if (!find(address, bytes, place)) return;
    // Whole small pages around the array, at an address with the same remainder as their place in the file.
    const std::size_t before = address % small_page;
    const std::size_t length = (before + bytes + small_page - 1) / small_page * small_page;
    const std::size_t space = length + 2 * large_page;
    void* const reserved = ::mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return;
    const auto first = reinterpret_cast<std::uintptr_t>(reserved);
    const std::size_t wanted = (place - before) % large_page;
    const std::size_t skip = (wanted + large_page - first % large_page) % large_page;
    std::byte* const at = static_cast<std::byte*>(reserved) + skip;
    // An old length of 0 makes a second view of shared memory.
    if (::mremap(memory - before, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
        (void)::munmap(reserved, space);
        return;
    }
    reserved_ = reserved;
    space_ = space;
    data_ = at + before;
    bytes_ = bytes;
#endif
}

LOCKSTEP_FUNCTION bool large_page_view::find(std::uintptr_t address, std::size_t bytes, std::size_t& place) noexcept {
    std::FILE* const maps = std::fopen("/proc/self/maps", "r");
    if (maps == nullptr) return false;
    char line[512];
    bool found = false;
    while (!found && std::fgets(line, sizeof line, maps) != nullptr) {
        unsigned long first = 0, last = 0, offset = 0;
        char rights[8] = {};
        if (std::sscanf(line, "%lx-%lx %7s %lx", &first, &last, rights, &offset) != 4) continue;
        if (first <= address && address + bytes <= last && rights[3] == 's') {
            place = offset + (address - first);
            found = true;
        }
    }
    std::fclose(maps);
    return found;
}

#endif

}  // namespace lockstep::comm
