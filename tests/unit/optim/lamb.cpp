// SPDX-License-Identifier: BSD-3-Clause
// LAMB with norms that are given; that those of whole tensors arrive is tests/equivalence/norms.cpp.
#include "lockstep/optim/lamb.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/optim/adamw.hpp"
#include "lockstep/optim/lars.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::optim;
using lockstep::optim::testing::problem;
using lockstep::optim::testing::run;
using lockstep::optim::testing::sizes;

namespace {

constexpr std::uint64_t steps = 4;
constexpr lamb optimizer{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3, .decay = 0.3};

tensor_norms norms_at(std::uint64_t step) { return {.weights = 3.0 + static_cast<double>(step), .gradient = 7}; }

template <class T>
problem<T> run_lamb(std::size_t n, bool decays, std::size_t cut = 0) {
    return run<T>(
        optimizer, n, steps,
        [&](update_pass<T> pass) {
            pass.norms = norms_at(pass.step);
            optimizer.update(pass.part(0, cut));
            optimizer.update(pass.part(cut, n - cut));
        },
        decays);
}

/// One step by the formula; returns u.
double by_formula(double w, double g, double& m, double& v, std::uint64_t step, bool decays) {
    m = 0.8 * m + 0.2 * g;
    v = 0.99 * v + 0.01 * g * g;
    double power1 = 1, power2 = 1;
    for (std::uint64_t i = 0; i <= step; ++i) power1 *= 0.8, power2 *= 0.99;
    return m / (1 - power1) / (std::sqrt(v / (1 - power2)) + 1e-3) + (decays ? 0.3 * w : 0);
}

}  // namespace

TEMPLATE_TEST_CASE("optim/lamb: formula, parts, and the rule of its norms", "[optim]", float, double) {
    using T = TestType;
    using vector = simd::batch<T>;
    const double tolerance = 32 * static_cast<double>(std::numeric_limits<T>::epsilon());
    for (const bool decays : {true, false})
        for (const std::size_t n : sizes<T>()) {
            const auto got = run_lamb<T>(n, decays);
            REQUIRE(got.guards_hold());
            const problem<T> start{n, 2};
            for (std::size_t i = 0; i < n; ++i) {
                double w = static_cast<double>(start.weights[i]), m = 0, v = 0;
                for (std::uint64_t step = 0; step < steps; ++step) {
                    const auto [size, length] = norms_at(step);
                    const double rate = 0.05 / (1.0 + static_cast<double>(step)),
                                 g = static_cast<double>(start.gradient(step)[i]);
                    // What the norm is of, with the moments as they are before the update.
                    update_pass<T> pass;
                    pass.step = step;
                    pass.decays = decays;
                    const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
                    const vector asked =
                        optimizer.norm_rule(pass)(as_vector(w), as_vector(g), as_vector(m), as_vector(v));
                    std::array<T, simd::width<T>> of_norm;
                    simd::store(of_norm.data(), asked);
                    const double u = by_formula(w, g, m, v, step, decays);
                    REQUIRE(std::abs(static_cast<double>(of_norm[0]) - u) <= tolerance * (1 + std::abs(u)));
                    w -= rate * (decays ? size / length : 1) * u;
                }
                REQUIRE(std::abs(static_cast<double>(got.weights[i]) - w) <= tolerance * (1 + std::abs(w)));
                REQUIRE(std::abs(static_cast<double>(got.state[i]) - m) <= tolerance * (1 + std::abs(m)));
                REQUIRE(std::abs(static_cast<double>(got.state[n + 1 + i]) - v) <= tolerance * (1 + std::abs(v)));
            }
            for (const std::size_t cut : {n / 3, n / 2, n}) {
                const auto parts = run_lamb<T>(n, decays, cut);
                CHECK(parts.weights == got.weights);
                CHECK(parts.state == got.state);
            }
        }
}

TEST_CASE("optim/lamb: trust is 1 where a norm is 0, and for tensors that do not decay", "[optim]") {
    const auto trust = [&](double weights, double step, bool decays = true) {
        update_pass<float> pass;
        pass.decays = decays;
        pass.norms = {weights, step};
        return optimizer.trust(pass);
    };
    CHECK(trust(2, 3) == 2.0 / 3);
    CHECK(trust(0, 3) == 1);
    CHECK(trust(2, 0) == 1);
    CHECK(trust(2, 3, false) == 1);
    static_assert(HasNormRule<lamb, double> && !HasNormRule<lars> && !HasNormRule<adamw>);
}

TEST_CASE("optim/lamb: a square that v just holds makes a step of usual length", "[optim]") {
    for (const float g : {2e19F, 5e20F}) {
        problem<float> one{1, 2};
        one.weights[0] = 0;
        const std::vector<float> gradient{g};
        CHECK(update_checked(lamb{}, one.pass(gradient, 0.5, 0)));
        CHECK(one.weights[0] == Approx(-0.5));
    }
}

TEST_CASE("optim/lamb: a number that is not finite is found", "[optim]") {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
        for (std::size_t where = 0; where < 4; ++where)
            for (std::size_t at = 0; at < 19; ++at) {
                problem<float> one{19, 2};
                auto gradient = one.gradient(0);
                auto pass = one.pass(gradient, 0.1, 1);
                pass.norms = norms_at(1);
                CHECK(update_checked(optimizer, one.pass(gradient, 0.0, 1)));
                (where == 0 ? one.weights[at] : where == 1 ? gradient[at] : pass.slots[where - 2][at]) = bad;
                CHECK_FALSE(update_checked(optimizer, pass));
            }
}

TEST_CASE("optim/lamb: settings that make no sense are refused", "[optim]") {
    CHECK_NOTHROW(lamb{}.check());
    CHECK_NOTHROW((lamb{.beta1 = 0, .beta2 = 0, .decay = 0}.check()));
    const double nan = std::nan("");
    for (const lamb& bad :
         {lamb{.beta1 = 1}, lamb{.beta2 = nan}, lamb{.epsilon = 0}, lamb{.epsilon = HUGE_VAL}, lamb{.epsilon = 9e-19},
          lamb{.epsilon = 1e39}, lamb{.beta1 = 0.99999999999}, lamb{.decay = -1}, lamb{.decay = nan}})
        CHECK_THROWS_WITH(bad.check(), Catch::StartsWith("lockstep: lamb has "));
    CHECK(lamb{}.settings() == "beta1=0.9 beta2=0.999 epsilon=1e-06 decay=0.01");
}
