// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A whole file into memory, plain or compressed by gzip: the only header that includes zlib.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <zlib.h>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::data {

/// Empty when the file can be opened for reading, otherwise why not: "No such file or directory".
[[nodiscard]] inline std::string why_unreadable(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rb"), &std::fclose};
    return file ? std::string{} : std::generic_category().message(errno);
}

/// The file `<prefix><suffix>`, or else `<prefix><suffix>.gz`. Throws core::error with both paths and `remedy` when neither can be opened.
[[nodiscard]] std::string find_packed(const std::string& prefix, std::string_view suffix, const std::string& remedy);

/// The content of a file, unpacked when it begins like gzip (its name does not matter).
/// Throws core::error for a file that is missing, unreadable, cut off or corrupt.
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string find_packed(const std::string& prefix, std::string_view suffix, const std::string& remedy) {
    std::string tried;
    for (const std::string& path : {core::text(prefix, suffix), core::text(prefix, suffix, ".gz")}) {
        const std::string reason = why_unreadable(path);
        if (reason.empty()) return path;
        tried += core::text(tried.empty() ? "" : " and ", "\"", path, "\" (", reason, ")");
    }
    throw core::error{core::text("cannot open ", tried), remedy};
}

LOCKSTEP_FUNCTION std::vector<std::byte> read_file(const std::string& path) {
    constexpr std::size_t longest_read = std::size_t{1} << 30;  // zlib counts in unsigned int

    errno = 0;
    std::unique_ptr<gzFile_s, int (*)(gzFile)> file{gzopen(path.c_str(), "rb"), &gzclose};
    if (!file)
        throw core::error{core::text("cannot open \"", path, "\": ", std::generic_category().message(errno != 0 ? errno : ENOMEM)),
                          "check the path and its permissions; relative paths start at the working directory of the process"};
    gzbuffer(file.get(), 1U << 17);

    std::vector<std::byte> out(std::size_t{1} << 16);
    std::size_t done = 0;
    for (;;) {
        if (done == out.size()) out.resize(2 * out.size());
        const int got = gzread(file.get(), out.data() + done, static_cast<unsigned>(std::min(out.size() - done, longest_read)));
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
    }

    // A stream that breaks off reads like one that ends: only the error state tells them apart.
    int state = Z_OK;
    const std::string reason = gzerror(file.get(), &state);
    if (state == Z_ERRNO)
        throw core::error{core::text("reading \"", path, "\" failed after ", done, " bytes: ", std::generic_category().message(errno)),
                          "check that it is a file on a disk that works"};
    if (state != Z_OK && state != Z_STREAM_END)
        throw core::error{core::text("\"", path, "\" is ", state == Z_BUF_ERROR ? "cut off" : "corrupt", " after ", done,
                                     " unpacked bytes (zlib: ", reason, ")"),
                          "fetch or copy the file again, and test it with gzip -t"};
    out.resize(done);
    return out;
}

#endif

}  // namespace lockstep::data
