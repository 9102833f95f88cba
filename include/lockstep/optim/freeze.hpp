// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Layers whose weights stay as they are, around any optimizer: a decorator that models Optimizer.
// Tested by tests/equivalence/freeze.cpp.

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/member.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/optim/momentum.hpp"

namespace lockstep::optim {

/// Weights of layers before number `before`, counted from 0 as in the summary, stay those that were loaded or drawn,
/// bit for bit, with weight decay and norms as well; those of the others are updated by `inner`. For transfer learning:
/// trainer.load_weights(path, layers_before{n}) takes the same layers from a file. Running statistics of frozen layers
/// go on. Not with sync::local_sgd, whose means change last bits. Clipping leaves frozen gradients out of its norm, as
/// PyTorch does for parameters without gradients. Backward and the exchange of frozen gradients are not saved. Memory:
/// the slots of `inner` for all weights.
template <Optimizer Inner = momentum>
struct freeze {
    static_assert(!Proposes<Inner>,
                  "lockstep: an optimizer that proposes what travels, as one_bit_adam, is not decorated: its proposals "
                  "would be left out");
    std::size_t before = 0;
    Inner inner{};

    using rule_of = freeze;
    static constexpr std::string_view name = "freeze";
    static constexpr std::size_t slot_count = Inner::slot_count;
    static constexpr bool needs_tensors = true;
    static constexpr bool needs_norms = optim::needs_norms<Inner>;

    [[nodiscard]] std::string settings() const {
        return core::text("before=", before, " inner=", Inner::name, "(", std::string{inner.settings()}, ")");
    }
    /// Throws core::error if the inner optimizer's own check does.
    void check() const { core::check_inner_part(inner); }

    /// Whether weights of that tensor are updated.
    [[nodiscard]] constexpr bool trains(const tensor_place& of) const noexcept { return of.layer >= before; }

    template <class T>
        requires HasRule<Inner, T>
    [[nodiscard]] auto rule(const update_pass<T>& pass) const noexcept {
        return [next = inner.rule(pass), active = trains(pass.tensor)](auto& w, const auto& g, auto&... slots) {
            if (active) next(w, g, slots...);
        };
    }
    template <class T>
        requires HasNormRule<Inner, T>
    [[nodiscard]] auto norm_rule(const update_pass<T>& pass) const noexcept { return inner.norm_rule(pass); }

    template <class T>
    void update(const update_pass<T>& pass) const noexcept {
        if (trains(pass.tensor)) inner.update(pass);
    }
};
template <class Inner>
freeze(std::size_t, Inner) -> freeze<Inner>;

}  // namespace lockstep::optim
