// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The curve of losses over growing learning rates, and what it suggests: arithmetic alone, see
// train/find_learning_rate.hpp.
// Tested by tests/training/find_learning_rate.cpp.

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::optim {

/// Which rates are tried: `steps` of them, from .. to, each the same multiple of the one before.
struct rate_range {
    double from = 1e-6;
    double to = 10;
    std::size_t steps = 100;
    double smoothing = 0.9;  ///< 0: losses as they are; near 1: a mean over about 1 / (1 - smoothing) steps
    double ends_above = 4;   ///< the search ends where the smoothed loss is so many times the least one

    /// Throws core::error for numbers that make no sense.
    [[gnu::cold]] void check() const;
    /// At step k = 0 .. steps-1: from (to / from)^(k / (steps-1)).
    [[nodiscard]] double rate(std::size_t k) const noexcept {
        return from * std::pow(to / from, static_cast<double>(k) / static_cast<double>(steps - 1));
    }
};

/// What a search has seen, and what to make of it. Equal on any number of ranks.
struct rate_search {
    struct point {
        double rate = 0;
        double loss = 0;      ///< of the step with that rate, before its update: mean over the minibatch
        double smoothed = 0;  ///< (1-s) (loss + s loss before + s^2 ..) / (1 - s^k), for a smoothing s
    };
    std::vector<point> curve;
    bool has_diverged = false;         ///< the loss has grown too much, or is not finite: no higher rate was tried
    std::optional<double> suggestion;  ///< a tenth of the rate with the least smoothed loss; none where it never fell
    std::optional<double> steepest;  ///< the rate at which the smoothed loss falls fastest over the logarithm of rates

    /// A loss at the next rate. False: it ends the search.
    [[gnu::cold]] bool add(const rate_range& of, double rate, double loss);
    /// When all are there.
    [[gnu::cold]] void conclude();

private:
    double mean_ = 0, weight_ = 0, least_ = std::numeric_limits<double>::infinity();
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void rate_range::check() const {
    const auto is_positive = [](double one) { return std::isfinite(one) && one > 0; };
    if (!is_positive(from) || !is_positive(to) || to <= from || !std::isfinite(to / from))
        core::fail(
            core::text("learning rates are searched from ", from, " to ", to),
            "take two positive rates, the lower one first, whose quotient is a number: {.from = 1e-6, .to = 10}");
    if (steps < 2 || steps > 1'000'000)
        core::fail(core::text("a learning rate is searched in ", steps, steps == 1 ? " step" : " steps"),
                   "take 2 to 1000000; 100 are usual");
    if (!(smoothing >= 0 && smoothing < 1))
        core::fail(core::text("the losses of a search are smoothed with ", smoothing),
                   "take a number from 0 to below 1");
    if (!(ends_above > 1))
        core::fail(core::text("a search ends where the loss is ", ends_above, " times the least one"),
                   "take a number above 1");
}

LOCKSTEP_FUNCTION bool rate_search::add(const rate_range& of, double rate, double loss) {
    mean_ = of.smoothing * mean_ + (1 - of.smoothing) * loss;
    weight_ = of.smoothing * weight_ + (1 - of.smoothing);
    const double smoothed = mean_ / weight_;
    curve.push_back({rate, loss, smoothed});
    least_ = std::fmin(least_, smoothed);
    // A loss may be below 0, too.
    has_diverged = !std::isfinite(smoothed) || smoothed > least_ + (of.ends_above - 1) * std::fabs(least_);
    return !has_diverged;
}

LOCKSTEP_FUNCTION void rate_search::conclude() {
    std::size_t best = 0, fastest = 0;
    double steep = 0;
    for (std::size_t i = 1; i < curve.size(); ++i) {
        if (curve[i].smoothed < curve[best].smoothed) best = i;
        const double falls =
            (curve[i].smoothed - curve[i - 1].smoothed) / (std::log(curve[i].rate) - std::log(curve[i - 1].rate));
        if (falls < steep) {
            steep = falls;
            fastest = i;
        }
    }
    if (best > 0) suggestion = curve[best].rate / 10;
    if (best > 0 && fastest > 0) steepest = curve[fastest].rate;
}

#endif

}  // namespace lockstep::optim
