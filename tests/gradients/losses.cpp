// SPDX-License-Identifier: BSD-3-Clause
// Gradients of losses against central differences in double precision, by the check that users have.
#include "lockstep/check_gradients.hpp"

#include <catch2/catch.hpp>

#include "lockstep/loss/binary_cross_entropy.hpp"
#include "lockstep/loss/huber.hpp"
#include "lockstep/loss/mean_absolute_error.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/loss/weighted_softmax_cross_entropy.hpp"

/// With the labels spread over the classes.
struct smoothed : lockstep::loss::softmax_cross_entropy {
    smoothed() : softmax_cross_entropy{.smoothing = 0.3} {}
};
/// With a weight for each class.
struct weighted : lockstep::loss::weighted_softmax_cross_entropy<6> {
    weighted() : weighted_softmax_cross_entropy{.weights = {0.25, 1, 0.5, 0, 0.75, 1}, .smoothing = 0.3} {}
};
/// Some differences are beyond it.
struct narrow_huber : lockstep::loss::huber {
    narrow_huber() : huber{.delta = 0.3} {}
};

TEMPLATE_TEST_CASE("gradients/losses: dy is the derivative of the loss", "[gradients]",
                   lockstep::loss::softmax_cross_entropy, smoothed, weighted, lockstep::loss::mean_squared_error,
                   narrow_huber, lockstep::loss::mean_absolute_error, lockstep::loss::binary_cross_entropy) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const auto found = lockstep::check_gradients(TestType{}, lockstep::tensor::shape<6>{}, {.seed = seed});
        INFO(found.text());
        CHECK(found.passes());
        CHECK(found.checked == 66 + 1);
    }
    // Of many outputs, and in float.
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const auto found = lockstep::check_gradients<float>(TestType{}, lockstep::tensor::shape<6>{}, {.seed = seed});
        INFO(found.text());
        CHECK(found.wrong == 0);
    }
}

TEMPLATE_TEST_CASE("gradients/losses: of as many outputs as a picture has numbers", "[gradients]",
                   lockstep::loss::mean_squared_error, lockstep::loss::binary_cross_entropy) {
    const auto found = lockstep::check_gradients(TestType{}, lockstep::tensor::shape<784>{}, {.most = 200});
    INFO(found.text());
    CHECK(found.passes());
}

TEST_CASE("gradients/losses: of 100 classes, in float", "[gradients]") {
    const auto found =
        lockstep::check_gradients<float>(lockstep::loss::softmax_cross_entropy{}, lockstep::tensor::shape<100>{});
    INFO(found.text());
    CHECK(found.passes());
}

namespace {

/// Writes the gradient of its mean over the rows, whatever `scale` it is told.
struct ignores_scale : lockstep::loss::mean_squared_error {
    template <class T, class Output>
    double operator()(lockstep::tensor::batch<const T, Output> y, lockstep::tensor::targets<Output, T> target,
                      lockstep::tensor::batch<T, Output> dy, T) const noexcept {
        return mean_squared_error::operator()(y, target, dy, T{1} / static_cast<T>(y.rows));
    }
};

}  // namespace

TEST_CASE("gradients/losses: one that leaves its scale out is found", "[gradients]") {
    const auto found = lockstep::check_gradients(ignores_scale{}, lockstep::tensor::shape<6>{});
    INFO(found.text());
    CHECK_FALSE(found.passes());
}
