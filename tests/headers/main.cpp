// SPDX-License-Identifier: BSD-3-Clause
#include "other_unit.hpp"

#include <cstdio>

#include "everything.hpp"

/// Both units see one function and one instruction set.
int main() {
    const facts second = other_unit();
    std::uint64_t (*const function)(std::string_view, std::uint64_t) noexcept = &lockstep::core::hash;
    const bool same = second.hash == lockstep::core::hash("lockstep", 1) && second.function == function &&
                      second.width == lockstep::simd::width<float>;
    if (!same) std::puts("two translation units of one program differ");
    return same ? 0 : 1;
}
