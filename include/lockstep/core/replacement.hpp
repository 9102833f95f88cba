// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that others may read, or write, while they are written again.

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// What was written to a file, or the names in a folder, is on the disk. Throws core::error, which calls it `named`.
[[gnu::cold]] void flush_to_disk(const std::string& path, const std::string& named, bool is_folder);

/// A file that is written beside its place and then takes it, so readers find the old one or the new one as a whole;
/// of several writers each has a file of its own, and the last one wins. Links are followed, and the new file has the
/// permissions of the old one. What did not take its place is removed.
class replacement {
public:
    /// Throws core::error for an empty path, and as replaced_output() does. Nothing is opened.
    [[gnu::cold]] explicit replacement(const std::string& path);
    replacement(const replacement&) = delete;
    replacement& operator=(const replacement&) = delete;
    ~replacement();

    /// The file to write: PATH.TOKEN.writing, with a random token. A process that is killed leaves it.
    [[nodiscard]] const std::string& writing() const noexcept { return writing_; }
    /// It takes its place. Throws core::error.
    [[gnu::cold]] void commit();
    /// The same, but only when all of it is on the disk; its name is there afterwards.
    [[gnu::cold]] void commit_on_disk();

private:
    std::string path_, target_, writing_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void flush_to_disk(const std::string& path, const std::string& named, bool is_folder) {
    const int open = ::open(path.c_str(), (is_folder ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
    // A folder that may not be read is left to the system.
    if (open < 0 && is_folder && errno == EACCES) return;
    int reason = open < 0 ? errno : 0;
    while (open >= 0 && (reason = ::fsync(open) == 0 ? 0 : errno) == EINTR) {
    }
    if (open >= 0) ::close(open);
    // Some file systems have no such call for folders, and need none.
    if (reason != 0 && reason != EINVAL && reason != ENOTSUP) detail::fail_output(named, reason);
}

LOCKSTEP_FUNCTION replacement::replacement(const std::string& path) : path_{path} {
    if (path.empty()) fail("a file that is to be written has an empty name", "name it");
    target_ = replaced_output(path);
    std::uint64_t token = 0;
    if (::getrandom(&token, sizeof token, 0) != static_cast<ssize_t>(sizeof token))
        fail("the system gives no random bytes", "check /dev/urandom");
    writing_ = text(target_, ".", hexadecimal(token).substr(0, 8), ".writing");
}

LOCKSTEP_FUNCTION replacement::~replacement() {
    if (!writing_.empty()) ::unlink(writing_.c_str());
}

LOCKSTEP_FUNCTION void replacement::commit() {
    struct stat about {};
    if (::stat(target_.c_str(), &about) == 0) (void)::chmod(writing_.c_str(), about.st_mode & 07777);
    if (std::rename(writing_.c_str(), target_.c_str()) != 0) detail::fail_output(path_, errno);
    writing_.clear();
}

LOCKSTEP_FUNCTION void replacement::commit_on_disk() {
    flush_to_disk(writing_, path_, false);
    commit();
    flush_to_disk(folder_of(target_), path_, true);
}

#endif

}  // namespace lockstep::core
