// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Small files in a directory that lives as long as a test, and the text of an error.

#include <sys/resource.h>

#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::test {

class directory {
public:
    directory() {
        std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + pattern);
        path_ = pattern;
    }
    ~directory() { std::filesystem::remove_all(path_); }
    directory(const directory&) = delete;
    directory& operator=(const directory&) = delete;

    [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream file{path_ / name, std::ios::binary};
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        if (!file.flush()) throw std::runtime_error("cannot write " + name);
        return *this / name;
    }
    std::string write_packed(const std::string& name, const std::string& bytes) const {
        const gzFile file = gzopen((*this / name).c_str(), "wb");
        const bool written =
            gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size());
        if (gzclose(file) != Z_OK || !written) throw std::runtime_error("cannot write " + name);
        return *this / name;
    }

private:
    std::filesystem::path path_;
};

/// The bytes of a file as it lies there.
[[nodiscard]] inline std::string contents(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// What the call throws as core::error; empty when it throws nothing.
template <class F>
[[nodiscard]] std::string error_of(F&& f) {
    try {
        f();
    } catch (const core::error& error) {
        return error.what();
    }
    return {};
}

/// An IDX file: the magic number, the extents, the bytes.
[[nodiscard]] inline std::string idx_bytes(std::uint32_t magic, const std::vector<std::uint32_t>& extents,
                                           const std::string& content) {
    std::string out;
    const auto put = [&](std::uint32_t value) {
        for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 255);
    };
    put(magic);
    for (const std::uint32_t extent : extents) put(extent);
    return out + content;
}

/// The limit of file sizes, as long as it lives.
struct limited {
    rlimit before{};
    explicit limited(rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before);
        const rlimit now{bytes, before.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &now);
    }
    limited(const limited&) = delete;
    limited& operator=(const limited&) = delete;
    ~limited() { ::setrlimit(RLIMIT_FSIZE, &before); }
};

}  // namespace lockstep::test
