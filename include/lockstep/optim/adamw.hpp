// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// AdamW: Adam with decoupled weight decay, by its name; models Optimizer.
// Tested by tests/unit/optim/update.cpp.

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/weight_decay.hpp"

namespace lockstep::optim {

/// w shrinks by the factor 1 - rate decay, then Adam: Loshchilov and Hutter (ICLR 2019), algorithm 2, with a decay that
/// is multiplied with the learning rate as in PyTorch's AdamW. The bits of weight_decay{.rate = decay, .decoupled =
/// true, .inner = adam{..}}. Parameters with `decays = false` see Adam alone. Two slots: m, v. 7 numbers moved for each
/// weight.
struct adamw {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double decay = 1e-2;

    using rule_of = adamw;
    static constexpr std::string_view name = "adamw";
    static constexpr std::size_t slot_count = adam::slot_count;
    static constexpr auto non_finite_shows_in() { return adam::non_finite_shows_in(); }

    [[nodiscard]] std::string settings() const { return core::text(moments().settings(), " decay=", decay); }

    /// Throws core::error if the decay is negative or not finite, or where adam does.
    void check() const {
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("adamw has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 0.01, or 0 for none");
        moments().check();
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        return weight_decay<adam>{.rate = decay, .decoupled = true, .inner = moments()}.rule(pass);
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }

private:
    [[nodiscard]] adam moments() const noexcept { return {.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon}; }
};

static_assert(HasRule<adamw>);

}  // namespace lockstep::optim
