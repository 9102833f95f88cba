// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2
// A predictor says what the trainer says whose weights it has, bit for bit, for every kind of layer.
#include "lockstep/infer/predictor.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/depthwise_conv.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/local_response_norm.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace support;
using namespace ls::layers;

const samples<> training{96}, test{67, 8};

/// Branches, layers in place, views, and a block that is computed twice in training.
constexpr auto branched =
    ls::sequential{ls::input<12, 12, 1>,
                   conv<8, 3, conv_options{.padding = 1}>{},
                   batch_norm{},
                   relu{},
                   ls::residual{conv<8, 3, conv_options{.padding = 1}>{}, batch_norm{}, relu{},
                                depthwise_conv<3, conv_options{.padding = 1}>{}},
                   ls::concatenate{ls::path{max_pool<2>{}}, ls::path{mean_pool<2>{}, ls::layers::tanh{}}},
                   local_response_norm{},
                   ls::recompute{conv<6, 3>{}, relu{}},
                   flatten{},
                   layer_norm{},
                   dropout{0.25},
                   dense<20>{},
                   sigmoid{},
                   dense<10>{}};

/// A normalisation that computes the sum and the relu after it, as in a ResNet: of the layer before it and of another.
constexpr auto fused = ls::sequential{
    ls::input<12, 12, 1>,
    conv<4, 3, conv_options{.padding = 1}>{},
    batch_norm{},
    relu{},
    ls::residual{conv<4, 3, conv_options{.padding = 1}>{}, batch_norm{}},
    relu{},
    ls::add{shortcut<6, 2>{}, ls::path{conv<6, 3, conv_options{.stride = 2, .padding = 1}>{}, batch_norm{}}},
    relu{},
    global_mean_pool{},
    dense<10>{}};

template <class Net, class Loss>
void check_net(const Net& net, const Loss& loss) {
    const mpi::communicator world;
    const auto path =
        (std::filesystem::temp_directory_path() / ("lockstep-predictor-" + std::to_string(::getpid()) + ".safetensors"))
            .string();
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = loss,
                                        .optimizer = ls::optim::sgd{},
                                        .schedule = ls::optim::constant{.rate = 0.01},
                                        .batch = 32,
                                        .seed = 9}};
    trainer.fit(training.set(), ls::steps{4});
    const auto said = trainer.predict(test.x);
    const std::vector<float> expected(said.begin(), said.end());
    const auto all = trainer.all_weights();
    for (const std::size_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 128}) {
        ls::predictor own{net, all, trainer.running_statistics(), ls::infer::options{.rows = rows}};
        CHECK(own.predict(test.x) == expected);
        CHECK(own.predict(test.set()) == expected);
        CHECK(own.predict(std::span<const float>{}).empty());
    }
    if (world.size() > 1) return;
    trainer.save_weights(path);
    CHECK_THROWS_WITH((ls::predictor<std::remove_const_t<Net>, double>{net, path}),
                      Catch::Contains("asked for was") && Catch::Contains("read it in the precision of the file"));
    ls::predictor read{net, path};
    CHECK(read.predict(std::span<const float>{test.x}) == expected);
    std::filesystem::remove(path);
}

TEST_CASE("a predictor has the outputs of the trainer", "[infer]") {
    check_net(branched, ls::loss::softmax_cross_entropy{});
    check_net(fused, ls::loss::softmax_cross_entropy{});
    check_net(net, ls::loss::softmax_cross_entropy{});
}

TEST_CASE("what a predictor cannot do is one sentence", "[infer]") {
    const std::vector<float> weights(ls::model::network<decltype(net), 1>::parameters);
    const std::span<const float> none{};
    CHECK_THROWS_WITH((ls::predictor{net, std::span{weights}.first(5), none}), Catch::Contains("5 weights"));
    CHECK_THROWS_WITH((ls::predictor{net, weights, none, ls::infer::options{.rows = 0}}), Catch::Contains("0 rows"));
    for (const int threads : {0, -1, 5000})
        CHECK_THROWS_WITH((ls::predictor{net, weights, none, ls::infer::options{.threads = threads}}),
                          Catch::Contains("a predictor has " + std::to_string(threads) + " threads; take 1 to 4096"));
    CHECK_THROWS_WITH((ls::predictor{net, "nowhere.safetensors"}), Catch::Contains("nowhere.safetensors"));
    auto spoilt = weights;
    spoilt[1] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH((ls::predictor{net, spoilt, none}),
                      Catch::Contains("a predictor was given weights that are not finite; pass those of"));
    // Means and variances in the wrong order.
    constexpr auto normed = ls::sequential{ls::input<3>, batch_norm{}};
    const std::vector<float> scale_and_shift(6, 1.0F), swapped{1, 1, 1, 0, -2, 0};
    CHECK_THROWS_WITH(
        (ls::predictor{normed, std::span<const float>{scale_and_shift}, std::span<const float>{swapped}}),
        Catch::Contains("a predictor was given -2 at position 1 of 0.batch_norm.variance; pass running_"));
    constexpr auto refused = ls::sequential{ls::input<3>, batch_norm{.epsilon = -0.5}};
    CHECK_THROWS_WITH(
        (ls::predictor{refused, std::span<const float>{scale_and_shift}, std::span<const float>{scale_and_shift}}),
        Catch::Contains("batch_norm has epsilon = -0.5"));
    ls::predictor one{net, weights, none};
    std::vector<float> x(2 * sample::size);
    CHECK_THROWS_WITH(one.predict(std::span<const float>{x}.first(100)), Catch::Contains("100 numbers"));
    x[sample::size + 3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH(one.predict(std::span<const float>{x}),
                      Catch::Contains("row 1 of x") && Catch::Contains("position 3"));
    constexpr auto of_digits = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<2>{}};
    const std::vector<float> small(28 * 28 * 2 + 2);
    CHECK_THROWS_WITH((ls::predictor{of_digits, small, none}.predict(ls::data::digits{.count = 4, .deviation = -1})),
                      Catch::Contains("deviation"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end what asks for so much
    CHECK_THROWS_WITH(
        (ls::predictor{of_digits, small, none}.predict(ls::data::digits{.count = std::size_t{1} << 52U})),
        Catch::Contains("no memory for predictions: 36028797018963968 bytes") && Catch::Contains("fewer rows at once"));
    CHECK_THROWS_WITH((ls::predictor{net, weights, none, ls::infer::options{.rows = std::size_t{1} << 44U}}),
                      Catch::Contains("no memory for the values of a predictor") && Catch::Contains("options::rows"));
#endif
    const std::vector<float> good(sample::size);
    ls::predictor moved{std::move(one)};
    CHECK(moved.predict(std::span<const float>{good}).size() == 10);
    CHECK_THROWS_WITH(one.predict(std::span<const float>{good}),
                      Catch::Contains("a predictor was used that was moved"));
    CHECK_THROWS_WITH(one.predict(training.set()), Catch::Contains("a predictor was used that was moved"));
    one = std::move(moved);
    // Containers: their extents are looked at.
    CHECK(one.predict(std::vector<float>(2 * sample::size)).size() == 20);
    xt::xtensor<float, 3> images = xt::zeros<float>({3, 12, 12});
    CHECK(one.predict(images).size() == 30);
    const xt::xtensor<float, 3> turned = xt::zeros<float>({12, 12, 3});
    CHECK_THROWS_WITH(one.predict(turned), Catch::Contains("x has the shape 12x12x3"));
    // Of a data set that is read in several parts.
    samples<> bad{300};
    bad.x[290 * sample::size + 7] = std::numeric_limits<float>::infinity();
    CHECK_THROWS_WITH(one.predict(bad.set()), Catch::Contains("sample 290 of ") && Catch::Contains("position 7"));
}

/// Nothing is shared between predictors, and a row has the same bits alone and among others.
TEST_CASE("predictors of several threads have the outputs of one", "[infer]") {
    using network = ls::model::network<std::remove_cvref_t<decltype(fused)>, 1>;
    std::vector<float> weights(network::parameters), statistics(network::statistics, 1.0F);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.3F * std::sin(static_cast<float>(i));
    ls::predictor one{fused, weights, statistics};
    const auto expected = one.predict(test.x);
    constexpr std::size_t inputs = network::input::size, outputs = network::output::size;
    std::array<std::size_t, 3> wrong{};
    {
        std::vector<std::jthread> threads;
        for (std::size_t thread = 0; thread < wrong.size(); ++thread)
            threads.emplace_back([&, thread] {
                ls::predictor own{one.net(), one.weights(), one.running_statistics()};
                for (std::size_t first = 0; first + 9 <= test.y.size(); ++first)
                    for (const std::size_t rows : {thread, 7 + thread}) {
                        const auto y = own.predict(std::span{test.x}.subspan(first * inputs, rows * inputs));
                        const auto part = std::span{expected}.subspan(first * outputs, rows * outputs);
                        wrong[thread] += !std::ranges::equal(y, part);
                    }
            });
    }
    CHECK(wrong == std::array<std::size_t, 3>{});
}

}  // namespace
