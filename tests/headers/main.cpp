// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "everything.hpp"

struct facts {
    std::uint64_t hash;
    std::uint64_t (*function)(std::string_view, std::uint64_t) noexcept;
    std::size_t width;
};
facts other_unit();

/// Both units see one function and one instruction set.
int main() {
    const facts second = other_unit();
    std::uint64_t (*const function)(std::string_view, std::uint64_t) noexcept = &lockstep::core::hash;
    const bool same = second.hash == lockstep::core::hash("lockstep", 1) && second.function == function &&
                      second.width == lockstep::simd::width<float>;
    if (!same) std::puts("two translation units of one program differ");
    return same ? 0 : 1;
}
