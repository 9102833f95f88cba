// SPDX-License-Identifier: BSD-3-Clause
// Outputs, loss and gradients of two tiny networks against numbers that were computed without the library: see
// reference_numbers.py.
#include "network/reference_numbers.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;
using network_test::expected;

namespace {

constexpr std::size_t rows = 5;

/// Exact in float.
template <class T>
std::vector<T> numbers(std::size_t first, std::size_t count) {
    std::vector<T> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>((37 * (first + i) + 11) % 101) / 64 - T{50} / 64;
    return out;
}

/// A step of plain SGD at the rate 1 takes the gradient off the weights.
template <class T, class Net, class Loss, class Rule, class Labels>
void compare(const expected& reference, const Net& net, const Loss& loss, const Rule& rule, const Labels& labels,
             std::size_t lanes, int threads) {
    ls::trainer trainer{ls::comm::group{},
                        ls::plan{
                            .model = net,
                            .loss = loss,
                            .optimizer = ls::optim::sgd{},
                            .schedule = ls::optim::constant{.rate = 1},
                            .initialise = rule,
                            .precision = ls::real<T>{},
                            .batch = rows,
                            .lanes = lanes,
                            .seed = 42,
                            .threads = ls::parallel::has_threads ? static_cast<std::size_t>(threads) : 1,
                        }};
    // Each of n roundings on the way adds at most u times the same sum of magnitudes, which the script has computed: n
    // u A for outputs. The derivatives of the loss and of tanh take errors of the outputs over, at most 4 n u A of
    // magnitudes that are below 1; so gradients err by (n u + 4 n u A) G, with the sum of magnitudes G of each, and by
    // the two roundings of a step. The loss has a derivative of at most 2 (A + 1).
    const double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
    const double of_output = reference.roundings * u * reference.largest_output;
    const double of_gradient = reference.roundings * u + 4 * of_output;
    REQUIRE(of_output < network_test::margin);

    const auto before = trainer.all_weights();
    REQUIRE(before.size() == reference.parameters);
    for (std::size_t i = 0; i < reference.weights.size(); ++i) {
        // Rounded once to T; the few operations in double before it, by another library perhaps.
        const double wanted = reference.weights[i];
        CHECK(std::abs(static_cast<double>(before[i * reference.every]) - wanted) <=
              u * std::abs(wanted) + 16 * 0x1p-53 * std::abs(wanted));
    }

    const auto x = numbers<T>(0, rows * Net::input::size);
    const auto y = trainer.predict(x);
    REQUIRE(y.size() == reference.outputs.size());
    for (std::size_t i = 0; i < reference.outputs.size(); ++i) {
        INFO("output " << i);
        CHECK(std::abs(static_cast<double>(y.data()[i]) - reference.outputs[i]) <= of_output);
    }

    const auto event = trainer.step(x, labels);
    CHECK(std::abs(event.loss - reference.loss) <= 2 * (reference.largest_output + 1) * of_output);
    const auto after = trainer.all_weights();
    for (std::size_t i = 0; i < reference.gradient.size(); ++i) {
        const auto old = static_cast<double>(before[i * reference.every]),
                   now = static_cast<double>(after[i * reference.every]);
        INFO("parameter " << i * reference.every);
        CHECK(std::abs(old - now - reference.gradient[i]) <=
              of_gradient * reference.magnitudes[i] + 2 * u * (std::abs(old) + std::abs(reference.gradient[i])));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("network/reference_numbers: a classifier", "[network]", float, double) {
    constexpr auto net = ls::sequential{
        ls::input<6, 6, 2>,
        conv<3, 3, conv_options{.padding = 1}>{},
        relu{},
        max_pool<2>{},
        flatten{},
        dense<5>{},
        ls::layers::tanh{},
        dense<4>{},
    };
    for (const std::size_t lanes : {1, 3, 5})
        for (const int threads : {1, 2})
            compare<TestType>(network_test::classifier, net, ls::loss::softmax_cross_entropy{}, ls::model::he{},
                              std::vector<int>{0, 3, 1, 2, 3}, lanes, threads);
}

TEMPLATE_TEST_CASE("network/reference_numbers: a regression with dropout", "[network]", float, double) {
    constexpr auto net = ls::sequential{
        ls::input<7, 8, 1>, conv<2, 2, conv_options{.stride = 2, .padding = 1}>{},
        ls::layers::tanh{}, mean_pool<3, 1>{},
        flatten{},          dropout{.rate = 0.4},
        dense<3>{},
    };
    for (const std::size_t lanes : {1, 3, 5})
        for (const int threads : {1, 2})
            compare<TestType>(network_test::regression, net, ls::loss::mean_squared_error{}, ls::model::glorot{},
                              numbers<TestType>(1000, rows * 3), lanes, threads);
}
