// SPDX-License-Identifier: BSD-3-Clause
// What holds for every optimizer: each formula against a plain one in double, and the update of a part is the part of
// the update.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/adamw.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/lion.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/optim/rmsprop.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::optim;
using lockstep::optim::testing::problem;
using lockstep::optim::testing::run;
using lockstep::optim::testing::sizes;

namespace {

/// As a user would write one: no rule, only update.
struct plain_sign {
    static constexpr std::string_view name = "plain_sign";
    static constexpr std::size_t slot_count = 1;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        const auto count = pass.slots[0];
        for (std::size_t i = 0; i < pass.weights.size(); ++i) {
            count[i] += T{1};
            pass.weights[i] -= static_cast<T>(pass.rate) * std::copysign(T{1}, pass.gradient[i]) / count[i];
        }
    }
};
static_assert(Optimizer<plain_sign> && !HasRule<plain_sign>);
static_assert(HasRule<weight_decay<weight_decay<adam>>> && !HasRule<weight_decay<plain_sign>> &&
              Optimizer<weight_decay<plain_sign>>);

/// The same optimizer with its rule hidden: a decorator must take the other road.
template <class Inner>
struct without_rule {
    Inner inner;
    static constexpr std::string_view name = "without_rule";
    static constexpr std::size_t slot_count = Inner::slot_count;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        inner.update(pass);
    }
};

template <class T, class Optimizer>
void part_is_part(const Optimizer& optimizer) {
    const std::size_t n = 3 * simd::width<T> + 523;
    const auto whole = run<T>(optimizer, n, 4);
    CHECK(whole.guards_hold());
    for (std::size_t cut :
         {std::size_t{1}, simd::width<T> - 1, std::size_t{13}, std::size_t{256}, std::size_t{257}, n - 1}) {
        const auto parts = run<T>(optimizer, n, 4, [&](const update_pass<T>& pass) {
            optimizer.update(pass.part(cut, n - cut));
            optimizer.update(pass.part(0, cut / 2));
            optimizer.update(pass.part(cut / 2, cut - cut / 2));
        });
        INFO("cut at " << cut);
        CHECK(parts.weights == whole.weights);
        CHECK(parts.state == whole.state);
    }
}

/// Steps in double by the formula; the optimizer may differ by a few roundings of T a step, in units of the step size.
template <class T, class Optimizer, class Formula>
void follows(const Optimizer& optimizer, Formula formula, bool decays = true) {
    constexpr std::uint64_t steps = 5;
    for (std::size_t n : sizes<T>()) {
        const auto got = run<T>(optimizer, n, steps, decays);
        REQUIRE(got.guards_hold());
        const problem<T> start{n, Optimizer::slot_count};
        for (std::size_t i = 0; i < n; ++i) {
            auto w = static_cast<double>(start.weights[i]);
            double slots[3] = {0, 0, 0};
            for (std::uint64_t step = 0; step < steps; ++step)
                formula(w, static_cast<double>(start.gradient(step)[i]), slots,
                        0.05 / (1.0 + static_cast<double>(step)), step);
            const double tolerance = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
            REQUIRE(std::abs(static_cast<double>(got.weights[i]) - w) <= tolerance * (1 + std::abs(w)));
            for (std::size_t slot = 0; slot < Optimizer::slot_count; ++slot)
                REQUIRE(std::abs(static_cast<double>(got.state[slot * (n + 1) + i]) - slots[slot]) <=
                        tolerance * (1 + std::abs(slots[slot])));
        }
    }
}

void by_momentum(double& w, double g, double* v, double rate, double beta, bool nesterov) {
    v[0] = beta * v[0] + g;
    w -= rate * (nesterov ? g + beta * v[0] : v[0]);
}

void by_adam(double& w, double g, double* s, double rate, std::uint64_t step) {
    s[0] = 0.8 * s[0] + 0.2 * g;
    s[1] = 0.99 * s[1] + 0.01 * g * g;
    double power1 = 1, power2 = 1;
    for (std::uint64_t i = 0; i <= step; ++i) power1 *= 0.8, power2 *= 0.99;
    w -= rate * (s[0] / (1 - power1)) / (std::sqrt(s[1] / (1 - power2)) + 1e-3);
}

}  // namespace

TEMPLATE_TEST_CASE("optim/sgd: formula and parts", "[optim]", float, double) {
    follows<TestType>(sgd{}, [](double& w, double g, double*, double rate, std::uint64_t) { w -= rate * g; });
    part_is_part<TestType>(sgd{});
}

TEMPLATE_TEST_CASE("optim/momentum: formula and parts", "[optim]", float, double) {
    for (bool nesterov : {false, true}) {
        const momentum optimizer{.beta = 0.7, .nesterov = nesterov};
        follows<TestType>(optimizer, [&](double& w, double g, double* v, double rate, std::uint64_t) {
            by_momentum(w, g, v, rate, 0.7, nesterov);
        });
        part_is_part<TestType>(optimizer);
    }
    SECTION("with beta = 0 it is sgd, bit for bit") {
        CHECK(run<TestType>(momentum{.beta = 0}, 301, 3).weights == run<TestType>(sgd{}, 301, 3).weights);
    }
}

TEMPLATE_TEST_CASE("optim/adam: formula and parts", "[optim]", float, double) {
    const adam optimizer{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3};
    follows<TestType>(optimizer, by_adam);
    part_is_part<TestType>(optimizer);

    SECTION("the first step has length rate: epsilon stands outside the root and both moments are corrected") {
        using T = TestType;
        for (double g : {1e-3, -7.0, 250.0}) {
            std::vector<T> w{T{1}}, state(2);
            const std::vector<T> gradient{static_cast<T>(g)};
            adam{}.update(update_pass<T>{w, gradient, tensor::slots<T>{state.data(), 2, 1, 1}, 0.125, 0});
            CHECK(static_cast<double>(w[0]) ==
                  Approx(1 - 0.125 * g / (std::abs(g) + 1e-8)).epsilon(4 * std::numeric_limits<T>::epsilon()));
        }
    }
    SECTION("a weight without gradient stays where it is") {
        using T = TestType;
        std::vector<T> w{T{1}}, state(2), gradient{T{0}};
        adam{}.update(update_pass<T>{w, gradient, tensor::slots<T>{state.data(), 2, 1, 1}, 0.125, 0});
        CHECK(w[0] == T{1});
    }
}

TEMPLATE_TEST_CASE("optim/weight_decay: formula and parts", "[optim]", float, double) {
    using T = TestType;
    const adam inner{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3};
    follows<T>(weight_decay{.rate = 0.3, .inner = momentum{.beta = 0.7}},
               [](double& w, double g, double* v, double rate, std::uint64_t) {
                   by_momentum(w, g + 0.3 * w, v, rate, 0.7, false);
               });
    follows<T>(weight_decay{.rate = 0.3, .inner = inner},
               [](double& w, double g, double* s, double rate, std::uint64_t step) {
                   by_adam(w, g + 0.3 * w, s, rate, step);
               });
    follows<T>(weight_decay{.rate = 0.3, .decoupled = true, .inner = inner},
               [](double& w, double g, double* s, double rate, std::uint64_t step) {
                   w -= rate * 0.3 * w;
                   by_adam(w, g, s, rate, step);
               });
    follows<T>(weight_decay{.rate = 0.3, .inner = plain_sign{}},
               [](double& w, double g, double* s, double rate, std::uint64_t) {
                   s[0] += 1;
                   w -= rate * std::copysign(1.0, g + 0.3 * w) / s[0];
               });
    follows<T>(weight_decay{.rate = 0.3, .inner = weight_decay{.rate = 0.1, .inner = sgd{}}},
               [](double& w, double g, double*, double rate, std::uint64_t) { w -= rate * (g + 0.4 * w); });
    for (bool decoupled : {false, true}) {
        part_is_part<T>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = inner});
        part_is_part<T>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = plain_sign{}});
    }
}

TEMPLATE_TEST_CASE("optim/weight_decay: of optimizers that propose, which have one of their own", "[optim]", float,
                   double) {
    using T = TestType;
    const deep_gradient deep{.decay = 0.3};
    follows<T>(deep, [](double& w, double g, double*, double rate, std::uint64_t) { w -= rate * (g + 0.3 * w); });
    part_is_part<T>(deep);
    const one_bit_adam one_bit{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3, .decay = 0.3};
    follows<T>(one_bit, [](double& w, double g, double* s, double rate, std::uint64_t step) {
        w -= rate * 0.3 * w;
        by_adam(w, g, s, rate, step);
    });
    part_is_part<T>(one_bit);
    CHECK(run<T>(deep, 301, 3, false).weights == run<T>(deep_gradient{}, 301, 3).weights);
    CHECK(run<T>(one_bit, 301, 3, false).weights ==
          run<T>(one_bit_adam{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3}, 301, 3).weights);
    CHECK(deep_gradient{}.settings() == "momentum=0.9 nesterov=false clip=0 masks=true");
    CHECK(deep.settings() == deep_gradient{}.settings() + " decay=0.3");
    CHECK_THROWS_WITH(deep_gradient{.decay = -1}.check(), Catch::Contains("decay = -1"));
    CHECK_THROWS_WITH(one_bit_adam{.decay = -1}.check(), Catch::Contains("decay = -1"));
}

TEMPLATE_TEST_CASE("optim/weight_decay: one loop and blocks give the same bits", "[optim]", float, double) {
    for (bool decoupled : {false, true})
        for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{257},
                              std::size_t{1031}}) {
            const auto fused = run<TestType>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = adam{}}, n, 3);
            const auto blocks =
                run<TestType>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = without_rule<adam>{}}, n, 3);
            CHECK(fused.weights == blocks.weights);
            CHECK(fused.state == blocks.state);
            CHECK(blocks.guards_hold());
        }
}

TEMPLATE_TEST_CASE("optim/weight_decay: leaves alone what does not decay", "[optim]", float, double) {
    for (bool decoupled : {false, true}) {
        CHECK(run<TestType>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = momentum{}}, 301, 3, false)
                  .weights == run<TestType>(momentum{}, 301, 3).weights);
        CHECK(run<TestType>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = plain_sign{}}, 301, 3, false)
                  .weights == run<TestType>(plain_sign{}, 301, 3).weights);
        CHECK(run<TestType>(weight_decay{.rate = 0.3, .decoupled = decoupled, .inner = momentum{}}, 301, 3, true)
                  .weights != run<TestType>(momentum{}, 301, 3).weights);
    }
}

namespace {

/// PyTorch's torch.optim.RMSprop, written down by its documentation: slots s, b, m.
template <rmsprop_slots Slots, class T>
void rmsprop_follows(double momentum) {
    const rmsprop<Slots> optimizer{.decay = 0.8, .epsilon = 1e-3, .momentum = momentum};
    follows<T>(optimizer, [&](double& w, double g, double* s, double rate, std::uint64_t) {
        s[0] = 0.8 * s[0] + 0.2 * g * g;
        double& m = s[Slots.momentum ? 2 : 1];
        double mean_square = s[0];
        if (Slots.centered) {
            m = 0.8 * m + 0.2 * g;
            mean_square -= m * m;
        }
        const double step = g / (std::sqrt(mean_square) + 1e-3);
        if (Slots.momentum)
            w -= rate * (s[1] = momentum * s[1] + step);
        else
            w -= rate * step;
    });
    part_is_part<T>(optimizer);
}

}  // namespace

TEMPLATE_TEST_CASE("optim/rmsprop: formula and parts", "[optim]", float, double) {
    using T = TestType;
    rmsprop_follows<rmsprop_slots{}, T>(0);
    rmsprop_follows<rmsprop_slots{.momentum = true}, T>(0.7);
    rmsprop_follows<rmsprop_slots{.centered = true}, T>(0);
    rmsprop_follows<rmsprop_slots{.momentum = true, .centered = true}, T>(0.7);
    static_assert(rmsprop<>::slot_count == 1 && rmsprop<rmsprop_slots{.centered = true}>::slot_count == 2);

    SECTION("a gradient that stays alike has a variance of 0, not a root of less") {
        std::vector<T> w(16), state(32);
        for (std::uint64_t step = 0; step < 200; ++step) {
            std::vector<T> gradient(16);
            for (std::size_t i = 0; i < 16; ++i) gradient[i] = static_cast<T>(0.1 + 0.37 * static_cast<double>(i));
            rmsprop<rmsprop_slots{.centered = true}>{.decay = 0.5}.update(
                update_pass<T>{w, gradient, tensor::slots<T>{state.data(), 2, 16, 16}, 1e-12, step});
        }
        for (const T one : w) CHECK(std::isfinite(one));
    }
}

TEMPLATE_TEST_CASE("optim/adamw: the formula of the paper, and the bits of the decorator", "[optim]", float, double) {
    using T = TestType;
    const adamw optimizer{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3, .decay = 0.3};
    follows<T>(optimizer, [](double& w, double g, double* s, double rate, std::uint64_t step) {
        const double before = w;
        by_adam(w, g, s, rate, step);
        w -= rate * 0.3 * before;
    });
    part_is_part<T>(optimizer);
    const adam inner{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3};
    CHECK(run<T>(optimizer, 301, 3).weights ==
          run<T>(weight_decay{.rate = 0.3, .decoupled = true, .inner = inner}, 301, 3).weights);
    CHECK(run<T>(optimizer, 301, 3, false).weights == run<T>(inner, 301, 3).weights);
    CHECK(run<T>(optimizer, 301, 3).weights != run<T>(inner, 301, 3).weights);
}

TEMPLATE_TEST_CASE("optim/lion: formula and parts", "[optim]", float, double) {
    using T = TestType;
    const lion optimizer{.beta1 = 0.7, .beta2 = 0.95, .decay = 0.3};
    for (const bool decays : {true, false})
        follows<T>(
            optimizer,
            [&](double& w, double g, double* m, double rate, std::uint64_t) {
                const double direction = 0.7 * m[0] + 0.3 * g;
                w -= rate * ((direction > 0 ? 1 : -1) + (decays ? 0.3 * w : 0));
                m[0] = 0.95 * m[0] + 0.05 * g;
            },
            decays);
    part_is_part<T>(optimizer);

    SECTION("a weight without gradient shrinks, and no more") {
        std::vector<T> w{T{1}}, state(1), gradient{T{0}};
        optimizer.update(update_pass<T>{w, gradient, tensor::slots<T>{state.data(), 1, 1, 1}, 0.5, 0});
        CHECK(w[0] == static_cast<T>(1 - 0.5 * 0.3));
    }
}

TEMPLATE_TEST_CASE("optim: a gradient that is not a number reaches the weight, and no other", "[optim]", float,
                   double) {
    using T = TestType;
    const auto check = [](const auto& optimizer) {
        problem<T> one{19, std::remove_cvref_t<decltype(optimizer)>::slot_count};
        auto gradient = one.gradient(0);
        gradient[17] = std::numeric_limits<T>::quiet_NaN();
        optimizer.update(one.pass(gradient, 0.1, 0));
        for (std::size_t i = 0; i < 19; ++i) CHECK(std::isnan(one.weights[i]) == (i == 17));
    };
    check(sgd{});
    check(momentum{.nesterov = true});
    check(adam{});
    check(weight_decay{.rate = 0.1, .inner = adam{}});
    check(adamw{});
    check(lion{});
    check(rmsprop{});
    check(rmsprop<rmsprop_slots{.momentum = true, .centered = true}>{});
}

namespace {
/// Signs of the gradient: a user's, which inherits the rule of sgd.
struct sign_sgd : sgd {
    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        for (std::size_t i = 0; i < pass.weights.size(); ++i)
            pass.weights[i] -= static_cast<T>(pass.rate) * (pass.gradient[i] > 0 ? T{1} : T{-1});
    }
};
/// The same for one type alone.
struct float_sign_sgd : sgd {
    void update(const update_pass<float>& pass) const noexcept { sign_sgd{}.update(pass); }
};
/// Another rule, and the update that is inherited.
struct slow_sgd : sgd {
    template <class T>
    auto rule(const update_pass<T>& pass) const noexcept {
        return sgd::rule(pass);
    }
};
struct static_sgd : sgd {
    static void update(const update_pass<float>& pass) noexcept { sign_sgd{}.update(pass); }
};
/// A base of the user's, for one type.
struct base_of_leaf {
    using rule_of = base_of_leaf;
    static constexpr std::string_view name = "base";
    static constexpr std::size_t slot_count = 0;
    [[nodiscard]] std::string settings() const { return {}; }
    auto rule(const update_pass<float>& pass) const noexcept { return sgd{}.rule(pass); }
    void update(const update_pass<float>& pass) const noexcept { sgd{}.update(pass); }
};
struct leaf : base_of_leaf {};
}  // namespace

TEST_CASE("optim: an update() of its own counts, also where a rule is inherited", "[optim]") {
    STATIC_REQUIRE(HasRule<sgd, float>);
    STATIC_REQUIRE(HasRule<adam, double>);
    STATIC_REQUIRE_FALSE(HasRule<sign_sgd, float>);
    STATIC_REQUIRE_FALSE(HasRule<float_sign_sgd, float>);
    STATIC_REQUIRE_FALSE(HasRule<weight_decay<sign_sgd>, float>);
    STATIC_REQUIRE(HasRule<slow_sgd, float>);
    STATIC_REQUIRE_FALSE(HasRule<static_sgd, float>);
    STATIC_REQUIRE(HasRule<leaf, float>);
    std::vector<float> weights(9, 1.0F), gradient(9, 0.25F);
    REQUIRE(update_checked(sign_sgd{},
                           update_pass<float>{.weights = weights, .gradient = gradient, .slots = {}, .rate = 0.5}));
    CHECK(weights == std::vector<float>(9, 0.5F));
}

TEST_CASE("optim: settings tell two optimizers of one type apart", "[optim]") {
    CHECK(sgd{}.settings().empty());
    CHECK(momentum{.beta = 0.9, .nesterov = true}.settings() == "beta=0.9 nesterov=true");
    CHECK(adam{}.settings() == "beta1=0.9 beta2=0.999 epsilon=1e-08");
    CHECK(adamw{}.settings() == "beta1=0.9 beta2=0.999 epsilon=1e-08 decay=0.01");
    CHECK(lion{}.settings() == "beta1=0.9 beta2=0.99 decay=0");
    CHECK(rmsprop{}.settings() == "decay=0.99 epsilon=1e-08 momentum=0 centered=false");
    CHECK(rmsprop<rmsprop_slots{.momentum = true, .centered = true}>{}.settings() ==
          "decay=0.99 epsilon=1e-08 momentum=0.9 centered=true");
    CHECK(weight_decay{.rate = 0.01, .decoupled = true, .inner = momentum{}}.settings() ==
          "rate=0.01 decoupled=true inner=momentum(beta=0.9 nesterov=false)");
}

TEST_CASE("optim: check names the value and the remedy", "[optim]") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_NOTHROW(momentum{}.check());
    CHECK_NOTHROW(momentum{.beta = 0}.check());
    CHECK_THROWS_WITH(
        momentum{.beta = 1}.check(),
        "lockstep: momentum has beta = 1, outside [0, 1) as a float; take a beta such as 0.9, or sgd for none");
    CHECK_THROWS_AS(momentum{.beta = -0.1}.check(), core::error);
    CHECK_THROWS_AS(momentum{.beta = nan}.check(), core::error);
    CHECK_NOTHROW(adam{}.check());
    CHECK_THROWS_WITH(adam{.beta2 = 1.5}.check(),
                      "lockstep: adam has beta1 = 0.9 and beta2 = 1.5, not both in [0, 1) as floats; take values such "
                      "as 0.9 and 0.999");
    CHECK_THROWS_AS(adam{.beta1 = -1}.check(), core::error);
    CHECK_THROWS_AS(adam{.beta2 = nan}.check(), core::error);
    CHECK_THROWS_WITH(
        adam{.epsilon = 0}.check(),
        "lockstep: adam has epsilon = 0, outside [1e-18, 1e37]; take a small positive number such as 1e-8");
    CHECK_THROWS_WITH((weight_decay{.rate = -0.5, .inner = sgd{}}.check()),
                      "lockstep: weight_decay has rate = -0.5, negative or not finite; take a rate such as 1e-4, or "
                      "the inner optimizer alone "
                      "for none");
    CHECK_THROWS_WITH((weight_decay{.rate = 0.1, .inner = momentum{.beta = 2}}.check()),
                      Catch::Contains("momentum has beta = 2"));
    CHECK_NOTHROW(weight_decay{.rate = 0, .inner = sgd{}}.check());
    CHECK_NOTHROW(adamw{}.check());
    CHECK_NOTHROW(rmsprop<>{.decay = 0}.check());
    CHECK_THROWS_WITH((rmsprop<rmsprop_slots{.centered = true}>{.decay = 0}.check()),
                      Catch::Contains("rmsprop is centered and has decay = 0"));
    CHECK_THROWS_WITH(
        adamw{.decay = -1}.check(),
        "lockstep: adamw has decay = -1, negative or not finite; take a decay such as 0.01, or 0 for none");
    CHECK_THROWS_WITH(adamw{.beta1 = 1}.check(), Catch::Contains("beta1 = 1"));
    CHECK_NOTHROW(lion{.beta1 = 0, .beta2 = 0}.check());
    CHECK_THROWS_WITH(
        lion{.beta2 = 1}.check(),
        "lockstep: lion has beta1 = 0.9 and beta2 = 1, not both in [0, 1) as floats; take values such as 0.9 and 0.99");
    CHECK_THROWS_AS(lion{.decay = nan}.check(), core::error);
    CHECK_NOTHROW(rmsprop{}.check());
    CHECK_NOTHROW(rmsprop<rmsprop_slots{.momentum = true}>{}.check());
    CHECK_THROWS_WITH(rmsprop{.momentum = 0.9}.check(),
                      "lockstep: rmsprop has momentum = 0.9 and no slot for it; write "
                      "rmsprop<rmsprop_slots{.momentum = true}>");
    CHECK_THROWS_WITH(rmsprop{.decay = 1}.check(), Catch::Contains("rmsprop has decay = 1, outside [0, 1) as a float"));
    CHECK_THROWS_AS((rmsprop<rmsprop_slots{.momentum = true}>{.momentum = 1}.check()), core::error);
    CHECK_THROWS_AS(rmsprop{.epsilon = 0}.check(), core::error);
}

TEST_CASE("optim: what would be 1, 0 or infinite as a float is refused", "[optim]") {
    constexpr double nearly = 0.99999999999, nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_WITH(momentum{.beta = nearly}.check(),
                      Catch::Contains("momentum has beta = 0.99999999999, outside [0, 1) as a float;"));
    CHECK_NOTHROW(momentum{.beta = 0.9999999}.check());
    CHECK_THROWS_AS(adam{.beta1 = nearly}.check(), core::error);
    CHECK_THROWS_AS(adamw{.beta2 = nearly}.check(), core::error);
    CHECK_THROWS_AS(one_bit_adam{.beta2 = nearly}.check(), core::error);
    CHECK_THROWS_AS(lion{.beta1 = nearly}.check(), core::error);
    CHECK_THROWS_AS(deep_gradient{.momentum = nearly}.check(), core::error);
    CHECK_THROWS_AS(rmsprop{.decay = nearly}.check(), core::error);
    CHECK_THROWS_AS((rmsprop<rmsprop_slots{.momentum = true}>{.momentum = nearly}.check()), core::error);
    for (const double good : {1e-18, 1e37}) {
        CHECK_NOTHROW(adam{.epsilon = good}.check());
        CHECK_NOTHROW(adamw{.epsilon = good}.check());
        CHECK_NOTHROW(one_bit_adam{.epsilon = good}.check());
        CHECK_NOTHROW(rmsprop{.epsilon = good}.check());
    }
    for (const double bad : {-1.0, 9e-19, 1e-37, 1.1e37, 1e39, nan}) {
        CHECK_THROWS_AS(adam{.epsilon = bad}.check(), core::error);
        CHECK_THROWS_AS(adamw{.epsilon = bad}.check(), core::error);
        CHECK_THROWS_AS(one_bit_adam{.epsilon = bad}.check(), core::error);
        CHECK_THROWS_AS(rmsprop{.epsilon = bad}.check(), core::error);
    }
}

namespace {
/// How far a weight goes, in rates, with this gradient for so many steps from the start; NaN where a step is refused.
template <class Optimizer>
double rates(const Optimizer& optimizer, float gradient, std::uint64_t steps) {
    std::vector<float> w{0}, state(Optimizer::slot_count);
    const std::vector<float> g{gradient};
    for (std::uint64_t step = 0; step < steps; ++step) {
        const tensor::slots<float> slots{state.data(), Optimizer::slot_count, 1, 1};
        if (!update_checked(optimizer, update_pass<float>{w, g, slots, 1, step}))
            return std::numeric_limits<double>::quiet_NaN();
    }
    return -static_cast<double>(w[0]);
}
}  // namespace

TEST_CASE("optim: steps along gradients whose squares a float does not hold are none, or refused", "[optim]") {
    // However small, three steps are no longer than three rates, and a half for roundings of the smallest numbers.
    const auto check_small = [](const auto& optimizer, double longest) {
        optimizer.check();
        for (float g = 1e-17F; g > 0; g /= 2) CHECK(rates(optimizer, g, 3) <= longest);
    };
    for (const double beta2 : {0.0, 0.9, 0.999, 0.9999999}) {
        check_small(adam{.beta2 = beta2, .epsilon = 1e-18}, 3.5);
        check_small(one_bit_adam{.beta2 = beta2, .epsilon = 1e-18}, 3.5);
        // Without a correction its steps are longer, by the root of 1 / (1 - decay).
        check_small(rmsprop{.decay = beta2, .epsilon = 1e-18}, 3.5 / std::sqrt(1 - beta2));
    }
    // (1 - beta2) g^2 is below 3.4e38 up to g = 5.8e20.
    for (const float g : {1e19F, 2e19F, 5e20F, -5e20F}) {
        CHECK(rates(adam{}, g, 1) == Approx(std::copysign(1.0, g)));
        CHECK(rates(adamw{}, g, 1) == Approx(std::copysign(1.0, g)));
        CHECK(rates(one_bit_adam{}, g, 1) == Approx(std::copysign(1.0, g)));
        // Whose v stays as it is after the first step.
        CHECK((rates(one_bit_adam{.warm_up = 1}, g, 2) > 0) == (g > 0));
    }
    for (const float g : {6e20F, -1e30F, std::numeric_limits<float>::max()}) {
        CHECK(std::isnan(rates(adam{}, g, 1)));
        CHECK(std::isnan(rates(adamw{}, g, 1)));
        CHECK(std::isnan(rates(one_bit_adam{}, g, 1)));
    }
}

TEMPLATE_TEST_CASE("optim/one_bit_adam: the error of a compressor does not throw away a weight without a scale",
                   "[optim]", float, double) {
    using T = TestType;
    const one_bit_adam optimizer{.beta2 = 0.75, .epsilon = 1e-4, .warm_up = 1};
    constexpr T tiny = std::numeric_limits<T>::denorm_min(), nan = std::numeric_limits<T>::quiet_NaN();
    // v / (1 - beta2) is the square of 0, 0, almost nothing, almost nothing, 5e-5, 5e-5, and twice 2e-4.
    const std::vector<T> mean{T(1e-9), T(0.5), T(1e-5), T(-0.5), T(9e-5), T(2e-4), T(0.5), T(-1e-6), nan},
        v{0, 0, tiny, tiny, T(6.25e-10), T(6.25e-10), T(1e-8), T(1e-8), 0};
    std::vector<T> w(9, T{1}), state(9, T{7});
    state.insert(state.end(), v.begin(), v.end());
    optimizer.update(update_pass<T>{w, mean, tensor::slots<T>{state.data(), 2, 9, 9}, 0.01, 1});
    const bool kept[] = {false, false, true, false, true, false, true, true, true};
    for (std::size_t i = 0; i < 9; ++i) {
        INFO("weight " << i);
        if (i == 8) {
            CHECK(std::isnan(w[i]));
            continue;
        }
        CHECK(state[i] == (kept[i] ? mean[i] : T{0}));
        CHECK(state[9 + i] == v[i]);
        CHECK((w[i] != 1) == kept[i]);
        if (i != 6) CHECK(std::abs(static_cast<double>(w[i]) - 1) <= 0.01 / (1 - 0.9 * 0.9));
    }
}
