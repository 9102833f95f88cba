// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/train/engine/inference.hpp"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;

TEST_CASE(
    "train/inference: predictions belong to the caller: neither a further call nor the trainer's end changes them",
    "[train]") {
    const std::vector<float> one{1, 0, 1, 0}, other{0, 5, 0, 5, 0, 5};
    const auto first = [&] {
        ls::trainer trainer{ls::comm::group{}, ls::plan{.model = ls::sequential{ls::input<2>, ls::layers::dense<1>{}},
                                                        .loss = ls::mean_squared_error{},
                                                        .batch = 8}};
        const auto w = trainer.weights(0, "weight");
        const auto before = trainer.predict(one);
        const auto second = trainer.predict(other);
        CHECK(second.shape()[0] == 3);
        CHECK(second(2, 0) == 5 * w(1, 0));
        CHECK(before(0, 0) == w(0, 0));
        CHECK(before(0, 0) != second(0, 0));
        return std::pair{before, w(0, 0)};
    }();
    REQUIRE(first.first.shape()[0] == 2);
    CHECK(first.first(1, 0) == first.second);
}
