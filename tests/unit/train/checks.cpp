// SPDX-License-Identifier: BSD-3-Clause
// What a trainer asks before it starts: of the parts of a plan, and of data sets.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/augmented.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/normalised.hpp"
#include "lockstep/data/shapes.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;

/// A rule and an order that refuse their own numbers.
struct scaled {
    double factor = 1;
    static double value(const ls::tensor::parameter&, const ls::core::random_stream&, std::uint64_t) noexcept {
        return 0;
    }
    void check() const {
        if (!(factor > 0)) ls::core::fail(ls::core::text("scaled has factor = ", factor), "take one above 0");
    }
};
struct strided {
    std::size_t stride = 1;
    static void order(std::uint64_t, std::uint64_t, std::uint64_t, std::span<std::uint64_t>) {}
    void check() const {
        if (stride == 0) ls::core::fail("strided has stride = 0", "take at least 1");
    }
};

constexpr auto net = ls::sequential{ls::input<28, 28, 1>, ls::layers::flatten{}, ls::layers::dense<10>{}};

template <class Initialise = ls::model::he, class Sampler = ls::data::shuffled>
auto recipe(const Initialise& initialise = {}, const Sampler& sampler = {},
            ls::collectives::sum_family sums = ls::collectives::lane_tree_sums) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .initialise = initialise,
                    .sampler = sampler,
                    .sums = sums};
}

template <class Plan>
std::string line(const Plan& of, const std::string& name) {
    for (const auto& [what, value] : ls::train::recipe_of(of, 0))
        if (what == name) return value;
    return "not compared";
}

template <class Set>
void refuse(const Set& set, const std::string& text) {
    constexpr auto own = ls::sequential{typename Set::sample{}, ls::layers::flatten{}, ls::layers::dense<10>{}};
    ls::trainer trainer{ls::comm::group{}, ls::plan{.model = own, .loss = ls::loss::softmax_cross_entropy{}}};
    CHECK_THROWS_WITH(trainer.fit(set, ls::steps{1}), Catch::StartsWith(text));
    CHECK_THROWS_WITH(trainer.evaluate(set), Catch::StartsWith(text));
}

}  // namespace

TEST_CASE("train/checks: the rule of initialisation and the sampler are asked, too", "[train]") {
    ls::train::check(recipe(scaled{}, strided{}));
    CHECK_THROWS_WITH(ls::train::check(recipe(scaled{.factor = 0})),
                      "lockstep: scaled has factor = 0; take one above 0");
    CHECK_THROWS_WITH(ls::train::check(recipe(scaled{}, strided{.stride = 0})),
                      "lockstep: strided has stride = 0; take at least 1");
}

TEST_CASE("train/checks: data sets are asked before they are read", "[train]") {
    refuse(ls::data::digits{.count = 64, .deviation = 0},
           "lockstep: generated digits (seed 1, from 0) has the mean 0.1358 and the deviation 0; give it a finite "
           "mean, and a finite deviation above 0: 0 and 1 change nothing");
    const ls::data::shapes negative{.count = 64, .deviation = -1};
    const std::string text =
        "lockstep: generated shapes (seed 1, from 0) has the mean 0.4989 and the deviation -1; give it a finite mean, "
        "and a finite deviation above 0: 0 and 1 change nothing";
    refuse(negative, text);
    refuse(ls::data::augmented{negative, ls::data::flip{}}, text);
    refuse(ls::data::normalised{negative, {}}, text);
}

TEST_CASE("train/checks: an observer that hears of the beginning alone", "[train]") {
    struct beginning {
        int heard = 0;
        void on_begin() { ++heard; }
    } observer;
    ls::trainer trainer{ls::comm::group{}, recipe()};
    trainer.fit(ls::data::digits{.count = 64}, ls::steps{1}, observer);
    CHECK(observer.heard == 1);
}

TEST_CASE("train/checks: samplers and families of sums are compared over ranks", "[train]") {
    CHECK(line(recipe(), "sampler") == "shuffled");
    CHECK(line(recipe(ls::model::he{}, ls::data::ordered{}), "sampler") == "ordered");
    CHECK(line(recipe(), "sums") == "those up to doubling");
    CHECK(line(recipe(ls::model::he{}, ls::data::shuffled{}, ls::collectives::all_sums), "sums") ==
          "those up to halving-doubling");
}

TEST_CASE("train/checks: a schedule without settings may end with its run", "[train]") {
    const std::vector<double> rates(200, 0.5);
    const auto table = [&](std::uint64_t step) { return rates.at(step); };
    const ls::plan plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .schedule = table};
    CHECK(line(plan, "learning rates") == "0.5 0.5 0.5 0.5 none none");
    const auto whole = [](std::uint64_t step) { return static_cast<double>(step); };
    CHECK(line(ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .schedule = whole},
               "learning rates") == "0 1 10 100 1000 10000");
}
