// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Deep gradient compression: momentum before sparse messages, forgotten where numbers are sent. Models Optimizer, with
// proposals.
// Tested by tests/unit/reduce/proposals.cpp.

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/sum_of_squares.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::optim {

/// Lin et al. (ICLR 2018), as the optimizer beside error_feedback{top_k{.ratio = 0.001}} or another sparse compressor.
/// Of worker k, with its local gradient g (the mean over its samples) and for each tensor:
///   local clipping        g = g min(1, clip W^-1/2 / |g|)
///   momentum correction   u = momentum u + g, proposes u; nesterov: u = momentum (u + g), proposes u + g
///   error feedback        v = v + proposal, sends the k largest |v|, v = 0 where sent: its residual is v
///   factor masking        u = 0 where sent
///   commit                w -= rate (mean of what was sent + decay w), without decay w where pass.decays is false
/// The decay is outside of the momentum: to have the effect of an L2 term that goes through it, divide by 1 - momentum.
/// Masking shortens the momentum of gradients alone, so the decay weighs more beside them; so it does in the published
/// code, where it has a momentum of its own that nothing masks.
/// Tensors that travel as they are, and those of which the compressor says that it sends all numbers (a ratio of 1, the
/// steps before warm_up::start but for another `first` than none), keep all of u: their sum is plain momentum, as in
/// the published code. A number that was sent and is exactly 0 counts as not sent. The warm-up of the ratio belongs to
/// the compressor. With a momentum of 0 this is sgd with local clipping. The norm of a tensor is that of all its
/// numbers, in double, with a model partition those of a shard; the paper clips by the norm of all tensors, which would
/// keep messages back until the end of backward. One slot for each worker: u. Proposal: 4 numbers moved for each weight
/// and worker, one more with clipping; masking: 3 more. Neither u nor v contains the rate.
struct deep_gradient {
    double momentum = 0.9;
    bool nesterov = false;
    double clip = 0;    ///< of the norm of a local gradient, before W^-1/2; 0: none
    bool masks = true;  ///< momentum factor masking
    double decay = 0;   ///< L2 regularisation: it replaces optim::weight_decay

    using rule_of = deep_gradient;
    static constexpr std::string_view name = "deep_gradient";
    static constexpr std::size_t slot_count = 0;
    static constexpr std::size_t worker_slot_count = 1;
    static constexpr std::array<std::size_t, 0> non_finite_shows_in() { return {}; }

    [[nodiscard]] std::string settings() const {
        return core::text("momentum=", momentum, " nesterov=", nesterov, " clip=", clip, " masks=", masks,
                          decay > 0 ? core::text(" decay=", decay) : "");
    }

    /// Throws core::error unless 0 <= momentum < 1 as a float too, and clip and decay are numbers and at least 0.
    void check() const {
        if (!core::is_fraction_as_float(momentum))
            core::fail(core::text("deep_gradient has momentum = ", momentum, ", outside [0, 1) as a float"),
                       "take a momentum such as 0.9");
        if (!(clip >= 0 && std::isfinite(clip)))
            core::fail(core::text("deep_gradient has clip = ", clip, ", negative or not finite"),
                       "take the norm that a gradient over the whole minibatch may have, or 0 for no clipping");
        if (!(decay >= 0 && std::isfinite(decay)))
            core::fail(core::text("deep_gradient has decay = ", decay, ", negative or not finite"),
                       "take a decay such as 1e-3, or 0 for none");
    }

    template <class T>
    void propose(const proposal_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        const vector scale(static_cast<T>(clipping(pass))), keep(static_cast<T>(momentum));
        const bool ahead = nesterov;
        parallel::for_blocks(pass.team, pass.values.size(), 4096, [&](parallel::block part) {
            simd::map(
                part.size(),
                [scale, keep, ahead](vector& g, vector& u) {
                    g = g * scale;
                    if (ahead) {
                        u = keep * (u + g);
                        g = u + g;
                    } else {
                        u = simd::fma(keep, u, g);
                        g = u;
                    }
                },
                pass.values.data() + part.first, pass.own[0].data() + part.first);
        });
    }

    template <class T>
    void sent(const proposal_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        if (!masks) return;
        parallel::for_blocks(pass.team, pass.values.size(), 4096, [&](parallel::block part) {
            const T* const message = pass.values.data() + part.first;
            simd::map(
                part.size(),
                [](vector& u, const vector& one) {
                    const vector zero(T{0});
                    u = select(one == zero, u, zero);
                },
                pass.own[0].data() + part.first, message);
        });
    }

    template <class T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return [down = vector(static_cast<T>(-pass.rate)), shrink = vector(static_cast<T>(decay)),
                decays = pass.decays && decay > 0](vector& w, const vector& g) {
            w = simd::fma(down, decays ? simd::fma(shrink, w, g) : g, w);
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        apply<slot_count>(pass, rule(pass));
    }

private:
    /// The values are the worker's share of rows times its local gradient. Exactly 1 where that is short enough.
    template <class T>
    [[nodiscard]] double clipping(const proposal_pass<T>& pass) const noexcept {
        if (clip == 0 || pass.share == 0) return 1;
        const double norm = std::sqrt(kernels::sum_of_squares(std::span<const T>{pass.values})) / pass.share,
                     most = clip / std::sqrt(static_cast<double>(pass.workers));
        if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();  // the step is refused
        return norm > most ? most / norm : 1;
    }
};

static_assert(HasRule<deep_gradient> && SeesMessages<deep_gradient> && !HasDenseSteps<deep_gradient>);

}  // namespace lockstep::optim
