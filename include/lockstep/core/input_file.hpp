// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file that is read: regular files only, so that no reader waits for a FIFO or reads a device without end.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// Reads from the beginning to the end. Throws core::error for what cannot be opened, what is no regular file, and what
/// cannot be read.
class input_file {
public:
    explicit input_file(std::string path);
    input_file(input_file&& other) noexcept
        : path_{std::move(other.path_)},
          descriptor_{std::exchange(other.descriptor_, -1)},
          size_{other.size_},
          done_{other.done_} {}
    input_file(const input_file&) = delete;
    input_file& operator=(const input_file&) = delete;
    input_file& operator=(input_file&&) = delete;
    ~input_file() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Bytes, as the system said when it was opened.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint64_t position() const noexcept { return done_; }
    /// Open as long as this lives: for maps of the file.
    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

    /// Fills `to`; fewer bytes than that only at the end of the file.
    [[nodiscard, gnu::cold]] std::size_t read(std::span<std::byte> to);

private:
    std::string path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
    std::uint64_t done_ = 0;
};

/// Empty when the file can be read, otherwise why not: "No such file or directory", or "it is a FIFO, no regular file".
[[nodiscard, gnu::cold]] std::string why_unreadable(const std::string& path);

/// The whole of a small file, such as a table that people write. Throws core::error also where it is longer than `most`
/// bytes; `what` names it in messages.
[[nodiscard, gnu::cold]] std::string read_text(const std::string& path, std::string_view what, std::size_t most,
                                               std::string_view remedy);

#if LOCKSTEP_BODIES

namespace detail {

/// What is wrong with a file of this kind; empty for a regular one.
[[nodiscard]] LOCKSTEP_FUNCTION std::string_view kind_problem(mode_t mode) noexcept {
    return S_ISREG(mode)    ? ""
           : S_ISDIR(mode)  ? "it is a directory, no regular file"
           : S_ISFIFO(mode) ? "it is a FIFO, no regular file"
           : S_ISSOCK(mode) ? "it is a socket, no regular file"
                            : "it is a device, no regular file";
}

/// Opens a regular file: a descriptor, or -1 and why not.
[[nodiscard]] LOCKSTEP_FUNCTION int open_regular(const std::string& path, struct stat& about, std::string& why) {
    int out = -1;
    // To open a FIFO waits for a writer, and to open a device may already do something: what it is comes first.
    bool found = ::stat(path.c_str(), &about) == 0 && path.find('\0') == path.npos;
    if (found && kind_problem(about.st_mode).empty()) {
        out = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        found = out >= 0 && ::fstat(out, &about) == 0;
    }
    if (!found)
        why = path.find('\0') == path.npos ? std::generic_category().message(errno) : "its name has a NUL in it";
    else
        why = kind_problem(about.st_mode);
    if (!why.empty() && out >= 0) ::close(std::exchange(out, -1));
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION input_file::input_file(std::string path) : path_{std::move(path)} {
    struct stat about {};
    std::string why;
    descriptor_ = detail::open_regular(path_, about, why);
    if (!why.empty())
        fail(
            text("cannot open \"", path_, "\": ", why),
            why.find("regular") == why.npos
                ? "check the path and its permissions; relative paths start at the working directory of the process"
                : "pass a file on a disk; what comes through a pipe or from a device has to be stored in a file first");
    size_ = static_cast<std::uint64_t>(about.st_size);
}

LOCKSTEP_FUNCTION std::size_t input_file::read(std::span<std::byte> to) {
    std::size_t out = 0;
    while (out < to.size()) {
        const ssize_t got = ::read(descriptor_, to.data() + out, to.size() - out);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            fail(text("reading \"", path_, "\" failed after ", done_,
                      " bytes: ", std::generic_category().message(errno)),
                 "check that it is a file on a disk that works");
        out += static_cast<std::size_t>(got);
        done_ += static_cast<std::uint64_t>(got);
    }
    return out;
}

LOCKSTEP_FUNCTION std::string why_unreadable(const std::string& path) {
    struct stat about {};
    std::string why;
    if (const int descriptor = detail::open_regular(path, about, why); descriptor >= 0) ::close(descriptor);
    return why;
}

LOCKSTEP_FUNCTION std::string read_text(const std::string& path, std::string_view what, std::size_t most,
                                        std::string_view remedy) {
    if (const std::string why = why_unreadable(path); !why.empty())
        fail(text(what, " ", path, " cannot be read: ", why), remedy);
    input_file file{path};
    const auto too_long = [&](auto size) {
        fail(text(what, " ", path, " has ", size, " bytes, the most are ", most),
             "name the right file, or shorten this one");
    };
    if (file.size() > most) too_long(file.size());
    std::string out;
    std::byte part[4096];
    for (std::size_t got = 0; (got = file.read(part)) > 0;) {
        out.append(reinterpret_cast<const char*>(part), got);
        if (out.size() > most) too_long(text("more than ", most));  // it grows, or does not tell its size
    }
    return out;
}

#endif

}  // namespace lockstep::core
