// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which files the observers of this process have begun: a further fit() with new observers goes on with them.
// Tested by tests/unit/report/logs.cpp.

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// This process writes it from now on. Written by rank 0 alone, between steps.
[[gnu::cold]] void begin_file(const std::string& path);

/// Whether an earlier fit() of the run has written it. What another process has left there is none of the run.
[[nodiscard, gnu::cold]] bool is_of_run(const std::string& path, const run_begin& from);

#if LOCKSTEP_BODIES

namespace detail {

[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::filesystem::path>& begun_files() {
    static std::vector<std::filesystem::path> all;
    return all;
}
[[nodiscard]] LOCKSTEP_FUNCTION std::filesystem::path whole_path(const std::string& path) {
    std::error_code problem;
    auto out = std::filesystem::weakly_canonical(path, problem);
    return problem ? std::filesystem::path{path} : out;
}

}  // namespace detail

LOCKSTEP_FUNCTION void begin_file(const std::string& path) {
    auto& all = detail::begun_files();
    auto whole = detail::whole_path(path);
    if (std::find(all.begin(), all.end(), whole) == all.end()) all.push_back(std::move(whole));
}

LOCKSTEP_FUNCTION bool is_of_run(const std::string& path, const run_begin& from) {
    const auto& all = detail::begun_files();
    return !from.is_first && std::find(all.begin(), all.end(), detail::whole_path(path)) != all.end();
}

#endif

}  // namespace lockstep::report
