// SPDX-License-Identifier: BSD-3-Clause
// ranks: 2
// Frozen layers keep every bit, the others are those of the inner optimizer; clipping and norms with it, on one and two
// ranks.
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/model/layout.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/freeze.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;
namespace optim = ls::optim;

namespace {

constexpr auto net =
    ls::sequential{ls::input<5>, dense<9>{}, ls::layers::tanh{}, dense<7>{}, ls::layers::tanh{}, dense<2>{}};
constexpr std::size_t rows = 6;

template <class Optimizer, class Clip = ls::sync::no_clipping>
auto recipe(const Optimizer& optimizer, const Clip& clip = {}) {
    return ls::plan{.model = net,
                    .loss = ls::mean_squared_error{},
                    .optimizer = optimizer,
                    .schedule = optim::constant{.rate = 0.05},
                    .precision = ls::real<double>{},
                    .clip = clip,
                    .batch = rows,
                    .lanes = 2};
}

/// The weights after so many steps, alone and on two ranks.
template <class Plan>
std::vector<double> trained(const Plan& plan, int steps) {
    std::vector<double> x(rows * 5), y(rows * 2);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i + 1));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = 3 * std::cos(static_cast<double>(2 * i));
    const auto train = [&](const auto& ranks, std::size_t first, std::size_t last) {
        ls::trainer trainer{ranks, plan};
        const auto part = [&](const std::vector<double>& of, std::size_t width) {
            return std::vector<double>(of.data() + first * width, of.data() + last * width);
        };
        for (int step = 0; step < steps; ++step) trainer.step(part(x, 5), part(y, 2));
        return trainer.all_weights();
    };
    const boost::mpi::communicator world;
    const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
    const auto alone = train(ls::comm::group{}, 0, rows);
    CHECK(train(world, rank * rows / ranks, (rank + 1) * rows / ranks) == alone);
    return alone;
}
using network = ls::model::network<std::remove_const_t<decltype(net)>, 1>;

/// Checks the weights of layers before number `end`, and those of the others, with `is_frozen(true or false, weight)`.
template <class F>
void for_each_weight(std::size_t end, const F& f) {
    for (const auto& one : ls::weight_layout<network>)
        for (std::size_t i = 0; i < one.size(); ++i) f(one.layer < end, one.offset + i);
}

/// Frozen weights are those of the start, others have changed.
template <class Inner>
void stays(const Inner& inner) {
    INFO(Inner::name);
    const auto start = trained(recipe(inner), 0),
               found = trained(recipe(optim::freeze{.before = 3, .inner = inner}), 4);
    for_each_weight(3, [&](bool is_frozen, std::size_t at) {
        if (is_frozen)
            CHECK(found[at] == start[at]);
        else
            CHECK(found[at] != start[at]);
    });
    CHECK(trained(recipe(optim::freeze{.before = 0, .inner = inner}), 4) == trained(recipe(inner), 4));
}

}  // namespace

TEST_CASE("equivalence/freeze: frozen layers keep their bits, and none are those of the inner optimizer",
          "[equivalence]") {
    stays(optim::momentum{.beta = 0.9, .nesterov = true});
    stays(optim::weight_decay{.rate = 0.1, .decoupled = true, .inner = optim::adam{}});
    stays(optim::lamb{});
}

TEST_CASE("equivalence/freeze: the first step of the others is that without frozen layers", "[equivalence]") {
    const auto check = [](const auto& inner) {
        const auto all = trained(recipe(inner), 1),
                   some = trained(recipe(optim::freeze{.before = 3, .inner = inner}), 1);
        for_each_weight(3, [&](bool is_frozen, std::size_t at) {
            if (!is_frozen) CHECK(some[at] == all[at]);
        });
    };
    check(optim::momentum{});
    check(optim::lamb{});
}

TEST_CASE("equivalence/freeze: a network of which nothing is left to train is an error", "[equivalence]") {
    CHECK_THROWS_WITH(trained(recipe(optim::freeze{.before = 5, .inner = optim::momentum{}}), 0),
                      Catch::Matchers::Contains("trains no weight of the 5 layers of the network"));
}

TEST_CASE("equivalence/freeze: clipping looks at the gradients of the others", "[equivalence]") {
    // The first step of momentum shows the gradient.
    const auto start = trained(recipe(optim::momentum{}), 0), free = trained(recipe(optim::momentum{}), 1);
    double squares = 0, squares_of_all = 0;
    for_each_weight(3, [&](bool is_frozen, std::size_t at) {
        const double gradient = (start[at] - free[at]) / 0.05;
        squares_of_all += gradient * gradient;
        if (!is_frozen) squares += gradient * gradient;
    });
    const double norm = std::sqrt(squares) / 2;
    REQUIRE(squares_of_all > 1.1 * squares);
    const auto found = trained(
        recipe(optim::freeze{.before = 3, .inner = optim::momentum{}}, ls::sync::clip_by_global_norm{.norm = norm}), 1);
    for_each_weight(3, [&](bool is_frozen, std::size_t at) {
        const double expected = is_frozen ? start[at] : start[at] + (free[at] - start[at]) / 2;
        CHECK(found[at] == Approx(expected).epsilon(1e-9).margin(1e-12));
    });
}
