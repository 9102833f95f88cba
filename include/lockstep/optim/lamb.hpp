// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LAMB: Adam with a rate of its own for each tensor; models Optimizer.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::optim {

/// m and v as in Adam, u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w, then w -= rate trust u,
/// with trust = |w| / |u| of the whole tensor, and 1 where |w| or |u| is 0: You et al. (ICLR 2020), algorithm 2, with
/// phi(|w|) = |w|. As with lars, parameters with decays = false (biases, scales) have trust = 1 and no decay. The norms
/// are those of u, before any weight or moment changes. Two slots: m, v. 7 numbers moved for each weight; the norms
/// read weights, gradients and both slots once more and compute u a first time.
struct lamb {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double decay = 1e-2;  ///< decoupled, inside of u: it replaces optim::weight_decay

    using rule_of = lamb;
    static constexpr std::string_view name = "lamb";
    static constexpr std::size_t slot_count = 2;
    static constexpr bool needs_norms = true;
    /// v takes in the square of the gradient. Where v is infinite, u is finite.
    static constexpr std::array<std::size_t, 1> non_finite_shows_in() { return {1}; }

    [[nodiscard]] std::string settings() const {
        return core::text("beta1=", beta1, " beta2=", beta2, " epsilon=", epsilon, " decay=", decay);
    }

    /// Throws core::error unless both betas lie in [0, 1) as floats, epsilon in [1e-18, 1e37] as that of adam, and the
    /// decay is finite and not negative.
    void check() const {
        if (!core::is_fraction_as_float(beta1) || !core::is_fraction_as_float(beta2))
            core::fail(core::text("lamb has beta1 = ", beta1, " and beta2 = ", beta2, ", not both in [0, 1) as floats"),
                       "take values such as 0.9 and 0.999");
        if (!(epsilon >= 1e-18 && epsilon <= 1e37))
            core::fail(core::text("lamb has epsilon = ", epsilon, ", outside [1e-18, 1e37]"),
                       "take a small positive number such as 1e-6");
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("lamb has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 0.01, or 0 for none");
    }

    /// What the learning rate is multiplied with.
    template <class T>
    [[nodiscard]] double trust(const update_pass<T>& pass) const noexcept {
        const auto [weights, step] = pass.norms;
        return !pass.decays || weights == 0 || step == 0 ? 1 : weights / step;
    }

    /// pass.norms.gradient is the norm of what this returns: u.
    template <class T>
    [[nodiscard]] auto norm_rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return
            [step = step_rule(pass)](const vector& w, const vector& g, vector m, vector v) { return step(w, g, m, v); };
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        // More than T holds would be infinity, and infinity times 0 is NaN.
        const double rate = std::min(pass.rate * trust(pass), static_cast<double>(std::numeric_limits<T>::max()));
        return [step = step_rule(pass), down = vector(static_cast<T>(-rate))](
                   vector& w, const vector& g, vector& m, vector& v) { w = simd::fma(down, step(w, g, m, v), w); };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }

private:
    /// Moves the moments on, and returns u.
    template <class T>
    [[nodiscard]] auto step_rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const double updates = static_cast<double>(pass.step) + 1;
        // The corrections are exact enough only in double: in float 1 - 0.999 has lost four digits.
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        return [unbias1 = as_vector(1 / (1 - std::pow(beta1, updates))),
                unbias2 = as_vector(1 / std::sqrt(1 - std::pow(beta2, updates))), keep1 = as_vector(beta1),
                take1 = as_vector(1 - beta1), keep2 = as_vector(beta2), take2 = as_vector(1 - beta2),
                floor = as_vector(epsilon),
                shrink = as_vector(pass.decays ? decay : 0)](const vector& w, const vector& g, vector& m, vector& v) {
            m = simd::fma(take1, g, keep1 * m);
            v = simd::fma(take2 * g, g, keep2 * v);
            // As in adam: v * unbias2^2 overflows where v does not.
            return simd::fma(shrink, w, m * unbias1 / simd::fma(simd::sqrt(v), unbias2, floor));
        };
    }
};

static_assert(HasRule<lamb> && needs_norms<lamb> && HasNormRule<lamb>);

}  // namespace lockstep::optim
