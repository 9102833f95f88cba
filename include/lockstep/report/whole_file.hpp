// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that others may read while they are written again.
// Tested by tests/unit/report/comparison.cpp.

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"

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
    const std::string writing = core::text(target, ".", static_cast<int>(::getpid()), ".writing");
    try {
        file.open(writing);
        file.write(text);
        file.close();
        if (is_there) (void)::chmod(writing.c_str(), about.st_mode & 07777);
        if (std::rename(writing.c_str(), target.c_str()) != 0)
            core::fail(core::text("cannot write ", path, ": ", std::generic_category().message(errno)),
                       "check that the directory exists, may be written and has room");
    } catch (...) {
        std::remove(writing.c_str());
        throw;
    }
}

#endif

}  // namespace lockstep::report
