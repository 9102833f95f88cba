// SPDX-License-Identifier: BSD-3-Clause
// Losses after a dense layer against central differences in double precision: with respect to weights, biases and
// samples.
#include <cmath>

#include "lockstep/loss/binary_cross_entropy.hpp"
#include "lockstep/loss/huber.hpp"
#include "lockstep/loss/mean_absolute_error.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/loss/weighted_softmax_cross_entropy.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

constexpr double step = 1e-5;
constexpr std::size_t rows = 7, classes = 6, features = 5;
using dense = layer_of<layers::dense<classes>, shape<features>>;

/// Binary cross entropy wants probabilities, not numbers in -1/2 .. 1/2.
template <class Loss>
auto of_loss(array<double> targets) {
    if constexpr (std::is_same_v<Loss, lockstep::loss::binary_cross_entropy>)
        for (double& one : targets) one += 0.5;
    return targets;
}

template <class Loss>
auto targets_of(const Loss&) {
    using label = typename Loss::template label<shape<classes>>;
    if constexpr (tensor::is_classes<label>)
        return std::vector<std::int32_t>{0, 5, 2, 2, 4, 1, 3};
    else
        return of_loss<Loss>(uniform<double>(rows * classes, 9));
}

}  // namespace

/// With the labels spread over the classes.
struct smoothed : lockstep::loss::softmax_cross_entropy {
    smoothed() : softmax_cross_entropy{.smoothing = 0.3} {}
};
/// With a weight for each class, at most 1: the bounds below hold.
struct weighted : lockstep::loss::weighted_softmax_cross_entropy<6> {
    weighted() : weighted_softmax_cross_entropy{.weights = {0.25, 1, 0.5, 0, 0.75, 1}, .smoothing = 0.3} {}
};
/// Some differences are beyond it. None lies within a step of it, or of 0.
struct narrow_huber : lockstep::loss::huber {
    narrow_huber() : huber{.delta = 0.3} {}
};

TEMPLATE_TEST_CASE("gradients/losses: dense layer and loss", "[gradients]", lockstep::loss::softmax_cross_entropy,
                   smoothed, weighted, lockstep::loss::mean_squared_error, narrow_huber,
                   lockstep::loss::mean_absolute_error, lockstep::loss::binary_cross_entropy) {
    const TestType loss;
    const auto target = targets_of(loss);
    problem<double, dense> of{.rows = rows,
                              .x = uniform<double>(rows * features, 1),
                              .w = uniform<double>(problem<double, dense>::weights, 2)};
    constexpr double scale = 1.0 / rows;
    const auto evaluate = [&](array<double>* dy) {
        const auto y = forward(of).y;
        return scale * loss(tensor::batch<const double, shape<classes>>{y.data(), rows}, target,
                            tensor::batch<double, shape<classes>>{dy ? dy->data() : nullptr, rows}, scale);
    };
    auto dy = unwritten<double>(rows * classes);
    const double value = evaluate(&dy);
    const auto got = backward(of, forward(of), dy, one_lane(rows));

    // Truncation: step^2 / 6 times the third derivative. That of a row's log-sum-exp along a direction v is the third
    // cumulant of v under the softmax, at most range(v)^3 / 10 <= 1 / 10 for |v| <= 1/2 (a sample) or a unit vector (a
    // weight, times a sample below 1/2), and so is that of log(1 + exp(y)); a square and a distance have none.
    // Rounding: outputs carry (features + 2)^2 u, the exponentials, sums and means of at most classes + rows terms as
    // many u of a value of at most `value` + 2; twice, over 2 step.
    constexpr double u = std::numeric_limits<double>::epsilon() / 2;
    constexpr double per_output = (features + 2) * (features + 2) + classes + rows + 4;
    const double tolerance = step * step / 60 + per_output * u * (value + 2) / step;
    REQUIRE(tolerance < 1e-7);

    const auto compare = [&](array<double>& numbers, const array<double>& analytic) {
        double largest = 0;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const double before = numbers[i];
            numbers[i] = before + step;
            const double above = evaluate(nullptr);
            numbers[i] = before - step;
            const double below = evaluate(nullptr);
            numbers[i] = before;
            INFO(TestType::name << ": number " << i);
            CHECK(std::abs(analytic[i] - (above - below) / (2 * step)) <= tolerance);
            largest = std::max(largest, std::abs(analytic[i]));
        }
        CHECK(largest > 1e-2);
    };
    compare(of.w, got.nodes.at(0));
    compare(of.x, got.dx);
}
