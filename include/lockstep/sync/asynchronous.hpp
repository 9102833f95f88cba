// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Asynchronous and stale-synchronous training at a parameter server, as a recipe: the arrivals are data.
// Tested by tests/equivalence/asynchronous.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/sync/arrivals.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/local_updates.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::sync {

/// A parameter server and `learners` that push gradients and pull weights, each at its own pace. A step is one update
/// of the server, by the mean of the next c = plan::workers gradients that arrive, whichever learners they are from:
///
///     w(t+1) = w(t) - rate(t) mean_k g_k(w(v_k)),   v_k <= t the version that the learner of gradient k had read.
///
/// That is n-softsync with n = learners / c (Gupta, Zhang, Wang, ICDM 2016, arXiv:1509.04210). With `.workers = 1` each
/// gradient is an update: asynchronous SGD (Downpour; Dean et al., NeurIPS 2012). With `bound` = s it is
/// stale-synchronous (Ho et al., NeurIPS 2013): no learner begins a gradient while it has sent more than s more than
/// the slowest; 0, with as many learners as workers, is a barrier. What arrives when is drawn from the seed as
/// `arrival_model` says, or read from `replay`: so an asynchronous run has the same bits on any number of ranks, can be
/// repeated, and that of another system can be replayed. Steps of the ranks themselves stay synchronous: this shows
/// what staleness does to training, and is no faster. arrivals_of() has the list of a run, with times. Optimizer,
/// schedule and weight decay are the server's. Looks at weights see the server's. A minibatch is divided among the c
/// gradients of its step. Cost: that of a synchronous step of sync::local_sgd, and copies of n numbers for each
/// gradient that is stale and each learner that has read; memory of local_sgd, and 1 + learners times the weights, in
/// checkpoints too; a resume computes the arrivals so far (arrival_source::of()). Errors: those of local_sgd, settings
/// that make no sense, and a `replay` that is no list of a run, or ends before it, and a resume that needs weights
/// which learners do not have. After the last two the trainer can be saved. Not with a compressor or a model partition.
struct asynchronous {
    std::size_t learners = 0;              ///< 0: as many as plan::workers
    std::optional<std::uint64_t> bound{};  ///< of the stale-synchronous; without one learners never wait
    double spread = 0.2;                   ///< standard deviation of the logarithm of the time of a gradient; median 1
    double slowest = 1;                    ///< how much longer learner 0 takes
    bool divides_by_staleness = false;     ///< each gradient by max(1, t - v) (Zhang, Gupta, Lian, Liu, IJCAI 2016)
    std::optional<arrival_list> replay{};  ///< in place of what is drawn; learners are then those of the list

    static constexpr std::uint64_t period = 1, start = std::numeric_limits<std::uint64_t>::max();
    static constexpr momenta momentum = momenta::keep;
    static constexpr std::string_view name = "asynchronous";
    static constexpr bool has_worker_weights = true;

    [[nodiscard]] std::string settings() const {
        const std::string from =
            replay ? core::text("replay=", core::hexadecimal(replay->hash()))
                   : core::text("learners=", learners, " bound=", bound ? core::text(*bound) : std::string{"none"},
                                " spread=", spread, " slowest=", slowest);
        return core::text(from, " divides_by_staleness=", divides_by_staleness);
    }
    void check() const {
        if (!replay) arrival_model{std::max<std::size_t>(1, learners), bound, spread, slowest}.check();
    }
    /// For plan::workers and plan::seed.
    [[nodiscard, gnu::cold]] arrival_source source(std::size_t workers, std::uint64_t seed) const {
        if (replay) return {*replay, workers};
        return {arrival_model{learners > 0 ? learners : workers, bound, spread, slowest}, workers, seed};
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
              source_{from.plan.sync.source(from.grid.workers, from.plan.seed)},
              ranks_{from.all},
              team_{from.team},
              held_(source_.learners() + 1),
              divides_{from.plan.sync.divides_by_staleness},
              server_{from.arena.template reserve<T>(n)},
              copies_{
                  from.arena.template reserve<T>(core::checked_product("numbers of learners", source_.learners(), n))} {
        }

        /// Learners go on from new weights.
        [[gnu::cold]] void loaded(std::span<T> weights) {
            weights_ = weights;
            for (std::size_t learner = 0; learner < source_.learners(); ++learner) {
                parallel::copy(team_, std::span<const T>{of_set(0)}, copy_of(learner));
                held_[learner] = 2 * held_.back() + 1;
            }
        }
        void begin(std::uint64_t step) {
            saving::alike(ranks_, [&] {
                now_ = source_.of(step);
                require_held(step);
            });
            base::begin(step);
            step_ = step;
            this->complete();
            parallel::copy(team_, std::span<const T>{of_set(0)}, server());
            are_stale_ = true;
            each_stale([&](std::size_t set, std::size_t learner) { put(copy_of(learner), set); });
        }
        [[nodiscard]] std::size_t begin_walk(std::size_t set, std::span<const std::size_t> lengths,
                                             std::uint64_t step) noexcept {
            const std::size_t samples = base::begin_walk(set, lengths, step);
            const std::uint64_t staleness = step - now_[this->worker_of(set)].version;
            return divides_ && staleness > 1 ? samples * staleness : samples;
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            put_back();
            for (std::size_t learner = 0; learner < source_.learners(); ++learner)
                if (source_.version_of(learner) == step) {
                    parallel::copy(team_, std::span<const T>{server()}, copy_of(learner));
                    held_[learner] = 2 * step;
                }
            held_.back() = step + 1;
            return base::commit(weights, rate, step);
        }
        [[gnu::cold]] void abandon() noexcept {
            put_back();
            base::abandon();
        }

        /// What a measured run took in this step.
        [[nodiscard]] std::uint64_t minibatch_of(std::uint64_t step) const noexcept {
            return source_.minibatch_of(step);
        }
        [[nodiscard]] static std::uint64_t synchronous_steps() noexcept { return 0; }
        [[nodiscard]] std::size_t slot_numbers() const noexcept {
            return base::slot_numbers() + server_.count + copies_.count;
        }
        template <class Visitor>
        void visit_state(Visitor&& visit) {
            base::visit_state(visit);
            for (std::size_t learner = 0; learner < source_.learners(); ++learner)
                this->visit_owned(visit, "learner", learner, copy_of(learner));
            visit(tensor::state_part<std::uint64_t>{
                .role = "learners", .numbers = std::span{held_}, .speaks = ranks_.rank() == 0});
        }

    private:
        [[nodiscard]] std::span<T> server() const noexcept { return (*this->arena_)[server_]; }
        [[nodiscard]] std::span<T> copy_of(std::size_t learner) const noexcept {
            return (*this->arena_)[copies_].subspan(learner * n, n);
        }
        [[nodiscard]] std::span<T> of_set(std::size_t set) const noexcept { return weights_.subspan(set * n, n); }
        void put(std::span<const T> from, std::size_t set) const noexcept { parallel::copy(team_, from, of_set(set)); }
        /// f(set of this rank, learner) for each gradient of older weights than the server's.
        template <class F>
        void each_stale(const F& f) const noexcept {
            for (std::size_t set = 0; set * n < weights_.size(); ++set)
                if (const arrival& one = now_[this->worker_of(set)]; one.version != step_) f(set, one.learner);
        }
        /// After a resume with other arrivals learners may have read other weights than they are said to.
        void require_held(std::uint64_t step) const {
            for (const arrival& one : now_) {
                const std::uint64_t held = held_[one.learner] / 2, is_loaded = held_[one.learner] % 2;
                if (one.version == step || one.version == held || (is_loaded == 1 && one.version < held)) continue;
                core::fail(core::text("step ", step + 1, " takes a gradient of learner ", one.learner,
                                      " at the weights after step ", one.version,
                                      ", and the learner has those after step ", held),
                           "resume with the arrivals that the run was saved with, or begin anew");
            }
        }
        /// Weights of the server are in the places of those of learners again.
        void put_back() noexcept {
            if (are_stale_) each_stale([&](std::size_t set, std::size_t) { put(server(), set); });
            are_stale_ = false;
        }

        arrival_source source_;
        comm::group ranks_;
        parallel::team team_;
        // What each learner has: twice the version, and 1 more where loaded weights stand for all up to it. At last the
        // steps that are done.
        std::vector<std::uint64_t> held_;
        bool divides_, are_stale_ = false;
        tensor::slice<T> server_, copies_;
        std::span<T> weights_;  // of all workers of this rank; they stay where they are
        std::span<const arrival> now_;
        std::uint64_t step_ = 0;
    };
};

static_assert(StrategyChoice<asynchronous>);

/// The gradients of the first `updates` steps of a run with this plan, as it makes them or replays them. `workers`:
/// those of the trainer (plan::workers, or the number of ranks it began with).
[[nodiscard, gnu::cold]] inline arrival_list arrivals_of(const asynchronous& sync, std::size_t workers,
                                                         std::uint64_t seed, std::uint64_t updates) {
    arrival_source from = sync.source(workers, seed);
    arrival_list out;
    for (std::uint64_t update = 0; update < updates; ++update)
        for (const arrival& one : from.of(update)) out.entries.push_back(one);
    return out;
}

}  // namespace lockstep::sync
