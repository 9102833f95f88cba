// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

/// What two translation units of a program must agree on.
struct facts {
    std::uint64_t hash;
    std::uint64_t (*function)(std::string_view, std::uint64_t) noexcept;
    std::size_t width;
};
facts other_unit();
