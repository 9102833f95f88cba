// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One rank's part of a network at work: its activations, and the forward and backward walk over the layers.
// Tested by tests/equivalence/same_bits.cpp.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/progress_thread.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/matrix/factors.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/redistribution.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/train/engine/deal.hpp"
#include "lockstep/train/engine/memory_check.hpp"
#include "lockstep/train/engine/statistics.hpp"

namespace lockstep::train {

/// What the walk needs to know of the step.
struct step_key {
    std::uint64_t seed = 0;
    std::uint64_t step = 0;
    layer_api::mode mode = layer_api::mode::training;
};

/// Memory: what model::plan_memory finds that a step needs: outputs that backward or a later layer reads, gradients of
/// activations, scratch. Dead buffers are used again. `IsStage`: of the layers only some are here, a stage of a
/// pipeline.
template <class T, class Net, std::size_t Shards, bool IsStage = false>
class network_run {
public:
    using network = model::network<Net, Shards>;
    using input = typename network::input;
    using output = typename network::output;
    static constexpr std::size_t size = network::size;

    /// `rows` and `group_rows`: the most rows of a rank and of its model group. Reserves its memory in the arena.
    /// `layers`: those that are here.
    [[gnu::cold]] network_run(const Net& net, const partition::grid& on, const comm::group& model_group,
                              std::size_t rows, std::size_t group_rows, parallel::team team, tensor::arena& arena,
                              parallel::block layers = {0, size})
        : net_{net}, grid_{on}, team_{team}, group_rows_{group_rows}, layers_{layers} {
        std::vector<model::memory_node> nodes(size);
        core::for_each_index<size>([&](auto index) { nodes[index] = describe_memory<index>(rows, model_group); });
        plan_ = model::plan_memory(nodes);
        for (std::size_t layer = 0; layer < size; ++layer) {
            const auto& fact = network::facts[layer];
            if (plan_.again[layer].input != model::no_piece) repeated_.push_back(redistribution_before(layer));
            if (fact.redistribution_after != model::redistribution::none && fact.runs_again)
                repeated_.push_back(redistribution_after(layer));
            if (fact.redistribution_before != model::redistribution::none && fact.learns && fact.input_learns)
                reversed_.push_back(redistribution_before(layer));
            if (fact.redistribution_after != model::redistribution::none && fact.learns)
                reversed_.push_back(redistribution_after(layer));
        }
        check_.prepare(plan_, nodes, network::facts);
        memory_ = arena.reserve<std::byte>(plan_.bytes, check_.spare(plan_));
    }

    /// `beside`: moves other collectives on while layers are computed; it rests while values are redistributed. Null:
    /// none does.
    void bind(const tensor::arena& arena, comm::progress_thread* beside) noexcept {
        arena_ = &arena;
        beside_ = beside;
    }
    [[nodiscard]] const model::memory_plan& memory() const noexcept { return plan_; }

    /// The output for this rank's rows of x. `weights`: all parameters of this rank; `observing`: the statistics of all
    /// layers. `before_layer` sees to it that the weights of a layer are there.
    tensor::batch<const T, output> forward(const T* weights, const T* x, const deal& rows, const step_key& key,
                                           const statistics_place<T>& observing,
                                           const sync::layer_hook& before_layer = {}) {
        for (auto& one : redistributions_) one->prepare(rows.members());
        x_ = x;
        if constexpr (IsStage)
            if (layers_.first > 0) values_[layers_.first - 1] = x;
        arena_->check();
        check_.begin((*arena_)[memory_].data());
        core::for_each_index<size>([&](auto index) {
            if (!is_here(index)) return;
            before_layer(index);
            check_.enter(memory_check::pass::forward, index);
            forward_node<index, false>(weights, rows, key, observing);
            check_.leave();
        });
        if (layers_.last == size) check_.enter(memory_check::pass::loss);
        return {values_[size - 1], rows.own().rows()};
    }
    /// Of a stage that is not the last one: the value that the next one reads, after forward().
    [[nodiscard]] const T* value_for_next() const noexcept { return values_[layers_.last - 1]; }
    /// Where its gradient goes before backward(): after this call, until that one.
    [[nodiscard]] T* gradient_from_next() noexcept {
        check_.enter(memory_check::pass::backward, layers_.last);
        return at<T>(plan_.nodes[layers_.last - 1].dvalue);
    }
    /// Of a stage that is not the first one: the gradient of what it reads, after backward().
    [[nodiscard]] const T* gradient_for_previous() const noexcept {
        return at<T>(plan_.nodes[layers_.first - 1].dvalue);
    }

    /// Where the loss writes its gradient.
    [[nodiscard]] tensor::batch<T, output> output_gradient(const deal& rows) const noexcept {
        return {at<T>(plan_.network_gradient), rows.own().rows()};
    }

    /// After forward() and the loss. `place(layer)` says where the gradient of a layer goes, `done(layer)` is called
    /// when it is there.
    template <class Place, class Done>
    void backward(const T* weights, const deal& rows, const step_key& key, Place&& place, Done&& done) {
        if constexpr (tensor::checks_memory)
            if (layers_.last == size)
                check_.wrote(at<T>(plan_.network_gradient), value_size<size - 1>(rows), "gradient");
        check_.leave();
        core::for_each_index_reversed<size>([&](auto index) {
            if (!is_here(index)) return;
            if constexpr (ends_block<index>()) run_block_again<graph.block[index]>(weights, rows, key);
            if constexpr (network::facts[index].learns) {
                check_.enter(memory_check::pass::backward, index);
                backward_node<index>(weights, rows, key, place);
                check_.leave();
                done(index);
            }
        });
    }

    /// Sent by this rank in a step with these samples, forward and backward.
    [[nodiscard]] std::size_t bytes_for(const deal& rows) {
        for (auto& one : redistributions_) one->prepare(rows.members());
        return redistributed_bytes();
    }
    /// The same for the last samples.
    [[nodiscard]] std::size_t redistributed_bytes() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : redistributions_) sum += one->forward_bytes();
        for (const std::size_t which : repeated_) sum += redistributions_[which]->forward_bytes();
        for (const std::size_t which : reversed_) sum += redistributions_[which]->backward_bytes();
        return sum;
    }
    /// Seconds in redistributions since construction.
    [[nodiscard]] double redistribution_seconds() const noexcept { return redistribution_seconds_; }

private:
    /// The layer works on its features of all samples of the group.
    template <std::size_t Index>
    static constexpr bool is_grouped = network::template at<Index>::after == model::placement::features;
    static constexpr const auto& graph = network::graph;

    [[nodiscard]] bool is_here(std::size_t layer) const noexcept {
        return !IsStage || (layer >= layers_.first && layer < layers_.last);
    }

    /// What the plan of a stage's memory knows of other layers: a list, of which the one before the stage gives what it
    /// reads, and the one after it the gradient of what it gives.
    template <std::size_t Index>
    [[gnu::cold]] model::memory_node describe_elsewhere(std::size_t rows) const {
        static constexpr std::array<std::size_t, 1> before{Index == 0 ? model::the_samples : Index - 1};
        model::memory_node out{.reads = before, .learns = network::facts[Index].learns};
        if (Index + 1 == layers_.first)
            out.value = out.output = bytes_of(rows, network::template at<Index>::whole::output::size);
        return out;
    }

    /// The last node of a recompute: backward comes to it first.
    template <std::size_t Index>
    static constexpr bool ends_block() noexcept {
        if constexpr (Index + 1 < size)
            return graph.block[Index] != 0 && graph.block[Index + 1] != graph.block[Index];
        else
            return graph.block[Index] != 0;
    }
    template <std::size_t Index>
    static constexpr bool in_block = graph.block[Index] != 0;

    /// Numbers of the redistributions around a layer: they are counted through the network.
    [[nodiscard]] static constexpr std::size_t redistribution_before(std::size_t of) noexcept {
        std::size_t count = 0;
        for (std::size_t layer = 0; layer < of; ++layer)
            for (const model::redistribution one :
                 {network::facts[layer].redistribution_before, network::facts[layer].redistribution_after})
                if (one != model::redistribution::none) ++count;
        return count;
    }
    [[nodiscard]] static constexpr std::size_t redistribution_after(std::size_t of) noexcept {
        return redistribution_before(of) + (network::facts[of].redistribution_before != model::redistribution::none);
    }

    [[gnu::cold]] void add_redistribution(model::redistribution kind, const comm::group& over, std::size_t features) {
        redistributions_.push_back(std::make_unique<partition::redistribution<T>>(kind, over, features));
    }

    template <std::size_t Index>
    [[gnu::cold]] model::memory_node describe_memory(std::size_t rows, const comm::group& model_group) {
        if constexpr (IsStage)
            if (!is_here(Index)) return describe_elsewhere<Index>(rows);
        using here = typename network::template at<Index>;
        using layer = typename here::type;
        const auto& fact = network::facts[Index];
        const std::size_t layer_rows = is_grouped<Index> ? group_rows_ : rows;
        const std::size_t lanes = (is_grouped<Index> ? grid_.group_lanes() : grid_.own_lanes()).size();
        std::size_t redistributed = 0;
        if constexpr (here::redistribution_before != model::redistribution::none) {
            add_redistribution(here::redistribution_before, model_group, here::whole_input::size);
            redistributed = here::whole_input::size;
        }
        if constexpr (here::redistribution_after != model::redistribution::none) {
            add_redistribution(here::redistribution_after, model_group, here::whole::output::size);
            redistributed = std::max(redistributed, here::whole::output::size);
        }
        staging_[Index] = partition::redistribution_memory<T>::staging_size(group_rows_, redistributed);
        const std::size_t work = partition::redistribution_memory<T>::work_size(group_rows_, redistributed);
        model::memory_node out{
            .reads = graph.of(Index),
            .traits = layer_api::traits_of<layer>,
            .learns = fact.learns,
            .redistributes_before = here::redistribution_before != model::redistribution::none,
            .redistributes_after = here::redistribution_after != model::redistribution::none,
            .input = bytes_of(layer_rows, layer::input::size),
            .output = bytes_of(layer_rows, layer::output::size),
            .redistribution = bytes_of(core::checked_sum("numbers of a redistribution", staging_[Index], work))};
        out.value = out.redistributes_after ? bytes_of(rows, here::whole::output::size) : out.output;
        if constexpr (!layer_api::traits_of<layer>.is_view) {
            out.saved = core::checked_product("bytes that a layer keeps", layer_rows,
                                              std::size_t{layer_api::saved_bytes<layer, T>});
            // A layer computes its scratch without checks: what it needs for one row bounds what it needs for each of
            // them.
            (void)bytes_of(layer_rows, layer_api::scratch_size<T>(here::make(net_), 1, lanes, team_));
            out.scratch = bytes_of(layer_api::scratch_size<T>(here::make(net_), layer_rows, lanes, team_));
            if constexpr (!layer_api::traits_of<layer>.adds_lanes)
                out.partials =
                    bytes_of(tensor::total_size(layer::parameters), layer_api::partial_sums<layer>(lanes, team_));
            constexpr std::size_t statistics = tensor::total_size(layer_api::statistics_of<layer>);
            out.observed = bytes_of(statistics, layer_api::partial_sums<layer>(lanes, team_));
            out.observed_again =
                core::checked_sum("bytes of statistics", out.observed, bytes_of(statistics, sums_of_statistics()));
        }
        out.runs_again = fact.runs_again;
        out.block = graph.block[Index];
        return out;
    }

    /// Of so many numbers.
    template <class... Numbers>
    [[nodiscard]] static std::size_t bytes_of(Numbers... numbers) {
        return core::checked_product("bytes of a layer", std::size_t{numbers}..., sizeof(T));
    }

    /// Nodes of the tree that the lanes of this rank finish.
    [[nodiscard, gnu::cold]] std::size_t sums_of_statistics() const {
        return std::max<std::size_t>(1, grid_.nodes_of(grid_.own_lanes()).size());
    }

    /// The memory of a piece; null where there is none.
    template <class U>
    [[nodiscard]] U* at(std::size_t which) const noexcept {
        return which == model::no_piece ? nullptr
                                        : reinterpret_cast<U*>((*arena_)[memory_].data() + check_.offset(plan_, which));
    }
    template <class U>
    [[nodiscard]] std::span<U> span(std::size_t which) const noexcept {
        if (which == model::no_piece) return {};
        return {at<U>(which), plan_.pieces[which].bytes / sizeof(U)};
    }
    template <std::size_t Index>
    [[nodiscard]] partition::redistribution_memory<T> redistribution_memory(std::size_t which) const noexcept {
        const std::span<T> all = span<T>(which);
        return {all.first(staging_[Index]), all.subspan(staging_[Index])};
    }

    template <class F>
    void timed(F&& f) {
        const comm::own_turn turn{beside_};
        const auto begin = std::chrono::steady_clock::now();
        f();
        redistribution_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    template <std::size_t Index>
    [[nodiscard]] const tensor::lane_set& lanes(const deal& rows) const noexcept {
        return is_grouped<Index> ? rows.group() : rows.own();
    }

    /// Elements of a value, as its readers find it.
    template <std::size_t Index>
    [[nodiscard]] static std::size_t value_size(const deal& rows) noexcept {
        using here = typename network::template at<Index>;
        if constexpr (here::gives == model::placement::features) return rows.group().rows() * here::type::output::size;
        return rows.own().rows() * here::whole::output::size;
    }

    /// Fields that both passes have.
    template <std::size_t Index>
    void describe(auto& pass, const T* weights, const deal& rows, const step_key& key, std::size_t saved,
                  std::size_t scratch) const noexcept {
        using layer = typename network::template layer<Index>;
        pass.w = {weights + network::offset(Index)};
        pass.saved = span<std::byte>(saved);
        pass.use = {team_, span<T>(scratch)};
        pass.random = {key.seed, core::purpose::dropout, static_cast<std::uint32_t>(Index),
                       static_cast<std::uint32_t>(key.step)};
        pass.first_row = lanes<Index>(rows).first_row();
        if constexpr (is_grouped<Index>)
            pass.features = {grid_.shard() * layer::output::size, network::facts[Index].outputs};
    }

    [[nodiscard]] const T* value(std::size_t node) const noexcept {
        return node == model::the_samples ? x_ : values_[node];
    }

    /// What a layer reads, after the redistribution before it where the plan has room for that.
    template <std::size_t Index>
    [[nodiscard]] const T* read_for(const model::node_memory& memory) {
        const T* x = value(graph.read(Index));
        if constexpr (network::template at<Index>::redistribution_before != model::redistribution::none) {
            T* to = at<T>(memory.input);
            if (to == nullptr) return x;
            timed([&] {
                redistributions_[redistribution_before(Index)]->forward(
                    x, to, redistribution_memory<Index>(memory.redistribution_forward));
            });
            x = to;
        }
        return x;
    }

    /// The nodes of a recompute once more. Weights, samples and random numbers are those of the first time, so the
    /// values are as well.
    template <std::size_t Block>
    void run_block_again(const T* weights, const deal& rows, const step_key& key) {
        core::for_each_index<size>([&](auto index) {
            if constexpr (graph.block[index] == Block) {
                check_.enter(memory_check::pass::forward_again, index);
                if constexpr (network::facts[index].runs_again)
                    forward_node<index, true>(weights, rows, key, {});
                else
                    inputs_[index] = read_for<index>(plan_.again[index]);
                check_.leave();
            }
        });
    }

    template <std::size_t Index, bool Again>
    void forward_node(const T* weights, const deal& rows, const step_key& key, const statistics_place<T>& observing) {
        using here = typename network::template at<Index>;
        using layer = typename here::type;
        constexpr auto traits = layer_api::traits_of<layer>;
        const model::node_memory& memory = Again ? plan_.again[Index] : plan_.nodes[Index];
        const T* const x = read_for<Index>(memory);
        const std::size_t count = lanes<Index>(rows).rows();
        inputs_[Index] = x;
        outputs_[Index] = traits.is_view ? x : at<T>(memory.output);
        if constexpr (!traits.is_view) {
            layer_api::forward_pass<T, layer> pass;
            describe<Index>(pass, weights, rows, key, memory.saved, memory.scratch_forward);
            if constexpr (layer_api::is_join<layer>)
                for (std::size_t k = 0; k < here::inputs; ++k) pass.x[k] = value(graph.read(Index, k));
            else
                pass.x = {x, count};
            pass.y = {at<T>(memory.output), count};
            if constexpr (traits.has_addend) pass.addend = {value(graph.read(Index, 1)), count};
            pass.mode = key.mode;
            if (key.mode == layer_api::mode::training) pass.lanes = &lanes<Index>(rows);
            if constexpr (layer_api::has_statistics<layer> && Again) {
                // The first time has written what counts.
                constexpr std::size_t count_of = tensor::total_size(layer_api::statistics_of<layer>);
                pass.observed = at<T>(memory.observed);
                pass.observed_stride = count_of;
                pass.observed_partials = pass.observed + lanes<Index>(rows).trees().size() * count_of;
            } else if constexpr (layer_api::has_statistics<layer>) {
                pass.statistics = {observing.running + network::facts[Index].statistics_offset};
                pass.observed = observing.sums + network::facts[Index].statistics_offset;
                pass.observed_stride = observing.stride;
                pass.observed_partials = at<T>(memory.observed);
            }
            here::make(net_).forward(pass);
        }
        values_[Index] = outputs_[Index];
        if constexpr (tensor::checks_memory && !traits.is_view)
            check_.wrote(outputs_[Index], count * layer::output::size, "output");
        if constexpr (here::redistribution_after != model::redistribution::none) {
            T* to = at<T>(memory.value);
            timed([&] {
                redistributions_[redistribution_after(Index)]->forward(
                    outputs_[Index], to, redistribution_memory<Index>(memory.redistribution_forward));
            });
            values_[Index] = to;
        }
    }

    template <std::size_t Index, class Place>
    void backward_node(const T* weights, const deal& rows, const step_key& key, Place& place) {
        using here = typename network::template at<Index>;
        using layer = typename here::type;
        constexpr auto traits = layer_api::traits_of<layer>;
        const model::node_memory& memory = plan_.nodes[Index];
        const std::size_t saved = in_block<Index> ? plan_.again[Index].saved : memory.saved;
        const std::size_t count = lanes<Index>(rows).rows();
        if constexpr (here::redistribution_after != model::redistribution::none)
            timed([&] {
                redistributions_[redistribution_after(Index)]->backward(
                    at<T>(memory.dvalue), at<T>(memory.doutput),
                    redistribution_memory<Index>(memory.redistribution_backward));
            });
        if constexpr (!traits.is_view && !traits.passes_gradient) {
            layer_api::backward_pass<T, layer> pass;
            describe<Index>(pass, weights, rows, key, saved, memory.scratch_backward);
            if constexpr (layer_api::is_join<layer>)
                for (std::size_t k = 0; k < here::inputs; ++k) {
                    pass.x[k] = traits.needs_x ? value(graph.read(Index, k)) : nullptr;
                    pass.dx[k] = at<T>(memory.inputs[k].written);
                }
            else
                pass.x = {traits.needs_x ? inputs_[Index] : nullptr, count};
            pass.y = {traits.needs_y ? outputs_[Index] : nullptr, count};
            pass.dy = {at<T>(memory.doutput), count};
            if constexpr (traits.sums_gradient) pass.more_dy = {at<T>(memory.more), count};
            if constexpr (!layer_api::is_join<layer> && network::facts[Index].input_learns)
                pass.dx = {at<T>(memory.inputs[0].written), count};
            if constexpr (traits.has_addend) pass.daddend = {at<T>(memory.inputs[1].written), count};
            const sync::gradient_place<T> to = place(Index);
            pass.lanes = &lanes<Index>(rows);
            pass.gradient = to.data;
            pass.stride = to.stride;
            pass.partials = at<T>(memory.partials);
            if constexpr (traits.has_factors)
                if (to.factors != nullptr)
                    kernels::put_factors(count, layer::input::size, layer::output::size, pass.x.data, pass.dy.data,
                                         to.factors, team_);
            here::make(net_).backward(pass);
            if constexpr (tensor::checks_memory)
                for (std::size_t tree = 0; tree < lanes<Index>(rows).trees().size() && to.data != nullptr; ++tree)
                    check_.wrote(to.data + tree * to.stride, tensor::total_size(layer::parameters),
                                 "parameters' gradient");
        }
        if constexpr (here::redistribution_before != model::redistribution::none && network::facts[Index].input_learns)
            timed([&] {
                redistributions_[redistribution_before(Index)]->backward(
                    at<T>(memory.inputs[0].written), at<T>(memory.inputs[0].given),
                    redistribution_memory<Index>(memory.redistribution_backward));
            });
        core::for_each_index<graph.inputs(Index)>([&](auto k) {
            constexpr std::size_t from = graph.read(Index, k);
            if constexpr (from != model::the_samples) {
                if constexpr (tensor::checks_memory && !layer_api::traits_of<layer>.is_view)
                    check_.wrote(at<T>(memory.inputs[k].given), value_size<from>(rows), "gradient");
                if constexpr (graph.readers[from] > 1 && network::facts[from].learns)
                    add_gradients<from>(memory.inputs[k], rows);
            }
        });
    }

    /// The gradient of a value that has several readers: the sum of what the readers after this one have given, and of
    /// this one's part. Where the layer that wrote the value takes both, they stay apart.
    template <std::size_t From>
    void add_gradients(const model::node_memory::input_gradient& of, const deal& rows) const noexcept {
        if (of.others == model::no_piece || of.sum == model::no_piece) return;
        using add = layer_api::add_layer<2, typename network::template at<From>::whole::output>;
        add::add({at<T>(of.others), at<T>(of.given)}, at<T>(of.sum), rows.own().rows(), team_);
    }

    Net net_;
    partition::grid grid_;
    parallel::team team_;
    std::size_t group_rows_;
    parallel::block layers_;
    model::memory_plan plan_;
    [[no_unique_address]] memory_check check_;
    tensor::slice<std::byte> memory_;
    const T* x_ = nullptr;
    std::array<const T*, size> inputs_{};   ///< what each layer read,
    std::array<const T*, size> outputs_{};  ///< what it wrote,
    std::array<const T*, size> values_{};   ///< and what its readers find
    std::array<std::size_t, size> staging_{};
    std::vector<std::unique_ptr<partition::redistribution<T>>> redistributions_;
    std::vector<std::size_t> repeated_;  ///< those that go forward a second time, in backward
    std::vector<std::size_t> reversed_;  ///< those that gradients pass: not before layers whose input does not learn
    const tensor::arena* arena_ = nullptr;
    comm::progress_thread* beside_ = nullptr;
    double redistribution_seconds_ = 0;
};

}  // namespace lockstep::train
