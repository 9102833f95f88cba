// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Gossip: workers mix their weights with those of a few neighbours; training makes no sum over all of them.
// Tested by tests/equivalence/gossip.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/report/recorder.hpp"
#include "lockstep/simd/map.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/graph.hpp"
#include "lockstep/sync/local_updates.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

namespace detail {

/// One phase of a graph on one rank. Data: the weights of its workers. Work: those of others that it needs.
struct mixing {
    struct term {
        collectives::range from;
        double weight;
    };
    collectives::schedule messages;
    std::vector<std::vector<term>> rows;  ///< of each worker of the rank, without itself
    std::vector<std::size_t> others{};    ///< the workers in work, in their order

    /// w_k += factor sum_j M_kj (from_j - from_k) for each worker k of the rank, of n numbers.
    template <class T>
    void mix(std::span<T> weights, double factor, std::span<const T> own, std::span<const T> from_others,
             parallel::team team) const noexcept {
        const std::size_t n = rows.empty() ? 0 : own.size() / rows.size();
        for (std::size_t set = 0; set < rows.size(); ++set)
            parallel::for_blocks(team, n, 1024, [&](parallel::block all) noexcept {
                for (std::size_t at = all.first; at < all.last; at += 1024) {
                    const std::size_t count = std::min<std::size_t>(1024, all.last - at);
                    for (const auto& [from, by] : rows[set]) {
                        const auto of = from.in == collectives::space::data ? own : from_others;
                        const std::span<const T> other = of.subspan(from.first + at, count);
                        const std::span<const T> mine = own.subspan(set * n + at, count);
                        simd::map(
                            count,
                            [by = static_cast<T>(factor * by)](auto& to, const auto& it, const auto& was) {
                                to = to + by * (it - was);
                            },
                            weights.data() + set * n + at, other.data(), mine.data());
                    }
                }
            });
    }
};
/// n: numbers of a worker.
[[nodiscard, gnu::cold]] mixing make_mixing(const graph& of, std::size_t phase, const partition::grid& on,
                                            std::size_t n);
/// check_graph(), and core::error, on all ranks alike, where it is another one on another rank. Collective.
[[gnu::cold]] void require_same_graph(const graph& of, std::size_t workers, const comm::group& ranks);

}  // namespace detail

/// Decentralised SGD (Lian et al., NeurIPS 2017, arXiv:1705.09056): each worker k of plan::workers trains weights w_k
/// of its own, and in every `period`-th step, with M the matrix of `graph`,
///
///     adapts_first = false:  w_k = sum_j M_kj w_j + u_k        adapts_first = true:  w_k = sum_j M_kj (w_j + u_j)
///
/// where u_k is the update of worker k in this step, of its optimizer from its own gradient at its own weights. The
/// first is D-PSGD; its weights set off when a step begins and travel during forward and backward. The second waits
/// for them after the update. *Weights* are mixed, not gradients; slots of optimizers are not. What is computed is
/// w_k + sum_j M_kj (w_j - w_k) [+ u_k]: rounding leaves equal weights equal. Looks at weights (evaluate(),
/// weights_hash(), all_weights(), predict(), weight files) see the mean over workers, by the samples that they have
/// taken since the last exchange. The bits depend on the number of workers, not on that of ranks. Cost: n numbers
/// to each rank that needs a worker of this one, however many workers there are; weights, gradients and slots for
/// each worker of the rank, twice more the weights, and those of neighbours. random_pairs keeps messages for W - 1
/// phases. Errors: those of local_sgd and of check_graph(), and a graph that is another one on another rank. Not
/// with a model partition; with a compressor it is choco_sgd.
struct gossip {
    sync::graph graph = ring;   ///< ring, torus, exponential, random_pairs, or one's own
    std::uint64_t period = 1;   ///< steps from exchange to exchange
    bool adapts_first = false;  ///< the update comes before the exchange

    static constexpr std::uint64_t start = 0;
    static constexpr momenta momentum = momenta::keep;
    static constexpr std::string_view name = "gossip";
    static constexpr bool has_worker_weights = true;

    [[nodiscard]] std::string settings() const {
        return core::text("graph=", graph.name, graph.draws ? " drawn" : "", " period=", period,
                          " adapts_first=", adapts_first);
    }

    template <class Types>
    class strategy : public local_updates<Types> {
        using base = local_updates<Types>;
        using T = typename Types::value_type;
        static constexpr std::size_t n = Types::network::parameters_here;

    public:
        static constexpr bool exchanges_by_messages = true;

        template <class Plan>
        [[gnu::cold]] explicit strategy(const setup<Plan>& from)
            : base{from},
              ranks_{from.all.named("gossip")},
              team_{from.team},
              period_{from.plan.sync.period},
              adapts_first_{from.plan.sync.adapts_first},
              draws_{from.plan.sync.graph.draws},
              seed_{from.plan.seed} {
            const sync::graph& of = from.plan.sync.graph;
            const std::size_t workers = from.grid.workers;
            detail::require_same_graph(of, workers, from.all);
            if (workers == 1) return;  // its steps are the synchronous ones
            std::size_t most = 0;
            for (std::size_t number = 0; number < of.phases(workers); ++number) {
                detail::mixing made = detail::make_mixing(of, number, from.grid, n);
                most = std::max(most, made.messages.work_size());
                phases_.emplace_back(ranks_, std::move(made), team_);
            }
            const std::size_t own = from.grid.part_of(from.grid.rank).workers.size();
            before_ = from.arena.template reserve<T>(core::checked_product("numbers of workers", own, n));
            received_ = from.arena.template reserve<T>(most);
            if (ranks_.size() == 1) return;
            bucket_ = this->times().buckets();
            this->times().add_bucket(own * n);
        }

        /// Of all workers of this rank; they stay where they are.
        [[gnu::cold]] void loaded(std::span<T> weights) noexcept { weights_ = weights; }
        void begin(std::uint64_t step) {
            base::begin(step);
            if (mixes(step) && !adapts_first_) send(step);
        }
        void forward_done() {
            base::forward_done();
            poll();
        }
        template <class Others>
        void gradient_ready(std::size_t layer, std::uint64_t step, const Others& others) {
            base::gradient_ready(layer, step, [&] {
                poll();
                others();
            });
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            return this->commit_and(weights, rate, step, mixes(step), [&] {
                if (adapts_first_) send(step);
                const auto begin = step_times::clock::now();
                comm::wait_through(ranks_.aborts(), now_->exchange.pending(),
                                   [&] { return now_->exchange.progress(); });
                arrived();
                this->times().waited_at_the_end(begin);
                now_->of.mix(weights, 1, std::span<const T>{before()}, std::span<const T>{received()}, team_);
                now_ = nullptr;
                return true;
            });
        }

        [[gnu::cold]] void abandon() noexcept {
            base::abandon();
            travels_ = false;
        }
        /// All weights travel as one more bucket.
        [[gnu::cold]] void record(report::recorder* to) {
            base::record(to);
            if (to == nullptr || phases_.empty() || ranks_.size() == 1) return;
            to->buckets.push_back({0, Types::network::size - 1, bytes_of_exchange()});
        }

        /// The mean over the steps of a period, and over phases.
        [[nodiscard]] std::size_t bytes_per_step() const noexcept {
            return this->bytes_inside() + bytes_of_exchange() / period_;
        }
        [[nodiscard]] std::size_t bytes_of(std::uint64_t step) const noexcept {
            return this->bytes_inside() + (mixes(step) ? phases_[phase_of(step)].bytes() : 0);
        }
        [[nodiscard]] std::size_t message_bytes() const noexcept {
            return base::message_bytes() + (before_.count + received_.count) * sizeof(T);
        }

    private:
        struct phase {
            detail::mixing of;
            comm::operation<T> exchange;

            [[gnu::cold]] phase(const comm::group& ranks, detail::mixing made, parallel::team team)
                : of{std::move(made)}, exchange{ranks, std::move(of.messages), team} {}
            [[nodiscard]] std::size_t bytes() const noexcept { return exchange.program().sent().elements * sizeof(T); }
        };

        /// The mean over phases.
        [[nodiscard]] std::size_t bytes_of_exchange() const noexcept {
            std::size_t sum = 0;
            for (const phase& one : phases_) sum += one.bytes();
            return phases_.empty() ? 0 : sum / phases_.size();
        }
        [[nodiscard]] bool mixes(std::uint64_t step) const noexcept {
            return !phases_.empty() && this->ends_period(step);
        }
        [[nodiscard]] std::size_t phase_of(std::uint64_t step) const noexcept {
            const std::uint64_t number = step / period_;
            if (!draws_) return number % phases_.size();
            return core::random_stream{seed_, core::purpose::gossip}.below(phases_.size(), number);
        }
        void send(std::uint64_t step) {
            this->complete();
            if (now_ != nullptr) now_->exchange.finish();  // alone, after a step that has failed: it had no message
            now_ = &phases_[phase_of(step)];
            parallel::copy(team_, std::span<const T>{weights_}, before());
            now_->exchange.start(before(), received());
            if (ranks_.size() == 1) return;
            this->times().started(bucket_, step_times::direction::sum);
            travels_ = true;
        }
        void poll() {
            if (now_ != nullptr && now_->exchange.poll()) arrived();
        }
        void arrived() {
            if (std::exchange(travels_, false)) this->times().arrived(bucket_, step_times::direction::sum, false);
        }
        [[nodiscard]] std::span<T> before() const noexcept { return (*this->arena_)[before_]; }
        [[nodiscard]] std::span<T> received() const noexcept { return (*this->arena_)[received_]; }

        comm::group ranks_;
        parallel::team team_;
        std::uint64_t period_;
        bool adapts_first_, draws_;
        std::uint64_t seed_;
        std::deque<phase> phases_;
        std::span<T> weights_;
        tensor::slice<T> before_, received_;
        phase* now_ = nullptr;    // under way
        bool travels_ = false;    // and not arrived, as far as times know
        std::size_t bucket_ = 0;  // of times: all weights
    };
};

static_assert(StrategyChoice<gossip>);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void detail::require_same_graph(const graph& of, std::size_t workers, const comm::group& ranks) {
    const std::vector<std::uint64_t> all = ranks.gather_all(check_graph(of, workers));
    for (std::size_t rank = 1; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            core::fail(core::text("graph ", of.name, " of ", workers, " workers is another one on rank ", rank,
                                  " than on rank 0"),
                       "return the same rows on all ranks");
}

LOCKSTEP_FUNCTION detail::mixing detail::make_mixing(const graph& of, std::size_t phase, const partition::grid& on,
                                                     std::size_t n) {
    std::vector<std::vector<std::size_t>> holders(on.workers);
    for (std::size_t rank = 0; rank < on.ranks; ++rank) {
        const parallel::block own = on.part_of(rank).workers;
        for (std::size_t worker = own.first; worker < own.last; ++worker) holders[worker].push_back(rank);
    }
    // Ranks that share a worker have it whole; those that share its neighbour are served by them in turns.
    const auto source = [&](std::size_t worker, const partition::worker_part& of_other) {
        return holders[worker][of_other.index % holders[worker].size()];
    };
    const auto needed = [&](const partition::worker_part& part) {
        std::vector<std::size_t> out;
        for (std::size_t worker = part.workers.first; worker < part.workers.last; ++worker)
            for (const neighbour& one : of.row(on.workers, worker, phase))
                if (one.worker < part.workers.first || one.worker >= part.workers.last) out.push_back(one.worker);
        std::ranges::sort(out);
        const auto twice = std::ranges::unique(out);
        out.erase(twice.begin(), twice.end());
        return out;
    };

    const partition::worker_part part = on.part_of(on.rank);
    const std::vector<std::size_t> others = needed(part);
    mixing out{.messages = collectives::schedule{core::text("gossip over ", of.name), true,
                                                 core::checked_product("numbers of workers", on.workers, n)},
               .rows = {},
               .others = others};
    for (std::size_t rank = 0; rank < on.ranks; ++rank) {
        if (rank == on.rank) continue;
        const partition::worker_part to = on.part_of(rank);
        for (const std::size_t worker : needed(to))
            if (source(worker, to) == on.rank)
                out.messages.send(rank, collectives::in_data((worker - part.workers.first) * n, n));
    }
    for (std::size_t i = 0; i < others.size(); ++i)
        out.messages.receive(source(others[i], part), collectives::in_work(i * n, n));
    out.messages.end_round();
    for (std::size_t worker = part.workers.first; worker < part.workers.last; ++worker) {
        auto& row = out.rows.emplace_back();
        for (const neighbour& one : of.row(on.workers, worker, phase)) {
            if (one.worker == worker) continue;
            const bool is_own = part.workers.first <= one.worker && one.worker < part.workers.last;
            const auto at = static_cast<std::size_t>(std::ranges::lower_bound(others, one.worker) - others.begin());
            row.push_back({is_own ? collectives::in_data((one.worker - part.workers.first) * n, n)
                                  : collectives::in_work(at * n, n),
                           one.weight});
        }
    }
    return out;
}

#endif

}  // namespace lockstep::sync
