// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which files the observers of this process have begun: a further fit() with new observers goes on with them.
// Tested by tests/unit/report/logs.cpp.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/report/events.hpp"

namespace lockstep::report {

/// The number of a trainer in this process, from 1.
[[nodiscard, gnu::cold]] std::uint64_t next_run() noexcept;

/// That run, resumed so many times, writes it from now on. Written by rank 0 alone, between steps.
[[gnu::cold]] void begin_file(const std::string& path, std::uint64_t run, std::uint64_t resumes);

/// Whether an earlier fit() of the run has written it. What another run has left there is none of its own.
[[nodiscard, gnu::cold]] bool is_of_run(const std::string& path, const run_begin& from);

/// Up to which step a file is kept that the run goes on with; 0: it begins anew. What it has beyond the checkpoint is
/// undone, unless the run has written it since.
[[nodiscard, gnu::cold]] std::uint64_t kept_steps(const std::string& path, const run_begin& from);

#if LOCKSTEP_BODIES

namespace detail {

struct begun_file {
    std::filesystem::path path;
    std::uint64_t run;
    std::uint64_t resumes;
};
/// Trainers of other ranks may be called by other threads.
struct all_begun_files {
    std::mutex one_at_a_time;
    std::vector<begun_file> files;
};
[[nodiscard]] LOCKSTEP_FUNCTION all_begun_files& begun_files() {
    static all_begun_files all;
    return all;
}
/// f(all of them)
template <class F>
auto with_begun_files(const F& f) {
    all_begun_files& all = begun_files();
    const std::lock_guard guard{all.one_at_a_time};
    return f(all.files);
}
[[nodiscard]] LOCKSTEP_FUNCTION std::filesystem::path whole_path(const std::string& path) {
    std::error_code problem;
    // A path of which nothing is there yet would stay relative.
    auto out = std::filesystem::absolute(path, problem);
    if (!problem) out = std::filesystem::weakly_canonical(out, problem);
    return problem ? std::filesystem::path{path} : out;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::uint64_t next_run() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

LOCKSTEP_FUNCTION void begin_file(const std::string& path, std::uint64_t run, std::uint64_t resumes) {
    auto whole = detail::whole_path(path);
    detail::with_begun_files([&](auto& all) {
        std::erase_if(all, [&](const detail::begun_file& one) { return one.path == whole; });
        all.push_back({std::move(whole), run, resumes});
    });
}

LOCKSTEP_FUNCTION bool is_of_run(const std::string& path, const run_begin& from) {
    if (from.is_first) return false;
    const auto whole = detail::whole_path(path);
    return detail::with_begun_files([&](const auto& all) {
        return std::ranges::any_of(
            all, [&](const detail::begun_file& one) { return one.path == whole && one.run == from.run; });
    });
}

LOCKSTEP_FUNCTION std::uint64_t kept_steps(const std::string& path, const run_begin& from) {
    if (from.is_first) return from.resumed_after;
    if (from.resumes == 0) return from.steps;
    const auto whole = detail::whole_path(path);
    const bool is_written = detail::with_begun_files([&](const auto& all) {
        return std::ranges::any_of(all, [&](const detail::begun_file& one) {
            return one.path == whole && one.run == from.run && one.resumes == from.resumes;
        });
    });
    return is_written ? from.steps : std::min(from.steps, from.resumed_after);
}

#endif

}  // namespace lockstep::report
