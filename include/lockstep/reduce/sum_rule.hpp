// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which algorithm sums which bucket: the one that was asked for, or the cheapest of those that keep the lane tree, by
// costs measured at the start.
// Tested by tests/equivalence/algorithms.cpp.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/measure_costs.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/reduce/concept.hpp"

namespace lockstep::reduce {

/// The same on all ranks: what rank 0 measured counts. The choice by cost changes no bit.
class sum_rule {
public:
    /// `asked`: the text of an algorithm_table, empty for the choice by cost, of `sums`. Collective. One rank measures
    /// nothing, nor do several that need nothing.
    [[gnu::cold]] sum_rule(const comm::group& all, std::string asked, const collectives::sum_family& sums, bool needed);

    /// Fills in how this bucket is summed. `owner_additions`: what an owner does for an element afterwards, in
    /// additions. Collective over its ranks.
    [[gnu::cold]] void choose(bucket& of, std::size_t element_bytes, double owner_additions);

    /// The fewest parameters of a bucket of these runs: see collectives::least_bucket(); the usual ones where nothing
    /// was measured.
    [[nodiscard, gnu::cold]] std::size_t least_bucket(const std::vector<parallel::block>& runs,
                                                      std::size_t element_bytes) const {
        return measured_ ? collectives::least_bucket(runs, element_bytes, model_) : collectives::usual_bucket;
    }

    /// Those that were measured; all zero where none were.
    [[nodiscard]] const collectives::cost_model& costs() const noexcept { return model_; }

    /// For printing: the table that was used last, and where it comes from.
    [[nodiscard, gnu::cold]] std::string text() const;

private:
    std::string asked_;
    collectives::sum_family sums_;
    bool measured_ = false;
    double owner_additions_ = -1;
    collectives::cost_model model_;
    collectives::cost_model model_here_;
    std::vector<parallel::block> runs_;
    collectives::algorithm_table table_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION sum_rule::sum_rule(const comm::group& all, std::string asked, const collectives::sum_family& sums,
                                     bool needed)
    : asked_{std::move(asked)}, sums_{sums} {
    if (all.size() == 1) return;
    measured_ = needed;
    if (measured_)
        model_ = comm::measure_costs(all);
    else
        model_.on = all.hosts();
}

LOCKSTEP_FUNCTION void sum_rule::choose(bucket& of, std::size_t element_bytes, double owner_additions) {
    if (of.runs.size() == 1) return;
    if (of.runs != runs_ || owner_additions != owner_additions_) {
        runs_ = of.runs;
        owner_additions_ = owner_additions;
        model_here_ = model_;
        if (of.ranks.size() != model_.on.size()) model_here_.on = of.ranks.hosts();
        table_ =
            asked_.empty()
                ? sums_.choose(runs_, element_bytes, model_here_,
                               owner_additions * static_cast<double>(element_bytes) * model_.seconds_per_added_byte)
                : collectives::algorithm_table::parse(asked_);
    }
    of.algorithm = table_.at(of.n * element_bytes);
    of.sums = sums_;
    of.on = model_here_.on;
}

LOCKSTEP_FUNCTION std::string sum_rule::text() const {
    if (runs_.empty()) return "";  // nothing was chosen
    return table_.text() + (asked_.empty() ? " (measured: " + collectives::to_text(model_) + ")" : " (as asked)") +
           (table_.invariant() ? "" : "; bits depend on the number of ranks");
}

#endif

}  // namespace lockstep::reduce
