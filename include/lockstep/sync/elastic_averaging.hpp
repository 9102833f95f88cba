// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Elastic averaging: workers are drawn to a centre, and the centre to their mean.
// Tested by tests/equivalence/outer_steps.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/local_updates.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// Synchronous EASGD (Zhang, Choromanska, LeCun, NeurIPS 2015, arXiv:1412.6651): each worker k of plan::workers W
/// trains weights w_k of its own, and after every `period` steps, with m their mean, both from the values before,
///
///     w_k = w_k - alpha (w_k - c),  c = c + beta (m - c).
///
/// In the paper the gradient's step is taken at the same time as that to the centre. Looks at weights (evaluate(),
/// weights_hash(), all_weights(), predict(), weight files) see the centre c. The mean is weighted by the samples that
/// workers have taken in the period, as that of local_sgd. The bits depend on W, not on the number of ranks. Cost: that
/// of local_sgd, and 2 n numbers of memory. Errors: those of local_sgd, and an alpha or beta that makes no sense. Not
/// with a compressor or a model partition.
struct elastic_averaging {
    std::uint64_t period = 10;  ///< steps
    double beta = 0.9;          ///< above 0, at most 1
    double alpha = 0;           ///< above 0, at most 1; 0: beta / W, with which both forces are equal

    static constexpr std::uint64_t start = 0;
    static constexpr momenta momentum = momenta::keep;
    static constexpr std::string_view name = "elastic_averaging";
    static constexpr bool has_worker_weights = true;

    [[nodiscard]] std::string settings() const {
        return core::text("period=", period, " beta=", beta, " alpha=", alpha);
    }
    void check() const {
        if (!(beta > 0 && beta <= 1))
            core::fail(core::text("sync::elastic_averaging has beta = ", beta), "use a beta above 0 and at most 1");
        if (!(alpha >= 0 && alpha <= 1))
            core::fail(core::text("sync::elastic_averaging has alpha = ", alpha),
                       "use an alpha above 0 and at most 1, or 0 for beta / workers");
    }

    template <class Types>
    class strategy : public local_updates<Types> {
        using base = local_updates<Types>;
        using T = typename Types::value_type;
        static constexpr std::size_t n = Types::network::parameters_here;

    public:
        template <class Plan>
        [[gnu::cold]] explicit strategy(const setup<Plan>& from)
            : base{from},
              beta_{static_cast<T>(from.plan.sync.beta)},
              alpha_{static_cast<T>(from.plan.sync.alpha > 0
                                        ? from.plan.sync.alpha
                                        : from.plan.sync.beta / static_cast<double>(from.grid.workers))},
              centre_{from.arena.template reserve<T>(n)},
              before_{from.arena.template reserve<T>(n)} {}

        [[gnu::cold]] void loaded(std::span<const T> weights) const {
            std::ranges::copy(weights.first(n), centre().begin());
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            const std::span<T> before = (*this->arena_)[before_];
            const auto move_centre = [centre = centre(), before, beta = beta_](std::span<const T> mean) noexcept {
                for (std::size_t i = 0; i < n; ++i) {
                    before[i] = centre[i];
                    centre[i] += beta * (mean[i] - centre[i]);
                }
            };
            const auto draw = [before, alpha = alpha_](std::span<const T>, std::span<T> worker) noexcept {
                for (std::size_t i = 0; i < n; ++i) worker[i] -= alpha * (worker[i] - before[i]);
            };
            return this->commit_means(weights, rate, step, move_centre, draw);
        }
        /// What looks at weights see. Local.
        [[nodiscard]] std::span<T> mean(std::span<T>) {
            this->complete();
            return centre();
        }
        [[nodiscard]] std::size_t slot_numbers() const noexcept { return base::slot_numbers() + 2 * n; }
        template <class Visitor>
        void visit_state(Visitor&& visit) {
            base::visit_state(visit);
            this->visit_owned(visit, "centre", 0, centre());
        }

    private:
        [[nodiscard]] std::span<T> centre() const { return (*this->arena_)[centre_]; }

        T beta_, alpha_;
        tensor::slice<T> centre_, before_;
    };
};

static_assert(StrategyChoice<elastic_averaging>);

}  // namespace lockstep::sync
