// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/replacement.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "unit/data/files.hpp"

namespace core = lockstep::core;
using Catch::Matchers::Contains;
using lockstep::test::contents;
using lockstep::test::directory;
using lockstep::test::error_of;

namespace {

void write(const std::string& path, const std::string& text, bool on_disk = false) {
    core::replacement to{path};
    core::output_file file;
    file.open(to.writing());
    file.write(text);
    file.close();
    on_disk ? to.commit_on_disk() : to.commit();
}

std::size_t files_in(const std::string& folder) {
    std::size_t out = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator{folder}) ++out;
    return out;
}

}  // namespace

TEST_CASE("core/replacement: the old file or the new one, with the permissions of the old one", "[core]") {
    const directory here;
    for (const bool on_disk : {false, true}) {
        const std::string path = here.write("a", "old"), fresh = here / ("new" + std::to_string(on_disk));
        ::chmod(path.c_str(), 0600);
        {
            const core::replacement given_up{path};
            core::output_file file;
            file.open(given_up.writing());
            file.write("half");
            CHECK(contents(path) == "old");
        }
        write(path, "whole", on_disk);
        CHECK(contents(path) == "whole");
        struct stat about {};
        REQUIRE(::stat(path.c_str(), &about) == 0);
        CHECK((about.st_mode & 07777) == 0600);
        write(fresh, "text", on_disk);
        CHECK(contents(fresh) == "text");
        std::filesystem::remove(fresh);
        CHECK(files_in(here / "") == 1);
    }
}

TEST_CASE("core/replacement: links stay, and what cannot be replaced is an error", "[core]") {
    const directory here;
    here.write("one", "old");
    ::symlink("one", (here / "link").c_str());
    ::mkfifo((here / "fifo").c_str(), 0600);
    write(here / "link", "new");
    CHECK(contents(here / "one") == "new");
    CHECK(std::filesystem::is_symlink(here / "link"));
    const auto why = [](const std::string& path) { return error_of([&] { write(path, "x"); }); };
    CHECK_THAT(why(""), Contains("has an empty name; name it"));
    CHECK_THAT(why(here / "fifo"), Contains("it is no regular file; name a file"));
    CHECK_THAT(why("/dev/null"), Contains("cannot write /dev/null: it is no regular file"));
    CHECK_THAT(why(here / "none/a"), Contains("No such file"));
    // What was to be replaced has become a folder meanwhile.
    core::replacement to{here / "late"};
    core::output_file file;
    file.open(to.writing());
    std::filesystem::create_directory(here / "late");
    here.write("late/in", "x");
    CHECK_THAT(error_of([&] { to.commit(); }), Contains("cannot write " + here / "late"));
}

TEST_CASE("core/replacement: of several writers each has a file of its own", "[core]") {
    const directory here;
    const std::string path = here.write("a", std::string(100'000, '0'));
    std::vector<std::thread> writers;
    for (int writer = 1; writer <= 3; ++writer)
        writers.emplace_back([&, text = std::string(100'000, static_cast<char>('0' + writer))] {
            for (int turn = 0; turn < 100; ++turn) write(path, text);
        });
    for (int turn = 0; turn < 300; ++turn) {
        const std::string found = contents(path);
        REQUIRE(found.size() == 100'000);
        REQUIRE(found.find_first_not_of(found.front()) == found.npos);
    }
    for (auto& one : writers) one.join();
    CHECK(files_in(here / "") == 1);
}
