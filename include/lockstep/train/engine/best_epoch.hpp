// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The epoch with the least loss on a validation set, and the weights that it had.
// Tested by tests/training/control.cpp.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::train {

/// What a run has of the epoch with the least loss on a validation set. Weights are the part of this rank, and their
/// mean where workers have some of their own; none where they are not kept.
template <class T>
struct best_epoch {
    std::uint64_t epoch = 0;  // from 1; 0: there is none
    double loss = std::numeric_limits<double>::infinity();
    std::uint64_t step = 0;  // steps that were done then; 0: not known
    std::vector<T> weights{}, statistics{};
};

/// trainer::remember_best(). Collective where workers have weights of their own.
template <class Engine>
[[gnu::cold]] void remember_best(Engine& of, std::uint64_t at, double loss, bool keeps) {
    using T = typename Engine::T;
    auto& best = of.best;
    if (!std::isfinite(loss)) core::fail(core::text("a best epoch of the loss ", loss), "remember finite losses");
    if (keeps || best.epoch != at || best.loss != loss) best = {at, loss, of.totals.steps};
    if (!keeps) return;
    const std::span<const T> now = of.whole_weights(), statistics = of.observed.running();
    core::with_memory("the weights of the best epoch", (now.size() + statistics.size()) * sizeof(T),
                      "use a machine with more memory, or fewer ranks on this one", [&] {
                          best.weights.assign(now.begin(), now.end());
                          best.statistics.assign(statistics.begin(), statistics.end());
                      });
}

}  // namespace lockstep::train
