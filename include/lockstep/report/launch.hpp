// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How this process was started, where it runs and what it holds: for logs and pages.
// Tested by tests/unit/report/run_record.cpp.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::report {

/// The name of this machine; "unknown" where it has none.
[[nodiscard, gnu::cold]] std::string host_name();

/// Arguments as a line for a shell, quoted where that is needed.
[[nodiscard, gnu::cold]] std::string shell_line(const std::vector<std::string>& arguments);

/// The line that starts this job again, on the rank that asks: the command of mpirun or mpiexec where one has started
/// this process; otherwise the program with its arguments, and on several ranks `mpirun -n <ranks>` before them. Empty
/// where the system does not say.
[[nodiscard, gnu::cold]] std::string command_line(std::size_t ranks);

/// Bytes of memory of this process: now, and the most that it ever was. 0 where the system does not say.
struct process_memory {
    std::uint64_t resident = 0;
    std::uint64_t peak = 0;
};
[[nodiscard, gnu::cold]] process_memory memory_of_process();

#if LOCKSTEP_BODIES

namespace detail {

/// A file of /proc as it is; empty where there is none.
[[nodiscard]] LOCKSTEP_FUNCTION std::string proc_text(const std::string& path) {
    std::string out;
    if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
        char part[4096];
        for (std::size_t size = 0; (size = std::fread(part, 1, sizeof part, file)) > 0;) out.append(part, size);
        std::fclose(file);
    }
    return out;
}

/// What a process was started with: strings with a zero after each.
[[nodiscard]] LOCKSTEP_FUNCTION std::vector<std::string> arguments_of(std::string_view process) {
    const std::string all = proc_text(core::text("/proc/", process, "/cmdline"));
    std::vector<std::string> out;
    for (std::size_t at = 0; at < all.size(); at += out.back().size() + 1) out.emplace_back(all.c_str() + at);
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "unknown";
}

LOCKSTEP_FUNCTION std::string shell_line(const std::vector<std::string>& arguments) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    std::string out;
    for (const std::string& word : arguments) {
        if (!out.empty()) out += ' ';
        if (!word.empty() && word.find_first_not_of(plain) == word.npos) {
            out += word;
            continue;
        }
        out += '\'';
        for (const char c : word) out += c == '\'' ? std::string{"'\\''"} : std::string{c};
        out += '\'';
    }
    return out;
}

LOCKSTEP_FUNCTION std::string command_line(std::size_t ranks) {
    const auto parent = detail::arguments_of(core::text(static_cast<int>(::getppid())));
    const std::string launcher = parent.empty() ? "" : parent[0].substr(parent[0].rfind('/') + 1);
    for (const std::string_view known : {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"})
        if (launcher == known) return shell_line(parent);
    const std::string own = shell_line(detail::arguments_of("self"));
    const std::string_view starter = launcher.starts_with("slurmstepd") ? "srun" : "mpirun";
    return ranks > 1 && !own.empty() ? core::text(starter, " -n ", ranks, " ", own) : own;
}

LOCKSTEP_FUNCTION process_memory memory_of_process() {
    const std::string all = detail::proc_text("/proc/self/status");
    const auto bytes = [&](std::string_view name) -> std::uint64_t {
        std::size_t at = all.find(name);
        if (at == all.npos) return 0;
        at = all.find_first_of("0123456789", at);
        std::uint64_t out = 0;
        for (; at < all.size() && all[at] >= '0' && all[at] <= '9'; ++at)
            out = 10 * out + static_cast<std::uint64_t>(all[at] - '0');
        return 1024 * out;
    };
    return {.resident = bytes("\nVmRSS:"), .peak = bytes("\nVmHWM:")};
}

#endif

}  // namespace lockstep::report
