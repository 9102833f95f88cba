// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/input_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>

#include "unit/data/files.hpp"

namespace core = lockstep::core;
using Catch::Matchers::Contains;
using lockstep::test::directory;
using lockstep::test::error_of;

TEST_CASE("core/input_file: a file is read in parts of any size", "[core]") {
    const directory here;
    core::input_file file{here.write("ten", "0123456789")};
    CHECK(file.size() == 10);
    std::array<std::byte, 7> part{};
    CHECK(file.read(part) == 7);
    CHECK(part[6] == std::byte{'6'});
    CHECK(file.position() == 7);
    CHECK(file.read(part) == 3);
    CHECK(part[2] == std::byte{'9'});
    CHECK(file.read(part) == 0);
}

TEST_CASE("core/input_file: only regular files are opened", "[core]") {
    const directory here;
    REQUIRE(::mkfifo((here / "fifo").c_str(), 0600) == 0);
    REQUIRE(::symlink((here / "fifo").c_str(), (here / "link").c_str()) == 0);
    REQUIRE(::symlink(here.write("file", "").c_str(), (here / "good").c_str()) == 0);
    CHECK(core::why_unreadable(here / "nowhere") == "No such file or directory");
    CHECK(core::why_unreadable(here / ".") == "it is a directory, no regular file");
    CHECK(core::why_unreadable(here / "link") == "it is a FIFO, no regular file");
    CHECK(core::why_unreadable("/dev/zero") == "it is a device, no regular file");
    CHECK(core::why_unreadable(std::string{"/dev/zero\0x", 11}) == "its name has a NUL in it");
    CHECK(core::why_unreadable(here / "good").empty());
    CHECK_THAT(error_of([&] { core::input_file{here / "link"}; }),
               Contains("link\": it is a FIFO, no regular file; pass a file on a disk"));
}

TEST_CASE("core/input_file: a name with control characters is quoted in a printable form", "[core]") {
    CHECK_THAT(error_of([] { core::input_file{"no\x1b[2J\nlockstep: such\xff"}; }),
               Contains(R"(cannot open "no\x1b[2J\nlockstep: such\xff": No such file or directory; )"));
}

TEST_CASE("core/input_file: a text has a limit", "[core]") {
    const directory here;
    const std::string path = here.write("text", "12345");
    CHECK(core::read_text(path, "the list", 5, "write one") == "12345");
    CHECK(error_of([&] { (void)core::read_text(path, "the list", 4, "write one"); }) ==
          "lockstep: the list " + path + " has 5 bytes, the most are 4; name the right file, or shorten this one");
    CHECK(error_of([&] { (void)core::read_text(here / "none", "the list", 4, "write one"); }) ==
          "lockstep: the list " + here / "none" + " cannot be read: No such file or directory; write one");
    // A file that does not tell its size.
    CHECK_THAT(error_of([] { (void)core::read_text("/proc/cpuinfo", "the list", 4, "write one"); }),
               Contains("has more than 4 bytes"));
}
