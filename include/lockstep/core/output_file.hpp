// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that are written: every write is checked, no two outputs share a file, and a full disk or a limit is an error
// with a text.

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/held_signals.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// A file that is emptied and written from its beginning, without a buffer. Throws core::error for what cannot be
/// opened or written, and for a regular file that another output_file of this process has open. A write beyond the
/// limit of file sizes (ulimit -f) or to a pipe that nothing reads is an error like any other: SIGXFSZ and SIGPIPE are
/// held back meanwhile, on this thread only.
class output_file {
public:
    output_file() = default;
    output_file(output_file&& other) noexcept
        : path_{std::move(other.path_)},
          descriptor_{std::exchange(other.descriptor_, -1)},
          same_{std::exchange(other.same_, {})} {}
    output_file& operator=(output_file&&) = delete;
    ~output_file();

    [[gnu::cold]] void open(const std::string& path) { open_after(path, 0); }
    /// The same, but for its first `kept` bytes, after which it goes on.
    [[gnu::cold]] void open_after(const std::string& path, std::uint64_t kept);
    [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
    /// All of it has reached the system.
    [[gnu::cold]] void write(std::string_view text);
    /// Some file systems report only now that something is lost.
    [[gnu::cold]] void close();

    /// A file, whatever it is called; 0, 0: none.
    struct identity {
        std::uint64_t device = 0, number = 0;
        friend bool operator==(const identity&, const identity&) = default;
    };

private:
    /// The file is given up: a later write would leave a gap.
    [[noreturn, gnu::cold]] void fail_with(int reason);
    void release() noexcept;

    std::string path_;
    int descriptor_ = -1;
    identity same_;
};

/// Throws core::error where two of these paths lead to one regular file, also through links and through folders of
/// several names, and for files that do not exist yet. Empty paths and devices are left out. Nothing is opened.
[[gnu::cold]] void require_different_outputs(std::span<const std::string> paths);

/// The folder that a path names a file in, with the slash at its end; "." for a name alone.
[[nodiscard, gnu::cold]] std::string folder_of(const std::string& path);

/// The file that is written through this path: links are followed. Throws core::error for a link that leads nowhere.
[[nodiscard, gnu::cold]] std::string output_target(const std::string& path);

/// What can be found out before a file is written: throws core::error for a folder, and where it may not be made or
/// changed, so that no long run ends without its result. Nothing is opened. An empty path is left out.
[[gnu::cold]] void require_output(const std::string& path);

/// output_target() of a file that is written beside its place and then renamed. Throws core::error also for what is
/// there and no regular file, which it would replace, and where the folder may not be written. Nothing is opened.
[[nodiscard, gnu::cold]] std::string replaced_output(const std::string& path);

/// What was written to standard output has arrived, or core::error.
[[gnu::cold]] void flush_standard_output();

/// As long as it lives, a write beyond the limit of file sizes fails with EFBIG instead of ending the process, unless
/// the program has a handler of its own. For the whole process: for frames of programs.
class file_size_limit_is_an_error {
public:
    [[gnu::cold]] file_size_limit_is_an_error() noexcept {
        ::sigaction(SIGXFSZ, nullptr, &before_);
        if (before_.sa_handler == SIG_DFL) ::signal(SIGXFSZ, SIG_IGN);
    }
    file_size_limit_is_an_error(const file_size_limit_is_an_error&) = delete;
    file_size_limit_is_an_error& operator=(const file_size_limit_is_an_error&) = delete;
    ~file_size_limit_is_an_error() { ::sigaction(SIGXFSZ, &before_, nullptr); }

private:
    struct sigaction before_ {};
};

#if LOCKSTEP_BODIES

namespace detail {

/// The regular files that this process writes.
struct open_outputs {
    std::mutex lock;
    std::vector<output_file::identity> files;

    [[nodiscard]] static open_outputs& all() {
        static open_outputs one;
        return one;
    }
};

[[nodiscard]] LOCKSTEP_FUNCTION std::string output_remedy(int reason) {
    return reason == EFBIG   ? "raise the limit of file sizes (ulimit -f), or write less"
           : reason == ENXIO ? "start what reads this FIFO first, or name a file"
                             : "check that the directory exists, may be written and has room";
}

[[noreturn]] LOCKSTEP_FUNCTION void fail_output(const std::string& path, int reason) {
    fail(text("cannot write ", path, ": ", std::generic_category().message(reason)), output_remedy(reason));
}

/// Throws core::error for the path where its folder may not be written.
LOCKSTEP_FUNCTION void require_folder(const std::string& path, const std::string& folder) {
    if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_output(path, errno);
}

/// Where a path leads: the file, or the folder and the name that it would get there.
struct destination {
    output_file::identity file, folder;
    std::string name;
};

[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION destination destination_of(std::string path) {
    destination out;
    struct stat about {};
    if (::stat(path.c_str(), &about) == 0) {
        if (S_ISREG(about.st_mode)) out.file = {about.st_dev, about.st_ino};
        return out;
    }
    // A link that leads nowhere yet: the file is made where it points. The system follows 40 of them.
    for (int links = 0; links < 40 && ::lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode); ++links) {
        char to[4096];
        const ssize_t size = ::readlink(path.c_str(), to, sizeof to);
        if (size <= 0) break;
        const std::string_view target{to, static_cast<std::size_t>(size)};
        path = target.front() == '/' ? std::string{target} : path.substr(0, path.rfind('/') + 1).append(target);
    }
    const std::string folder = folder_of(path);
    if (::stat(folder.c_str(), &about) != 0) return out;  // to open it will fail, too
    out.folder = {about.st_dev, about.st_ino};
    out.name = path.substr(path.rfind('/') + 1);  // all of it without a slash
    return out;
}

[[noreturn]] LOCKSTEP_FUNCTION void fail_same_output(std::string_view a, std::string_view b) {
    fail(a == b ? text("\"", a, "\" is named twice, and is written")
                : text("\"", a, "\" and \"", b, "\" are one file, named twice, and it is written"),
         "name a file of its own for each: one would overwrite the other");
}

}  // namespace detail

LOCKSTEP_FUNCTION output_file::~output_file() { release(); }

LOCKSTEP_FUNCTION void output_file::release() noexcept {
    // A process that was forked off may hold the file open, and the lock with it.
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_UN), ::close(std::exchange(descriptor_, -1));
    if (same_ == identity{}) return;
    auto& all = detail::open_outputs::all();
    const std::lock_guard guard{all.lock};
    all.files.erase(std::find(all.files.begin(), all.files.end(), std::exchange(same_, {})));
}

LOCKSTEP_FUNCTION void output_file::fail_with(int reason) {
    release();
    detail::fail_output(path_, reason);
}

LOCKSTEP_FUNCTION void output_file::open_after(const std::string& path, std::uint64_t kept) {
    release();
    path_ = path;
    if (path.find('\0') != path.npos) fail_with(EINVAL);
    // Emptied only when it is known to be no other output. A FIFO without a reader is an error, not a wait.
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) fail_with(errno);
    ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK);
    if (!S_ISREG(about.st_mode)) return;
    {
        const identity found{about.st_dev, about.st_ino};
        auto& all = detail::open_outputs::all();
        const std::lock_guard guard{all.lock};
        if (std::find(all.files.begin(), all.files.end(), found) != all.files.end()) {
            release();
            detail::fail_same_output(path, path);
        }
        all.files.push_back(found);
        same_ = found;
    }
    // Where the file system knows no locks nothing is known of other programs.
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        release();
        fail(text("another program is writing \"", path, "\""), "name a file of its own for each run");
    }
    if (::ftruncate(descriptor_, static_cast<off_t>(kept)) != 0 ||
        ::lseek(descriptor_, static_cast<off_t>(kept), SEEK_SET) < 0)
        fail_with(errno);
}

LOCKSTEP_FUNCTION void output_file::write(std::string_view text) {
    const held_signals held;
    while (!text.empty()) {
        const ssize_t done = ::write(descriptor_, text.data(), text.size());
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail_with(errno);
        text.remove_prefix(static_cast<std::size_t>(done));
    }
}

LOCKSTEP_FUNCTION void output_file::close() {
    if (descriptor_ < 0) return;
    ::flock(descriptor_, LOCK_UN);
    const bool well = ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
    const int reason = errno;
    release();
    if (!well) fail_with(reason);
}

LOCKSTEP_FUNCTION void require_different_outputs(std::span<const std::string> paths) {
    std::vector<detail::destination> found;
    for (const std::string& path : paths) {
        found.push_back(path.empty() ? detail::destination{} : detail::destination_of(path));
        const auto& last = found.back();
        for (std::size_t i = 0; i + 1 < found.size(); ++i) {
            const bool one_file = last.file != output_file::identity{} && found[i].file == last.file;
            const bool one_name =
                last.folder != output_file::identity{} && found[i].folder == last.folder && found[i].name == last.name;
            if (one_file || one_name) detail::fail_same_output(paths[i], path);
        }
    }
}

LOCKSTEP_FUNCTION std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? "." : path.substr(0, slash + 1);
}

LOCKSTEP_FUNCTION std::string output_target(const std::string& path) {
    struct stat about {};
    char* const found = ::realpath(path.c_str(), nullptr);
    const int reason = errno;
    if (found == nullptr && ::lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode))
        fail(text("cannot write ", path, ", a link that leads nowhere: ", std::generic_category().message(reason)),
             "remove the link, or make what it points to");
    std::string out = found == nullptr ? path : found;
    std::free(found);
    return out;
}

LOCKSTEP_FUNCTION void require_output(const std::string& path) {
    if (path.empty()) return;
    struct stat about {};
    const bool is_there = ::stat(path.c_str(), &about) == 0;
    // What a link points to that leads nowhere is made when it is opened.
    if (!is_there && ::lstat(path.c_str(), &about) == 0) return;
    if (is_there && S_ISDIR(about.st_mode)) detail::fail_output(path, EISDIR);
    if (!is_there)
        detail::require_folder(path, folder_of(path));
    else if (::access(path.c_str(), W_OK) != 0)
        detail::fail_output(path, errno);
}

LOCKSTEP_FUNCTION std::string replaced_output(const std::string& path) {
    if (path.empty()) fail("a file that is to be written has an empty name", "name it");
    if (path.find('\0') != path.npos)
        fail(text("cannot write \"", path, "\": its name has a NUL in it"), "name the file without it");
    std::string target = output_target(path);
    struct stat about {};
    if (::stat(target.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
        fail(text("cannot write ", path, ": it is ", S_ISDIR(about.st_mode) ? "a directory" : "no regular file"),
             "name a file: a file that is written as a whole would replace what is there");
    detail::require_folder(path, folder_of(target));
    // In a sticky folder a file of another user stays, even where both may be written. So does the root of a mount.
    struct stat folder {};
    if (::stat(target.c_str(), &about) == 0 && ::stat(folder_of(target).c_str(), &folder) == 0) {
        const uid_t user = ::geteuid();
        if ((folder.st_mode & S_ISVTX) != 0 && user != 0 && user != about.st_uid && user != folder.st_uid)
            detail::fail_output(path, EPERM);
#if defined(STATX_ATTR_MOUNT_ROOT)
        struct statx more {};
        if (::statx(AT_FDCWD, target.c_str(), 0, 0, &more) == 0 && (more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
            detail::fail_output(path, EBUSY);
#endif
    }
    // It is written under a longer name first.
    constexpr std::size_t longer = std::string_view{".12345678.writing"}.size();
    if (const std::size_t length = target.size() - (target.rfind('/') + 1); length + longer > NAME_MAX)
        fail(text("cannot write a file with a name of ", length, " bytes: it gets ", longer,
                  " more while it is written, and the system takes ", NAME_MAX),
             "use a shorter name");
    return target;
}

LOCKSTEP_FUNCTION void flush_standard_output() {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    const int reason = errno;
    if (flushed && std::ferror(stdout) == 0) return;
    fail(text("cannot write standard output: ",
              flushed ? std::string{"an earlier write failed"} : std::generic_category().message(reason)),
         "check where it goes: a file needs room, a pipe needs a reader");
}

#endif

}  // namespace lockstep::core
