// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An optimizer that sees a multiple of the gradient: a decorator that models Optimizer, for one step.
// Tested by tests/unit/optim/lars.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/simd/map.hpp"

namespace lockstep::optim {

/// The inner optimizer sees factor g, rounded to T. It joins the loop of one that HasRule, and hands any other one
/// blocks that fit the first-level cache; both ways give the same bits. A factor of 1 changes none. Keeps a view of the
/// inner optimizer.
template <Optimizer Inner>
struct scaled_gradient {
    const Inner* inner = nullptr;
    double factor = 1;

    using rule_of = scaled_gradient;
    static constexpr std::string_view name = "scaled_gradient";
    static constexpr std::size_t slot_count = Inner::slot_count;
    static constexpr auto non_finite_shows_in() requires ShowsNonFinite<Inner> { return Inner::non_finite_shows_in(); }

    /// Those of the inner optimizer: the factor is a step's, no recipe's.
    [[nodiscard]] std::string settings() const { return inner->settings(); }

    template <class T>
        requires HasRule<Inner, T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        using vector = simd::batch<T>;
        return [next = inner->rule(pass), scale = vector(static_cast<T>(factor))](
                   vector& w, const vector& g, auto&... slots) { next(w, scale * g, slots...); };
    }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        if constexpr (HasRule<Inner, T>) {
            apply<slot_count>(pass, rule(pass));
        } else {
            // Small enough to stay in the first-level cache until the inner optimizer reads it.
            constexpr std::size_t length = 256;
            std::array<T, length> scaled{};
            for (std::size_t first = 0; first < pass.weights.size(); first += length) {
                auto part = pass.part(first, std::min(length, pass.weights.size() - first));
                const std::size_t count = part.weights.size();
                simd::map(
                    count,
                    [scale = simd::batch<T>(static_cast<T>(factor))](auto& out, const auto& g) { out = scale * g; },
                    scaled.data(), part.gradient.data());
                part.gradient = {scaled.data(), count};
                inner->update(part);
            }
        }
    }
};

}  // namespace lockstep::optim
