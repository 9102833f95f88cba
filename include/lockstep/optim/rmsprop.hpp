// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// RMSprop: steps divided by a running root mean square of the gradient; models Optimizer.
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

/// What rmsprop keeps for each weight beside the mean square.
struct rmsprop_slots {
    bool momentum = false;  ///< the sum of steps that `.momentum` decays
    bool centered = false;  ///< the mean of the gradient, which makes the mean square a variance
};

/// s = decay s + (1 - decay) g g, then w -= rate g / (sqrt(s) + epsilon): Tieleman and Hinton (Coursera, lecture 6.5,
/// 2012), with the options of PyTorch's RMSprop. Centered (Graves, arXiv 1308.0850, 2013): also m = decay m + (1 -
/// decay) g, and sqrt(max(s - m m, 0)) in place of sqrt(s); PyTorch has a NaN where rounding makes s - m m negative.
/// With momentum b = momentum b + g / (..), then w -= rate b. Epsilon stands outside of the root.
/// `rmsprop{}`, or `rmsprop<rmsprop_slots{.momentum = true}>{.momentum = 0.9}`. One slot: s; further ones are b, m. 5
/// numbers moved for each weight, 2 more for each further slot.
template <rmsprop_slots Slots = rmsprop_slots{}>
struct rmsprop {
    double decay = 0.99;  ///< of the mean square, PyTorch's alpha; no weight decay
    double epsilon = 1e-8;
    double momentum = Slots.momentum ? 0.9 : 0;

    using rule_of = rmsprop;
    static constexpr std::string_view name = "rmsprop";
    static constexpr std::size_t slot_count = 1 + (Slots.momentum ? 1 : 0) + (Slots.centered ? 1 : 0);
    /// s takes in the square of the gradient, m decides where the variance is cut off at 0; b shows in the weight.
    static constexpr auto non_finite_shows_in() {
        if constexpr (Slots.centered)
            return std::array<std::size_t, 2>{0, slot_count - 1};
        else
            return std::array<std::size_t, 1>{0};
    }

    [[nodiscard]] std::string settings() const {
        return core::text("decay=", decay, " epsilon=", epsilon, " momentum=", momentum, " centered=", Slots.centered);
    }

    /// Throws core::error unless decay (above 0 where centered) and momentum lie in [0, 1) as floats, epsilon in
    /// [1e-18, 1e37] as that of adam, and a momentum has its slot.
    void check() const {
        if (!core::is_fraction_as_float(decay))
            core::fail(core::text("rmsprop has decay = ", decay, ", outside [0, 1) as a float"),
                       "take a decay such as 0.99");
        if (Slots.centered && decay == 0)
            core::fail("rmsprop is centered and has decay = 0, so that each variance is 0",
                       "take a decay such as 0.99");
        if (!(epsilon >= 1e-18 && epsilon <= 1e37))
            core::fail(core::text("rmsprop has epsilon = ", epsilon, ", outside [1e-18, 1e37]"),
                       "take a small positive number such as 1e-8");
        if (!core::is_fraction_as_float(momentum))
            core::fail(core::text("rmsprop has momentum = ", momentum, ", outside [0, 1) as a float"),
                       "take a momentum such as 0.9, or 0 for none");
        if (!Slots.momentum && momentum != 0)
            core::fail(core::text("rmsprop has momentum = ", momentum, " and no slot for it"),
                       "write rmsprop<rmsprop_slots{.momentum = true}>");
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        return [down = as_vector(-pass.rate), keep = as_vector(decay), take = as_vector(1 - decay),
                floor = as_vector(epsilon),
                last = as_vector(momentum)](vector& w, const vector& g, vector& s, auto&... further) {
            const std::array<vector*, sizeof...(further)> slots{&further...};
            s = simd::fma(take * g, g, keep * s);
            vector variance = s;
            if constexpr (Slots.centered) {
                vector& m = *slots[slot_count - 2];
                m = simd::fma(take, g, keep * m);
                const vector zero(T{0});
                variance = simd::fma(-m, m, s);
                variance = select(variance < zero, zero, variance);  // a NaN stays
            }
            const vector step = g / (simd::sqrt(variance) + floor);
            if constexpr (Slots.momentum) {
                vector& b = *slots[0];
                b = simd::fma(last, b, step);
                w = simd::fma(down, b, w);
            } else {
                w = simd::fma(down, step, w);
            }
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<rmsprop<>> && HasRule<rmsprop<rmsprop_slots{.momentum = true, .centered = true}>>);

}  // namespace lockstep::optim
