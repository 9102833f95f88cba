// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Layer-wise adaptive rate scaling: momentum with a rate of its own for each tensor; models Optimizer.

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

/// v = momentum v + rate local (g + decay w), then w -= v, with local = trust |w| / (|g| + decay |w| + epsilon) of the
/// whole tensor, and 1 where |w| or |g| is 0: You, Gitman, Ginsburg (arXiv 1708.03888, 2017), algorithm 1. The rate is
/// inside v: after a change of the rate, old steps keep theirs. Parameters with decays = false (biases,
/// scales) have local = 1 and no decay. One slot: v. 5 numbers moved and 6 FLOPs for each weight; the norms read
/// weights and gradients once more, before any weight changes.
struct lars {
    double momentum = 0.9;
    double decay = 1e-4;  ///< L2 regularisation: it replaces optim::weight_decay
    double trust = 1e-3;  ///< the coefficient eta of the paper
    double epsilon = 0;   ///< some implementations add a small number

    using rule_of = lars;
    static constexpr std::string_view name = "lars";
    static constexpr std::size_t slot_count = 1;
    static constexpr bool needs_norms = true;
    static constexpr std::array<std::size_t, 0> non_finite_shows_in() { return {}; }

    [[nodiscard]] std::string settings() const {
        return core::text("momentum=", momentum, " decay=", decay, " trust=", trust, " epsilon=", epsilon);
    }

    /// Throws core::error unless 0 <= momentum < 1 as a float too, trust is positive, and decay and epsilon are not
    /// negative; all of them finite.
    void check() const {
        if (!core::is_fraction_as_float(momentum))
            core::fail(core::text("lars has momentum = ", momentum, ", outside [0, 1) as a float"),
                       "take a momentum such as 0.9");
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("lars has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 1e-4, or 0 for none");
        if (!(trust > 0 && std::isfinite(trust)))
            core::fail(core::text("lars has trust = ", trust, ", not a number above 0"),
                       "take a trust coefficient such as 0.001");
        if (!(epsilon >= 0 && std::isfinite(epsilon)))
            core::fail(core::text("lars has epsilon = ", epsilon, ", negative or not finite"),
                       "take 0, or a small number such as 1e-9");
    }

    /// What the learning rate is multiplied with.
    template <class T>
    [[nodiscard]] double local_rate(const update_pass<T>& pass) const noexcept {
        const auto [weights, gradient] = pass.norms;
        if (!pass.decays || weights == 0 || gradient == 0) return 1;
        return trust * weights / (gradient + decay * weights + epsilon);
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        // More than T holds would be infinity, and infinity times 0 is NaN.
        const double rate = std::min(pass.rate * local_rate(pass), static_cast<double>(std::numeric_limits<T>::max()));
        return [keep = as_vector(momentum), take = as_vector(rate), shrink = as_vector(pass.decays ? decay : 0)](
                   vector& w, const vector& g, vector& v) {
            v = simd::fma(take, simd::fma(shrink, w, g), keep * v);
            w = w - v;
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<lars> && needs_norms<lars>);

}  // namespace lockstep::optim
