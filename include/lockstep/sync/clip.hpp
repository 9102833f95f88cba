// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Clipping of gradients: what a plan names as `.clip`.
// Tested by tests/equivalence/norms.cpp.

#include <cmath>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::sync {

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

/// Whether a type clips.
template <class C>
inline constexpr bool clips = false;
template <>
inline constexpr bool clips<clip_by_global_norm> = true;

}  // namespace lockstep::sync
