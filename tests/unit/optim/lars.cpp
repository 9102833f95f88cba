// SPDX-License-Identifier: BSD-3-Clause
// LARS against its formula in double, with the norms that a pass brings; and the scaled gradient that clipping hands to
// any optimizer.

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/scaled_gradient.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::optim;
using lockstep::optim::testing::problem;
using lockstep::optim::testing::run;
using lockstep::optim::testing::sizes;

namespace {

constexpr std::uint64_t steps = 4;

/// Norms of the test's own: an update of a part has those of the whole tensor.
tensor_norms norms_at(std::uint64_t step) { return {.weights = 3.0 + static_cast<double>(step), .gradient = 0.5}; }

template <class T>
problem<T> run_lars(const lars& optimizer, std::size_t n, bool decays, std::size_t cut = 0) {
    return run<T>(
        optimizer, n, steps,
        [&](update_pass<T> pass) {
            pass.norms = norms_at(pass.step);
            optimizer.update(pass.part(0, cut));
            optimizer.update(pass.part(cut, n - cut));
        },
        decays);
}

/// An optimizer without a rule.
struct plain_adam {
    adam inner;
    static constexpr std::string_view name = "plain_adam";
    static constexpr std::size_t slot_count = 2;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        inner.update(pass);
    }
};

}  // namespace

TEMPLATE_TEST_CASE("optim/lars: formula and parts", "[optim]", float, double) {
    using T = TestType;
    const lars optimizer{.momentum = 0.7, .decay = 0.2, .trust = 0.4, .epsilon = 0.1};
    for (const bool decays : {true, false})
        for (const std::size_t n : sizes<T>()) {
            const auto got = run_lars<T>(optimizer, n, decays);
            REQUIRE(got.guards_hold());
            const problem<T> start{n, 1};
            for (std::size_t i = 0; i < n; ++i) {
                double w = static_cast<double>(start.weights[i]), v = 0;
                for (std::uint64_t step = 0; step < steps; ++step) {
                    const auto [size, gradient] = norms_at(step);
                    const double rate = 0.05 / (1.0 + static_cast<double>(step));
                    const double local = decays ? 0.4 * size / (gradient + 0.2 * size + 0.1) : 1,
                                 decay = decays ? 0.2 : 0;
                    v = 0.7 * v + rate * local * (static_cast<double>(start.gradient(step)[i]) + decay * w);
                    w -= v;
                }
                const double tolerance = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
                REQUIRE(std::abs(static_cast<double>(got.weights[i]) - w) <= tolerance * (1 + std::abs(w)));
                REQUIRE(std::abs(static_cast<double>(got.state[i]) - v) <= tolerance * (1 + std::abs(v)));
            }
            for (const std::size_t cut : {n / 3, n / 2, n}) {
                const auto parts = run_lars<T>(optimizer, n, decays, cut);
                CHECK(parts.weights == got.weights);
                CHECK(parts.state == got.state);
            }
        }
}

TEST_CASE("optim/lars: the local rate is 1 where a norm is 0, and for tensors that do not decay", "[optim]") {
    const lars optimizer{.decay = 0.5, .trust = 0.01};
    const auto rate = [&](double weights, double gradient, bool decays = true) {
        update_pass<float> pass;
        pass.decays = decays;
        pass.norms = {weights, gradient};
        return optimizer.local_rate(pass);
    };
    CHECK(rate(2, 3) == 0.01 * 2 / (3 + 0.5 * 2));
    CHECK(rate(0, 3) == 1);
    CHECK(rate(2, 0) == 1);
    CHECK(rate(2, 3, false) == 1);
    static_assert(needs_norms<lars> && !needs_norms<momentum> && !needs_norms<adam>);
}

TEST_CASE("optim/lars: settings that make no sense are refused", "[optim]") {
    CHECK_NOTHROW(lars{}.check());
    CHECK_NOTHROW((lars{.momentum = 0, .decay = 0}.check()));
    const double nan = std::nan("");
    for (const lars& bad :
         {lars{.momentum = 1}, lars{.momentum = 0.99999999}, lars{.momentum = nan}, lars{.decay = -1},
          lars{.decay = nan}, lars{.trust = 0}, lars{.trust = HUGE_VAL}, lars{.epsilon = -1}, lars{.epsilon = nan}})
        CHECK_THROWS_WITH(bad.check(), Catch::StartsWith("lockstep: lars has "));
    CHECK(lars{}.settings() == "momentum=0.9 decay=1e-04 trust=0.001 epsilon=0");
}

TEMPLATE_TEST_CASE("optim/scaled_gradient: the inner optimizer sees the multiple, with and without a rule", "[optim]",
                   float, double) {
    using T = TestType;
    const adam inner{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3};
    const plain_adam plain{inner};
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{257}, std::size_t{1031}}) {
        // A power of two scales without rounding; any factor rounds once.
        for (const double factor : {1.0, 0.25, 0.3}) {
            const auto wanted = run<T>(inner, n, steps, [&](update_pass<T> pass) {
                std::vector<T> scaled(pass.gradient.begin(), pass.gradient.end());
                for (T& one : scaled) one *= static_cast<T>(factor);
                pass.gradient = scaled;
                inner.update(pass);
            });
            const auto fused = run<T>(scaled_gradient<adam>{&inner, factor}, n, steps);
            const auto blocks = run<T>(scaled_gradient<plain_adam>{&plain, factor}, n, steps);
            CHECK(fused.weights == wanted.weights);
            CHECK(fused.state == wanted.state);
            CHECK(blocks.weights == wanted.weights);
            CHECK(blocks.state == wanted.state);
            CHECK(wanted.guards_hold());
        }
        CHECK(run<T>(scaled_gradient<adam>{&inner, 1}, n, steps).weights == run<T>(inner, n, steps).weights);
    }
    static_assert(HasRule<scaled_gradient<adam>, T> && !HasRule<scaled_gradient<plain_adam>, T>);
}

TEST_CASE("optim/scaled_gradient: a checked update finds what is not finite", "[optim]") {
    const momentum inner{};
    const scaled_gradient<momentum> scaled{&inner, 0.5};
    for (const std::size_t bad : {std::size_t{0}, std::size_t{17}, std::size_t{36}}) {
        problem<float> of{37, 1};
        std::vector<float> gradient = of.gradient(0);
        CHECK(update_checked(scaled, of.pass(gradient, 0.1, 0)));
        gradient[bad] = HUGE_VALF;
        CHECK_FALSE(update_checked(scaled, of.pass(gradient, 0.1, 0)));
    }
}

TEST_CASE("optim/lars: a rate beyond the numbers is cut, so denormal gradients leave weights finite", "[optim]") {
    std::array<float, 2> weights{1, 1}, velocity{};
    const std::array<float, 2> gradient{1e-42F, 0};
    update_pass<float> pass{.weights = weights,
                            .gradient = gradient,
                            .slots = tensor::slots<float>{velocity.data(), 1, 2, 2},
                            .rate = 0.1,
                            .step = 0,
                            .decays = true};
    pass.norms = {.weights = std::sqrt(2.0), .gradient = 1e-42};
    lars{.decay = 0}.update(pass);
    for (const float one : weights) CHECK(std::isfinite(one));
    CHECK(weights[1] == 1);
    CHECK(weights[0] < 1);
}
