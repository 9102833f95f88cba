// SPDX-License-Identifier: BSD-3-Clause
// Whole networks with branches: the step of plain SGD against central differences of the loss, in double precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/trainer.hpp"
#include "network/own_join.hpp"

namespace {

namespace ls = lockstep;
using namespace ls::layers;
constexpr ls::layers::tanh bend{};

using sample = ls::tensor::shape<6, 6, 2>;
using label = ls::tensor::classes<3>;

constexpr auto residuals =
    ls::sequential{ls::input<6, 6, 2>,
                   conv<3, 3, conv_options{.padding = 1}>{},
                   ls::residual{bend, conv<3, 3, conv_options{.padding = 1}>{}, bend},
                   ls::residual{ls::residual{conv<3, 1>{}, bend}, bend, ls::residual{bend}},
                   ls::add{ls::path{conv<4, 3, conv_options{.stride = 2, .padding = 1}>{}, bend}, shortcut<4, 2>{}},
                   flatten{},
                   ls::residual{bend},
                   dense<3>{}};
constexpr auto branches = ls::sequential{
    ls::input<6, 6, 2>,
    ls::concatenate{ls::path{}, conv<2, 3, conv_options{.padding = 1}>{},
                    ls::path{mean_pool<3, 1>{}, conv<1, 1, conv_options{.padding = 1}>{}}},
    bend,
    ls::add{ls::path{}, ls::path{}, ls::path{bend, conv<5, 1>{}}},
    ls::concatenate{bend, ls::add{conv<2, 1>{}, ls::path{conv<2, 3, conv_options{.padding = 1}>{}, bend}}},
    flatten{},
    ls::concatenate{dense<2>{}, ls::path{dense<4>{}, ls::residual{bend, dense<4>{}}}},
    dense<3>{}};
/// Nothing learns before the first join but one of its paths.
constexpr auto late =
    ls::sequential{ls::input<6, 6, 2>,
                   bend,
                   ls::add{ls::path{bend}, ls::path{conv<2, 3, conv_options{.padding = 1}>{}}, ls::path{}},
                   mean_pool<2>{},
                   flatten{},
                   dense<3>{},
                   ls::residual{bend}};
/// A join with parameters and a backward pass of its own: of the samples, of a value with other readers, run again, and
/// of one value twice.
constexpr auto gated = ls::sequential{
    ls::input<6, 6, 2>,
    ls::join{support::gate{.scale = 0.5}, ls::path{}, conv<2, 3, conv_options{.padding = 1}>{}},
    ls::recompute{conv<2, 1>{}, ls::join{support::gate{}, ls::path{bend}, ls::path{}}, bend},
    ls::residual{ls::join{support::gate{.scale = 2}, ls::path{}, ls::path{}}},
    flatten{},
    ls::recompute{ls::join{support::gate{}, ls::path{bend}, bend}},
    dense<3>{}};
/// Paths of these widths, one after the other.
template <std::size_t... Widths>
constexpr auto wide = ls::concatenate{conv<Widths, 1>{}...};
/// The sum of concatenations: two, three and four paths of unequal widths, in every order.
template <class... Orders>
constexpr auto sum_of(const Orders&... orders) {
    return ls::sequential{ls::input<6, 6, 2>, ls::add{orders...}, bend, mean_pool<3>{}, flatten{}, dense<3>{}};
}
constexpr auto two_widths = sum_of(wide<1, 4>, wide<4, 1>);
constexpr auto three_widths =
    sum_of(wide<1, 2, 4>, wide<1, 4, 2>, wide<2, 1, 4>, wide<2, 4, 1>, wide<4, 1, 2>, wide<4, 2, 1>);
constexpr auto four_widths =
    sum_of(wide<1, 2, 3, 5>, wide<1, 2, 5, 3>, wide<1, 3, 2, 5>, wide<1, 3, 5, 2>, wide<1, 5, 2, 3>, wide<1, 5, 3, 2>,
           wide<2, 1, 3, 5>, wide<2, 1, 5, 3>, wide<2, 3, 1, 5>, wide<2, 3, 5, 1>, wide<2, 5, 1, 3>, wide<2, 5, 3, 1>,
           wide<3, 1, 2, 5>, wide<3, 1, 5, 2>, wide<3, 2, 1, 5>, wide<3, 2, 5, 1>, wide<3, 5, 1, 2>, wide<3, 5, 2, 1>,
           wide<5, 1, 2, 3>, wide<5, 1, 3, 2>, wide<5, 2, 1, 3>, wide<5, 2, 3, 1>, wide<5, 3, 1, 2>, wide<5, 3, 2, 1>);

constexpr std::size_t rows = 5;

template <class Net>
auto made(const Net& net) {
    return ls::trainer{ls::comm::group{}, ls::plan{.model = net,
                                                   .loss = ls::loss::softmax_cross_entropy{},
                                                   .optimizer = ls::optim::sgd{},
                                                   .schedule = ls::optim::constant{.rate = 1},
                                                   .initialise = ls::model::glorot{},
                                                   .precision = ls::real<double>{},
                                                   .batch = rows,
                                                   .lanes = 3,
                                                   .seed = 2}};
}

template <class Net>
void check(const Net& net) {
    const ls::core::random_stream random{4, ls::core::purpose::user};
    std::vector<double> x(rows * sample::size);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2.0 * static_cast<double>(random.uniform(i)) - 1;
    std::vector<std::int32_t> y(rows);
    for (std::size_t i = 0; i < rows; ++i) y[i] = static_cast<std::int32_t>(i % 3);
    const auto set = ls::data::in_memory<sample, label>(x, y);

    auto moved = made(net), still = made(net);
    using network = typename decltype(moved)::network;
    const auto before = still.all_weights();
    moved.fit(set, ls::steps{1});
    const auto after = moved.all_weights();

    // With weights and inputs of size 1 the third derivatives of the loss with respect to one weight stay below 600:
    // step^2 / 6 x 600 = 1e-8. Rounding: the loss is a few units with fewer than 2000 operations of relative
    // error 1.1e-16 each, over 2 step: below 1e-7.
    constexpr double step = 1e-5, allowed = 1.1e-7;
    std::size_t at = 0;
    double largest = 0;
    auto w = before;
    const auto loss_with = [&](double weight) {
        w[at] = weight;
        still.load_weights(w);
        return still.evaluate(set).loss;
    };
    ls::core::for_each_index<network::size>([&](auto layer) {
        for (const auto& one : network::template layer<layer>::parameters)
            for (const std::size_t end = at + one.size(); at < end; ++at) {
                const double above = loss_with(before[at] + step);
                const double below = loss_with(before[at] - step);
                w[at] = before[at];
                const double gradient = before[at] - after[at];
                INFO("layer " << layer << ", " << one.name << ", " << end - at << " from its end");
                CHECK(std::fabs((above - below) / (2 * step) - gradient) < allowed);
                largest = std::fmax(largest, std::fabs(gradient));
            }
    });
    CHECK(at == network::parameters);
    CHECK(largest > 0.01);
}

}  // namespace

TEST_CASE("gradients/networks: residuals, nested and with a shortcut", "[gradients]") { check(residuals); }
TEST_CASE("gradients/networks: values that are concatenated, added and read several times", "[gradients]") {
    check(branches);
}
TEST_CASE("gradients/networks: paths before which nothing learns", "[gradients]") { check(late); }
TEST_CASE("gradients/networks: a join with parameters", "[gradients]") { check(gated); }
TEST_CASE("gradients/networks: two and three paths of unequal widths, concatenated in every order", "[gradients]") {
    check(two_widths);
    check(three_widths);
}
TEST_CASE("gradients/networks: four paths of unequal widths, concatenated in every order", "[gradients]") {
    check(four_widths);
}
