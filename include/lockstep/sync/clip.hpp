// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Clipping of gradients: what a plan names as `.clip`.
// Tested by tests/equivalence/norms.cpp.

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::sync {

/// What a plan names as `.clip`: one factor for the gradients of a step. `factor(norm)` returns it for their Euclidean
/// norm over all parameters of the whole network, which is finite: a pure function, the same on all ranks. A factor
/// below 0, or one that is not finite in the type of the weights, is an error before any weight changes. With a factor
/// of exactly 1 gradients keep their bits. `is_active()`: false where its settings never change anything, so
/// that no norm is measured. Optional: `check()`, which throws core::error on settings that make no sense.
template <class C>
concept Clipping = std::copy_constructible<C> && requires(const C& clip, double norm) {
    { C::name } -> std::convertible_to<std::string_view>;
    requires !core::name_is_of_objects<C>;
    { clip.settings() } -> std::convertible_to<std::string>;
    { clip.is_active() } -> std::same_as<bool>;
    { clip.factor(norm) } -> std::convertible_to<double>;
    requires noexcept(clip.factor(norm))&& noexcept(clip.is_active());
};
/// Whether a type clips.
template <class C>
inline constexpr bool clips = Clipping<C>;

/// Gradients stay as they are. The default of a plan.
struct no_clipping {
    static constexpr std::string_view name = "none";

    [[nodiscard]] std::string settings() const { return {}; }
};

/// g becomes g norm / max(norm, |g|), where |g| is the Euclidean norm over all parameters of the whole network:
/// Pascanu, Mikolov, Bengio (ICML 2013). g is the mean over the minibatch as the optimizer gets it: after any
/// compression, before weight decay. A gradient that is no longer than `norm` keeps its bits. An infinite norm is no
/// clipping at run time, and costs nothing then. Cost: the first update of a step waits for the sums of all gradients;
/// each rank reads its strip once more; one all-gather of some doubles for each tensor and rank. The factor is rounded
/// to the type of the weights: below its least normal number it loses digits.
struct clip_by_global_norm {
    double norm = 1;

    static constexpr std::string_view name = "global_norm";

    [[nodiscard]] std::string settings() const { return core::text("norm=", norm); }

    /// Throws core::error unless the norm is above 0.
    void check() const {
        if (!(norm > 0))
            core::fail(core::text("the plan clips gradients to a global norm of ", norm),
                       "take a number above 0, such as 1, or infinity for no clipping");
    }

    [[nodiscard]] bool is_active() const noexcept { return std::isfinite(norm); }
    /// What a gradient with such a norm is multiplied with: exactly 1 where it is short enough.
    [[nodiscard]] double factor(double total) const noexcept { return total > norm ? norm / total : 1; }
};
static_assert(Clipping<clip_by_global_norm> && !Clipping<no_clipping>);

}  // namespace lockstep::sync
