// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/timeline.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "lockstep/comm/group.hpp"

namespace {

namespace ls = lockstep;
using ls::report::activity;

std::string contents(const std::filesystem::path& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}
std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
}

/// Stands in for a trainer.
struct source {
    ls::comm::group group;
    [[nodiscard]] const ls::comm::group& ranks() const { return group; }
};

/// A step of two layers: forward, backward, one bucket.
void step(ls::report::recorder& to, std::uint64_t number) {
    if (!to.begin_step(number)) return;
    to.lap(activity::data);
    for (std::size_t layer = 0; layer < 2; ++layer) to.lap(activity::forward, layer);
    const auto begin = ls::report::recorder::clock::now();
    for (std::size_t layer = 2; layer-- > 0;) to.lap(activity::backward, layer);
    to.lap(activity::waiting, 0);
    to.flight(activity::sum, 0, begin, ls::report::recorder::clock::now());
}

struct folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("lockstep-timeline-" + std::to_string(::getpid()));
    folder() { std::filesystem::create_directories(path); }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;
    ~folder() { std::filesystem::remove_all(path); }
};

std::string_view dense(std::size_t layer) { return layer < 2 ? "dense" : std::string_view{}; }
std::string_view odd(std::size_t layer) { return layer < 2 ? "\"a\\b\" <&>\n\xff" : std::string_view{}; }

void begin(ls::timeline& made, const source& of, std::string_view (*name_of_layer)(std::size_t) = dense) {
    auto& recorder = *made.events_of_this_rank();
    recorder.name_of_layer = name_of_layer;
    recorder.buckets = {{0, 1, 800}};
    made.on_begin(of.group);
}

}  // namespace

TEST_CASE("report/timeline: so many steps and no more, as trace events", "[report]") {
    const folder here;
    const auto file = here.path / "trace.json";
    const auto drawing = here.path / "step.svg";
    source trainer;
    ls::timeline made{file.string(), 3, drawing.string()};
    begin(made, trainer);
    for (std::uint64_t i = 1; i <= 10; ++i) step(*made.events_of_this_rank(), i);
    made.on_end(trainer, ls::report::totals{});
    const std::string text = contents(file);
    CHECK(text.substr(0, 2) == "[\n");
    CHECK(text.substr(text.size() - 3) == "\n]\n");
    CHECK(count(text, R"("ph":"X")") == 3 * 7);
    CHECK(count(text, R"("name":"forward dense 1","cat":"work")") == 3);
    CHECK(count(text, R"("name":"sum layers 0-1","cat":"communication")") == 3);
    CHECK(count(text, R"("bytes_of_sum_and_share":800)") == 3);
    CHECK(count(text, R"("step":3)") == 7);
    CHECK(count(text, R"("step":4)") == 0);
    CHECK(count(text, "{") == count(text, "}"));
    // Nothing is numbered 0 or shares a number with another process, and work stands above the buckets.
    CHECK(count(text, R"("pid":1000,"tid":1000)") == 3 * 6 + 4);
    CHECK(count(text, R"("pid":1000,"tid":1001)") == 3 + 2);
    CHECK(count(text, R"("name":"thread_sort_index","ph":"M","pid":1000,"tid":1001,"args":{"sort_index":1})") == 1);
    const std::string svg = contents(drawing);
    CHECK(svg.substr(0, 4) == "<svg");
    CHECK(svg.substr(svg.size() - 7) == "</svg>\n");
    CHECK(count(svg, "<rect") == count(svg, "</rect>") + 1);  // the background has no title
    CHECK(count(svg, "<text") == count(svg, "</text>"));
}

TEST_CASE("report/timeline: a layer may have any name", "[report]") {
    const folder here;
    const auto file = here.path / "trace.json";
    const auto drawing = here.path / "step.svg";
    source trainer;
    ls::timeline made{file.string(), 1, drawing.string()};
    begin(made, trainer, odd);
    step(*made.events_of_this_rank(), 1);
    made.on_end(trainer, ls::report::totals{});
    CHECK(count(contents(file), R"("name":"forward \"a\\b\" <&>\\n\\xff 1","cat")") == 1);
    CHECK(count(contents(drawing), "<title>forward \"a\\b\" &lt;&amp;>\\n\\xff") == 2);
}

TEST_CASE("report/timeline: a run that ends with an exception leaves what it has recorded", "[report]") {
    const folder here;
    const auto file = here.path / "trace.json";
    const source trainer;
    try {
        ls::timeline made{file.string()};
        begin(made, trainer);
        step(*made.events_of_this_rank(), 1);
        throw std::runtime_error{"the end"};
    } catch (const std::runtime_error&) {
    }
    const std::string text = contents(here.path / "trace.rank0.json");
    CHECK(count(text, R"("ph":"X")") == 7);
    CHECK(text.substr(text.size() - 3) == "},\n");  // whole lines: readers of the format add the bracket
}

TEST_CASE("report/timeline: a further fit() keeps what an earlier one has recorded, from its begin on", "[report]") {
    const folder here;
    const auto file = here.path / "trace.json";
    source trainer;
    ls::timeline made{file.string(), 2};
    begin(made, trainer);
    for (std::uint64_t i = 1; i <= 3; ++i) step(*made.events_of_this_rank(), i);
    made.on_end(trainer, ls::report::totals{});
    REQUIRE(count(contents(file), R"("ph":"X")") == 2 * 7);
    begin(made, trainer);
    CHECK(count(contents(file), R"("ph":"X")") == 2 * 7);
    made.on_end(trainer, ls::report::totals{});
    CHECK(count(contents(file), R"("ph":"X")") == 2 * 7);
    CHECK(contents(file).substr(contents(file).size() - 3) == "\n]\n");
}

TEST_CASE("report/timeline: a run without a step leaves what an earlier one has recorded", "[report]") {
    const folder here;
    const auto file = here.path / "trace.json", drawing = here.path / "step.svg";
    source trainer;
    {
        ls::timeline made{file.string(), 2, drawing.string()};
        begin(made, trainer);
        step(*made.events_of_this_rank(), 1);
        made.on_end(trainer, ls::report::totals{});
    }
    const std::string text = contents(file), svg = contents(drawing);
    ls::timeline again{file.string(), 2, drawing.string()};
    begin(again, trainer);
    CHECK(contents(file) == text);
    again.on_end(trainer, ls::report::totals{});
    CHECK(contents(file) == text);
    CHECK(contents(drawing) == svg);
    CHECK_FALSE(std::filesystem::exists(here.path / "trace.rank0.json"));
}

TEST_CASE("report/timeline: without a path there is none", "[report]") {
    ls::timeline none{""};
    CHECK(none.events_of_this_rank() == nullptr);
    none.on_begin(ls::comm::group{});
}

TEST_CASE("report/timeline: a file that cannot be written is an error before the first step", "[report]") {
    ls::timeline made{"/no/such/folder/trace.json"};
    CHECK_THROWS_WITH(begin(made, source{}),
                      "lockstep: cannot write /no/such/folder/trace.json: No such file or directory; check that the "
                      "directory exists, may "
                      "be written and has room");
}

TEST_CASE("report/timeline: the picture is of the step with the median length, not of the first", "[report]") {
    ls::report::recorded_run run;
    run.ranks.resize(1);
    const std::int64_t lengths[] = {900, 30, 10, 20};
    for (std::uint64_t i = 0; i < 4; ++i)
        run.ranks[0].push_back({.begin = static_cast<std::int64_t>(i) * 1000,
                                .end = static_cast<std::int64_t>(i) * 1000 + lengths[i],
                                .step = i + 1,
                                .what = activity::forward});
    CHECK(ls::report::typical_step(run) == 4);
    CHECK(ls::report::typical_step({}) == 0);
}

TEST_CASE("report/timeline: the picture says what part of the communication was hidden, of each rank and of all",
          "[report]") {
    ls::report::recorded_run run{
        .ranks = {{}, {}}, .buckets = {{0, 1, 800}}, .layers = {"a<b", "dense"}, .bytes = {{800}, {700}}};
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const std::int64_t wait = rank == 0 ? 400 : 200;
        run.ranks[rank] = {{.begin = 0, .end = 1000, .step = 1, .number = 0, .what = activity::forward},
                           {.begin = 1000, .end = 2000 - wait, .step = 1, .number = 1, .what = activity::backward},
                           {.begin = 2000 - wait, .end = 2000, .step = 1, .number = 9, .what = activity::waiting},
                           {.begin = 1000, .end = 2000, .step = 1, .number = 0, .what = activity::sum}};
    }
    const std::string svg = ls::report::picture(run, 1);
    CHECK(count(svg, ">60 % hidden<") == 1);
    CHECK(count(svg, ">80 % hidden<") == 1);
    CHECK(count(svg, "Step 1 on 2 ranks: 0.00 ms. Communication: 70 % hidden behind work") == 1);
    CHECK(count(svg, "forward a&lt;b 0") == 2);
    CHECK(count(svg, "a<b") == 0);
    CHECK(count(svg, "send 700 bytes") == 2);  // the bar, and its exposed part
}

TEST_CASE("report/timeline: the picture of one rank shows no communication", "[report]") {
    const ls::report::recorded_run run{
        .ranks = {{{.begin = 0, .end = 1000, .step = 1, .number = 0, .what = activity::forward},
                   {.begin = 1000, .end = 2000, .step = 1, .number = 1, .what = activity::backward},
                   {.begin = 1500, .end = 2000, .step = 1, .number = 0, .what = activity::sum}}},
        .buckets = {{0, 1, 800}},
        .layers = {"flatten", "dense"},
        .bytes = {{800}}};
    const std::string svg = ls::report::picture(run, 1);
    CHECK(count(svg, ">Step 1 on 1 rank: 0.00 ms<") == 1);
    CHECK(count(svg, "forward flatten 0") == 1);
    for (const char* const word : {"Communication", "% hidden", "under way", ">none<", "sum", "share"})
        CHECK(count(svg, word) == 0);
}
