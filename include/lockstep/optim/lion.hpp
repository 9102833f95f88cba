// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lion: steps of one length, along the sign of an interpolated momentum; models Optimizer.
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

/// w -= rate (sign(beta1 m + (1 - beta1) g) + decay w), then m = beta2 m + (1 - beta2) g: Chen et al. (NeurIPS 2023),
/// algorithm 2. The sign of 0 is 0. Weight decay is decoupled, and leaves parameters with `decays = false` alone. The
/// paper takes rates 3 to 10 times smaller than those of AdamW, and decays so much larger. One slot: m. 5 numbers moved
/// for each weight.
struct lion {
    double beta1 = 0.9;
    double beta2 = 0.99;
    double decay = 0;

    using rule_of = lion;
    static constexpr std::string_view name = "lion";
    static constexpr std::size_t slot_count = 1;
    /// A sign hides how large a gradient is; m takes it in.
    static constexpr std::array<std::size_t, 1> non_finite_shows_in() { return {0}; }

    [[nodiscard]] std::string settings() const {
        return core::text("beta1=", beta1, " beta2=", beta2, " decay=", decay);
    }

    /// Throws core::error unless both betas lie in [0, 1) as floats, and the decay is finite and not negative.
    void check() const {
        if (!core::is_fraction_as_float(beta1) || !core::is_fraction_as_float(beta2))
            core::fail(core::text("lion has beta1 = ", beta1, " and beta2 = ", beta2, ", not both in [0, 1) as floats"),
                       "take values such as 0.9 and 0.99");
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("lion has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 0.1, or 0 for none");
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        return [up = as_vector(pass.rate), keep1 = as_vector(beta1), take1 = as_vector(1 - beta1),
                keep2 = as_vector(beta2), take2 = as_vector(1 - beta2),
                shrink = as_vector(pass.decays ? 1 - pass.rate * decay : 1)](vector& w, const vector& g, vector& m) {
            const vector zero(T{0}), direction = simd::fma(take1, g, keep1 * m);
            // What is neither above nor below 0 is 0 or NaN, and stays.
            const vector step = select(direction > zero, up, select(direction < zero, -up, direction));
            w = shrink * w - step;
            m = simd::fma(take2, g, keep2 * m);
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<lion>);

}  // namespace lockstep::optim
