// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Gradient descent with heavy-ball or Nesterov momentum: models Optimizer.
// Tested by tests/unit/optim/update.cpp.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::optim {

/// v = beta v + g, then w -= rate v; with `nesterov` w -= rate (g + beta v), the form of Sutskever et al. (ICML 2013)
/// in which w is the point looked ahead to. One slot: v. 5 numbers moved and 4 FLOPs for each weight, 6 with
/// `nesterov`.
struct momentum {
    double beta = 0.9;
    bool nesterov = false;

    using rule_of = momentum;
    static constexpr std::string_view name = "momentum";
    static constexpr std::size_t slot_count = 1;
    static constexpr std::array<std::size_t, 0> non_finite_shows_in() { return {}; }

    [[nodiscard]] std::string settings() const { return core::text("beta=", beta, " nesterov=", nesterov); }

    /// Throws core::error unless 0 <= beta < 1, as a float too.
    void check() const {
        if (!core::is_fraction_as_float(beta))
            core::fail(core::text("momentum has beta = ", beta, ", outside [0, 1) as a float"),
                       "take a beta such as 0.9, or sgd for none");
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return [down = vector(static_cast<T>(-pass.rate)), keep = vector(static_cast<T>(beta)), ahead = nesterov](
                   vector& w, const vector& g, vector& v) {
            v = simd::fma(keep, v, g);
            w = simd::fma(down, ahead ? simd::fma(keep, v, g) : v, w);
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<momentum>);

}  // namespace lockstep::optim
