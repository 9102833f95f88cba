// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a step ends that may not change the weights, or has spoilt them.
// Tested by tests/training/failures.cpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/sync/commit.hpp"
#include "lockstep/sync/lane_sums.hpp"

namespace lockstep::train {

/// All ranks refuse a step alike, before it changes anything.
[[noreturn, gnu::cold]] void refuse_step(sync::commit& change, std::string_view problem, std::uint64_t step);

/// The same for a learning rate, of which `sums` has that of each lane. `lane`: the first one with another rate than
/// lane 0, if any.
[[noreturn, gnu::cold]] void refuse_rate(sync::commit& change, const sync::step_sums& sums, const partition::grid& on,
                                         std::size_t lane, std::uint64_t step);

/// The same for a norm that is not finite: that of tensor number `tensor` of the network.
template <class Network>
[[noreturn, gnu::cold]] void refuse_norm(sync::commit& change, std::size_t tensor, std::uint64_t step) {
    std::string what;
    std::size_t number = 0;
    for (std::size_t layer = 0; layer < Network::size; ++layer)
        for (const auto& one : Network::facts[layer].tensors)
            if (number++ == tensor)
                what = core::text("the norm of the gradient or of the ", one.name, " of layer ", layer, " (",
                                  Network::facts[layer].name, ") is not finite");
    refuse_step(change, what, step);
}

/// After a step whose gradients or new weights are not finite on this rank.
template <class Network, class T>
[[noreturn, gnu::cold]] void refuse_weights(std::span<const T> weights, std::uint64_t step, bool have_means) {
    std::string what = have_means ? "a gradient, the state of the optimizer or the mean of workers"
                                  : "a gradient or the state of the optimizer";
    const std::size_t bad = kernels::first_non_finite(weights);
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        std::size_t at = Network::offset(layer);
        for (const auto& one : Network::facts[layer].tensors) {
            if (at <= bad && bad < at + one.size())
                what = core::text("the ", one.name, " of layer ", layer, " (", Network::facts[layer].name, ")");
            at += one.size();
        }
    }
    core::fail(core::text(what, " became infinite or NaN in step ", step, ", whose loss was finite"),
               "use a lower learning rate or a warm-up, or scale the data");
}

/// As long as it lives, a fit() is under way: observers may not begin another one.
struct fit_guard {
    bool& is_in_fit;
    explicit fit_guard(bool& of) : is_in_fit{of} { is_in_fit = true; }
    fit_guard(const fit_guard&) = delete;
    fit_guard& operator=(const fit_guard&) = delete;
    ~fit_guard() { is_in_fit = false; }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void refuse_step(sync::commit& change, std::string_view problem, std::uint64_t step) {
    change.call_off();
    core::fail(core::text(problem, " in step ", step), "use a lower learning rate or a warm-up, and check the data");
}

LOCKSTEP_FUNCTION void refuse_rate(sync::commit& change, const sync::step_sums& sums, const partition::grid& on,
                                   std::size_t lane, std::uint64_t step) {
    change.call_off();
    const std::string problem = core::text("the learning rate of step ", step, " is ", sums.at(0, 2));
    if (lane == on.lanes) core::fail(problem, "make the schedule return a number of at least 0");
    std::size_t rank = 0;
    while (on.lanes_of(rank).last <= lane) ++rank;
    core::fail(core::text(problem, " on rank 0 and ", sums.at(lane, 2), " on rank ", rank),
               "make the schedule a function of the step alone, or change it on every rank alike");
}

#endif

}  // namespace lockstep::train
