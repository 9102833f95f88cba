// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory in pages of 2 MiB, where the system has them: the first write to each page of 4 KiB takes about a microsecond,
// and on virtual machines several.

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>

namespace lockstep::core {

inline constexpr std::size_t huge_page = std::size_t{1} << 21U;

/// Asks for such pages for as much of this memory as fills them, before it is written for the first time. A hint:
/// nothing else changes.
inline void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory) % huge_page;
    if (bytes < before + huge_page) return;
    (void)::madvise(static_cast<std::byte*>(memory) + before, (bytes - before) / huge_page * huge_page, MADV_HUGEPAGE);
#endif
}

}  // namespace lockstep::core
