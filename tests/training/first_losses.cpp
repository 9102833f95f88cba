// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 4
// The first steps on generated digits: where the loss starts and how far it falls; and the user's side of every tensor.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#if __has_include(<xtensor/containers/xtensor.hpp>)
#include <xtensor/containers/xfixed.hpp>
#include <xtensor/containers/xtensor.hpp>
#else
#include <xtensor/xfixed.hpp>
#include <xtensor/xtensor.hpp>
#endif

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;
namespace optim = ls::optim;

constexpr auto small =
    ls::sequential{ls::input<28, 28, 1>,  ls::layers::conv<4, 5>{}, ls::layers::relu{}, ls::layers::max_pool<2>{},
                   ls::layers::flatten{}, ls::layers::dense<32>{},  ls::layers::relu{}, ls::layers::dense<10>{}};
const double ln10 = std::log(10.0);

template <class Optimizer, class Compressor>
auto recipe(const Optimizer& optimizer, double rate, const Compressor& compressor) {
    return ls::plan{
        .model = small,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = optimizer,
        .schedule = optim::constant{.rate = rate},
        .compressor = compressor,
        .initialise = ls::model::glorot{},
        .batch = 64,
        .seed = 1,
    };
}
template <class Optimizer>
auto recipe(const Optimizer& optimizer, double rate) {
    return recipe(optimizer, rate, ls::compress::none{});
}

/// Trains 120 steps; the mean loss of the last ten.
template <class Plan>
double last_losses(const Plan& plan) {
    ls::trainer trainer{mpi::communicator{}, plan};
    losses seen;
    trainer.fit(ls::data::digits{.count = 1000}, ls::steps{120}, seen);
    REQUIRE(seen.values.size() == 120);
    // Normal logits of variance v that know nothing of the labels cost v / 2 more than ln 10 or less, in the mean.
    // Inputs have variance 1, and the rule of Glorot makes v smaller: here by factors of 2 in / (in + out) = 0.4, 1.9
    // and 1.5, and of 1/2 in each relu.
    CHECK(std::fabs(seen.values[0] - ln10) < 0.5);
    double sum = 0;
    for (std::size_t i = 110; i < 120; ++i) sum += seen.values[i];
    const auto fresh = trainer.evaluate(ls::data::digits{.count = 500, .first = 1'000'000});
    CHECK(fresh.accuracy.value() > 0.75);
    CHECK(fresh.samples == 500);
    UNSCOPED_INFO("loss " << sum / 10 << " accuracy " << *fresh.accuracy);
    return sum / 10;
}

struct images {
    xt::xtensor<float, 4> x;
    xt::xtensor<int, 1> y;
};
images draw(std::size_t count, std::uint64_t first) {
    const ls::data::digits set{.count = count, .first = first};
    images out{xt::xtensor<float, 4>::from_shape({count, 28, 28, 1}), xt::xtensor<int, 1>::from_shape({count})};
    std::vector<std::uint64_t> rows(count);
    for (std::size_t i = 0; i < count; ++i) rows[i] = i;
    set.read(std::span<const std::uint64_t>{rows},
             ls::tensor::batch<float, ls::data::digits::sample>{out.x.data(), count},
             std::span<std::int32_t>{out.y.data(), count});
    return out;
}

}  // namespace

TEST_CASE("training/first_losses: sgd", "[training]") { CHECK(last_losses(recipe(optim::sgd{}, 0.1)) < 0.5); }

TEST_CASE("training/first_losses: momentum", "[training]") {
    CHECK(last_losses(recipe(optim::momentum{.beta = 0.9}, 0.02)) < 0.25);
}

TEST_CASE("training/first_losses: adam", "[training]") { CHECK(last_losses(recipe(optim::adam{}, 0.002)) < 0.35); }

TEST_CASE("training/first_losses: top_k with error feedback", "[training]") {
    CHECK(last_losses(recipe(optim::sgd{}, 0.05, error_feedback{ls::compress::top_k{.ratio = 0.05}})) < 0.6);
}

TEST_CASE("training/first_losses: quantize with error feedback", "[training]") {
    CHECK(last_losses(recipe(optim::sgd{}, 0.1, error_feedback{ls::compress::quantize{.bits = 4}})) < 0.5);
}

TEST_CASE("training/first_losses: terngrad", "[training]") {
    CHECK(last_losses(recipe(optim::sgd{}, 0.05, ls::compress::terngrad{})) < 0.6);
}

TEST_CASE("training/first_losses: power_sgd with error feedback", "[training]") {
    CHECK(last_losses(recipe(optim::sgd{}, 0.1, error_feedback{ls::compress::power_sgd{.rank = 2}})) < 0.5);
}

TEST_CASE("training/first_losses: the first loss is that of the first predictions", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(optim::sgd{}, 0.1)};
    const auto all = draw(64, 0);
    const auto y = trainer.predict(all.x);
    double sum = 0, range = 0;
    for (std::size_t row = 0; row < 64; ++row) {
        double exponentials = 0, lowest = y(row, 0), highest = y(row, 0);
        for (std::size_t i = 0; i < 10; ++i) {
            exponentials += std::exp(static_cast<double>(y(row, i)));
            lowest = std::fmin(lowest, y(row, i));
            highest = std::fmax(highest, y(row, i));
        }
        sum += std::log(exponentials) - y(row, static_cast<std::size_t>(all.y(row)));
        range += highest - lowest;
    }
    losses seen;
    trainer.fit(ls::data::digits{.count = 64}, ls::steps{1}, seen);
    // Rounding: 64 rows, each from ten numbers below 8 with 24 bits, and from a kernel that is right to a few units in
    // the last place.
    CHECK(std::fabs(seen.values.at(0) - sum / 64) < 1e-5);
    CHECK(std::fabs(seen.values.at(0) - ln10) <= range / 64);
}

TEST_CASE("training/first_losses: xtensor containers go in and come out", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(optim::momentum{.beta = 0.9}, 0.02)};
    const auto live = trainer.weights(0, "weight");
    static_assert(std::is_same_v<decltype(trainer.weights(0, "weight")(0, 0)), const float&>,
                  "load_weights() changes them");
    CHECK(live.dimension() == 2);
    CHECK(live.shape()[0] == 25);
    CHECK(live.shape()[1] == 4);
    const float* const place = &live(0, 0);
    const std::vector<float> before(live.begin(), live.end());

    const auto mine = draw(8, static_cast<std::uint64_t>(world.rank()) * 8);
    xt::xtensor_fixed<float, xt::xshape<3, 28, 28>> fixed;
    xt::xtensor_fixed<std::int32_t, xt::xshape<3>> fixed_labels;
    std::copy_n(mine.x.data(), fixed.size(), fixed.data());
    std::copy_n(mine.y.data(), fixed_labels.size(), fixed_labels.data());
    CHECK(trainer.step(mine.x, mine.y).samples == 8 * static_cast<std::size_t>(world.size()));
    const std::vector<float> after_one(live.begin(), live.end());
    CHECK(after_one != before);
    CHECK(trainer.step(fixed, fixed_labels).samples == 3 * static_cast<std::size_t>(world.size()));
    const std::vector<float> after_two(live.begin(), live.end());
    CHECK(after_two != after_one);
    const auto again = trainer.weights(0, "weight");
    CHECK(&again(0, 0) == place);
    CHECK(std::equal(again.begin(), again.end(), after_two.begin(), after_two.end()));
    CHECK_THROWS_WITH(trainer.weights(0, "wait"),
                      "lockstep: layer 0 has no parameter 'wait'; choose one of: weight, bias");
    CHECK_THROWS_WITH(trainer.weights(1, "weight"),
                      "lockstep: layer 1 has no parameter 'weight'; choose a layer with parameters below 7");

    const auto y = trainer.predict(fixed);
    CHECK(y.dimension() == 2);
    CHECK(y.shape()[0] == 3);
    CHECK(y.shape()[1] == 10);
    const xt::xtensor<float, 4> none = xt::xtensor<float, 4>::from_shape({0, 28, 28, 1});
    CHECK(trainer.predict(none).shape()[0] == 0);
}

TEST_CASE("training/first_losses: predict, row by row, is what evaluate counts", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(optim::momentum{.beta = 0.9}, 0.02)};
    trainer.fit(ls::data::digits{.count = 1000}, ls::steps{25});
    const std::size_t count = 333;
    const auto test = draw(count, 2'000'000);
    const auto y = trainer.predict(test.x);  // more rows than a minibatch
    REQUIRE(y.shape()[0] == count);
    std::size_t right = 0;
    double loss = 0;
    for (std::size_t row = 0; row < count; ++row) {
        std::size_t best = 0;
        double sum = 0;
        for (std::size_t i = 0; i < 10; ++i) {
            if (y(row, i) > y(row, best)) best = i;
            sum += std::exp(static_cast<double>(y(row, i)));
        }
        right += best == static_cast<std::size_t>(test.y(row));
        loss += std::log(sum) - static_cast<double>(y(row, static_cast<std::size_t>(test.y(row))));
    }
    const auto tested = trainer.evaluate(ls::data::digits{.count = count, .first = 2'000'000});
    CHECK(tested.samples == count);
    CHECK(tested.accuracy.value() == static_cast<double>(right) / static_cast<double>(count));
    CHECK(std::fabs(tested.loss - loss / static_cast<double>(count)) < 1e-5);
    CHECK(right > count / 4);  // and it is no comparison of guesses
}
