// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/comparison.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/report/whole_file.hpp"

// The program on files: tests/reports/check_compare.

namespace {

namespace fs = std::filesystem;
namespace report = lockstep::report;

report::run_record run_of(const std::vector<double>& losses, const std::vector<double>& accuracies = {}) {
    report::run_record out;
    for (const double loss : losses)
        out.steps.push_back({.step = out.steps.size() + 1, .epoch = 1, .samples = 1, .loss = loss});
    for (const double accuracy : accuracies)
        out.epochs.push_back({.epoch = out.epochs.size() + 1,
                              .step = 1,
                              .loss = 1 - accuracy,
                              .seconds = 2,
                              .test = {{"accuracy", accuracy}}});
    return out;
}

std::string text_of(const fs::path& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

TEST_CASE("report/comparison: the first step that differs", "[report]") {
    const auto a = run_of({3, 2, 1});
    CHECK(report::have_same_bits(a, a));
    CHECK_FALSE(report::have_same_bits(run_of({}), run_of({})));
    CHECK_FALSE(report::have_same_bits(a, run_of({3, 2})));
    CHECK(report::steps_in_common(a, run_of({3, 2})).same == 2);
    const auto common = report::steps_in_common(a, run_of({3, 2.0000000000000004, 1}));
    REQUIRE(common.first);
    CHECK(common.first->step == 2);
    CHECK(common.same == 1);
    auto hashed = a, other = a;
    hashed.weights_hash = "1";
    CHECK(report::have_same_bits(a, hashed));
    other.weights_hash = "2";
    CHECK_FALSE(report::have_same_bits(hashed, other));
    const double no_number = std::numeric_limits<double>::quiet_NaN();
    CHECK(report::have_same_bits(run_of({no_number}), run_of({no_number})));
    hashed.weights_hash = "\x1b]0;title\x07";  // of a log that somebody has sent
    CHECK(report::compare({hashed, a}).find('\x1b') == std::string::npos);
}

TEST_CASE("report/comparison: means of pages are compared with the means of the same steps", "[report]") {
    std::vector<double> losses;
    for (int step = 0; step < 1100; ++step) losses.push_back(1.0 / (1 + step % 7) + 0.001 * step);
    const auto whole = run_of(losses);
    // Pages of the run, and of one that was resumed twice: points of these are joined otherwise.
    const auto page_of = [](const report::run_record& run, std::size_t most, const std::vector<std::size_t>& ends) {
        report::run_record out;
        std::size_t at = 0;
        for (const std::size_t end : ends) {
            report::step_curve curve{most};
            for (const auto& point : out.steps) curve.add(point);
            for (; at < end; ++at) curve.add(run.steps[at]);
            report::run_record thinned;
            thinned.steps = curve.points();
            out = report::parse_run(report::to_lines(thinned), "page");
        }
        return out;
    };
    const auto page = page_of(whole, 1024, {1100}), resumed = page_of(whole, 1024, {1033, 1060, 1100}),
               small = page_of(whole, 32, {100, 1100});
    REQUIRE(page.steps.size() < 1024);
    for (const auto* one : {&page, &resumed, &small})
        for (const auto* other : {&whole, &page, &resumed, &small}) {
            const auto common = report::steps_in_common(*one, *other);
            CHECK_FALSE(common.first);
            CHECK(common.same == 1100);
            CHECK(common.in_means > 0);
            // Means do not show that bits are equal: hashes do.
            CHECK_FALSE(report::have_same_bits(*one, *other));
            auto a = *one, b = *other;
            a.weights_hash = b.weights_hash = "1";
            CHECK(report::have_same_bits(a, b));
            b.weights_hash = "2";
            CHECK_FALSE(report::have_same_bits(a, b));
            CHECK(report::compare({a, b}).find("equal losses in all 1,100 steps, ") != std::string::npos);
        }
    auto other = losses;
    other[700] += 0.01;
    const auto common = report::steps_in_common(page, run_of(other));
    REQUIRE(common.first);
    CHECK(common.first->first() <= 701);
    CHECK(common.first->step >= 701);
    CHECK(report::compare({page, run_of(other)}).find("first differ in the mean of steps ") != std::string::npos);
    // A log that lacks its begin.
    auto late = whole;
    late.steps.erase(late.steps.begin(), late.steps.begin() + 501);
    CHECK(report::steps_in_common(whole, late).same == 599);
    CHECK(report::steps_in_common(late, page).same == 598);
}

TEST_CASE("report/comparison: a page with a gap is compared by the steps that both have", "[report]") {
    std::vector<double> losses;
    for (int step = 0; step < 1500; ++step) losses.push_back(1.0 / (1 + step % 7) + 0.001 * step);
    const auto whole = run_of(losses);
    // Killed after a step that the page has not: 400 or 401 of them, also where such neighbours are joined.
    for (const std::size_t most : {4096, 1024, 128})
        for (const std::size_t last : {400U, 401U}) {
            const auto page_of = [&](const report::run_record& run) {
                report::step_curve curve{most};
                for (const auto& point : run.steps)
                    if (point.step <= last || point.step > 500) curve.add(point);
                report::run_record thinned;
                thinned.steps = curve.points();
                return report::parse_run(
                    lockstep::core::text("<html>", report::events_begin, report::to_lines(thinned), report::events_end),
                    "page");
            };
            const auto page = page_of(whole);
            CAPTURE(most, last);
            for (const auto& [a, b] : {std::pair{&whole, &page}, {&page, &whole}}) {
                const auto common = report::steps_in_common(*a, *b);
                CHECK_FALSE(common.first);
                CHECK(common.same <= 1000 + last);
                CHECK(common.same >= 1000 + last - 2 * page.steps[1].joined);
                CHECK_FALSE(report::have_same_bits(*a, *b));
            }
            // The page of the same run, and of another one.
            CHECK(report::steps_in_common(page, page).same == 1000 + last);
            auto other = losses;
            other[1200] += 0.01;
            const auto common = report::steps_in_common(page, page_of(run_of(other)));
            REQUIRE(common.first);
            CHECK(common.first->first() <= 1201);
            CHECK(common.first->step >= 1201);
        }
}

TEST_CASE("report/comparison: parts of an epoch are one, and what was not measured is no number", "[report]") {
    auto a = run_of({3, 2, 1}, {0.5, 0.75, 0.875}), b = a;
    b.epochs[1].test.clear();
    b.epochs[2].test.clear();
    for (auto& epoch : b.epochs) epoch.epoch = epoch.epoch == 3 ? 2 : 1;
    const std::string text = report::compare({a, b});
    CAPTURE(text);
    CHECK(text.find("\nepochs                      3               2\n") != text.npos);
    CHECK(text.find("\ntest accuracy               0.875           0.5\n") != text.npos);
    CHECK(text.find("\n2      0.25    0.125   0.75             -\n") != text.npos);
    CHECK(text.find("not a number") == text.npos);
}

TEST_CASE("report/comparison: whether a run has ended, or was stopped by a signal", "[report]") {
    auto ended = run_of({3, 2}), stopped = ended;
    ended.has_ended = stopped.has_ended = true;
    stopped.stop_signal = 15;
    const std::string text = report::compare({ended, stopped, run_of({3})});
    CAPTURE(text);
    CHECK(text.find("\nsteps            2               2, stopped      1, not ended\n") != text.npos);
}

TEST_CASE("report/comparison: recipes, also where one lacks a line", "[report]") {
    auto a = run_of({1}), b = run_of({1});
    a.recipe = {{"seed", "1"}, {"batch", "8"}};
    b.recipe = {{"batch", "8"}, {"seed", "2"}, {"clip", "1"}};
    const auto found = report::recipe_differences({a, b});
    REQUIRE(found.size() == 2);
    CHECK(found[0].name == "seed");
    CHECK(found[0].values == std::vector<std::string>{"1", "2"});
    CHECK(found[1].values == std::vector<std::string>{"-", "1"});
}

TEST_CASE("report/comparison: targets and the time to them", "[report]") {
    auto a = run_of({3, 2, 1}, {0.5, 0.75, 0.875}), b = run_of({3, 2, 1}, {0.25, 0.75, 0.5});
    for (std::size_t i = 0; i < 3; ++i) {
        a.steps[i].seconds = b.steps[i].seconds = 2 * static_cast<double>(i + 1);
        a.epochs[i].step = b.epochs[i].step = i + 1;
    }
    const auto common = report::common_target({a, b});
    REQUIRE(common);
    CHECK(common->metric == "accuracy");
    CHECK(common->value == 0.75);
    CHECK(report::time_to(a, *common)->seconds == 4);
    CHECK(report::time_to(b, *common)->epoch == 2);
    CHECK_FALSE(report::time_to(b, report::target::parse("accuracy=0.8")));
    CHECK(report::time_to(a, report::target::parse("training loss=0.25"))->epoch == 2);
    CHECK_FALSE(report::common_target({run_of({1})}));
    CHECK(report::common_target({a, run_of({1})}) == std::nullopt);
    for (const char* wrong : {"", "accuracy", "=1", "accuracy=", "accuracy=1x", "accuracy=nan"})
        CHECK_THROWS_WITH(report::target::parse(wrong), Catch::Contains("is no target; write METRIC=VALUE"));
}

TEST_CASE("report/comparison: empty runs and odd names", "[report]") {
    auto odd = run_of({}, {});
    odd.name = "<script>\x1b[31m";
    const auto text = report::compare({odd, run_of({1}, {0.5})});
    CHECK(text.find('\x1b') == text.npos);
    CHECK(text.find("have no step in common") != text.npos);
    const auto page = report::comparison_page({odd, run_of({1}, {0.5})});
    CHECK(page.find("<script>\\x1b") == page.npos);
    CHECK(page.find("&lt;script&gt;\\x1b") != page.npos);
    // Runs without a step.
    auto begun = run_of({}, {}), other = run_of({}, {});
    CHECK_FALSE(report::have_same_bits(begun, other));
    begun.weights_hash = "1f";
    other.weights_hash = "1f";
    CHECK(report::have_same_bits(begun, other));
    CHECK(report::compare({begun, other}).find("have no step in common; equal weights at the end") != text.npos);
    other.weights_hash = "20";
    CHECK_FALSE(report::have_same_bits(begun, other));
}

TEST_CASE("report/whole_file: the old file or the new one, also through a link", "[report]") {
    const fs::path folder = fs::temp_directory_path() / ("lockstep-whole-file-" + std::to_string(::getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder);
    const auto path = (folder / "page").string(), link = (folder / "link").string();
    report::write_whole(path, "one");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    fs::create_symlink("page", link);
    report::write_whole(link, "two");
    CHECK(text_of(path) == "two");
    CHECK(fs::is_symlink(link));
    CHECK((fs::status(path).permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
    CHECK_THROWS_WITH(report::write_whole(folder.string(), "x"), Catch::Contains("Is a directory"));
    CHECK_THROWS_WITH(report::write_whole("/dev/full", "x"), Catch::Contains("No space left on device"));
    CHECK(fs::is_character_file("/dev/full"));
    CHECK_NOTHROW(report::write_whole("/dev/null", "x"));
    fs::create_symlink("nowhere/at/all", folder / "broken");
    CHECK_THROWS_WITH(report::write_whole((folder / "broken").string(), "x"),
                      Catch::Contains("a link that leads nowhere"));
    CHECK(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}) == 3);
    fs::remove_all(folder);
}
