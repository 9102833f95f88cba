// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Weight decay before any optimizer: a decorator that models Optimizer.
// Tested by tests/unit/optim/update.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::optim {

/// The inner optimizer sees g + rate w (L2 regularisation). Decoupled, it sees g, and w shrinks by the factor 1 -
/// learning_rate rate first: Loshchilov and Hutter (ICLR 2019), AdamW. Only where the pass says that the weights decay;
/// elsewhere it is the inner optimizer bit for bit. No memory of its own, and no further trip through memory: it joins
/// the loop of an inner optimizer that HasRule, and hands any other one blocks that fit the first-level cache. Both
/// ways give the same bits.
template <Optimizer Inner = momentum>
struct weight_decay {
    static_assert(!needs_norms<Inner>,
                  "lockstep: an optimizer that needs norms of tensors, as lars, has a weight decay of its own: .decay");
    static_assert(
        !Proposes<Inner>,
        "lockstep: an optimizer that proposes what travels, as one_bit_adam, is not decorated, as its proposals "
        "would be left out: it has a weight decay of its own, .decay");
    static_assert(!has_frozen_tensors<Inner>,
                  "lockstep: weight_decay around freeze would change frozen weights: put it inside, "
                  "freeze{.inner = weight_decay{..}}");
    double rate = 1e-4;
    bool decoupled = false;
    Inner inner{};

    using rule_of = weight_decay;
    static constexpr std::string_view name = "weight_decay";
    static constexpr std::size_t slot_count = Inner::slot_count;
    static constexpr bool needs_tensors = optim::needs_tensors<Inner>;
    static constexpr auto non_finite_shows_in() requires ShowsNonFinite<Inner> { return Inner::non_finite_shows_in(); }

    [[nodiscard]] std::string settings() const {
        return core::text("rate=", rate, " decoupled=", decoupled, " inner=", Inner::name, "(",
                          std::string{inner.settings()}, ")");
    }

    /// Throws core::error if the rate is negative or not finite, or if the inner optimizer's own check does.
    void check() const {
        if (!(rate >= 0 && std::isfinite(rate)))
            core::fail(core::text("weight_decay has rate = ", rate, ", negative or not finite"),
                       "take a rate such as 1e-4, or the inner optimizer alone for none");
        core::check_inner_part(inner);
    }

    template <class T>
        requires HasRule<Inner, T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return [next = inner.rule(pass), decay = decay_of(pass), active = pass.decays, separate = decoupled](
                   vector& w, const vector& g, auto&... slots) {
            if (!active) {
                next(w, g, slots...);
            } else if (separate) {
                w = decay * w;
                next(w, g, slots...);
            } else {
                next(w, simd::fma(decay, w, g), slots...);
            }
        };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        if constexpr (HasRule<Inner, T>)
            apply<slot_count>(pass, rule(pass));
        else if (!pass.decays)
            inner.update(pass);
        else
            update_blocks(pass);
    }

private:
    /// Coupled: what w is multiplied with and added to g. Decoupled: what w is multiplied with.
    template <class T>
    [[nodiscard]] simd::batch<T> decay_of(const update_pass<T>& pass) const noexcept {
        return simd::batch<T>(static_cast<T>(decoupled ? 1 - pass.rate * rate : rate));
    }

    template <class T>
    void update_blocks(const update_pass<T>& pass) const noexcept {
        constexpr std::size_t length = 256;
        const auto decay = decay_of(pass);
        std::array<T, length> decayed{};
        for (std::size_t first = 0; first < pass.weights.size(); first += length) {
            auto part = pass.part(first, std::min(length, pass.weights.size() - first));
            const std::size_t count = part.weights.size();
            if (decoupled) {
                simd::map(
                    count, [&](auto& w) { w = decay * w; }, part.weights.data());
            } else {
                const T* weights = part.weights.data();
                simd::map(
                    count, [&](auto& out, const auto& w, const auto& g) { out = simd::fma(decay, w, g); },
                    decayed.data(), weights, part.gradient.data());
                part.gradient = {decayed.data(), count};
            }
            inner.update(part);
        }
    }
};

}  // namespace lockstep::optim
