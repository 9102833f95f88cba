// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that others may read while they are written again.
// Tested by tests/unit/report/comparison.cpp.

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/replacement.hpp"

namespace lockstep::report {

/// Writes a file as a whole: readers find the old one or the new one. What is no regular file is written where it is.
/// Throws core::error.
[[gnu::cold]] void write_whole(const std::string& path, std::string_view text);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void write_whole(const std::string& path, std::string_view text) {
    // Through links, so that the file changes and not the link to it.
    const std::string target = core::output_target(path);
    struct stat about {};
    const bool is_there = ::stat(target.c_str(), &about) == 0;
    core::output_file file;
    if (is_there && !S_ISREG(about.st_mode)) {
        file.open(target);
        file.write(text);
        return file.close();
    }
    core::replacement to{path};
    file.open(to.writing());
    file.write(text);
    file.close();
    to.commit();
}

#endif

}  // namespace lockstep::report
