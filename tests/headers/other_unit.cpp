// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string_view>

#include "lockstep/core/hash.hpp"
#include "lockstep/simd/batch.hpp"

struct facts {
    std::uint64_t hash;
    std::uint64_t (*function)(std::string_view, std::uint64_t) noexcept;
    std::size_t width;
};
facts other_unit();

facts other_unit() {
    return {lockstep::core::hash("lockstep", 1), &lockstep::core::hash, lockstep::simd::width<float>};
}
