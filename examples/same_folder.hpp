// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string_view>

namespace example {

/// Whether two names of a folder differ at most in slashes at the end.
[[nodiscard]] inline bool is_same_folder(std::string_view one, std::string_view other) {
    const auto name = [](std::string_view path) {
        while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
        return path;
    };
    return name(one) == name(other);
}

}  // namespace example
