// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/saving/disk.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>

#include "unit/data/files.hpp"

namespace files = std::filesystem;
using lockstep::saving::remove_checkpoint;
using lockstep::test::contents;
using lockstep::test::directory;

TEST_CASE("saving/disk: of a checkpoint goes what is its own", "[saving]") {
    const directory here;
    const auto make = [&](const std::string& name) {
        files::create_directory(here / name);
        here.write(name + "/state.safetensors", "x");
        here.write(name + "/manifest.json", "x");
    };
    make("step-1");
    remove_checkpoint(here / "step-1");
    CHECK_FALSE(files::exists(here / "step-1"));
    // With a file of somebody else it is no checkpoint any more, and stays.
    make("step-2");
    here.write("step-2/notes.txt", "mine");
    remove_checkpoint(here / "step-2");
    CHECK(contents(here / "step-2/notes.txt") == "mine");
    CHECK_FALSE(files::exists(here / "step-2/manifest.json"));
    CHECK_FALSE(files::exists(here / "step-2/state.safetensors"));
    // One that was moved elsewhere stays there.
    make("archived");
    ::symlink("archived", (here / "step-3").c_str());
    remove_checkpoint(here / "step-3");
    CHECK_FALSE(files::is_symlink(here / "step-3"));
    CHECK(contents(here / "archived/state.safetensors") == "x");
    CHECK(contents(here / "archived/manifest.json") == "x");
    here.write("step-4", "a file");
    remove_checkpoint(here / "step-4");
    CHECK(contents(here / "step-4") == "a file");
    remove_checkpoint(here / "none");
}

TEST_CASE("saving/disk: a folder is that of one process as long as its run goes on", "[saving]") {
    using lockstep::saving::run_lock;
    const directory here;
    const std::string folder = here / "a", path = folder + "/run.lock";
    files::create_directory(folder);
    // Another process, which tries to lock the file, and has it until it is let go. Whether it got it.
    int ends[2];
    const auto other = [&](bool stays) {
        REQUIRE(::pipe(ends) == 0);
        const pid_t child = ::fork();
        if (child == 0) {
            const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
            const char got = ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
            if (::write(ends[1], &got, 1) == 1 && stays) ::pause();
            ::_exit(0);
        }
        char got = 0;
        REQUIRE(::read(ends[0], &got, 1) == 1);
        for (const int end : ends) ::close(end);
        return std::pair{got == 'y', child};
    };
    const auto end = [](pid_t child) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    };
    {
        run_lock first{folder};
        run_lock second{folder};  // of the same process
        first = {};
        const auto [got, child] = other(false);
        end(child);
        CHECK_FALSE(got);
        second = {};
    }
    const auto [got, child] = other(true);
    CHECK(got);
    CHECK_THROWS_WITH(run_lock{folder}, "lockstep: another run that is under way has its checkpoints in " + folder +
                                            "; name a folder for each run, or end the other one first");
    end(child);
    CHECK_NOTHROW(run_lock{folder});
}
