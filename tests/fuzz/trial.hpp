// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One input of one reader: files to read it from, and what ends the process.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "readers.hpp"

namespace lockstep::fuzz {

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;
/// The oracle looks at no more of a content; a reader may accept what is longer.
inline constexpr std::size_t oracle_limit = 4 * mebibyte;

/// Files in a folder of this process, in memory where there is room for it.
class scratch {
public:
    static const scratch& here() {
        static const scratch one;
        return one;
    }
    std::string write(const std::string& name, std::string_view bytes) const {
        const std::string path = folder_ + "/" + name;
        const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const bool written =
            file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
        if (file >= 0) ::close(file);
        if (!written) {
            std::fprintf(stderr, "fuzz: cannot write %s\n", path.c_str());
            std::exit(2);
        }
        return path;
    }
    [[nodiscard]] const std::string& folder() const { return folder_; }
    void remove() const {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

private:
    scratch() {
        for (const char* const above : {"/dev/shm", "/tmp"}) {
            folder_ = std::string{above} + "/lockstep-fuzz-XXXXXX";
            if (::mkdtemp(folder_.data()) != nullptr) return;
        }
        std::fprintf(stderr, "fuzz: no folder for files\n");
        std::exit(2);
    }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch() { remove(); }
    std::string folder_;
};

/// One input of one reader. A fuzzer sees the end of the process and keeps the input; for people it is in a file.
struct trial {
    std::string_view name;
    std::span<const std::byte> input;

    [[noreturn]] void wrong(const std::string& what) const {
        const std::string file = core::text("fuzz-", name, ".input");
        std::FILE* const out = std::fopen(file.c_str(), "wb");
        for (std::size_t which = 0; which < readers.size() && out != nullptr; ++which)
            if (readers[which].name == name) std::fputc(static_cast<int>(which), out);
        if (out != nullptr && !input.empty()) std::fwrite(input.data(), 1, input.size(), out);
        if (out != nullptr) std::fclose(out);
        scratch::here().remove();
        std::fprintf(stderr, "fuzz: %s: %s; the input is in %s\n", std::string{name}.c_str(), what.c_str(),
                     file.c_str());
        std::abort();
    }

    /// Runs the reader. Empty: it has refused the file.
    template <class F>
    auto run(F&& read, std::size_t holds) const -> std::optional<decltype(read())> {
        std::optional<decltype(read())> out;
        std::string message;
        bool refused = false;
        reset_memory_use();
        try {
            out.emplace(read());
        } catch (const core::error& error) {
            refused = true;
            message = error.what();
        } catch (const std::exception& other) {
            wrong(core::text("it ends with another exception: ", other.what()));
        }
        const memory_use used = memory_used();
        if (used.largest > holds + 16 * mebibyte || used.peak > 2 * holds + 16 * mebibyte)
            wrong(core::text("it takes ", used.largest, " bytes at once and ", used.peak,
                             " in all, for a file that holds ", holds));
        if (refused && (!message.starts_with("lockstep: ") || message.find("; ") == message.npos ||
                        message != core::printable(message)))
            wrong("this is no message for people: " + message);
        return out;
    }

    /// What the oracle says against what the reader did.
    void require(bool accepted, bool valid) const {
        if (accepted != valid) wrong(accepted ? "it accepts a file that is not valid" : "it refuses a valid file");
    }
};

[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::fuzz
