// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One stage of a pipeline at work: micro-batches come from the stage before it, go to the one after it, and their
// gradients come back.
// Tested by tests/equivalence/pipeline.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/gather.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/lanes.hpp"
#include "lockstep/train/engine/deal.hpp"
#include "lockstep/train/engine/network_run.hpp"
#include "lockstep/train/engine/statistics.hpp"

namespace lockstep::train {

/// Micro-batches in the order in which a stage runs them: forward of as many as there are stages after it, then one
/// forward and one backward in turns, then the backward of those that are left. A stage holds at most Stages - s of
/// them, and the gradient of one is there soon after its forward (1F1B with a flush: Narayanan et al. 2021).
template <class Forward, class Backward>
void each_in_pipeline(std::size_t count, std::size_t stages_after, const Forward& forward, const Backward& backward) {
    const std::size_t ahead = std::min(count, stages_after);
    for (std::size_t at = 0; at < ahead; ++at) forward(at);
    for (std::size_t at = ahead; at < count; ++at) {
        forward(at);
        backward(at - ahead);
    }
    for (std::size_t at = count - ahead; at < count; ++at) backward(at);
}

/// Lanes of a group as micro-batches, each a node of the lane tree: the fewest lanes each, a power of two, of which
/// there are at most `most` micro-batches; one for each node that the group finishes where these are more.
[[nodiscard, gnu::cold]] std::vector<tensor::subtree> micro_batches(const partition::grid& on, std::size_t most);

/// Where the sum of a micro-batch goes while those of a group are walked from left to right (tensor::walk), and what is
/// added after it.
struct sum_slot {
    std::size_t node = 0;    ///< of the tree, among those that the group finishes
    std::size_t level = 0;   ///< 0: the place of the node; k: temporary sum k - 1
    std::size_t merges = 0;  ///< sum `level` is added to the one below it, so often
};
/// Of each micro-batch. `nodes`: that the group finishes.
[[nodiscard, gnu::cold]] std::vector<sum_slot> sum_slots(std::span<const tensor::subtree> nodes,
                                                         std::span<const tensor::subtree> micro_batches);

/// What a stage keeps and does. Memory: that of a network_run for each micro-batch in flight; values and gradients on
/// their way over both cuts; log2(micro-batches) sums of the gradients of the stage. All of it is of one group; the
/// replicas of a stage meet in the strategy.
template <class T, class Net>
class pipeline_run {
    using stage_run = network_run<T, Net, 1, true>;
    using clock = std::chrono::steady_clock;

public:
    using network = model::network<Net, 1>;
    using input = typename network::input;
    using output = typename network::output;
    static constexpr std::size_t size = network::size;

    /// Seconds since construction.
    struct times {
        double forward = 0, backward = 0, waiting = 0;
    };
    /// Of all micro-batches in flight.
    struct memory_facts {
        std::size_t bytes = 0, scratch = 0;
        [[nodiscard]] std::size_t largest_scratch() const noexcept { return scratch; }
    };

    /// `on`: of all ranks. `group`: the stages of this pipeline, in their order. `layers`: of each stage. `most`: the
    /// most micro-batches. A lane has at most `lane_rows` rows, and the group `group_rows`.
    [[gnu::cold]] pipeline_run(const Net& net, const partition::grid& on, const comm::group& group,
                               const std::vector<parallel::block>& layers, std::size_t most, std::size_t lane_rows,
                               std::size_t group_rows, parallel::team team, tensor::arena& arena)
        : group_{group},
          team_{team},
          stage_{on.stage()},
          last_{on.stages - 1},
          layers_{layers},
          first_lane_{on.of_stage().own_lanes().first} {
        const partition::grid here = on.of_stage();
        const auto parts = micro_batches(here, most);
        std::size_t lanes = 1;
        for (const tensor::subtree& one : parts) {
            deals_.emplace_back(here, parallel::block{one.first, one.first + one.count});
            lanes = std::max(lanes, one.count);
        }
        most_rows_ = std::min(core::checked_product("rows of a micro-batch", lanes, lane_rows), group_rows);
        slots_ = sum_slots(here.nodes_of(here.own_lanes()), parts);
        std::size_t depth = 0;
        for (const sum_slot& one : slots_) depth = std::max(depth, one.level);
        const std::size_t in_flight = std::min(parts.size(), last_ - stage_ + 1);
        // To the layers, a micro-batch is the minibatch of a rank with so many lanes.
        const partition::grid alone{.lanes = lanes};
        for (std::size_t i = 0; i < in_flight; ++i) {
            runs_.push_back(std::make_unique<stage_run>(net, alone, comm::group{}, most_rows_, most_rows_, team, arena,
                                                        own_layers()));
            memory_.bytes += runs_.back()->memory().bytes;
            memory_.scratch = std::max(memory_.scratch, runs_.back()->memory().largest_scratch());
        }
        const auto reserve = [&](std::size_t count, std::size_t layer) {
            std::vector<tensor::slice<T>> out;
            for (std::size_t i = 0; i < count; ++i)
                out.push_back(
                    arena.reserve<T>(core::checked_product("numbers of a stage", most_rows_, width_before(layer))));
            return out;
        };
        const auto [first, last] = own_layers();
        if (stage_ > 0) values_ = reserve(in_flight + 1, first);
        if (stage_ > 0 && learns_before(first)) to_previous_ = reserve(2, first);
        if (stage_ < last_ && learns_before(last)) from_next_ = reserve(2, last);
        first_parameter_ = network::offset(first);
        const std::size_t end = last == size ? network::parameters_here : network::offset(last);
        for (std::size_t level = 0; level < depth; ++level) {
            sums_.push_back(arena.reserve<T>(end - first_parameter_));
            observed_.push_back(arena.reserve<T>(std::size_t{network::statistics}));
        }
        links_.resize(parts.size());
    }

    void bind(const tensor::arena& arena, comm::progress_thread* beside) noexcept {
        arena_ = &arena;
        beside_ = beside;
        for (auto& one : runs_) one->bind(arena, nullptr);
    }
    [[nodiscard]] parallel::block own_layers() const noexcept { return layers_[stage_]; }
    /// Of each stage.
    [[nodiscard]] const std::vector<parallel::block>& layers() const noexcept { return layers_; }
    [[nodiscard]] const memory_facts& memory() const noexcept { return memory_; }
    /// Temporary sums of gradients, in numbers.
    [[nodiscard]] std::size_t sum_numbers() const noexcept {
        std::size_t out = 0;
        for (const auto& one : sums_) out += one.count;
        return out;
    }
    /// Micro-batches of the group, whatever the number of its rows.
    [[nodiscard]] std::size_t micro_batch_count() const noexcept { return links_.size(); }
    [[nodiscard]] const times& spent() const noexcept { return spent_; }

    /// All micro-batches of `rows`, the deal of the group, forward. `x`: their rows, on the first stage. On the last
    /// one, `take(lane, lanes, output)` for each micro-batch; `lane`: its first one, counted from that of the group.
    template <class Take>
    void forward(const T* weights, const T* x, const deal& rows, const step_key& key,
                 const statistics_place<T>& observing, const Take& take) {
        prepare(rows);
        before_ = {};
        receive_values(0);
        for (std::size_t at = 0; at < links_.size(); ++at)
            forward_of(at, weights, x, key, observing, [&](auto out) { take(lane_of(at), deals_[at].own(), out); });
        for (link& one : links_) wait_for(one.value_out);
    }

    /// The same and backward, in turns. `observing`: where the nodes of the tree that this group finishes observe.
    /// `loss(lane, lanes, output, dy)` on the last stage writes the gradient of an output. `place(layer)`: where the
    /// sums of a layer's gradient go. `done(layer)`: they are there; layers come from the last to the first.
    /// `observed()`: forward of all micro-batches is done. `before_layer`: before the first forward of a layer.
    template <class Loss, class Place, class Done, class Observed>
    void train(const T* weights, const T* x, const deal& rows, const step_key& key,
               const statistics_place<T>& observing, const sync::layer_hook& before_layer, const Loss& loss,
               const Place& place, const Done& done, const Observed& observed) {
        prepare(rows);
        receive_values(0);
        receive_gradients(0);
        receive_gradients(1);
        each_in_pipeline(
            links_.size(), last_ - stage_,
            [&](std::size_t at) {
                before_ = at == 0 ? before_layer : sync::layer_hook{};
                statistics_place<T> here = observing;
                if constexpr (network::statistics > 0)
                    here.sums = observed_at(observing, slots_[at].node, slots_[at].level);
                auto& run = *runs_[at % runs_.size()];
                forward_of(at, weights, x, key, here, [&](auto out) {
                    loss(lane_of(at), deals_[at].own(), out, run.output_gradient(deals_[at]));
                });
                add_observed(observing, slots_[at]);
                if (at + 1 == links_.size()) observed();
            },
            [&](std::size_t at) { backward_of(at, weights, key, place, done); });
        for (link& one : links_) {
            wait_for(one.value_out);
            wait_for(one.gradient_out);
        }
    }

    /// Starts an operation of this rank in the middle of a step.
    template <class U>
    void begin(comm::operation<U>& one, std::span<U> data) {
        const comm::own_turn turn{beside_};
        one.start(data, {});
    }
    /// Waits for an operation of this rank, and moves on what else is under way.
    template <class U>
    void finish(comm::operation<U>& one) {
        const comm::own_turn turn{beside_};
        const auto begin = clock::now();
        // Others may need what this rank has still to send, in this step or for weights of the last one.
        for (comm::backoff waiting{one.pending()}; !one.progress(); waiting.wait(group_.aborts())) {
            move_on();
            group_.aborts().move_on_beside();
        }
        const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
        spent_.waiting += seconds;
        waited_ += seconds;
    }

    /// Sent by this rank in a step with these rows.
    [[nodiscard]] std::size_t bytes_for(const deal& rows) {
        prepare(rows);
        return redistributed_bytes();
    }
    /// The same for the last rows.
    [[nodiscard]] std::size_t redistributed_bytes() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : links_)
            for (const auto* sent : {&one.value_out, &one.gradient_out})
                if (*sent) sum += (*sent)->program().sent().elements * sizeof(T);
        return sum;
    }

private:
    using message = std::optional<comm::operation<T>>;
    /// The messages of a micro-batch; none where it has no rows.
    struct link {
        message value_in, value_out, gradient_in, gradient_out;
        std::size_t rows = 0;
    };

    /// Numbers of a row before a layer.
    [[nodiscard]] static std::size_t width_before(std::size_t layer) noexcept {
        return network::facts[layer - 1].outputs;
    }
    /// Whether the gradient of that is asked for.
    [[nodiscard]] static bool learns_before(std::size_t layer) noexcept { return network::facts[layer - 1].learns; }

    /// The first lane of a micro-batch, counted from that of the group.
    [[nodiscard]] std::size_t lane_of(std::size_t at) const noexcept {
        return deals_[at].own().lanes().first - first_lane_;
    }

    /// Rows of each micro-batch. Messages are made anew where they change: alike on all stages.
    void prepare(const deal& rows) {
        for (deal& one : deals_) one.follow(rows);
        bool are_equal = true;
        for (std::size_t at = 0; at < links_.size(); ++at)
            are_equal = are_equal && links_[at].rows == deals_[at].own().rows();
        if (!are_equal) make_links();
    }
    [[gnu::cold]] void make_links() {
        for (std::size_t at = 0; at < links_.size(); ++at) {
            const std::size_t rows = deals_[at].own().rows();
            link& here = links_[at];
            if (rows == here.rows) continue;
            if (rows > most_rows_)
                core::fail(core::text("a micro-batch has ", rows, " rows, and a stage has room for ", most_rows_),
                           "this is a defect of lockstep: please report it");
            here.rows = rows;
            for (std::size_t cut = 1; cut <= last_; ++cut) {
                const std::size_t layer = layers_[cut].first, n = rows * width_before(layer);
                // Every rank makes all of them, in one order, and keeps its own.
                const auto make = [&](message& kept, std::size_t from, std::size_t to) {
                    comm::operation<T> made{group_, collectives::one_message(stage_, from, to, n)};
                    kept.reset();
                    if ((stage_ == from || stage_ == to) && n > 0) kept.emplace(std::move(made));
                };
                message none;
                const bool is_before = stage_ + 1 == cut, is_after = stage_ == cut;
                make(is_after ? here.value_in : is_before ? here.value_out : none, cut - 1, cut);
                if (learns_before(layer))
                    make(is_after ? here.gradient_out : is_before ? here.gradient_in : none, cut, cut - 1);
            }
        }
    }

    [[nodiscard]] std::span<T> memory_of(const std::vector<tensor::slice<T>>& of, std::size_t which) const noexcept {
        return (*arena_)[of[which % of.size()]];
    }
    void start(message& one, std::span<T> data) {
        if (one) begin(*one, data);
    }
    void receive_values(std::size_t at) {
        if (stage_ > 0 && at < links_.size()) start(links_[at].value_in, memory_of(values_, at));
    }
    void receive_gradients(std::size_t at) {
        if (!from_next_.empty() && at < links_.size()) start(links_[at].gradient_in, memory_of(from_next_, at));
    }
    /// Moves on what is under way.
    void poll() {
        const comm::own_turn turn{beside_};
        move_on();
    }
    void move_on() {
        for (auto& one : links_)
            for (message* each : {&one.value_in, &one.value_out, &one.gradient_in, &one.gradient_out})
                if (*each && (*each)->running()) (void)(*each)->progress();
    }
    void wait_for(message& one) {
        if (one && one->running()) finish(*one);
    }
    /// Seconds of f() without its waits.
    template <class F>
    void timed(double& kind, const F& f) {
        waited_ = 0;
        const auto begin = clock::now();
        f();
        kind += std::chrono::duration<double>(clock::now() - begin).count() - waited_;
    }

    template <class Take>
    void forward_of(std::size_t at, const T* weights, const T* x, const step_key& key,
                    const statistics_place<T>& observing, const Take& take) {
        timed(spent_.forward, [&] {
            link& here = links_[at];
            const deal& rows = deals_[at];
            wait_for(here.value_in);
            const T* const from = stage_ > 0 ? memory_of(values_, at).data()
                                             : x + (rows.own().first_row() - deals_[0].own().first_row()) * input::size;
            // What this one overwrites is on its way to the next stage no more.
            if (at >= runs_.size()) wait_for(links_[at - runs_.size()].value_out);
            // A stage of views has sent what it received: only now its place is free.
            receive_values(at + 1);
            stage_run& run = *runs_[at % runs_.size()];
            const auto out = run.forward(weights, from, rows, key, observing, hook());
            if (stage_ == last_)
                take(out);
            else
                start(here.value_out,
                      {const_cast<T*>(run.value_for_next()), here.rows * width_before(own_layers().last)});
        });
    }

    template <class Place, class Done>
    void backward_of(std::size_t at, const T* weights, const step_key& key, const Place& place, const Done& done) {
        timed(spent_.backward, [&] {
            link& here = links_[at];
            const deal& rows = deals_[at];
            const sum_slot& slot = slots_[at];
            stage_run& run = *runs_[at % runs_.size()];
            if (stage_ < last_) {
                wait_for(here.value_out);
                wait_for(here.gradient_in);
                if (!from_next_.empty())
                    std::copy_n(memory_of(from_next_, at).data(), here.rows * width_before(own_layers().last),
                                run.gradient_from_next());
                receive_gradients(at + 2);
            }
            const auto sum_at = [&](std::size_t layer, std::size_t level) {
                if (level > 0) {
                    const std::span<T> sums = (*arena_)[sums_[level - 1]];
                    return sync::gradient_place<T>{sums.data() + (network::offset(layer) - first_parameter_),
                                                   sums.size()};
                }
                sync::gradient_place<T> out = place(layer);
                if (out.data != nullptr) out.data += slot.node * out.stride;
                return out;
            };
            run.backward(
                weights, rows, key, [&](std::size_t layer) { return sum_at(layer, slot.level); },
                [&](std::size_t layer) {
                    const std::size_t n = network::facts[layer].parameters_here;
                    for (std::size_t merged = 0; merged < slot.merges && n > 0; ++merged)
                        comm::add(team_, sum_at(layer, slot.level - merged - 1).data,
                                  sum_at(layer, slot.level - merged).data, n);
                    if (at + 1 == links_.size()) done(layer);
                    poll();
                });
            if (to_previous_.empty()) return;
            if (at >= 2) wait_for(links_[at - 2].gradient_out);
            const std::span<T> to = memory_of(to_previous_, at).first(here.rows * width_before(own_layers().first));
            std::copy_n(run.gradient_for_previous(), to.size(), to.data());
            start(here.gradient_out, to);
        });
    }

    /// Of the numbers that lanes observe: those of a node, or a temporary sum.
    [[nodiscard]] T* observed_at(const statistics_place<T>& of, std::size_t node, std::size_t level) const noexcept {
        return level > 0 ? (*arena_)[observed_[level - 1]].data() : of.sums + node * of.stride;
    }
    void add_observed(const statistics_place<T>& of, const sum_slot& slot) const noexcept {
        if constexpr (network::statistics > 0)
            for (std::size_t merged = 0; merged < slot.merges; ++merged)
                comm::add(team_, observed_at(of, slot.node, slot.level - merged - 1),
                          observed_at(of, slot.node, slot.level - merged), std::size_t{network::statistics});
    }

    /// Before each layer: its weights are there, and messages move on.
    [[nodiscard]] sync::layer_hook hook() noexcept {
        return {this, [](void* self, std::size_t layer) {
                    auto& here = *static_cast<pipeline_run*>(self);
                    here.before_(layer);
                    here.poll();
                }};
    }

    comm::group group_;
    parallel::team team_;
    std::size_t stage_, last_;
    std::vector<parallel::block> layers_;
    std::size_t first_lane_;
    std::size_t most_rows_ = 0;  // of a micro-batch
    std::vector<deal> deals_;    // of each,
    std::vector<sum_slot> slots_;
    std::vector<link> links_;
    std::vector<std::unique_ptr<stage_run>> runs_;  // and of those in flight
    memory_facts memory_;
    std::vector<tensor::slice<T>> values_, to_previous_, from_next_;  // on their way; used in turns
    std::vector<tensor::slice<T>> sums_, observed_;                   // temporary
    std::size_t first_parameter_ = 0;
    sync::layer_hook before_{};
    times spent_;
    double waited_ = 0;
    const tensor::arena* arena_ = nullptr;
    comm::progress_thread* beside_ = nullptr;
};

/// What runs a network of a plan on a rank.
template <class T, class Net, class Partition>
using run_of =
    std::conditional_t<(Partition::stages > 1), pipeline_run<T, Net>, network_run<T, Net, Partition::shards>>;

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::vector<tensor::subtree> micro_batches(const partition::grid& on, std::size_t most) {
    const parallel::block lanes = on.own_lanes();
    const std::size_t longest = on.worker_lanes();
    for (std::size_t each = 1;; each *= 2) {
        auto out = tensor::cover(lanes, on.lanes, longest == 0 ? each : std::min(each, longest));
        if (out.size() <= most || each >= on.lanes) return out;
    }
}

LOCKSTEP_FUNCTION std::vector<sum_slot> sum_slots(std::span<const tensor::subtree> nodes,
                                                  std::span<const tensor::subtree> micro_batches) {
    std::vector<sum_slot> out;
    for (std::size_t node = 0, at = 0; node < nodes.size(); ++node) {
        std::size_t count = 0;
        for (const std::size_t end = nodes[node].first + nodes[node].count;
             at < micro_batches.size() && micro_batches[at].first < end; ++at)
            ++count;
        // They are equal subtrees but for the last one, so their tree is the upper part of that of the lanes.
        tensor::walk(
            count,
            [&](std::size_t, std::size_t level) {
                out.push_back({node, level, 0});
            },
            [&](std::size_t) { ++out.back().merges; });
    }
    return out;
}

#endif

}  // namespace lockstep::train
