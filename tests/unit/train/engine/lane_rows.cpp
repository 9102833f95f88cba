// SPDX-License-Identifier: BSD-3-Clause
// The fewest rows that layers need in a lane: what the plan, fit() and step() say where there are fewer.
#include "lockstep/train/engine/lane_rows.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
using namespace ls::layers;

/// A user's layer that needs five rows: y = x.
template <ls::tensor::Shape S>
struct needs_five_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "needs_five";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    static constexpr ls::layer_api::traits traits{.least_rows_per_lane = 5};
    static void forward(const auto& pass) { std::copy_n(pass.x.data, pass.x.size(), pass.y.data); }
    static void backward(const auto& pass) {
        if (pass.wants_dx()) std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
    }
};
struct needs_five {
    template <ls::tensor::Shape S>
    constexpr auto on(S) const {
        return needs_five_layer<S>{};
    }
};

constexpr auto normalised = ls::sequential{ls::input<4>, dense<6>{}, batch_norm{}, relu{}, dense<2>{}};
constexpr auto pictures =
    ls::sequential{ls::input<3, 4, 1>, conv<2, 3>{}, batch_norm{}, flatten{}, dense<2>{}};  // 1 x 2 pixels
constexpr auto pooled =
    ls::sequential{ls::input<3, 3, 1>, ls::residual{batch_norm{}}, conv<2, 3>{}, batch_norm{}, flatten{}, dense<2>{}};
constexpr auto demanding = ls::sequential{ls::input<4>, dense<6>{}, batch_norm{}, needs_five{}, dense<2>{}};
constexpr auto plain = ls::sequential{ls::input<4>, dense<2>{}};

template <class Net>
auto recipe(const Net& net, std::size_t batch, std::size_t lanes) {
    return ls::plan{.model = net, .loss = ls::mean_squared_error{}, .batch = batch, .lanes = lanes};
}
template <class Net>
void refuse(const Net& net, std::size_t batch, std::size_t lanes, const std::string& text) {
    CHECK_THROWS_WITH(ls::train::check(recipe(net, batch, lanes)), text);
    CHECK_THROWS_WITH((ls::trainer{ls::comm::group{}, recipe(net, batch, lanes)}), text);
}

struct rows {
    std::vector<float> x, y;
    explicit rows(std::size_t n) : x(n * 4), y(n * 2) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(3 * i));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[2 * i] * x[2 * i + 1];
    }
    [[nodiscard]] auto set() const { return ls::data::in_memory<ls::tensor::shape<4>, ls::tensor::shape<2>>(x, y); }
};

}  // namespace

TEST_CASE("train/lane_rows: the plan names the layer, its positions, batch and lanes, and what would do", "[train]") {
    refuse(normalised, 8, 8,
           "lockstep: a batch of 8 in 8 lanes leaves a lane 1 sample, and layer 1 (batch_norm on 6: 1 position for "
           "each channel of a sample) "
           "needs at least 2; use at most 4 lanes or a batch of at least 16");
    refuse(normalised, 15, 8,
           "lockstep: a batch of 15 in 8 lanes leaves a lane 1 sample, and layer 1 (batch_norm on 6: 1 position for "
           "each channel of a "
           "sample) needs at least 2; use at most 7 lanes or a batch of at least 16");
    refuse(normalised, 1, 1,
           "lockstep: a batch of 1 in 1 lane leaves a lane 1 sample, and layer 1 (batch_norm on 6: 1 position for each "
           "channel of a sample) "
           "needs at least 2; use a batch of at least 2");
    refuse(pooled, 4, 3,
           "lockstep: a batch of 4 in 3 lanes leaves a lane 1 sample, and layer 3 (batch_norm on 1x1x2: 1 position for "
           "each channel of a "
           "sample) needs at least 2; use at most 2 lanes or a batch of at least 6");
    refuse(demanding, 16, 4,
           "lockstep: a batch of 16 in 4 lanes leaves a lane 4 samples, and layer 2 (needs_five on 6: 1 position for "
           "each channel of a "
           "sample) needs at least 5; use at most 3 lanes or a batch of at least 20");
    // What the remedies say does.
    ls::train::check(recipe(normalised, 8, 4));
    ls::train::check(recipe(normalised, 16, 8));
    ls::train::check(recipe(normalised, 2, 1));
    ls::train::check(recipe(demanding, 20, 4));
    // Two pixels are two numbers.
    ls::train::check(recipe(pictures, 8, 8));
    ls::train::check(recipe(plain, 8, 8));
}

TEST_CASE(
    "train/lane_rows: fit refuses a last minibatch that fills no lane before it trains, and only where it comes to it",
    "[train]") {
    ls::trainer trainer{ls::comm::group{}, recipe(normalised, 8, 4)};
    const rows seventeen{17}, one{1}, eighteen{18};
    const auto before = trainer.weights_hash();
    CHECK_THROWS_WITH(
        trainer.fit(seventeen.set(), ls::epochs{1}),
        Catch::StartsWith(
            "lockstep: the last minibatch of 17 samples with a batch of 8 has 1 sample, and layer 1 (batch_norm "
            "on 6: 1 position for each channel of a sample) needs at least 2 in a lane; fit 16 or at least 18 "
            "samples, or use a batch that leaves none or at least 2 of them"));
    CHECK_THROWS_WITH(trainer.fit(one.set(), ls::steps{1}),
                      Catch::StartsWith("lockstep: the last minibatch of 1 sample with a batch of 8 has 1 sample, and "
                                        "layer 1 (batch_norm on 6: 1 position "
                                        "for each channel of a sample) needs at least 2 in a lane; fit at least 2 "
                                        "samples, or use a batch that leaves none "
                                        "or at least 2 of them"));
    CHECK_THROWS_AS(trainer.fit(seventeen.set(), ls::steps{3}), ls::core::error);
    CHECK(trainer.weights_hash() == before);
    trainer.fit(seventeen.set(), ls::steps{1});
    CHECK_THROWS_WITH(trainer.fit(seventeen.set(), ls::steps{2}),
                      Catch::StartsWith("lockstep: the last minibatch of 17 samples with a batch of 8 has 1 sample"));
    trainer.fit(seventeen.set(), ls::steps{1});
    CHECK_THROWS_AS(trainer.fit(seventeen.set(), ls::steps{1}), ls::core::error);
    trainer.fit(eighteen.set(), ls::epochs{2});
    CHECK(trainer.report().steps == 2 + 6);
    // Evaluation and predictions take the running statistics: any rows will do.
    CHECK(trainer.evaluate(one.set()).samples == 1);
    // Without such a layer nothing is refused.
    ls::trainer free{ls::comm::group{}, recipe(plain, 8, 4)};
    free.fit(seventeen.set(), ls::epochs{1});
    CHECK(free.report().steps == 3);
}

TEST_CASE("train/lane_rows: step refuses rows that leave a lane too few, and nothing has changed", "[train]") {
    ls::trainer trainer{ls::comm::group{}, recipe(normalised, 8, 4)};
    const auto before = trainer.weights_hash();
    const rows five{5}, eight{8};
    CHECK_THROWS_WITH(
        trainer.step(five.x, five.y),
        Catch::StartsWith(
            "lockstep: rank 0 brought 5 rows to a step for its 4 lanes, which leaves one 1 row, and layer 1 "
            "(batch_norm on 6: 1 position for each channel of a sample) needs at least 2; bring at least 8 rows "
            "on that rank, or none, or use fewer lanes"));
    CHECK(trainer.weights_hash() == before);
    CHECK(trainer.step(eight.x, eight.y).samples == 8);
    CHECK(trainer.weights_hash() != before);
}
