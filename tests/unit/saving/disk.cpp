// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/saving/disk.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

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
