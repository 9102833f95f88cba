// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>

#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"
// What the compiler says of itself where it was not asked to optimise.
#undef __OPTIMIZE__
#include "lockstep/train/summary.hpp"

namespace ls = lockstep;

TEST_CASE("train/summary: a program that was compiled without optimisation says so", "[train]") {
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = ls::sequential{ls::input<7>, ls::layers::dense<3>{}},
                                                    .loss = ls::loss::softmax_cross_entropy{}}};
    const std::string text = ls::summary(trainer), first = text.substr(0, text.find('\n'));
    INFO(text);
    CHECK(first.rfind("instructions  ", 0) == 0);
    CHECK(first.find("not optimised: configure with -DCMAKE_BUILD_TYPE=Release") != std::string::npos);
}
