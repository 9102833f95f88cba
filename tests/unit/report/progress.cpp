// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/progress.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>

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
          "epoch 1  step 1/4  loss 0.5000  rate 0.25000  100 samples/s  left 0:06\n"
          "epoch 1  step 4/4  loss 0.5000  rate 0.25000  100 samples/s  left 0:00\n"
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
