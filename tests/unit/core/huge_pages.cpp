// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace core = lockstep::core;

namespace {

/// What the system says of the memory at this address; nothing where it does not know huge pages.
std::string flags_of(const std::byte* at) {
    if (!std::ifstream{"/sys/kernel/mm/transparent_hugepage/enabled"}.is_open()) return {};
    std::ifstream in{"/proc/self/smaps"};
    bool is_here = false;
    for (std::string line; std::getline(in, line);) {
        unsigned long long begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
            const auto address = reinterpret_cast<std::uintptr_t>(at);
            is_here = begin <= address && address < end;
        } else if (is_here && line.starts_with("VmFlags:")) {
            return line;
        }
    }
    return {};
}

}  // namespace

TEST_CASE("huge pages are asked for within the memory, and nowhere else", "[core]") {
    constexpr std::size_t page = core::huge_page;
    // From the system, as an allocator might ask for them by itself.
    void* const all = ::mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all != MAP_FAILED);
    std::byte* const first =
        static_cast<std::byte*>(all) + (page - reinterpret_cast<std::uintptr_t>(all) % page) % page;
    // Pages 1 and 2 alone lie in it whole.
    core::ask_for_huge_pages(first + 1, 3 * page);
    if (!flags_of(first).empty()) {
        const auto are_asked_for = [](const std::byte* at) { return flags_of(at).find(" hg") != std::string::npos; };
        CHECK(are_asked_for(first + page));
        CHECK(are_asked_for(first + 3 * page - 1));
        CHECK_FALSE(are_asked_for(first));
        CHECK_FALSE(are_asked_for(first + 3 * page));
    }
    // None fits.
    core::ask_for_huge_pages(first + 4 * page + 1, 2 * page - 2);
    core::ask_for_huge_pages(first + 4 * page, page - 1);
    core::ask_for_huge_pages(nullptr, 0);
    std::fill_n(first, 7 * page, std::byte{7});
    CHECK(std::all_of(first, first + 7 * page, [](std::byte one) { return one == std::byte{7}; }));
    CHECK(::munmap(all, 8 * page) == 0);
}
