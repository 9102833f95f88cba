// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/saving/list.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "unit/data/files.hpp"

namespace files = std::filesystem;
namespace saving = lockstep::saving;
using lockstep::test::directory;

namespace {

void make(const directory& here, const std::string& name) {
    files::create_directory(here / name);
    here.write(name + "/manifest.json", "x");
}

std::string names(const std::string& folder) {
    std::string out;
    for (const saving::found& one : saving::list(folder)) out += files::path{one.path}.filename().string() + " ";
    return out;
}

/// A user who may not read what has no rights: root is one as long as this lives.
class other_user {
public:
    other_user() : was_{::geteuid()}, is_{was_ != 0 || ::seteuid(65534) == 0} {}
    other_user(const other_user&) = delete;
    other_user& operator=(const other_user&) = delete;
    ~other_user() {
        if (is_) (void)!::seteuid(was_);
    }
    [[nodiscard]] bool is_one() const noexcept { return is_; }

private:
    uid_t was_;
    bool is_;
};

}  // namespace

TEST_CASE("saving/list: the newest checkpoint first, and nothing else", "[saving]") {
    const directory here;
    CHECK(saving::list(here / "none").empty());
    CHECK_FALSE(saving::exists_in(here / "none"));
    for (const char* const name : {"step-2", "step-10", "step-10.2", "step-9.3", "step-x", "step-1.", "writing-1"})
        make(here, name);
    files::create_directory(here / "step-11");  // without a manifest
    here.write("step-12", "a file");
    CHECK(names(here / "") == "step-10.2 step-10 step-9.3 step-2 ");
    CHECK(saving::exists_in(here / ""));
    CHECK(saving::exists_in(here / "step-2"));
    CHECK_NOTHROW(saving::require_earlier(here / "", 10));
    CHECK_THROWS_WITH(saving::require_earlier(here / "", 9),
                      Catch::Contains("step-10.2 is of a later step than this run, which is at step 9; resume from"));
    CHECK_THROWS_WITH(saving::list(here / "step-12"),
                      Catch::Contains("step-12: Not a directory; name a folder, this is a file"));
}

TEST_CASE("saving/list: the newest checkpoint is not passed over where this user may not read it", "[saving]") {
    const directory here;
    for (const char* const name : {"step-2", "step-4", "step-6"}) make(here, name);
    const std::string folder = here / ".";
    const auto allow = [&](const std::string& name, mode_t rights) { ::chmod((here / name).c_str(), rights); };
    allow("", 0755);
    allow("step-2/manifest.json", 0);
    allow("step-4", 0);
    std::string older, newest, closed, manifest;
    bool is_forbidden = false;
    {
        const other_user user;
        is_forbidden = user.is_one();
        if (is_forbidden) older = names(folder);
        using saving::placed_file;
        manifest = lockstep::test::error_of([&] {
            const placed_file from{here / "step-2/manifest.json", placed_file::use::read};
        });
    }
    allow("step-6", 0);
    {
        const other_user user;
        for (const auto look : {+[](const std::string& at) { (void)saving::list(at); },
                                +[](const std::string& at) { (void)saving::exists_in(at); },
                                +[](const std::string& at) { saving::require_earlier(at, 5); }})
            newest += lockstep::test::error_of([&] { look(folder); }) + "\n";
    }
    allow("", 0);
    {
        const other_user user;
        closed = lockstep::test::error_of([&] { (void)saving::list(here / ""); });
    }
    for (const char* const name : {"", "step-4", "step-6"}) allow(name, 0755);
    if (!is_forbidden) {
        WARN("root cannot become another user here: nothing was tested");
        return;
    }
    CHECK(older == "step-6 step-2 ");
    const std::string said =
        "lockstep: " + folder +
        "/step-6 may not be read by this user; let its owner change that (chmod), or name a folder "
        "of this user\n";
    CHECK(newest == said + said + said);
    CHECK(closed == "lockstep: cannot read " + (here / "") + ": Permission denied; name what this user may read");
    CHECK(manifest == "lockstep: cannot open " + (here / "step-2/manifest.json") +
                          ": Permission denied; name what this user may read");
}
