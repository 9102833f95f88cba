// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Plain stochastic gradient descent: models Optimizer.
// Tested by tests/unit/optim/update.cpp.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::optim {

/// w -= rate g. No state; 3 numbers moved and 2 FLOPs for each weight.
struct sgd {
    using rule_of = sgd;
    static constexpr std::string_view name = "sgd";
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array<std::size_t, 0> non_finite_shows_in() { return {}; }

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return [down = vector(static_cast<T>(-pass.rate))](vector& w, const vector& g) { w = simd::fma(down, g, w); };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<sgd>);

}  // namespace lockstep::optim
