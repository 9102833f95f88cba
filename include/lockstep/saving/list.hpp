// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which checkpoints are in a folder.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/saving/disk.hpp"

namespace lockstep::saving {

/// A checkpoint in a folder: step-N, or step-N.V where an earlier one of the step was there.
struct found {
    std::string path;
    std::uint64_t step = 0, version = 0;
};

/// All that are complete, the newest first. Not collective. Throws core::error where the folder cannot be read, or the
/// newest one in it may not be read by this user: an older one is not what the run goes on from.
[[nodiscard, gnu::cold]] std::vector<found> list(const std::string& folder);

/// Whether there is one to resume from, or the folder is one. Not collective.
[[nodiscard, gnu::cold]] inline bool exists_in(const std::string& folder) {
    return exists(folder + "/manifest.json") || !list(folder).empty();
}

/// Throws core::error where the folder has a checkpoint after so many steps: resume() would take that one, and the run
/// that is about to write is another one.
[[gnu::cold]] inline void require_earlier(const std::string& folder, std::uint64_t steps) {
    if (const auto all = list(folder); !all.empty() && all[0].step > steps)
        core::fail(core::text(all[0].path, " is of a later step than this run, which is at step ", steps),
                   "resume from it, delete it, or name a folder for each run");
}

#if LOCKSTEP_BODIES

namespace detail {

/// N of step-N, V of step-N.V; nothing for other names.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::optional<found> parse_name(const std::string& folder,
                                                                           std::string_view name) {
    found out{core::text(folder, "/", name)};
    const std::string_view begin = "step-";
    if (!name.starts_with(begin)) return {};
    name.remove_prefix(begin.size());
    for (std::uint64_t* const number : {&out.step, &out.version}) {
        std::size_t digits = 0;
        for (; digits < name.size() && name[digits] >= '0' && name[digits] <= '9'; ++digits)
            *number = *number * 10 + static_cast<std::uint64_t>(name[digits] - '0');
        if (digits == 0 || digits > 19) return {};
        name.remove_prefix(digits);
        if (name.empty()) return out;
        if (name.front() != '.') return {};
        name.remove_prefix(1);
    }
    return {};
}

}  // namespace detail

LOCKSTEP_FUNCTION std::vector<found> list(const std::string& folder) {
    const auto is_newer = [](const found& a, const found& b) {
        return a.step != b.step ? a.step > b.step : a.version > b.version;
    };
    std::vector<found> out;
    std::optional<found> hidden;  // the newest one
    for (const std::string& name : names_in(folder)) {
        auto one = detail::parse_name(folder, name);
        if (!one) continue;
        const std::string file = one->path + std::string{manifest_name};
        if (is_hidden(file)) {
            if (!hidden || is_newer(*one, *hidden)) hidden = std::move(one);
        } else if (exists(file)) {
            out.push_back(std::move(*one));
        }
    }
    core::sort(out, is_newer);
    if (hidden && (out.empty() || is_newer(*hidden, out[0])))
        core::fail(core::text(hidden->path, " may not be read by this user"),
                   "let its owner change that (chmod), or name a folder of this user");
    return out;
}

#endif

}  // namespace lockstep::saving
