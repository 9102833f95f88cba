// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Learning rates as functions of the step: each models LrSchedule.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"

namespace lockstep::optim {

namespace detail {

inline void check_rate(std::string_view schedule, std::string_view member, double value) {
    if (!(value > 0 && std::isfinite(value)))
        core::fail(core::text(schedule, " has ", member, " = ", value, ", not a positive number"),
                   "take a learning rate such as 0.1");
}

}  // namespace detail

/// The same rate at every step.
struct constant {
    double rate = 0.1;

    static constexpr std::string_view name = "constant";

    [[nodiscard]] std::string settings() const { return core::text("rate=", rate); }
    void check() const { detail::check_rate(name, "rate", rate); }
    [[nodiscard]] double operator()(std::uint64_t) const noexcept { return rate; }
};

/// rate factor^floor(step / every): steps 0 .. every-1 run at `rate`, the next `every` at rate factor.
struct step_decay {
    double rate = 0.1;
    double factor = 0.1;
    std::uint64_t every = 0;  ///< steps between two drops, to be given

    static constexpr std::string_view name = "step_decay";

    [[nodiscard]] std::string settings() const {
        return core::text("rate=", rate, " factor=", factor, " every=", every);
    }

    /// Throws core::error unless rate > 0, 0 < factor <= 1 and every >= 1.
    void check() const {
        detail::check_rate(name, "rate", rate);
        if (!(factor > 0 && factor <= 1))
            core::fail(core::text("step_decay has factor = ", factor, ", outside (0, 1]"),
                       "take the ratio of two successive rates, such as 0.1");
        if (every == 0)
            core::fail(core::text("step_decay has every = ", every),
                       "give the number of steps between two drops, at least 1");
    }

    [[nodiscard]] double operator()(std::uint64_t step) const noexcept {
        return rate * std::pow(factor, static_cast<double>(step / std::max<std::uint64_t>(every, 1)));
    }
};

/// Linear warm-up, then half a cosine: steps 0 .. warmup-1 run at peak (step + 1) / warmup, so the last of them reaches
/// the peak; then floor + (peak - floor) (1 + cos(pi (step - warmup) / (total - warmup))) / 2; from step `total` on,
/// `floor`. Warm-up: Goyal et al. 2017; cosine: Loshchilov and Hutter (ICLR 2017).
struct warmup_cosine {
    double peak = 0.1;
    std::uint64_t warmup = 0;  ///< steps
    std::uint64_t total = 0;   ///< steps of the whole run, to be given: from there on the rate is `floor`
    double floor = 0;

    static constexpr std::string_view name = "warmup_cosine";

    [[nodiscard]] std::string settings() const {
        return core::text("peak=", peak, " warmup=", warmup, " total=", total, " floor=", floor);
    }

    /// Throws core::error unless peak > 0, 0 <= floor <= peak, total >= 1 and warmup <= total.
    void check() const;

    [[nodiscard]] double operator()(std::uint64_t step) const noexcept {
        if (step < warmup) return peak * (static_cast<double>(step + 1) / static_cast<double>(warmup));
        if (step >= total) return floor;
        const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
        return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    }
};

/// How a rate goes from one value to another: in a straight line, or along half a cosine.
enum class curve { linear, cosine };

[[nodiscard]] constexpr std::string_view name(curve of) noexcept { return of == curve::linear ? "linear" : "cosine"; }

/// One rise and one fall: with top = rise total, the rate goes from peak / divisor at step 0 to `peak` at step `top`,
/// then down to `floor`, which it keeps from step `total` on. At progress p of the way, linear: from + (to - from) p;
/// cosine: from + (to - from) (1 - cos(pi p)) / 2. Smith and Topin, "Super-Convergence: Very Fast Training of Neural
/// Networks Using Large Learning Rates", 2018. Momentum is left as it is. PyTorch's OneCycleLR has its peak one step
/// before `top`, and its lowest rate one step before `total`.
struct one_cycle {
    double peak = 0.1;
    std::uint64_t total = 0;  ///< steps of the whole run, to be given: from there on the rate is `floor`
    double rise = 0.3;  ///< part of the steps before the peak
    double divisor = 25;
    double floor = 0;
    curve rising = curve::linear;
    curve falling = curve::cosine;

    static constexpr std::string_view name = "one_cycle";

    [[nodiscard]] std::string settings() const {
        return core::text("peak=", peak, " total=", total, " rise=", rise, " divisor=", divisor, " floor=", floor,
                          " rising=", optim::name(rising), " falling=", optim::name(falling));
    }

    /// Throws core::error unless peak > 0, total >= 1, 0 <= rise <= 1, divisor >= 1 and 0 <= floor <= peak.
    void check() const;

    [[nodiscard]] double operator()(std::uint64_t step) const noexcept {
        if (step >= total) return floor;
        const double at = static_cast<double>(step), last = static_cast<double>(total), top = rise * last;
        return at < top ? between(rising, peak / divisor, peak, at / top)
                        : between(falling, peak, floor, (at - top) / (last - top));
    }

private:
    [[nodiscard]] static double between(curve along, double from, double to, double progress) noexcept {
        return from +
               (to - from) * (along == curve::linear ? progress : 0.5 * (1 - std::cos(std::numbers::pi * progress)));
    }
};

static_assert(LrSchedule<constant> && LrSchedule<step_decay> && LrSchedule<warmup_cosine> && LrSchedule<one_cycle>);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void warmup_cosine::check() const {
    detail::check_rate(name, "peak", peak);
    if (!(floor >= 0 && floor <= peak))
        core::fail(core::text("warmup_cosine has floor = ", floor, ", outside [0, peak] with peak = ", peak),
                   "take the rate to end at, or 0");
    if (total == 0 || warmup > total)
        core::fail(core::text("warmup_cosine has warmup = ", warmup, " and total = ", total, " steps"),
                   "count both from step 0: total is at least 1 and at least warmup");
}

LOCKSTEP_FUNCTION void one_cycle::check() const {
    detail::check_rate(name, "peak", peak);
    if (total == 0)
        core::fail(core::text("one_cycle has total = ", total, " steps"),
                   "give the number of steps of the whole run, at least 1");
    if (!(rise >= 0 && rise <= 1))
        core::fail(core::text("one_cycle has rise = ", rise, ", outside [0, 1]"),
                   "take the part of the steps before the peak, such as 0.3");
    if (!(divisor >= 1 && std::isfinite(divisor)))
        core::fail(core::text("one_cycle has divisor = ", divisor, ", not a number from 1"),
                   "take the ratio of the highest to the first rate, such as 25");
    if (!(floor >= 0 && floor <= peak))
        core::fail(core::text("one_cycle has floor = ", floor, ", outside [0, peak] with peak = ", peak),
                   "take the rate to end at, or 0");
}

#endif

}  // namespace lockstep::optim
