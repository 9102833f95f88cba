// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Gossip with a compressor: workers send their neighbours how far they have moved from a copy that those keep of them.
// Tested by tests/equivalence/choco_sgd.cpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/parts/choice.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "lockstep/reduce/piece_message.hpp"
#include "lockstep/report/recorder.hpp"
#include "lockstep/sync/buckets.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/difference_sum.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/sync/graph.hpp"
#include "lockstep/sync/local_updates.hpp"
#include "lockstep/sync/step_times.hpp"
#include "lockstep/sync/whole_state.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/slots.hpp"
#include "lockstep/tensor/state.hpp"

namespace lockstep::sync {

/// CHOCO-SGD (Koloskova, Stich, Jaggi, ICML 2019, arXiv:1902.00340, algorithm 2): each worker k of plan::workers trains
/// weights w_k of its own; it and its neighbours keep a public copy h_k of them. In every `period`-th step, after the
/// update, with C the compressor of the plan, M the matrix of `graph` and T(v) what a message of v decodes to,
///
///     q_k = C(w_k - h_k), sent to neighbours;   h_k = h_k + T(q_k);   w_k = w_k + gamma sum_j M_kj (h_j - h_k)
///
/// What a message leaves out stays in w_k - h_k, as in the residual of error_feedback, which therefore is refused here,
/// as is what it refuses: messages have to bring h_k nearer to w_k. Copies begin as the weights from which all workers
/// start, also after load_weights(). With compress::none and gamma = 1 it is gossip with adapts_first. The stronger the
/// compression, the smaller gamma has to be. Slots of optimizers are not mixed, and looks at weights see the mean over
/// workers, as with gossip. The bits depend on the number of workers, not on that of ranks. Cost: when a step is over,
/// a message with all the room that one of this step may need (what varies() travels no shorter) to each rank that
/// needs a worker of this one; beside what local_sgd has, copies of the weights of each worker of the rank and of their
/// neighbours, room for the messages of all of them, slots of the compressor, and n numbers. Errors: those of gossip, a
/// graph of several phases, and gamma outside of (0, 1]. Not with a model partition, and not with what is summed on its
/// way (power_sgd, sparse_sum, ..) or changes the sum (two_sided).
struct choco_sgd {
    sync::graph graph = ring;  ///< of one phase: ring, torus, or one's own
    std::uint64_t period = 1;  ///< steps from exchange to exchange
    double gamma = 0.1;        ///< how far weights go towards the copies of neighbours

    static constexpr std::uint64_t start = 0;
    static constexpr momenta momentum = momenta::keep;
    static constexpr std::string_view name = "choco_sgd";
    static constexpr bool has_worker_weights = true, takes_compressor = true;

    [[nodiscard]] std::string settings() const {
        return core::text("graph=", graph.name, " period=", period, " gamma=", gamma);
    }

    template <class Types>
    class strategy : public local_updates<exactly<Types>> {
        using base = local_updates<exactly<Types>>;
        using T = typename Types::value_type;
        using network = typename Types::network;
        using compressor_type = typename Types::compressor;
        static constexpr std::size_t n = network::parameters_here;
        static_assert(sends_messages<T, compressor_type>,
                      "lockstep: workers of sync::choco_sgd send messages to neighbours, and this compressor is summed "
                      "on its way or changes the sum: use top_k, quantize, qsgd or another one whose messages are "
                      "gathered, or compress::none{}");

    public:
        static constexpr bool exchanges_by_messages = true;

        template <class Plan>
        [[gnu::cold]] explicit strategy(const setup<Plan>& from) : strategy{from, exact_plan<Plan>{from.plan}} {}

        void bind(const tensor::arena& arena) {
            base::bind(arena);
            std::ranges::fill(arena[copies_], T{0});
            std::ranges::fill(arena[state_], T{0});
        }
        [[nodiscard]] bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            if (!layouts_.empty() && this->are_alike())
                for (std::size_t copy = 0; copy < workers_.size(); ++copy)
                    parallel::copy(team_, std::span<const T>{weights.first(n)}, copy_of(copy));
            return this->commit_and(weights, rate, step, !layouts_.empty() && this->ends_period(step),
                                    [&] { return exchange(weights, step); });
        }

        [[gnu::cold]] void record(report::recorder* to) {
            base::record(to);
            if (to != nullptr && travels()) to->buckets.push_back({0, network::size - 1, sent_bytes()});
        }
        template <class Visitor>
        void visit_state(Visitor&& visit) {
            base::visit_state(visit);
            for (std::size_t copy = 0; copy < workers_.size(); ++copy)
                visit_whole<network>(
                    [&](auto part) {
                        part.worker = workers_[copy];
                        visit(part);
                    },
                    "public copy", 0, copy_of(copy), copy < own() && this->speaks());
            for (std::size_t set = 0; set < own() && slots_ > 0; ++set)
                for (const reduce::piece& one : pieces_)
                    for (std::size_t slot = 0; slot < slots_ && !reduce::travels_dense(compressor_, one); ++slot)
                        visit(tensor::state_part<T>{.role = "compressor",
                                                    .slot = slot,
                                                    .tensor = one.tensor,
                                                    .segment = one.offset,
                                                    .worker = workers_[set],
                                                    .numbers = state_of(set, one)[slot],
                                                    .speaks = this->speaks()});
        }

        /// The mean over the steps of a period, once messages keep their length.
        [[nodiscard]] std::size_t bytes_per_step() const noexcept {
            return this->bytes_inside() + sent_bytes() / period_;
        }
        [[nodiscard]] std::size_t bytes_of(std::uint64_t step) const noexcept {
            return this->bytes_inside() + (this->ends_period(step) ? sent_bytes(step) : 0);
        }
        [[nodiscard]] std::size_t slot_numbers() const noexcept { return base::slot_numbers() + copies_.count; }
        [[nodiscard]] std::size_t message_bytes() const noexcept {
            return base::message_bytes() + (difference_.count + state_.count + scratch_.count) * sizeof(T) +
                   messages_.count + received_.count;
        }

    private:
        template <class Plan>
        [[gnu::cold]] strategy(const setup<Plan>& from, const exact_plan<Plan>& exact)
            : base{setup<exact_plan<Plan>>{exact, from.grid, from.all, from.replicas, from.sharing, from.least_bucket,
                                           from.rule, from.team, from.arena, from.memory, from.inside, from.change}},
              ranks_{from.all.named("gossip")},
              team_{from.team},
              compressor_{from.plan.compressor},
              period_{from.plan.sync.period},
              gamma_{from.plan.sync.gamma},
              seed_{from.plan.seed},
              all_workers_{from.grid.workers},
              slots_{compress::slots_of(compressor_)} {
            const sync::graph& of = from.plan.sync.graph;
            detail::require_same_graph(of, all_workers_, from.all);
            if (of.phases(all_workers_) > 1)
                core::fail(core::text("sync::choco_sgd has graph ", of.name, ", whose neighbours change in ",
                                      of.phases(all_workers_), " phases, and each worker keeps copies of its own"),
                           "use a graph of one phase, such as ring or torus");
            if (!(gamma_ > 0 && gamma_ <= 1))
                core::fail(core::text("sync::choco_sgd has gamma ", gamma_), "set it above 0, to 1 at most");
            if (compress::seals(compressor_))
                core::fail(core::text("sync::choco_sgd makes no sum of all workers, which compressor ",
                                      compressor_type::name, "(", compressor_.settings(), ") would change"),
                           "use one whose messages are gathered, such as top_k or quantize");
            try {
                compress::detail::check_feedback(compressor_);
            } catch (const core::error& refused) {
                core::fail(core::text("sync::choco_sgd keeps what messages leave out, as error_feedback does, and that "
                                      "is refused for this compressor: ",
                                      refused.without_head()),
                           "for choco_sgd, take one that error_feedback may go around, and leave error_feedback out");
            }
            if (all_workers_ == 1) return;  // its steps are the synchronous ones
            require_series(tensor_count<network>(), from.grid);
            pieces_ = make_pieces<network>({.first = 0, .count = n}, from.grid,
                                           compress::sees_whole_tensors(compressor_) ? 0 : from.plan.segment);
            auto changes = compress::changes_of(compressor_);
            changes.insert(changes.begin(), 0);
            std::size_t scratch = 0, room = 0;
            for (const std::uint64_t step : changes) {
                std::vector<std::size_t> offsets{0};
                for (const reduce::piece& one : pieces_)
                    offsets.push_back(core::checked_sum("bytes of a message", offsets.back(),
                                                        reduce::message_room<T>(compressor_, one, step)));
                room = std::max(room, offsets.back());
                layouts_.emplace_back(step, std::move(offsets), ranks_, from.grid, of, team_);
            }
            for (const reduce::piece& one : pieces_)
                scratch = std::max(scratch, std::size_t{compress::scratch_size<T>(compressor_, one.count)});
            mixing_ = detail::make_mixing(of, 0, from.grid, n);
            const partition::worker_part part = from.grid.part_of(from.grid.rank);
            for (std::size_t set = 0; set < own(); ++set) workers_.push_back(part.workers.first + set);
            workers_.insert(workers_.end(), mixing_.others.begin(), mixing_.others.end());
            constexpr std::string_view what = "numbers of workers";
            copies_ = from.arena.template reserve<T>(core::checked_product(what, workers_.size(), n));
            state_ = from.arena.template reserve<T>(core::checked_product(what, own(), slots_, n));
            difference_ = from.arena.template reserve<T>(n);
            scratch_ = from.arena.template reserve<T>(scratch);
            messages_ = from.arena.template reserve<std::byte>(core::checked_product(what, own(), room));
            received_ =
                from.arena.template reserve<std::byte>(core::checked_product(what, mixing_.others.size(), room));
            if (!travels()) return;
            bucket_ = this->times().buckets();
            this->times().add_bucket(own() * n);
        }

        /// Workers of this rank, of several in all.
        [[nodiscard]] std::size_t own() const noexcept { return mixing_.rows.size(); }
        [[nodiscard]] bool travels() const noexcept { return own() > 0 && ranks_.size() > 1; }
        [[nodiscard]] std::span<T> copy_of(std::size_t which) const noexcept {
            return (*this->arena_)[copies_].subspan(which * n, n);
        }
        [[nodiscard]] tensor::slots<T> state_of(std::size_t set, const reduce::piece& of) const noexcept {
            return tensor::slots<T>{(*this->arena_)[state_].data() + set * slots_ * n, slots_, n, n}.part(of.first,
                                                                                                          of.count);
        }
        /// Messages from a step on.
        struct layout {
            std::uint64_t begin;
            std::vector<std::size_t> offsets;  // of the messages of a worker, in bytes
            comm::operation<std::byte> exchange;

            [[gnu::cold]] layout(std::uint64_t step, std::vector<std::size_t> of_messages, const comm::group& ranks,
                                 const partition::grid& on, const sync::graph& of, parallel::team team)
                : begin{step},
                  offsets{std::move(of_messages)},
                  exchange{ranks, detail::make_mixing(of, 0, on, offsets.back()).messages, team} {}
        };
        [[nodiscard]] std::size_t layout_at(std::uint64_t step) const noexcept {
            std::size_t at = layouts_.size() - 1;
            while (layouts_[at].begin > step) --at;
            return at;
        }
        [[nodiscard]] std::size_t sent_bytes(std::uint64_t step = ~std::uint64_t{0}) const noexcept {
            return layouts_.empty() ? 0 : layouts_[layout_at(step)].exchange.program().sent().elements;
        }
        /// Of the worker with copy `which`.
        [[nodiscard]] std::span<std::byte> message_of(const layout& of, std::size_t which,
                                                      std::size_t piece) const noexcept {
            const std::span<std::byte> all = (*this->arena_)[which < own() ? messages_ : received_];
            return all.subspan((which < own() ? which : which - own()) * of.offsets.back() + of.offsets[piece],
                               of.offsets[piece + 1] - of.offsets[piece]);
        }

        /// False: weights of this rank, or a message to it, are not finite.
        [[nodiscard]] bool exchange(std::span<T> weights, std::uint64_t step) {
            step_times& times = this->times();
            layout& now = layouts_[layout_at(step)];
            const std::span<T> difference = (*this->arena_)[difference_];
            for (std::size_t set = 0; set < own(); ++set) {
                subtract<T>(team_, weights.subspan(set * n, n), copy_of(set), T{1}, difference);
                for (std::size_t which = 0; which < pieces_.size(); ++which) {
                    const reduce::piece& one = pieces_[which];
                    reduce::write_message<T>(compressor_, one,
                                             reduce::message_writer{.team = team_,
                                                                    .seed = seed_,
                                                                    .step = step,
                                                                    .worker = workers_[set],
                                                                    .workers = all_workers_},
                                             difference.subspan(one.first, one.count), message_of(now, set, which),
                                             state_of(set, one), (*this->arena_)[scratch_]);
                }
            }
            times.note(report::activity::polling);
            now.exchange.start((*this->arena_)[messages_], (*this->arena_)[received_]);
            if (travels()) times.started(bucket_, step_times::direction::sum);
            const auto begin = step_times::clock::now();
            comm::wait_through(ranks_.aborts(), now.exchange.pending(), [&] { return now.exchange.progress(); });
            if (travels()) times.arrived(bucket_, step_times::direction::sum, false);
            times.waited_at_the_end(begin);
            for (std::size_t copy = 0; copy < workers_.size(); ++copy)
                for (std::size_t which = 0; which < pieces_.size(); ++which) {
                    const reduce::piece& one = pieces_[which];
                    const std::span<T> to = copy_of(copy).subspan(one.first, one.count);
                    if (!reduce::add_message<T>(compressor_, one, message_of(now, copy, which), to))
                        std::ranges::fill(to, std::numeric_limits<T>::quiet_NaN());
                }
            const std::span<const T> all = (*this->arena_)[copies_];
            mixing_.mix(weights, gamma_, all.first(own() * n), all.subspan(own() * n), team_);
            const bool finite = this->is_finite(weights);
            times.note(report::activity::update, bucket_);
            return finite;
        }
        comm::group ranks_;
        parallel::team team_;
        compressor_type compressor_;
        std::uint64_t period_;
        double gamma_;
        std::uint64_t seed_;
        std::size_t all_workers_;
        std::size_t slots_;                  // of the compressor
        std::vector<reduce::piece> pieces_;  // of all parameters
        std::deque<layout> layouts_;         // of several workers: one for each length of messages
        detail::mixing mixing_;              // of copies
        std::vector<std::size_t> workers_;   // of which there are copies, its own first
        tensor::slice<T> copies_, state_, difference_, scratch_;
        tensor::slice<std::byte> messages_, received_;
        std::size_t bucket_ = 0;  // of times: what travels to other ranks
    };
};

static_assert(StrategyChoice<choco_sgd>);

}  // namespace lockstep::sync
