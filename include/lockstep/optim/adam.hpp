// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Adam: steps scaled by running moments of the gradient; models Optimizer.
// Tested by tests/unit/optim/update.cpp.

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::optim {

/// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g g, and after t updates
/// w -= rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon): Kingma and Ba (ICLR 2015), algorithm 1.
/// Two slots: m, v. 7 numbers moved for each weight. A gradient whose square v cannot hold (as a float with the usual
/// beta2: from 5.8e20 on) makes v infinite; the trainer then refuses the step.
struct adam {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;

    using rule_of = adam;
    static constexpr std::string_view name = "adam";
    static constexpr std::size_t slot_count = 2;
    /// v takes in the square of the gradient. Where v is infinite, the weight stands still and hides it.
    static constexpr std::array<std::size_t, 1> non_finite_shows_in() { return {1}; }

    [[nodiscard]] std::string settings() const {
        return core::text("beta1=", beta1, " beta2=", beta2, " epsilon=", epsilon);
    }

    /// Throws core::error unless both betas lie in [0, 1) as floats, and epsilon in [1e-18, 1e37]. In float the v of
    /// gradients below 1.5e-19 can be 0, for any beta2: divided by a smaller epsilon they would be giant steps.
    void check() const {
        if (!core::is_fraction_as_float(beta1) || !core::is_fraction_as_float(beta2))
            core::fail(core::text("adam has beta1 = ", beta1, " and beta2 = ", beta2, ", not both in [0, 1) as floats"),
                       "take values such as 0.9 and 0.999");
        if (!(epsilon >= 1e-18 && epsilon <= 1e37))
            core::fail(core::text("adam has epsilon = ", epsilon, ", outside [1e-18, 1e37]"),
                       "take a small positive number such as 1e-8");
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const double updates = static_cast<double>(pass.step) + 1;
        // The corrections are exact enough only in double: in float 1 - 0.999 has lost four digits.
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        return [down = as_vector(-pass.rate / (1 - std::pow(beta1, updates))),
                unbias = as_vector(1 / std::sqrt(1 - std::pow(beta2, updates))), keep1 = as_vector(beta1),
                take1 = as_vector(1 - beta1), keep2 = as_vector(beta2), take2 = as_vector(1 - beta2),
                floor = as_vector(epsilon)](vector& w, const vector& g, vector& m, vector& v) {
            m = simd::fma(take1, g, keep1 * m);
            v = simd::fma(take2 * g, g, keep2 * v);
            // The root of each factor: the product v / (1 - beta2^t) overflows where v does not.
            w = simd::fma(down, m / simd::fma(simd::sqrt(v), unbias, floor), w);
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<adam>);

}  // namespace lockstep::optim
