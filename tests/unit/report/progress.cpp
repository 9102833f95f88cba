// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/progress.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

namespace ls = lockstep;

TEST_CASE("report/progress: a line for each interval, each epoch and the end", "[report]") {
    std::ostringstream out;
    ls::progress lines{out, 5, false};
    for (std::size_t step = 1; step <= 4; ++step)
        lines.on_step({.step = step,
                       .epoch = 1,
                       .loss = 0.5,
                       .rate = 0.25,
                       .seconds = 2.0 * static_cast<double>(step),
                       .steps_done = step,
                       .steps_left = 4 - step,
                       .samples_per_second = 100});
    lines.on_epoch({.epoch = 1,
                    .loss = 0.25,
                    .seconds = 8,
                    .test = ls::report::evaluation{.loss = 1.5, .accuracy = 0.75, .metrics = {{"top_5", 0.875}}}});
    lines.on_end({});
    CHECK(out.str() ==
          "epoch 1  step 1/4  loss 0.5000  rate 0.25  100 samples/s  left 0:06\n"
          "epoch 1  step 4/4  loss 0.5000  rate 0.25  100 samples/s  left 0:00\n"
          "epoch 1: loss 0.2500, 8.0 s, test loss 1.5000, test accuracy 75.00 %, test top_5 0.8750\n");
}

TEST_CASE("report/progress: a stream that does not take its text is an error", "[report]") {
    std::ofstream full{"/dev/full"};
    CHECK_THROWS_WITH(ls::report::print(full, "x"),
                      "lockstep: the output cannot be written: No space left on device; check where it goes: a file "
                      "needs room, a pipe needs a "
                      "reader");
    ls::progress lines{full};
    CHECK_THROWS_WITH(lines.on_epoch({.epoch = 1, .test = {}}),
                      Catch::Contains("lockstep: the output cannot be written: "));
}

namespace {

ls::report::step_event event_at(std::uint64_t done, std::uint64_t left, double seconds, double asked = 0) {
    return {.step = 100 + done,
            .epoch = 2,
            .loss = 0.5,
            .rate = 0.25,
            .seconds = seconds,
            .steps_done = done,
            .steps_left = left,
            .seconds_asked = asked,
            .seconds_used = asked > 0 ? seconds : 0,
            .samples_per_second = 100};
}

}  // namespace

TEST_CASE("report/progress: a bar fits any terminal", "[report]") {
    using ls::report::bar_text;
    const std::string facts = "epoch 2  step 130/200  loss 0.5000  100 samples/s  left 0:07";
    CHECK(bar_text(event_at(30, 70, 3), 200) == " 30 % [" + std::string(12, '#') + std::string(28, '.') + "] " + facts);
    CHECK(bar_text(event_at(30, 70, 3), 78) == " 30 % [##......] " + facts);
    CHECK(bar_text(event_at(30, 70, 3), 77) == " 30 % " + facts);
    CHECK(bar_text(event_at(30, 70, 3), 20) == " 30 % epoch 2  step");
    for (std::size_t columns = 0; columns < 120; ++columns)
        for (const std::uint64_t done : {1U, 2U, 99U, 100U}) {
            const auto line = bar_text(event_at(done, 100 - done, 1), columns);
            CHECK(line.size() < std::max<std::size_t>(columns, 1));
        }
    CHECK(bar_text(event_at(100, 0, 3), 90).starts_with("100 % [####"));
    CHECK(bar_text(event_at(3, ~std::uint64_t{0} - 3, 3), 77).find("step 103  loss") != std::string::npos);
    CHECK(bar_text(event_at(99, 1, 3), 90).starts_with(" 99 % [####"));
    // No percentage is one too small.
    for (std::uint64_t done = 1; done < 100; ++done) {
        const auto line = bar_text(event_at(done, 100 - done, 1), 90);
        CHECK(line.substr(0, 3) == ls::core::text(done < 10 ? "  " : " ", done));
    }
    // For some seconds: the time decides, and steps have no end that is known.
    CHECK(bar_text(event_at(30, 1, 15, 60), 78) ==
          " 25 % [###.........] epoch 2  step 130  loss 0.5000  100 samples/s  left 0:45");
    CHECK(bar_text(event_at(30, 1, 90, 60), 78).starts_with("100 % ["));
    CHECK(bar_text(event_at(30, 0, 50, 60), 60).starts_with("100 % epoch 2"));
}

TEST_CASE("report/progress: lines of a run for some seconds", "[report]") {
    std::ostringstream out;
    ls::progress lines{out, 5, false};
    for (const std::uint64_t done : {1U, 2U, 3U})
        lines.on_step(event_at(done, done < 3 ? 1 : 0, 4.0 * static_cast<double>(done), 14));
    CHECK(out.str() ==
          "epoch 2  step 101  loss 0.5000  rate 0.25  100 samples/s  left 0:10\n"
          "epoch 2  step 103  loss 0.5000  rate 0.25  100 samples/s  left 0:00\n");
}

TEST_CASE("report/progress: what observers do is a part of some seconds", "[report]") {
    // 15 s of steps, and 15 s of an evaluation after an epoch.
    auto event = event_at(30, 1, 15, 60);
    event.seconds_used = 30;
    CHECK(ls::report::bar_text(event, 78) ==
          " 50 % [######......] epoch 2  step 130  loss 0.5000  100 samples/s  left 0:30");
    std::ostringstream out;
    ls::progress lines{out, 5, false};
    lines.on_step(event);
    CHECK(out.str() == "epoch 2  step 130  loss 0.5000  rate 0.25  100 samples/s  left 0:30\n");
}

TEST_CASE("report/progress: a rate has four digits, however small it is", "[report]") {
    for (const auto& [rate, text] :
         {std::pair{4e-6, "4e-06"}, {0.00012345678, "0.0001235"}, {0.1, "0.1"}, {0.0, "0"}}) {
        std::ostringstream out;
        ls::progress lines{out, 5, false};
        auto event = event_at(1, 9, 1);
        event.rate = rate;
        lines.on_step(event);
        CHECK(out.str().find(ls::core::text("  rate ", text, "  100 samples/s")) != std::string::npos);
    }
}

TEST_CASE("report/progress: a bar is for the streams of a program alone, and not where they are led to another buffer",
          "[report]") {
    using ls::report::is_of_program;
    CHECK(is_of_program(std::cout));
    CHECK(is_of_program(std::cerr));
    CHECK(is_of_program(std::clog));
    std::ofstream file{"/dev/null"};
    std::ostringstream text;
    std::ostream around{file.rdbuf()}, without{nullptr};
    for (const std::ostream* other :
         {static_cast<std::ostream*>(&file), static_cast<std::ostream*>(&text), &around, &without})
        CHECK_FALSE(is_of_program(*other));
    auto* const own = std::clog.rdbuf(text.rdbuf());
    const bool is_led_away = !is_of_program(std::clog);
    std::clog.rdbuf(own);
    CHECK(is_led_away);
}

/// What tests/terminal looks at.
TEST_CASE("report/progress: on standard output", "[.terminal]") {
    ls::progress shown{std::cout, 5, false};
    for (std::uint64_t done = 1; done <= 100; ++done) {
        shown.on_step(event_at(done, 100 - done, 0.25 * static_cast<double>(done)));
        if (done == 50) shown.on_epoch({.epoch = 1, .loss = 0.25, .seconds = 5, .test = {}});
    }
    shown.on_end({});
}
