// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a script of this folder by python3, where there is one.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

namespace lockstep::test {

/// What the script prints; nothing where there is no python3, or the script ends with 77 because a module is missing.
/// Throws where the script fails.
[[nodiscard]] inline std::optional<std::string> run_python(const std::string& script, const std::string& arguments) {
    static const bool exists = std::system("python3 -c '' >/dev/null 2>&1") == 0;
    if (!exists) return {};
    const std::string path = (std::filesystem::path{__FILE__}.parent_path() / script).string();
    std::FILE* const out = ::popen(("python3 '" + path + "' " + arguments).c_str(), "r");
    if (out == nullptr) throw std::runtime_error{"cannot run python3"};
    std::string text;
    std::array<char, 4096> part{};
    for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), out)) > 0;) text.append(part.data(), got);
    const int status = ::pclose(out);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return {};
    if (status != 0) throw std::runtime_error{script + " failed: " + text};
    return text;
}

}  // namespace lockstep::test
