// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/event_file.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/report/tensorboard.hpp"
#include "unit/data/files.hpp"

// What files hold is read by another program in another language: tests/reports/check_events.

namespace {

namespace fs = std::filesystem;
namespace report = lockstep::report;

struct folder {
    fs::path path;
    explicit folder(const std::string& name)
        : path{fs::temp_directory_path() / ("lockstep-" + name + "-" + std::to_string(::getpid()))} {
        fs::remove_all(path);
    }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;
    ~folder() { fs::remove_all(path); }
    [[nodiscard]] std::ptrdiff_t files() const {
        return fs::exists(path) ? std::distance(fs::directory_iterator{path}, fs::directory_iterator{}) : 0;
    }
};

}  // namespace

TEST_CASE("report/event_file: CRC-32C of RFC 3720", "[report]") {
    CHECK(report::crc32c("") == 0);
    CHECK(report::crc32c("123456789") == 0xe3069283U);
    CHECK(report::crc32c(std::string(32, '\0')) == 0x8a9136aaU);
    CHECK(report::crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("report/event_file: files of a folder are read in the order in which they were begun", "[report]") {
    const folder in{"events-order"};
    std::string last;
    for (int i = 0; i < 12; ++i) {
        report::event_file file;
        file.open(in.path.string(), 0, 1e9);  // all in one second
        const std::string name = fs::path{file.path()}.filename().string();
        CHECK(name.find(".tfevents.") != name.npos);
        CHECK(last < name);
        last = name;
    }
    CHECK(in.files() == 12);
}

TEST_CASE("report/event_file: a folder belongs to one run at a time", "[report]") {
    const folder in{"events-two-runs"};
    report::tensorboard first{(in.path / "deep" / "er").string()}, second{(in.path / "deep" / "er").string()};
    first.on_begin();
    CHECK_THROWS_WITH(second.on_begin(), Catch::Contains("another run writes event files to \"") &&
                                             Catch::Contains("; name a folder of its own for each run"));
    first.on_begin({.steps = 3});  // a further fit()
    { const report::tensorboard ended = std::move(first); }
    CHECK_NOTHROW(second.on_begin());
}

TEST_CASE("report/event_file: a run goes on after a full disk, with a new file", "[report]") {
    const folder in{"events-after-full"};
    report::tensorboard events{in.path.string()};
    events.on_begin();
    events.on_step({.step = 1});
    {
        const lockstep::test::limited full{1};
        CHECK_THROWS(events.on_step({.step = 2}));
    }
    CHECK_NOTHROW(events.on_begin({.steps = 1}));
    CHECK(in.files() == 2);
    events.on_step({.step = 2});
    CHECK_NOTHROW(events.on_end({}));
    CHECK(fs::file_size(events.path()) > 0);
}

TEST_CASE("report/event_file: folders that cannot be used are errors before the first step", "[report]") {
    const folder in{"events-refused"};
    fs::create_directory(in.path);
    std::ofstream{in.path / "file"} << "no folder";
    for (const std::string& path : {(in.path / "file").string(), (in.path / "file" / "below").string(),
                                    std::string{"/proc/no/folder"}, std::string{"/dev/full"}})
        CHECK_THROWS_WITH(report::tensorboard{path}.on_begin(),
                          Catch::Contains(path) && Catch::Contains("; name a folder"));
    CHECK_THROWS_WITH(report::tensorboard{""}.on_begin(), Catch::Contains("have no folder; name one"));
    CHECK_THROWS_WITH(report::tensorboard(in.path.string(), 0).on_begin(), Catch::Contains("0th step"));
    // What is in the folder already may be anything.
    std::ofstream{in.path / "events.out.tfevents.99999999999999999999.x"} << "none";
    std::ofstream{in.path / "events.out.tfevents.x"} << "none";
    fs::create_symlink("nowhere", in.path / "events.out.tfevents.1.x");
    fs::create_directory(in.path / "events.out.tfevents.2.x");
    CHECK_NOTHROW(report::tensorboard{in.path.string()}.on_begin());
}

TEST_CASE("report/event_file: entries of every n-th step", "[report]") {
    const folder in{"events-every"};
    report::tensorboard every{(in.path / "1").string()}, tenth{(in.path / "10").string(), 10};
    const auto size = [](const report::tensorboard& of) { return fs::file_size(of.path()); };
    for (auto* to : {&every, &tenth}) to->on_begin();
    const auto empty = size(every);
    CHECK(size(tenth) == empty);
    for (std::uint64_t step = 1; step <= 20; ++step)
        for (auto* to : {&every, &tenth}) to->on_step({.step = step, .samples = 8, .loss = 1, .seconds = 1e-3});
    // All of it is there before the end.
    CHECK(size(every) - empty == 10 * (size(tenth) - empty));
}

TEST_CASE("report/event_file: a folder that cannot be made is an error with the reason", "[report]") {
    const folder in{"events-no-folder"};
    fs::create_directories(in.path);
    std::ofstream{in.path / "file"} << "text";
    report::event_file to;
    CHECK_THROWS_WITH(
        to.open((in.path / "file" / "runs").string(), 0, 1),
        Catch::Contains("/file/runs\" for event files: Not a directory; name a folder that may be written"));
}
