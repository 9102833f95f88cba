// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/logs.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/report/observers.hpp"
#include "lockstep/report/timeline.hpp"
#include "unit/data/files.hpp"

namespace {

namespace ls = lockstep;

/// A path of this test's own, without a file.
struct fresh_file {
    std::string path;
    explicit fresh_file(const std::string& name)
        : path{(std::filesystem::temp_directory_path() / ("lockstep-" + name + "-" + std::to_string(::getpid())))
                   .string()} {
        std::filesystem::remove(path);
    }
    fresh_file(const fresh_file&) = delete;
    fresh_file& operator=(const fresh_file&) = delete;
    ~fresh_file() { std::filesystem::remove(path); }
    [[nodiscard]] std::vector<std::string> lines() const {
        std::ifstream file{path};
        std::vector<std::string> out;
        for (std::string line; std::getline(file, line);) out.push_back(line);
        return out;
    }
};

}  // namespace

TEST_CASE("report/logs: a log goes on over several fits; a new one starts anew", "[report]") {
    const fresh_file file{"log-of-two-fits.csv"};
    {
        ls::csv_log log{file.path};
        for (std::size_t fit = 0; fit < 2; ++fit) {
            log.on_begin();
            for (std::size_t step = 1; step <= 3; ++step)
                log.on_step(
                    {.step = 3 * fit + step,
                     .epoch = 2,
                     .samples = 16,
                     .loss = 0.5,
                     .rate = 0.25,
                     .spent = {
                         .communication_hidden = 3, .communication_exposed = 2, .because = {.no_progress = 1.5}}});
        }
    }
    const auto lines = file.lines();
    REQUIRE(lines.size() == 7);
    CHECK(lines[0] ==
          "step,epoch,samples,loss,rate,seconds,samples_per_second,communication_hidden,communication_exposed,last_"
          "bucket,"
          "no_progress,large_bucket,slow_rank");
    for (std::size_t i = 1; i < lines.size(); ++i)
        CHECK(lines[i] ==
              ls::core::text(i, ",2,16,0.5,0.25,0.000000,0.0,3.000000,2.000000,0.000000,1.500000,0.000000,0.000000"));
    ls::csv_log again{file.path};
    again.on_begin();
    CHECK(file.lines().size() == 1);
}

TEST_CASE("report/logs: a run that goes on from a checkpoint goes on with its logs", "[report]") {
    const fresh_file csv{"log-resumed.csv"}, json{"log-resumed.jsonl"};
    const auto run = [&](std::uint64_t resumed_after, std::uint64_t last) {
        ls::csv_log lines{csv.path};
        ls::json_log objects{json.path};
        const ls::report::run_begin from{resumed_after};
        lines.on_begin(from);
        objects.on_begin(from);
        for (std::uint64_t step = resumed_after + 1; step <= last; ++step) {
            lines.on_step({.step = step, .epoch = step / 10});
            objects.on_step({.step = step, .epoch = step / 10});
            if (step % 10 == 0) objects.on_epoch({.epoch = step / 10, .test = {}});
        }
    };
    run(0, 30);
    const auto whole_csv = csv.lines(), whole_json = json.lines();
    REQUIRE(whole_csv.size() == 31);
    REQUIRE(whole_json.size() == 33);
    for (const std::uint64_t after : {1, 9, 10, 11, 20, 29}) {
        // Killed in the middle of a line.
        std::ofstream{csv.path, std::ios::app} << "31,4";
        std::ofstream{json.path, std::ios::app} << R"({"event":"st)";
        run(after, 30);
        CHECK(csv.lines() == whole_csv);
        CHECK(json.lines() == whole_json);
    }
    // Three fits of a run that goes on after step 10, each with logs of its own.
    const auto fits = [&](std::uint64_t first, std::uint64_t last, bool is_first) {
        ls::csv_log lines{csv.path};
        ls::json_log objects{json.path};
        const ls::report::run_begin from{10, first, first / 10, is_first};
        lines.on_begin(from);
        objects.on_begin(from);
        for (std::uint64_t step = first + 1; step <= last; ++step) {
            lines.on_step({.step = step, .epoch = step / 10});
            objects.on_step({.step = step, .epoch = step / 10});
            if (step % 10 == 0) objects.on_epoch({.epoch = step / 10, .test = {}});
        }
    };
    fits(10, 20, true);
    fits(20, 25, false);
    fits(25, 30, false);
    CHECK(csv.lines() == whole_csv);
    CHECK(json.lines() == whole_json);
    // One program that goes back to a checkpoint has one log for both fits.
    {
        ls::csv_log lines{csv.path};
        ls::json_log objects{json.path};
        const auto fit = [&](const ls::report::run_begin& from, std::uint64_t last) {
            lines.on_begin(from);
            objects.on_begin(from);
            for (std::uint64_t step = from.steps + 1; step <= last; ++step) {
                lines.on_step({.step = step, .epoch = step / 10});
                objects.on_step({.step = step, .epoch = step / 10});
                if (step % 10 == 0) objects.on_epoch({.epoch = step / 10, .test = {}});
            }
        };
        fit({}, 25);
        fit({.resumed_after = 15, .steps = 15, .epochs = 1, .resumes = 1}, 28);
        fit({.resumed_after = 15, .steps = 28, .epochs = 2, .is_first = false, .resumes = 1}, 29);
        fit({.resumed_after = 20, .steps = 20, .epochs = 2, .resumes = 2}, 24);
        // Not named in the first fit after a resume; steps 21 to 24 are undone.
        fit({.resumed_after = 20, .steps = 20, .epochs = 2, .is_first = false, .resumes = 3}, 26);
        // A checkpoint of no step.
        fit({.resumes = 4}, 30);
        // Another trainer, which was never resumed, goes on in the file.
        lines.on_begin({});
        objects.on_begin({});
    }
    CHECK(csv.lines() == whole_csv);
    CHECK(json.lines() == whole_json);
    // One that was killed in its first line.
    for (const std::string begin : {"", "step,epo", R"({"eve)", R"({"event":"begin","st)"}) {
        const bool is_csv = begin.starts_with('s');
        std::ofstream{is_csv ? csv.path : json.path} << begin;
        run(25, 30);
        CHECK((is_csv ? csv : json).lines().size() == 6);  // a head or the end of an epoch
    }
    // Another file of that name is none of this run, and stays as it is.
    for (const std::string text : {"1,2,3\n", "s", "{\"weights\":[1,2]}\n", "step,epoch\n1,2\n", "\n"}) {
        std::ofstream{csv.path} << text << "csv";
        std::ofstream{json.path} << text;
        ls::csv_log lines{csv.path};
        ls::json_log objects{json.path};
        CHECK_THROWS_WITH(lines.on_begin({25}),
                          "lockstep: " + csv.path + " is not a log of this run; name another file");
        CHECK_THROWS_WITH(objects.on_begin({25}),
                          "lockstep: " + json.path + " is not a log of this run; name another file");
        CHECK(ls::test::contents(csv.path) == text + "csv");
        CHECK(ls::test::contents(json.path) == text);
    }
    // A run that begins anew empties it.
    run(0, 30);
    CHECK(csv.lines() == whole_csv);
    CHECK(json.lines() == whole_json);
}

namespace {

/// Stands in for a trainer.
struct source {
    struct facts {
        std::size_t threads = 1;
    };
    std::string text;
    ls::comm::group group{};
    [[nodiscard]] const ls::comm::group& ranks() const { return group; }
    [[nodiscard]] facts recipe() const { return {}; }
    [[nodiscard]] std::string recipe_text() const { return text; }
};

}  // namespace

TEST_CASE("report/logs: a run does not go on in the log of another one", "[report]") {
    const fresh_file json{"log-of-others.jsonl"};
    const auto run = [&](source trainer, std::uint64_t resumed_after, std::uint64_t last) {
        ls::json_log objects{json.path};
        objects.on_begin(trainer, ls::report::run_begin{resumed_after, resumed_after});
        for (std::uint64_t step = resumed_after + 1; step <= last; ++step) objects.on_step({.step = step});
    };
    const std::string first = "network: 4 -> 2 \"a\"\nseed: 1\nbatch: 8\n";
    run({first}, 0, 10);
    run({first}, 5, 10);
    CHECK(json.lines().size() == 12);
    // What a recipe lacks, and what a resume may change by name, shows no other run.
    run({"seed: 1\n"}, 5, 10);
    run({"network: 4 -> 2 \"a\" by im2col\nseed: 1\nbatch: 16\n"}, 5, 10);
    run({first}, 10, 11);
    const auto before = json.lines();
    CHECK_THROWS_WITH(
        run({"network: 4 -> 2 \"a\"\nseed: 2\n"}, 5, 10),
        "lockstep: " + json.path + " is not a log of this run: seed is 1 there and 2 here; name another file");
    CHECK(json.lines() == before);
    // The last begin counts, and one that is cut off is no begin of a log.
    run({"seed: 2\n"}, 0, 10);
    run({"seed: 2\n"}, 5, 10);
    std::ofstream{json.path, std::ios::app} << R"({"event":"begin","recipe":{"seed":"1"}})" << '\n';
    CHECK_THROWS_WITH(run({"seed: 2\n"}, 20, 21), Catch::Contains("seed is 1 there and 2 here"));
    std::ofstream{json.path, std::ios::app} << R"({"event":"begin","recipe":{"se)" << '\n';
    CHECK_THROWS_WITH(run({"seed: 2\n"}, 20, 21), Catch::Contains("is not a log of this run; name another file"));
}

TEST_CASE("report/logs: each fit of a run may have a log of its own in one file", "[report]") {
    const fresh_file csv{"log-of-fits.csv"}, json{"log-of-fits.jsonl"};
    std::ofstream{csv.path} << "what another program has left\n";
    const auto fit = [&](std::uint64_t first, std::uint64_t last, bool is_first, std::uint64_t number = 7) {
        ls::csv_log lines{csv.path};
        ls::json_log objects{json.path};
        const ls::report::run_begin from{.steps = first, .is_first = is_first, .run = number};
        lines.on_begin(from);
        objects.on_begin(from);
        for (std::uint64_t step = first + 1; step <= last; ++step) {
            lines.on_step({.step = step});
            objects.on_step({.step = step});
        }
    };
    for (int run = 0; run < 2; ++run) {  // another trainer begins anew
        fit(0, 10, true);
        fit(10, 12, false);
        fit(12, 20, false);
        CHECK(csv.lines().size() == 21);
        CHECK(json.lines().size() == 20);
    }
    // Another trainer that had a fit before, without logs.
    fit(10, 12, false, 8);
    CHECK(csv.lines().size() == 3);
    CHECK(json.lines().size() == 2);
    // What this process has not begun is none of the run's, though it has had a fit before.
    const fresh_file old{"log-of-another-run.csv"};
    std::ofstream{old.path} << csv.lines()[0] << "\n" << csv.lines()[1] << "\n";
    ls::csv_log later{old.path};
    later.on_begin({.steps = 20, .is_first = false, .run = 7});
    CHECK(old.lines().size() == 1);
}

TEST_CASE("report/logs: what a resume has undone leaves a log that is named after the first fit", "[report]") {
    const fresh_file csv{"log-after-a-fit.csv"};
    const auto fit = [&](const ls::report::run_begin& from, std::uint64_t last) {
        ls::csv_log lines{csv.path};
        lines.on_begin(from);
        for (std::uint64_t step = from.steps + 1; step <= last; ++step) lines.on_step({.step = step});
    };
    const auto numbers = [&] {
        std::string out;
        for (const std::string& line : csv.lines()) out += line.substr(0, line.find(',') + 1);
        return out.substr(out.find(',') + 1);
    };
    fit({.run = 11}, 10);
    // Steps 6 to 8 without a log: also where the trainer that wrote it has gone back.
    for (const std::uint64_t run : {11U, 12U}) {
        fit({.resumed_after = 5, .steps = 8, .is_first = false, .resumes = 1, .run = run}, 9);
        CHECK(numbers() == "1,2,3,4,5,9,");
        fit({.resumed_after = 5, .steps = 9, .is_first = false, .resumes = 1, .run = run}, 11);
        CHECK(numbers() == "1,2,3,4,5,9,10,11,");
    }
}

TEST_CASE("report/logs: a file is the same one before and after it is there, under any name", "[report]") {
    struct inside {
        std::filesystem::path before = std::filesystem::current_path();
        explicit inside(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
        inside(const inside&) = delete;
        inside& operator=(const inside&) = delete;
        ~inside() { std::filesystem::current_path(before); }
    };
    const ls::test::directory folder;
    const inside here{folder / "."};
    const ls::report::run_begin second{.steps = 10, .is_first = false, .run = 21};
    ls::report::begin_file("page.html", 21, 0);
    for (const bool is_there : {false, true}) {
        if (is_there) std::ofstream{"page.html"} << "a page\n";
        for (const std::string& name : {std::string{"page.html"}, std::string{"./page.html"}, folder / "page.html"})
            CHECK(ls::report::is_of_run(name, second));
    }
    CHECK_FALSE(ls::report::is_of_run("other.html", second));
}

TEST_CASE("report/logs: JSON lines; what JSON cannot hold is null", "[report]") {
    const fresh_file file{"log.jsonl"};
    ls::json_log log{file.path};
    log.on_begin();
    log.on_step({.step = 1, .epoch = 1, .samples = 8, .loss = std::numeric_limits<double>::infinity(), .rate = 0.5});
    log.on_epoch(
        {.epoch = 1,
         .loss = 0.25,
         .seconds = 2,
         .test = ls::report::evaluation{
             .loss = 1.5, .accuracy = 0.75, .metrics = {{"top_5", 0.875}, {R"(a "b" \ c)", 1}, {"\xff\n", 2}}}});
    const auto lines = file.lines();
    REQUIRE(lines.size() == 2);
    CHECK(
        lines[0] ==
        R"({"event":"step","step":1,"epoch":1,"samples":8,"loss":null,"rate":0.5,"seconds":0,"samples_per_second":0,)"
        R"("communication_hidden":0,"communication_exposed":0,"last_bucket":0,"no_progress":0,"large_bucket":0,"slow_rank":0})");
    CHECK(
        lines[1] ==
        R"({"event":"epoch","epoch":1,"loss":0.25,"seconds":2,"test_loss":1.5,"test_accuracy":0.75,"test_top_5":0.875,)"
        R"("test_a \"b\" \\ c":1,"test_\\xff\\n":2})");
}

TEST_CASE("report/logs: a file that cannot be written is an error before the first step", "[report]") {
    ls::csv_log log{"/no/such/folder/run.csv"};
    CHECK_THROWS_WITH(
        log.on_begin(),
        "lockstep: cannot write /no/such/folder/run.csv: No such file or directory; check that the directory "
        "exists, may be written and has room");
}

TEST_CASE("report/logs: observers that write one file are refused before any of them writes", "[report]") {
    const fresh_file file{"log-of-two"};
    std::ofstream{file.path} << "what was there before\n";
    const ls::comm::group alone{};
    const std::string folder = std::filesystem::path{file.path}.parent_path().string();
    const ls::csv_log csv{file.path}, other{file.path + ".csv"};
    const ls::json_log json{folder + "/./" + std::filesystem::path{file.path}.filename().string()};
    const ls::timeline drawn{file.path + ".json", 50, file.path};
    CHECK_THROWS_WITH(ls::report::require_different_outputs(alone, csv, other, json),
                      Catch::Contains("are one file, named twice, and it is written; "));
    CHECK_THROWS_WITH(ls::report::require_different_outputs(alone, csv, drawn),
                      Catch::Contains("\" is named twice, and is written; "));
    CHECK_NOTHROW(ls::report::require_different_outputs(alone, csv, other, ls::timeline{""}, ls::timeline{""}));
    CHECK(file.lines() == std::vector<std::string>{"what was there before"});
}

TEST_CASE("report/logs: a line that a full disk does not take is an error", "[report]") {
    ls::csv_log csv{"/dev/full"};
    CHECK_THROWS_WITH(csv.on_begin(), Catch::Contains("cannot write /dev/full: No space left on device"));
    ls::json_log json{"/dev/full"};
    json.on_begin();
    CHECK_THROWS_WITH(json.on_step({.step = 1}), Catch::Contains("cannot write /dev/full: No space left on device"));
}

TEST_CASE("report/logs: a run that goes on after a full disk loses no line of its log", "[report]") {
    const fresh_file csv{"log-after-full.csv"}, json{"log-after-full.jsonl"}, gone{"log-gone.csv"};
    ls::csv_log lines{csv.path};
    ls::json_log objects{json.path};
    lines.on_begin();
    objects.on_begin();
    const auto step = [&](std::uint64_t number) {
        lines.on_step({.step = number});
        objects.on_step({.step = number});
    };
    for (std::uint64_t number = 1; number <= 20; ++number) step(number);
    const auto before_csv = csv.lines(), before_json = json.lines();
    for (const bool by_fit : {true, false}) {
        {
            // A part of the next line fits.
            const ls::test::limited full{std::filesystem::file_size(csv.path) + 3};
            CHECK_THROWS(lines.on_step({.step = 21}));
        }
        {
            const ls::test::limited full{std::filesystem::file_size(json.path) + 3};
            CHECK_THROWS(objects.on_step({.step = 21}));
        }
        CHECK(csv.lines().size() == before_csv.size() + 1);
        if (by_fit) {
            lines.on_begin({.steps = 20});
            objects.on_begin({.steps = 20});
            CHECK(csv.lines() == before_csv);
            CHECK(json.lines() == before_json);
        }
    }
    step(21);
    CHECK(csv.lines().size() == before_csv.size() + 1);
    CHECK(json.lines().size() == before_json.size() + 1);
    CHECK(csv.lines().back().starts_with("21,"));
    // A file that somebody has removed meanwhile begins anew.
    ls::csv_log other{gone.path};
    other.on_begin();
    other.on_step({.step = 1});
    {
        const ls::test::limited full{1};
        CHECK_THROWS(other.on_step({.step = 2}));
    }
    std::filesystem::remove(gone.path);
    other.on_step({.step = 3});
    REQUIRE(gone.lines().size() == 2);
    CHECK(gone.lines()[1].starts_with("3,"));
}
