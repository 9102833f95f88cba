// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "unit/data/files.hpp"

namespace core = lockstep::core;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using lockstep::test::contents;
using lockstep::test::directory;
using lockstep::test::error_of;
using lockstep::test::limited;

namespace {

std::string same(const std::vector<std::string>& paths) {
    return error_of([&] { core::require_different_outputs(paths); });
}

}  // namespace

TEST_CASE("core/output_file: a file is emptied, and each text is there at once", "[core]") {
    const directory here;
    const std::string path = here.write("log", "what was there before");
    core::output_file file;
    CHECK_FALSE(file.is_open());
    file.open(path);
    CHECK(contents(path).empty());
    file.write("one\n");
    CHECK(contents(path) == "one\n");
    file.write("two\n");
    file.close();
    CHECK_FALSE(file.is_open());
    CHECK(contents(path) == "one\ntwo\n");
}

TEST_CASE("core/output_file: what cannot be opened or written is an error with the reason", "[core]") {
    const directory here;
    const auto opened = [](const std::string& path) { return error_of([&] { core::output_file{}.open(path); }); };
    const std::string remedy = "; check that the directory exists, may be written and has room";
    CHECK(opened(here / "no/file") ==
          "lockstep: cannot write " + here / "no/file" + ": No such file or directory" + remedy);
    CHECK_THAT(opened(here / "."), EndsWith(": Is a directory" + remedy));
    CHECK_THAT(opened(std::string{"a\0b", 3}), Contains(R"(cannot write a\x00b: Invalid argument)"));
    core::output_file full;
    full.open("/dev/full");
    CHECK(error_of([&] { full.write("x"); }) == "lockstep: cannot write /dev/full: No space left on device" + remedy);
    CHECK_FALSE(full.is_open());
}

TEST_CASE("core/output_file: a FIFO without a reader is an error, not a wait; one that lost its reader, too",
          "[core]") {
    const directory here;
    const std::string path = here / "fifo";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    core::output_file file;
    CHECK_THAT(error_of([&] { file.open(path); }), Contains("; start what reads this FIFO first, or name a file"));
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    file.open(path);
    file.write("heard");
    ::close(reader);
    CHECK_THAT(error_of([&] { file.write("lost"); }), Contains("cannot write " + path + ": Broken pipe"));
}

TEST_CASE("core/output_file: beyond the limit of file sizes is an error, not the end of the process", "[core]") {
    const directory here;
    core::output_file file;
    file.open(here / "log");
    const limited to{10};
    file.write("0123456789");
    CHECK(error_of([&] { file.write("x"); }) ==
          "lockstep: cannot write " + here / "log" +
              ": File too large; raise the limit of file sizes (ulimit -f), or write less");
    // The signal was taken away, and is as before.
    sigset_t pending, mask;
    ::sigpending(&pending);
    CHECK(::sigismember(&pending, SIGXFSZ) == 0);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    CHECK(::sigismember(&mask, SIGXFSZ) == 0);
    struct sigaction now {};
    ::sigaction(SIGXFSZ, nullptr, &now);
    CHECK(now.sa_handler == SIG_DFL);
}

TEST_CASE("core/output_file: a program may ignore the signal as a whole", "[core]") {
    struct sigaction now {};
    {
        const core::file_size_limit_is_an_error here;
        ::sigaction(SIGXFSZ, nullptr, &now);
        CHECK(now.sa_handler == SIG_IGN);
    }
    ::sigaction(SIGXFSZ, nullptr, &now);
    CHECK(now.sa_handler == SIG_DFL);
}

TEST_CASE("core/output_file: one file has one writer", "[core]") {
    const directory here;
    core::output_file first, second;
    first.open(here / "log");
    first.write("first");
    std::filesystem::create_hard_link(here / "log", here / "link");
    CHECK_THAT(error_of([&] { second.open(here / "link"); }),
               Contains("link\" is named twice, and is written; name a file of its own for each"));
    CHECK(contents(here / "log") == "first");
    core::output_file third{std::move(first)};
    CHECK_THAT(error_of([&] { second.open(here / "log"); }), Contains("is named twice, and is written"));
    third.close();
    second.open(here / "log");
    core::output_file null, again;
    null.open("/dev/null");
    again.open("/dev/null");
}

TEST_CASE("core/output_file: a file that another program writes is left as it is", "[core]") {
    const directory here;
    const std::string path = here.write("log", "its lines");
    // A lock belongs to who has opened the file, so that one of this process serves as one of another.
    const int other = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(other >= 0);
    REQUIRE(::flock(other, LOCK_EX | LOCK_NB) == 0);
    core::output_file file;
    CHECK(error_of([&] { file.open(path); }) ==
          "lockstep: another program is writing \"" + path + "\"; name a file of its own for each run");
    CHECK_FALSE(file.is_open());
    CHECK(contents(path) == "its lines");
    ::close(other);
    file.open(path);
    CHECK(contents(path).empty());
    // A child that has the file open, too, does not keep it.
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    file.close();
    CHECK(error_of([&] { file.open(path); }).empty());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

TEST_CASE("core/output_file: paths of one file are found before anything is opened", "[core]") {
    const directory here;
    std::filesystem::create_directory(here / "runs");
    std::filesystem::create_directory_symlink(here / "runs", here / "also");
    ::symlink("runs/new", (here / "dangling").c_str());
    ::symlink("loop", (here / "loop").c_str());
    const std::string old = here.write("old", "kept");
    std::filesystem::create_hard_link(old, here / "hard");
    ::symlink(old.c_str(), (here / "soft").c_str());
    const std::string remedy = "; name a file of its own for each: one would overwrite the other";

    CHECK(same({}).empty());
    CHECK(same({"", "", "/dev/null", "/dev/null", here / "new", here / "runs/new", old}).empty());
    CHECK(same({here / "loop", here / "none/a", here / "none/a"}).empty());  // to open them fails
    CHECK(same({here / "new", old, here / "new"}) ==
          "lockstep: \"" + here / "new" + "\" is named twice, and is written" + remedy);
    for (const auto& [a, b] : {std::pair{"old", "hard"},
                               {"old", "soft"},
                               {"hard", "soft"},
                               {"old", "runs/../old"},
                               {"new", "./runs//..//new"},
                               {"runs/new", "also/new"},
                               {"runs/new", "dangling"},
                               {"also/new", "dangling"}})
        CHECK(same({here / "other", here / a, here / b}) == "lockstep: \"" + here / a + "\" and \"" + here / b +
                                                                "\" are one file, named twice, and it is written" +
                                                                remedy);
    CHECK(contents(old) == "kept");
    CHECK_FALSE(std::filesystem::exists(here / "new"));
}

TEST_CASE("core/output_file: what cannot be written at the end of a run is known at its begin", "[core]") {
    const directory here;
    std::filesystem::create_directory(here / "folder");
    ::symlink("new", (here / "dangling").c_str());
    const std::string old = here.write("old", "kept");
    const auto why = [](const std::string& path) { return error_of([&] { core::require_output(path); }); };
    for (const std::string& path :
         {std::string{}, std::string{"/dev/null"}, std::string{"of_this_folder"}, old, here / "new", here / "dangling"})
        CHECK(why(path).empty());
    CHECK(contents(old) == "kept");
    CHECK_FALSE(std::filesystem::exists(here / "new"));
    const std::string begin = "lockstep: cannot write ";
    CHECK_THAT(why(here / "folder"), StartsWith(begin + here / "folder" + ": Is a directory; "));
    CHECK_THAT(why(here / "none/a"), StartsWith(begin + here / "none/a" + ": No such file or directory; "));
    CHECK_THAT(why(old + "/a"), StartsWith(begin + old + "/a: Not a directory; "));
}

TEST_CASE("core/output_file: a file that is replaced is the one that links lead to, and no device", "[core]") {
    const directory here;
    const std::string old = here.write("old", "kept");
    ::symlink("old", (here / "link").c_str());
    ::symlink("new", (here / "dangling").c_str());
    ::mkfifo((here / "fifo").c_str(), 0600);
    CHECK(core::replaced_output(here / "new") == here / "new");
    CHECK(core::replaced_output(here / "link") == std::filesystem::canonical(old).string());
    const auto why = [](const std::string& path) { return error_of([&] { (void)core::replaced_output(path); }); };
    CHECK_THAT(why(here / "dangling"), Contains("dangling, a link that leads nowhere: No such file or directory; "));
    CHECK_THAT(why("/dev/null"), Contains("cannot write /dev/null: it is no regular file; name a file"));
    CHECK_THAT(why(here / "fifo"), Contains("it is no regular file; name a file"));
    CHECK_THAT(why(here / ""), Contains("it is a directory; name a file"));
    CHECK_THAT(why(here / "none/a"), StartsWith("lockstep: cannot write " + here / "none/a" + ": No such file"));
    // What could not be saved there is refused before.
    CHECK(why("") == "lockstep: a file that is to be written has an empty name; name it");
    CHECK_THAT(why(here / std::string("old\0other", 9)), Contains("old\0other\": its name has a NUL in it; name the"));
    CHECK(why(here / std::string(238, 'n')).empty());
    CHECK_THAT(why(here / std::string(239, 'n')), Contains("with a name of 239 bytes: it gets 17 more while it is"));
    CHECK(contents(old) == "kept");
}
