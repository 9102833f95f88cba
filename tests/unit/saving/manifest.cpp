// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/saving/manifest.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace {

namespace ls = lockstep;
using ls::saving::manifest;

manifest example() {
    manifest out;
    out.at = {.steps = std::numeric_limits<std::uint64_t>::max(),
              .epoch = 3,
              .position = 59'999,
              .samples = 5,
              .set = 60'000,
              .epoch_loss = 0.1 + 0.2,  // of which no digit may be lost
              .best_epoch = 2,
              .best_loss = 1e-300};
    out.recipe = {{"seed", "42"}, {"network", "28x28x1 \"conv\"\n->\t7"}, {"rates", "0.1"}};
    out.file_bytes = 33;
    out.block_bytes = 16;
    out.sums = {0, 0xffffffffU, 7};
    return out;
}

TEST_CASE("a manifest reads back as it was", "[saving]") {
    const manifest from = example(), to = manifest::read(from.text(), "m");
    CHECK(to.at.steps == from.at.steps);
    CHECK(to.at.epoch == 3);
    CHECK(to.at.position == from.at.position);
    CHECK(to.at.samples == 5);
    CHECK(to.at.set == 60'000);
    CHECK(to.at.epoch_loss == 0.1 + 0.2);
    CHECK(to.at.best_epoch == 2);
    CHECK(to.at.best_loss == 1e-300);
    CHECK(to.recipe == from.recipe);
    CHECK(to.file_bytes == 33);
    CHECK(to.sums == from.sums);
    CHECK(to.text() == from.text());
}

TEST_CASE("a manifest of a run without a best epoch, at the end of an epoch", "[saving]") {
    manifest from;
    from.at = {.steps = 7, .epoch = 1};
    const manifest to = manifest::read(from.text(), "m");
    CHECK_FALSE(to.at.epoch_loss);
    CHECK(to.at.best_epoch == 0);
    CHECK(to.at.best_loss == std::numeric_limits<double>::infinity());
}

TEST_CASE("a manifest of a later version or of something else says so", "[saving]") {
    manifest later = example();
    later.version = manifest::newest_version + 1;
    CHECK_THROWS_WITH(manifest::read(later.text(), "m"), Catch::Contains("version 2") && Catch::Contains("newer"));
    CHECK_THROWS_WITH(manifest::read("{\"a\":1}", "m"), Catch::Contains("no manifest"));
    CHECK_THROWS_WITH(manifest::read("[1]", "m"), Catch::Contains("m, byte 0"));
    manifest beyond = example();
    beyond.at.position = 60'000;
    CHECK_THROWS_WITH(manifest::read(beyond.text(), "m"), Catch::Contains("contradicts itself"));
    std::string changed = example().text();
    changed.replace(changed.find("60000"), 5, "60001");
    CHECK_THROWS_WITH(manifest::read(changed, "m"), Catch::Contains("it was changed"));
}

TEST_CASE("another recipe is refused line by line", "[saving]") {
    const auto stored = example().recipe;
    auto now = stored;
    ls::saving::require_same_recipe(stored, now, {}, "m");
    now[2].second = "0.2";
    now.push_back({"clip", "1"});
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(stored, now, {}, "m"),
                      Catch::Contains("rates is 0.1 there and 0.2 here") &&
                          Catch::Contains("clip is nothing there and 1 here") &&
                          Catch::Contains("by name: rates, clip"));
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(stored, now, {"rates"}, "m"), !Catch::Contains("rates is"));
    ls::saving::require_same_recipe(stored, now, {"clip", "rates"}, "m");
    // The list that would do is longer than the one that was given.
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(stored, now, {"rates"}, "m"),
                      "lockstep: m is of another recipe: clip is nothing there and 1 here; resume with the plan that "
                      "wrote it, or allow the change by name: rates, clip");
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(stored, stored, {"rates", "scheduel"}, "m"),
                      Catch::Contains("to change \"scheduel\", which no recipe has; name lines of the recipe: seed"));
    // To allow it would help nobody: arrays of other workers do not fit.
    auto with_workers = stored;
    with_workers.push_back({"workers", "2"});
    auto of_three = stored;
    of_three.push_back({"workers", "3"});
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(with_workers, of_three, {}, "m"),
                      "lockstep: m is of another recipe: workers is 2 there and 3 here; set .workers = 2 in the plan: "
                      "without it there is a worker for each rank");
    // Also where more differs.
    of_three[0].second = "43";
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(with_workers, of_three, {}, "m"),
                      "lockstep: m is of another recipe: seed is 42 there and 43 here; workers is 2 there and 3 here; "
                      "set .workers = 2 in the plan: without it there is a worker for each rank; then resume with the "
                      "plan that wrote it, or allow the change by name: seed");
    // A plan without workers has no number of them to set.
    auto without = with_workers;
    without.back().second = "none";
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(with_workers, without, {}, "m"),
                      Catch::Contains("workers is 2 there and none here; resume with the plan that wrote it, or"));
    CHECK_THROWS_WITH(ls::saving::require_same_recipe(with_workers, of_three, {"seed"}, "m"),
                      "lockstep: m is of another recipe: workers is 2 there and 3 here; set .workers = 2 in the plan: "
                      "without it there is a worker for each rank");
}

}  // namespace
