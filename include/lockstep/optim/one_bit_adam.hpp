// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// 1-bit Adam: after a warm-up the second moment is frozen, and momenta travel in place of gradients. Models Optimizer,
// with proposals.
// Tested by tests/unit/reduce/proposals.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::optim {

/// Tang et al. (ICML 2021), algorithm 1, with the bias corrections of Adam.
///   steps 0 .. warm_up - 1   adam (Kingma and Ba), with gradients that travel dense
///   later, on worker k       proposes m_k = beta1 m + (1 - beta1) g_k, m being the last mean on all ranks
///   commit                   m = mean of what the messages decode to;
///                            w -= rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^warm_up)) + epsilon)
/// With a decay, w = (1 - rate decay) w comes first, where pass.decays says so: Loshchilov and Hutter (ICLR 2019).
/// The corrections go on, so the rate makes no jump where v is frozen; the authors' code has none of them, which is the
/// same for warm_up of several thousand steps.
/// After the warm-up m = 0 where v is 0, and where sqrt(v / (1 - beta2^warm_up)) <= epsilon < |m|. Such an m is the
/// error of a compressor, for the warm-up has seen no gradient of its size. Divided by epsilon it would throw the
/// weight away. A larger epsilon protects more weights. Wants error_feedback around the compressor of the plan; the
/// error belongs to a momentum, so it needs no rescaling when the rate changes. The second compression, on the way
/// back, is left out: all ranks decode the messages of all workers. The paper takes 15 to 25 % of all steps as warm-up.
/// Two slots: m, v; none for each worker. Proposal: 3 numbers moved for each weight and worker; commit: 7.
struct one_bit_adam {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    std::uint64_t warm_up = 1000;  ///< steps
    double decay = 0;              ///< decoupled: it replaces optim::weight_decay

    using rule_of = one_bit_adam;
    static constexpr std::string_view name = "one_bit_adam";
    static constexpr std::size_t slot_count = 2;
    static constexpr std::size_t worker_slot_count = 0;
    /// In the warm-up v has the square of the gradient, later m has the mean of proposals.
    static constexpr std::array<std::size_t, 2> non_finite_shows_in() { return {0, 1}; }

    [[nodiscard]] std::string settings() const {
        return core::text("beta1=", beta1, " beta2=", beta2, " epsilon=", epsilon, " warm_up=", warm_up,
                          decay > 0 ? core::text(" decay=", decay) : "");
    }

    /// Throws core::error unless both betas lie in [0, 1) as floats, epsilon in [1e-18, 1e37] as that of adam, decay is
    /// not negative, and there is a warm-up: without one all second moments would be zero.
    void check() const {
        if (!core::is_fraction_as_float(beta1) || !core::is_fraction_as_float(beta2))
            core::fail(core::text("one_bit_adam has beta1 = ", beta1, " and beta2 = ", beta2,
                                  ", not both in [0, 1) as floats"),
                       "take values such as 0.9 and 0.999");
        if (!(epsilon >= 1e-18 && epsilon <= 1e37))
            core::fail(core::text("one_bit_adam has epsilon = ", epsilon, ", outside [1e-18, 1e37]"),
                       "take a small positive number such as 1e-8");
        if (warm_up == 0)
            core::fail("one_bit_adam has warm_up = 0, so its second moments would stay zero",
                       "take 15 to 25 % of the steps of a long run, half of those of a short one");
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("one_bit_adam has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 1e-2, or 0 for none");
    }

    [[nodiscard]] bool is_dense_step(std::uint64_t step) const noexcept { return step < warm_up; }

    template <class T>
    void propose(const proposal_pass<T>& pass) const noexcept {
        if (is_dense_step(pass.step)) return;
        using vector = simd::batch<T>;
        // The parts of all workers add up to the mean, so each of them has its share of m.
        const vector keep(static_cast<T>(beta1 / static_cast<double>(pass.workers))), take(static_cast<T>(1 - beta1));
        parallel::for_blocks(pass.team, pass.values.size(), 4096, [&](parallel::block part) {
            simd::map(
                part.size(), [keep, take](vector& g, const vector& m) { g = simd::fma(take, g, keep * m); },
                pass.values.data() + part.first, pass.shared[0].data() + part.first);
        });
    }

    /// The commit: the gradient of the pass is the mean of what has travelled.
    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const bool warms_up = is_dense_step(pass.step);
        const double updates = static_cast<double>(pass.step) + 1,
                     of_v = std::min(updates, static_cast<double>(warm_up));
        // In double, as in adam: the bits of the warm-up are those of adam.
        const auto as_vector = [](double value) { return vector(static_cast<T>(value)); };
        // Up to least_v, sqrt(v / correction) is no more than epsilon.
        const double correction = 1 - std::pow(beta2, of_v), most = static_cast<double>(std::numeric_limits<T>::max()),
                     least_v = std::min(epsilon * epsilon * correction, most);
        return [down = as_vector(-pass.rate / (1 - std::pow(beta1, updates))),
                unbias = as_vector(1 / std::sqrt(correction)), keep1 = as_vector(beta1), take1 = as_vector(1 - beta1),
                keep2 = as_vector(beta2), take2 = as_vector(1 - beta2), floor = as_vector(epsilon),
                least = as_vector(least_v), shrink = as_vector(1 - pass.rate * decay),
                decays = pass.decays && decay > 0, warms_up](vector& w, const vector& g, vector& m, vector& v) {
            if (decays) w = shrink * w;
            if (warms_up) {
                m = simd::fma(take1, g, keep1 * m);
                v = simd::fma(take2 * g, g, keep2 * v);
            } else {
                const vector zero(T{0});
                m = select(v > select(abs(g) <= floor, zero, least), g, g * zero);  // what is not finite stays so
            }
            w = simd::fma(down, m / simd::fma(simd::sqrt(v), unbias, floor), w);
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }
};

static_assert(HasRule<one_bit_adam> && HasDenseSteps<one_bit_adam> && !SeesMessages<one_bit_adam>);

}  // namespace lockstep::optim
