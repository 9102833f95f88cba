// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/run_record.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lockstep/report/launch.hpp"
#include "lockstep/report/logs.hpp"

namespace {

namespace ls = lockstep;
namespace report = lockstep::report;

report::run_record example() {
    report::run_record out;
    out.ranks = 3;
    out.threads = 2;
    out.host = "h";
    out.command = "mpirun -n 3 './a b' </script>";
    out.recipe = {{"seed", "1"}, {"odd \"name\"", "a\\b </script>"}};
    for (std::uint64_t step = 1; step <= 6; ++step)
        out.steps.push_back({.step = step,
                             .epoch = (step + 2) / 3,
                             .samples = 8,
                             .loss = 1.0 / static_cast<double>(step),
                             .rate = 0.1,
                             .seconds = 0.5 * static_cast<double>(step)});
    out.steps[4].loss = std::numeric_limits<double>::quiet_NaN();
    out.epochs = {{.epoch = 1, .step = 3, .loss = 0.75, .seconds = 1.5, .test = {{"loss", 0.5}, {"accuracy", 0.25}}},
                  {.epoch = 2, .step = 6, .loss = 0.5, .seconds = 1.5, .test = {{"loss", 0.25}, {"accuracy", 0.5}}}};
    out.has_ended = true;
    out.stop_signal = 15;
    out.weights_hash = "0123456789abcdef";
    return out;
}

}  // namespace

TEST_CASE("report/run_record: a curve has few points, and their means are those of the steps", "[report]") {
    std::mt19937 random{1};
    for (const std::size_t most : {2, 3, 7, 64})
        for (const std::size_t steps : {0, 1, 2, 3, 7, 8, 64, 65, 1000}) {
            report::step_curve curve{most};
            std::vector<report::step_point> all;
            for (std::uint64_t step = 1; step <= steps; ++step) {
                all.push_back({.step = step,
                               .epoch = 1,
                               .samples = 1 + random() % 9,
                               .loss = static_cast<double>(random() % 100),
                               .rate = static_cast<double>(step),
                               .seconds = static_cast<double>(2 * step)});
                curve.add(all.back());
            }
            CAPTURE(most, steps);
            CHECK(curve.points().size() <= most);
            CHECK(curve.points().size() * curve.steps_of_a_point() >= steps);
            std::size_t at = 0;
            for (const auto& point : curve.points()) {
                double sum = 0;
                std::uint64_t samples = 0;
                for (; at < all.size() && all[at].step <= point.step; ++at) {
                    sum += all[at].loss * static_cast<double>(all[at].samples);
                    samples += all[at].samples;
                }
                REQUIRE(point.samples == samples);
                CHECK(point.loss == Approx(sum / static_cast<double>(samples)));
                CHECK(point.rate == static_cast<double>(point.step));
                CHECK(point.seconds == 2 * static_cast<double>(point.step));
            }
            CHECK(at == all.size());
        }
}

TEST_CASE("report/run_record: what was written is read again, and ends no element of a page", "[report]") {
    const auto run = example();
    const std::string lines = report::to_lines(run);
    CHECK(lines.find('<') == lines.npos);
    for (const bool in_page : {false, true}) {
        const auto read = report::parse_run(
            in_page ? ls::core::text("<html>", report::events_begin, lines, report::events_end, "</html>") : lines,
            "x");
        CHECK(read.ranks == 3);
        CHECK(read.threads == 2);
        CHECK(read.command == run.command);
        CHECK(read.recipe == run.recipe);
        CHECK(read.weights_hash == run.weights_hash);
        CHECK(read.has_ended);
        CHECK(read.stop_signal == 15);
        REQUIRE(read.steps.size() == run.steps.size());
        for (std::size_t i = 0; i < run.steps.size(); ++i) {
            CHECK(read.steps[i].step == run.steps[i].step);
            CHECK(read.steps[i].seconds == run.steps[i].seconds);
            CHECK((read.steps[i].loss == run.steps[i].loss || (i == 4 && std::isnan(read.steps[i].loss))));
        }
        REQUIRE(read.epochs.size() == 2);
        CHECK(read.epochs[1].step == 6);
        CHECK(read.epochs[1].test == run.epochs[1].test);
        CHECK(std::isnan(read.epochs[1].metric("none")));
        CHECK(read.metrics() == std::vector<std::string>{"loss", "accuracy"});
        CHECK(read.last_with("accuracy") == &read.epochs[1]);
        CHECK(read.last_with("none") == nullptr);
    }
}

TEST_CASE("report/run_record: how many steps a point stands for, also in pages that do not say it", "[report]") {
    report::run_record run;
    for (const std::uint64_t step : {4, 8, 12, 14})
        run.steps.push_back({.step = step, .epoch = 1, .samples = 8, .loss = 1, .joined = step == 14 ? 2U : 4U});
    const std::string lines = report::to_lines(run);
    std::string old = lines;
    for (std::size_t at = old.find(",\"joined\":"); at != old.npos; at = old.find(",\"joined\":"))
        old.erase(at, std::string_view{",\"joined\":4"}.size());
    REQUIRE(old.size() < lines.size());
    for (const std::string& text : {lines, old}) {
        const auto read =
            report::parse_run(ls::core::text("<html>", report::events_begin, text, report::events_end), "page");
        REQUIRE(read.steps.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) CHECK(read.steps[i].joined == run.steps[i].joined);
        CHECK(read.steps[3].first() == 13);
    }
    // A log whose lines are steps.
    CHECK(report::parse_run(old, "log").steps[1].joined == 1);
}

TEST_CASE("report/run_record: a gap between steps is none of the points around it", "[report]") {
    report::step_curve curve{4};
    // A run that was killed after step 3 of its page, and has gone on after step 6.
    for (const std::uint64_t step : {1, 2, 3, 7, 8})
        curve.add({.step = step, .epoch = 1, .samples = 1, .loss = static_cast<double>(step)});
    report::run_record run;
    run.steps = curve.points();
    const auto check = [](const std::vector<report::step_point>& points) {
        REQUIRE(points.size() == 3);
        CHECK(points[0].first() == 1);
        CHECK(points[0].skipped == 0);
        CHECK(points[1].first() == 3);
        CHECK(points[1].step == 7);
        CHECK(points[1].joined == 2);
        CHECK(points[1].skipped == 3);
        CHECK(points[2].first() == 8);
    };
    check(run.steps);
    const auto page = [](const report::run_record& of) {
        return report::parse_run(
            ls::core::text("<html>", report::events_begin, report::to_lines(of), report::events_end), "page");
    };
    check(page(run).steps);
    report::step_point all = run.steps[0];
    all.join(run.steps[1]);
    all.join(run.steps[2]);
    CHECK(all.first() == 1);
    CHECK(all.joined == 5);
    CHECK(all.skipped == 3);
    // Points of one step each: the one after the gap stands for no others.
    run.steps = {{.step = 1}, {.step = 2}, {.step = 6}};
    const std::string lines = report::to_lines(run);
    std::string old = lines;
    for (std::size_t at = old.find(",\"joined\":1"); at != old.npos; at = old.find(",\"joined\":1"))
        old.erase(at, std::string_view{",\"joined\":1"}.size());
    REQUIRE(old.size() < lines.size());
    for (const std::string& text : {lines, old}) {
        const auto read =
            report::parse_run(ls::core::text("<html>", report::events_begin, text, report::events_end), "page");
        REQUIRE(read.steps.size() == 3);
        for (const auto& point : read.steps) CHECK(point.joined == 1);
    }
}

TEST_CASE("report/run_record: what a run had at an end is not known of its next part", "[report]") {
    const std::string part = R"({"event":"begin","steps":0})"
                             "\n"
                             R"({"event":"step","step":1})"
                             "\n";
    const std::string end = R"({"event":"end","stop_signal":2,"samples_per_second":5,"weights_hash":"1f"})"
                            "\n";
    const auto whole = report::parse_run(part + end, "log");
    CHECK(whole.has_ended);
    CHECK(whole.stop_signal == 2);
    CHECK(whole.weights_hash == "1f");
    CHECK(whole.samples_per_second == 5);
    const auto killed = report::parse_run(part + end + part, "log");
    CHECK_FALSE(killed.has_ended);
    CHECK(killed.stop_signal == 0);
    CHECK(killed.weights_hash.empty());
    CHECK(killed.samples_per_second == 0);
}

TEST_CASE("report/run_record: a json_log is read; seconds go on over fits", "[report]") {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("lockstep-run-record-" + std::to_string(::getpid()))).string();
    {
        ls::json_log log{path};
        for (std::uint64_t fit = 0; fit < 2; ++fit) {
            log.on_begin();
            for (std::uint64_t step = 1; step <= 2; ++step)
                log.on_step({.step = 2 * fit + step,
                             .epoch = 1,
                             .samples = 4,
                             .loss = 0.5,
                             .seconds = static_cast<double>(step)});
            log.on_epoch(
                {.epoch = fit + 1, .loss = 0.5, .seconds = 2, .test = report::evaluation{.loss = 1, .accuracy = 0.5}});
        }
        report::totals all;
        all.last_fit.stop_signal = 15;
        log.on_end(all);
    }
    // Killed inside of a line.
    std::ofstream{path, std::ios::app} << R"({"event":"st)";
    const auto run = report::read_run(path);
    std::filesystem::remove(path);
    CHECK(run.has_ended);
    CHECK(run.stop_signal == 15);
    REQUIRE(run.steps.size() == 4);
    CHECK(run.steps[2].seconds == 3);
    CHECK(run.steps[3].seconds == 4);
    REQUIRE(run.epochs.size() == 2);
    CHECK(run.epochs[0].step == 2);
    CHECK(run.epochs[1].step == 4);
}

TEST_CASE("report/run_record: other files are refused by name and line", "[report]") {
    const auto read = [](std::string_view text) { return report::parse_run(text, "r.jsonl"); };
    CHECK_THROWS_WITH(read(""), Catch::Contains("r.jsonl holds no event of a run; name a file"));
    CHECK_THROWS_WITH(read("step,epoch\n1,2\n"),
                      Catch::Contains("r.jsonl is no log of a run: line 1 is step,epoch; name a file"));
    CHECK_THROWS_WITH(read("{\"event\":\"step\",\"step\":1}\n{\"event\":\"st\n"), Catch::Contains("r.jsonl, line 2"));
    CHECK_THROWS_WITH(read("{\"event\":\"step\",\"step\":-1}\n"), Catch::Contains("is no log of a run: line 1 is {"));
    CHECK_THROWS_WITH(read("{\"weights\":[1,2]}\n"), Catch::Contains("line 1: \"\" is no event of a run"));
    CHECK_THROWS_WITH(read("[1]\n"), Catch::Contains("line 1 is [1]; name"));
    CHECK_THROWS_WITH(report::read_run("/no/such/file"),
                      Catch::Contains("/no/such/file: No such file or directory; name"));
    CHECK_THROWS_WITH(report::read_run("/dev/zero"), Catch::Contains("cannot read the log of a run, /dev/zero"));
}

TEST_CASE("report/launch: a command can be given to a shell again", "[report]") {
    CHECK(report::shell_line({"./train", "--lr=0.1", "a b", "it's", "", "$x", "<b>"}) ==
          "./train --lr=0.1 'a b' 'it'\\''s' '' '$x' '<b>'");
    CHECK(report::command_line(1).find("test_report") != std::string::npos);
    CHECK(report::command_line(3).starts_with("mpirun -n 3 "));
    const auto memory = report::memory_of_process();
    CHECK(memory.resident > 1'000'000);
    CHECK(memory.peak >= memory.resident);
}
