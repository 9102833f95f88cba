// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Local SGD whose mean moves slow weights by a momentum of its own: BMUF, SlowMo, DiLoCo.
// Tested by tests/equivalence/outer_steps.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/sync/local_updates.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// local_sgd, in which workers go on from slow weights s in place of their mean m: after every `period` steps
///
///     g = s - m,  v = beta v + g,  s = s - rate (nesterov ? g + beta v : v),  w_k = s for each worker k.
///
/// The defaults but for the period are DiLoCo's (Douillard et al. 2023, arXiv:2311.08105); with `.nesterov = false` and
/// a rate of 1 it is BMUF (Chen, Huo, ICASSP 2016), and at a constant learning rate SlowMo, whose alpha is `rate` (Wang
/// et al., ICLR 2020, arXiv:1910.00643). With rate 1 and beta 0 it is local_sgd but for the last bits. One worker has
/// slow weights as well: Lookahead with momentum. With a compressor m is what the differences that workers send make of
/// s, as in local_sgd. Cost: that of local_sgd, and 2 n numbers of memory and about 6 n operations each period on every
/// rank. Errors: those of local_sgd, and a rate or beta that makes no sense.
struct outer_momentum {
    std::uint64_t period = 100;        ///< steps from mean to mean
    std::uint64_t start = 0;           ///< the first local step; synchronous steps before it move slow weights along
    momenta momentum = momenta::keep;  ///< of each worker's own optimizer
    double rate = 0.7;                 ///< of the outer step, above 0
    double beta = 0.9;                 ///< in [0, 1)
    bool nesterov = true;

    static constexpr std::string_view name = "outer_momentum";
    static constexpr bool has_worker_weights = true;
    static constexpr bool takes_compressor = true;

    [[nodiscard]] std::string settings() const {
        return core::text(local_sgd{period, start, momentum}.settings(), " rate=", rate, " beta=", beta,
                          " nesterov=", nesterov);
    }
    void check() const {
        if (!(std::isfinite(rate) && rate > 0))
            core::fail(core::text("sync::outer_momentum has rate = ", rate), "use a finite rate above 0, such as 0.7");
        if (!(beta >= 0 && beta < 1))
            core::fail(core::text("sync::outer_momentum has beta = ", beta),
                       "use a beta from 0 to below 1, such as 0.9");
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
              start_{from.plan.sync.start},
              rate_{static_cast<T>(from.plan.sync.rate)},
              beta_{static_cast<T>(from.plan.sync.beta)},
              nesterov_{from.plan.sync.nesterov},
              slow_{from.arena.template reserve<T>(n)},
              velocity_{from.arena.template reserve<T>(n)} {}

        [[gnu::cold]] void loaded(std::span<const T> weights) const { follow(weights); }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            const auto after = [slow = slow(), velocity = velocity(), rate_ = rate_, beta = beta_,
                                nesterov = nesterov_](std::span<T> mean) noexcept {
                for (std::size_t i = 0; i < n; ++i) {
                    const T g = slow[i] - mean[i];
                    velocity[i] = beta * velocity[i] + g;
                    mean[i] = slow[i] -= rate_ * (nesterov ? g + beta * velocity[i] : velocity[i]);
                }
            };
            const bool finite = this->commit_means(weights, rate, step, after);
            if (step + 1 == start_) follow(this->mean(weights));
            weights_ = step + 1 < start_ ? weights : std::span<T>{};
            return finite;
        }
        /// Slow weights are those of the checkpoint.
        [[gnu::cold]] void restored() {
            weights_ = {};
            base::restored();
        }
        [[nodiscard]] std::size_t slot_numbers() const noexcept { return base::slot_numbers() + 2 * n; }
        template <class Visitor>
        void visit_state(Visitor&& visit) {
            base::visit_state(visit);
            if (!weights_.empty()) follow(this->mean(weights_));
            this->visit_owned(visit, "slow weights", 0, slow());
            this->visit_owned(visit, "outer momentum", 0, velocity());
        }

    private:
        [[nodiscard]] std::span<T> slow() const { return (*this->arena_)[slow_]; }
        [[nodiscard]] std::span<T> velocity() const { return (*this->arena_)[velocity_]; }
        void follow(std::span<const T> weights) const { std::ranges::copy(weights.first(n), slow().begin()); }

        std::uint64_t start_;
        std::span<T> weights_;  // between synchronous steps: slow weights follow these when they are looked at
        T rate_, beta_;
        bool nesterov_;
        tensor::slice<T> slow_, velocity_;
    };
};

static_assert(StrategyChoice<outer_momentum>);

}  // namespace lockstep::sync
