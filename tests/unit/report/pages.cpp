// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/report/run_page.hpp"
#include "unit/data/files.hpp"

// How a browser reads a page: tests/reports/check_page.

namespace {

namespace compress = lockstep::compress;
namespace core = lockstep::core;
namespace report = lockstep::report;
namespace html = lockstep::report::html;
namespace test = lockstep::test;

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& what) {
    std::size_t out = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++out;
    return out;
}

std::string draw(const std::vector<html::point>& points) {
    return html::to_html({.title = "T", .curves = {{.name = "c", .points = points}}, .is_logarithmic = true});
}

}  // namespace

TEST_CASE("report/pages: text stays text", "[report]") {
    CHECK(html::escape("<script>\"&'\x01\xff") == "&lt;script&gt;&quot;&amp;&#39;\\x01\\xff");
    const std::string odd = "\"><script>alert(1)</script>";
    report::run_record run;
    run.name = run.host = run.command = odd;
    run.ranks = 1;
    run.recipe = {{odd, odd}};
    run.steps = {{.step = 1, .samples = 1, .loss = 1, .seconds = 1}};
    run.epochs = {{.epoch = 1, .step = 1, .loss = 1, .seconds = 1, .test = {{odd, 1}}}};
    run.weights_hash = odd;
    const std::string page = report::run_page(run, {.written = odd,
                                                    .hosts = {odd},
                                                    .memory_bytes = 1,
                                                    .bytes_per_step = 1,
                                                    .transport = odd,
                                                    .about = odd,
                                                    .picture = odd});
    // The library's own two elements, and their ends.
    CHECK(count(page, "<script") == 2);
    CHECK(count(page, "</script") == 2);
    CHECK(count(page, "\"><script>") == 0);
    // Nothing is loaded.
    CHECK(count(page, "http:") + count(page, "https:") + count(page, "url(") == 0);
}

TEST_CASE("report/pages: whether a run is under way, has ended, or was stopped by a signal", "[report]") {
    report::run_record run;
    run.steps = {{.step = 7, .samples = 1, .loss = 1, .seconds = 1}};
    CHECK(count(report::run_page(run, {}), "Under way after 7 steps; load it again for later steps.") == 1);
    run.has_ended = true;
    CHECK(count(report::run_page(run, {}), "Ended after 7 steps.") == 1);
    run.stop_signal = 15;
    CHECK(count(report::run_page(run, {}), "Stopped by a signal after 7 steps.") == 1);
    CHECK(count(report::run_page(run, {}), "Ended") == 0);
}

TEST_CASE("report/pages: one rank has no communication to show", "[report]") {
    const report::seconds_spent spent{
        .data = 1, .forward = 2, .backward = 3, .update = 1, .communication_hidden = 0.5, .communication_exposed = 0.5};
    for (const std::size_t ranks : {1U, 2U}) {
        report::page_facts facts;
        facts.seconds.assign(ranks, spent);
        facts.timed_steps = 10;
        const std::string page = report::run_page({}, facts);
        CAPTURE(ranks);
        CHECK(count(page, "<h2>Time by kind</h2>") == 1);
        CHECK(count(page, "<h2>A typical step</h2>") == 1);
        CHECK(count(page, "<h2>Communication</h2>") == ranks - 1);
        CHECK((count(page, "communication, ") > 0) == (ranks > 1));
        CHECK((count(page, "aria-label=\"messages: ") > 0) == (ranks > 1));
    }
}

TEST_CASE("report/pages: a picture that is too long is left out, and the page says so", "[report]") {
    const test::directory here;
    report::page_facts facts;
    report::add_picture(facts, here / "none.svg");
    CHECK(facts.picture.empty());
    CHECK(facts.missing_picture.empty());
    report::add_picture(facts, here.write("step.svg", std::string(8'000'001, 'x')));
    CHECK(facts.picture.empty());
    const std::string text = report::run_page({}, facts);
    CHECK(count(text, "The recorded step is left out: ") == 1);
    CHECK(count(text, "has 8000001 bytes, the most are 8000000") == 1);
    CHECK(count(text, "image/svg+xml;base64") == 0);
    // A further fit() has drawn another one.
    report::add_picture(facts, here.write("step.svg", "<svg/>"));
    CHECK(facts.picture == "<svg/>");
    CHECK(facts.missing_picture.empty());
}

TEST_CASE("report/pages: bytes of a step, and those of synchronous ones before it", "[report]") {
    report::page_facts facts;
    facts.seconds = {{.communication_exposed = 1}, {.communication_exposed = 1}};
    facts.bytes_per_step = 1000;
    facts.transport = "messages";
    CHECK(count(report::run_page({}, facts), "Rank 0 sends 1,000 bytes a step. Transport: messages.") == 1);
    facts.synchronous_steps = 20;
    facts.synchronous_bytes = 4000;
    CHECK(count(report::run_page({}, facts),
                "Rank 0 sends 1,000 bytes a step, 4,000 in each of the first 20. Transport: messages.") == 1);
}

TEST_CASE("report/pages: what a compressor did, for each tensor", "[report]") {
    CHECK(report::run_page({}, {}).find("<h2>Compression") == std::string::npos);
    const compress::tensor_statistics shorter{.messages = 2,
                                              .numbers = 1000,
                                              .bytes = 500,
                                              .squares = 4,
                                              .lost = 1,
                                              .encode_seconds = 3e-6,
                                              .decode_seconds = 1e-6};
    const compress::tensor_statistics longer{.messages = 1, .numbers = 1, .bytes = 12};
    report::page_facts facts;
    facts.messages = {{"0.dense.weight", shorter}, {"<1>", longer}};
    facts.element_bytes = 8;
    const std::string page = report::run_page({}, facts);
    CHECK(page.find("<h2>Compression") != std::string::npos);
    const auto row = [](const std::vector<std::string>& cells) {
        std::string out;
        for (const auto& cell : cells)
            out += out.empty() ? "<tr><th scope=\"row\">" + cell + "</th>" : "<td>" + cell + "</td>";
        return out;
    };
    CHECK(page.find(row({"0.dense.weight", "2", "500 B", "7.50 kB", "16.0", "0.5000", "3.00", "1.00"})) != page.npos);
    CHECK(page.find(row({"&lt;1&gt;", "1", "12 B", "-4 B", "0.7", "0.0000", "0.00", "0.00"})) != page.npos);
}

TEST_CASE("report/pages: numbers for people", "[report]") {
    CHECK(html::number(0.123456) == "0.1235");
    CHECK(html::number(12345.6) == "12,346");
    CHECK(html::number(-1234) == "-1,234");
    CHECK(html::number(no_number) == "not a number");
    CHECK(html::number(-std::numeric_limits<double>::infinity()) == "-infinite");
    CHECK(html::duration(0.0123) == "12.3 ms");
    CHECK(html::duration(3723) == "1:02:03 h");
    CHECK(html::duration(125) == "2:05 min");
    CHECK(html::duration(1e300) == "1e+300 s");
    CHECK(html::bytes(999) == "999 B");
    CHECK(html::bytes(30.16e6) == "30.2 MB");
    CHECK(html::bytes(2.33e9) == "2.33 GB");
}

TEST_CASE("report/pages: a curve has each finite point once, inside of the plot", "[report]") {
    CHECK(draw({}).find("No value yet") != std::string::npos);
    CHECK(draw({{1, no_number}}).find("No value yet") != std::string::npos);
    for (const auto& points : std::vector<std::vector<html::point>>{{{5, 2}},
                                                                    {{1, 0}, {2, 0}},
                                                                    {{1, -3}, {2, 1e300}},
                                                                    {{1, 1e-300}, {2, 1e300}},
                                                                    {{1, 5e-324}, {2, 1}, {3, 1.7e308}},
                                                                    {{1, 1e-310}, {2, 3e-309}},
                                                                    {{1, 0.01}, {2, 1}, {3, no_number}, {4, 0.5}},
                                                                    {{1, 1e15}, {2, 1e15 + 1}},
                                                                    {{1, -1.7e308}, {2, 1.7e308}}}) {
        const std::string page = draw(points);
        std::size_t finite = 0;
        for (const auto& at : points) finite += std::isfinite(at.y) ? 1 : 0;
        CHECK(page.find(" data-points=\"" + std::to_string(finite) + "\"") != std::string::npos);
        const std::size_t from = page.find("\" d=\"", page.find("data-points")) + 5;
        const std::string path = page.substr(from, page.find('"', from) - from);
        CAPTURE(path);
        CHECK(count(path, "M") + count(path, "L") == finite);
        CHECK(path.find("nan") == path.npos);
        CHECK(path.find("inf") == path.npos);
        CHECK(path.find('-') == path.npos);
        CHECK(page.size() < 10'000);
    }
    // Whatever is finite: from one number to others next to it or far away.
    const core::random_stream draws{5, core::purpose::user};
    for (std::uint64_t k = 0; k < 3000; ++k) {
        std::vector<html::point> points;
        for (std::uint64_t i = 0; i < 3; ++i) {
            const std::uint64_t high = draws.word(8 * k + 2 * i);
            double y = std::bit_cast<double>(high << 32U | draws.word(8 * k + 2 * i + 1));
            if (!std::isfinite(y)) y = std::numeric_limits<double>::max();
            if (k % 4 == 0) y = std::abs(y);
            if (k % 4 == 1 && i > 0) y = std::nextafter(points[0].y, y);
            if (k % 4 == 2)
                y = std::ldexp(1 + std::abs(y) / std::numeric_limits<double>::max(), k % 8 == 2 ? 1022 : -1070);
            points.push_back({1e3 * static_cast<double>(i), y});
        }
        const std::string page = draw(points);
        CAPTURE(points[0].y, points[1].y, points[2].y);
        REQUIRE(page.size() < 10'000);
        REQUIRE(page.find("nan") == page.npos);
        REQUIRE(page.find("inf") == page.npos);
        REQUIRE(count(page, "<span class=\"y\"") < 20);
    }
    // A gap: the line begins again.
    CHECK(count(draw({{1, 1}, {2, 2}, {3, no_number}, {4, 1}, {5, 2}}), "M0.0 ") >= 1);
}

TEST_CASE("report/pages: the last value of a metric, of the epoch that has measured it", "[report]") {
    report::run_record run;
    run.epochs = {{.epoch = 1, .step = 1, .test = {{"accuracy", 0.5}, {"top_k", 0.75}}}, {.epoch = 2, .step = 2}};
    const std::string page = report::run_page(run, {});
    CHECK(page.find("not a number") == page.npos);
    CHECK(page.find(html::tile("Test accuracy", "50.00 %", "epoch 1, best 50.00 % in epoch 1")) != page.npos);
    CHECK(page.find(html::tile("Test top_k", "0.75", "epoch 1")) != page.npos);
}

TEST_CASE("report/pages: empty, short and long runs", "[report]") {
    CHECK(report::run_page({}, {}).find("Under way after 0 steps") != std::string::npos);
    report::run_record run;
    report::step_curve curve;
    for (std::uint64_t epoch = 1; epoch <= 500; ++epoch) {
        for (std::uint64_t i = 0; i < 100; ++i)
            curve.add({.step = 100 * (epoch - 1) + i + 1,
                       .epoch = epoch,
                       .samples = 1,
                       .loss = epoch > 400 ? no_number : 1,
                       .seconds = static_cast<double>(epoch)});
        run.epochs.push_back({.epoch = epoch,
                              .step = 100 * epoch,
                              .loss = epoch > 400 ? no_number : 1,
                              .seconds = 1,
                              .test = {{"accuracy", 0.5}}});
    }
    run.steps = curve.points();
    const std::string page = report::run_page(run, {});
    CHECK(count(page, "<tr>") == 501);
    CHECK(page.find("data-name=\"training\" data-points=\"400\"") != page.npos);
    CHECK(page.find("data-name=\"test\" data-points=\"500\"") != page.npos);
    CHECK(page.size() < 500'000);
}
