// SPDX-License-Identifier: BSD-3-Clause
// An update that looks for numbers that are not finite: the same bits, and no such number is missed, wherever it
// stands.
#include <catch2/catch.hpp>
#include <cstddef>
#include <limits>
#include <string>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lion.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/rmsprop.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "support.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::optim;
using lockstep::optim::testing::problem;
using lockstep::optim::testing::run;
using lockstep::optim::testing::sizes;

/// As a user would write one: no rule, only update.
struct plain {
    static constexpr std::string_view name = "plain";
    static constexpr std::size_t slot_count = 1;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        for (std::size_t i = 0; i < pass.weights.size(); ++i) {
            pass.slots[0][i] += pass.gradient[i];
            pass.weights[i] -= static_cast<T>(pass.rate) * pass.slots[0][i];
        }
    }
};

/// Without a rule the slots are the optimizer's own affair.
template <class Optimizer>
constexpr std::size_t checked_slots = HasRule<Optimizer, float> ? Optimizer::slot_count : 0;

/// All that it does is visible from outside, and it does not say where to look.
struct hiding {
    static constexpr std::string_view name = "hiding";
    static constexpr std::size_t slot_count = 2;
    [[nodiscard]] std::string settings() const { return {}; }
    auto rule(const auto& pass) const noexcept {
        using vector = lockstep::simd::batch<std::remove_cvref_t<decltype(pass.weights[0])>>;
        return [](vector& w, const vector&, vector&, vector&) { w = w + vector(1); };
    }
    void update(const auto& pass) const noexcept { apply<slot_count>(pass, rule(pass)); }
};

template <class T, class Optimizer>
void check(const Optimizer& optimizer) {
    for (const std::size_t n : sizes<T>()) {
        const auto expected = run<T>(optimizer, n, 3);
        bool finite = true;
        const auto found =
            run<T>(optimizer, n, 3, [&](const auto& pass) { finite = finite && update_checked(optimizer, pass); });
        CHECK(finite);
        CHECK(found.weights == expected.weights);
        CHECK(found.state == expected.state);
        std::size_t missed = 0;
        for (const T bad : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::quiet_NaN()})
            for (std::size_t at = 0; at < n; ++at)
                for (const double rate : {0.1, 0.0})
                    for (std::size_t where = 0; where < 2 + checked_slots<Optimizer>; ++where) {
                        problem<T> one{n, Optimizer::slot_count};
                        auto gradient = one.gradient(0);
                        const auto pass = one.pass(gradient, rate, 1);
                        (where == 0 ? one.weights[at] : where == 1 ? gradient[at] : pass.slots[where - 2][at]) = bad;
                        missed += update_checked(optimizer, pass);
                    }
        CHECK(missed == 0);
    }
}

}  // namespace

TEST_CASE("optim/update_checked: library and user optimizers, float and double", "[optim]") {
    check<float>(sgd{});
    check<float>(momentum{});
    check<float>(adam{});
    check<float>(weight_decay{.rate = 0.01, .inner = momentum{}});
    check<float>(weight_decay{.rate = 0.01, .inner = plain{}});
    check<float>(plain{});
    check<float>(hiding{});
    check<float>(momentum{.beta = 0});
    check<float>(adam{.beta1 = 0, .beta2 = 0});
    check<float>(weight_decay{.rate = 0.01, .decoupled = true, .inner = adam{}});
    check<float>(lion{.beta1 = 0, .beta2 = 0});
    check<float>(rmsprop{});
    check<float>(rmsprop<rmsprop_slots{.momentum = true, .centered = true}>{});
    check<double>(momentum{.nesterov = true});
    check<double>(plain{});
}

TEST_CASE("optim/update_checked: finite gradients, and a weight that overflows", "[optim]") {
    constexpr std::size_t n = 100;
    problem<float> one{n, 0};
    std::vector<float> gradient(n, 1e-3F);
    gradient[99] = 3e38F;
    CHECK(update_checked(sgd{}, one.pass(gradient, 1.0, 0)));
    CHECK_FALSE(update_checked(sgd{}, one.pass(gradient, 10.0, 0)));
    // The second moment overflows: from then on such a weight would never move again.
    problem<float> other{n, adam::slot_count};
    gradient[99] = 1e25F;
    CHECK_FALSE(update_checked(adam{}, other.pass(gradient, 0.001, 0)));
}
