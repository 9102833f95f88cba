// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One rank's part of a network at work: its activations, and the forward and backward walk over the layers.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/partition/exchange.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/train/deal.hpp"

namespace lockstep::train {

/// Where backward writes the gradient of one layer: node s of the lane tree at data + s stride.
template <class T>
struct gradient_place {
    T* data = nullptr;
    std::size_t stride = 0;
};

/// What the walk needs to know of the step.
struct step_key {
    std::uint64_t seed = 0;
    std::uint64_t step = 0;
    layers::mode mode = layers::mode::training;
};

/// Memory: the output of every layer for all rows of a batch, two gradients of activations, scratch of the neediest layer.
template <class T, class Net, std::size_t Shards>
class network_run {
public:
    using network = model::network<Net, Shards>;
    using input = typename network::input;
    using output = typename network::output;
    static constexpr std::size_t size = network::size;

    /// `rows` and `group_rows`: the most rows of a rank and of its model group. Reserves its memory in the arena.
    [[gnu::cold]] network_run(const Net& net, const partition::grid& on, const comm::group& model_group, std::size_t rows,
                              std::size_t group_rows, parallel::team team, tensor::arena& arena)
        : net_{net}, grid_{on}, team_{team} {
        std::size_t widest = output::size * rows, scratch = 0, partials = 0, staged = 0;
        core::for_each_index<size>([&](auto index) {
            using here = typename network::template at<index>;
            using layer = typename here::type;
            const std::size_t layer_rows = is_grouped<index> ? group_rows : rows;
            const std::size_t lanes = (is_grouped<index> ? on.group_lanes() : on.own_lanes()).size();
            if constexpr (here::in_front != model::exchange::none) {
                exchanged_[index] = arena.reserve<T>(layer_rows * layer::input::size);
                exchanges_.emplace_back(here::in_front, model_group, here::whole_input::size);
                staged = std::max(staged, here::whole_input::size);
            }
            if constexpr (!layers::is_view<layer>) outputs_[index] = arena.reserve<T>(layer_rows * layer::output::size);
            stash_[index] = arena.reserve<std::byte>(layer_rows * layers::stash_bytes<layer, T>);
            widest = std::max({widest, layer_rows * layer::input::size, layer_rows * layer::output::size});
            scratch = std::max(scratch, layers::scratch_size<layer, T>(layer_rows, lanes, team));
            if constexpr (!layers::adds_lanes<layer>)
                partials = std::max(partials, tensor::total_size(layer::parameters) * (tensor::tree_depth(lanes)));
        });
        if constexpr (network::behind != model::exchange::none) {
            last_ = arena.reserve<T>(rows * output::size);
            exchanges_.emplace_back(network::behind, model_group, output::size);
            staged = std::max(staged, output::size);
        }
        for (auto& one : gradients_) one = arena.reserve<T>(widest);
        scratch_ = arena.reserve<T>(scratch);
        partials_ = arena.reserve<T>(partials);
        staging_ = arena.reserve<T>(partition::exchange_memory<T>::staging_size(group_rows, staged));
        work_ = arena.reserve<T>(partition::exchange_memory<T>::work_size(group_rows, staged));
    }

    void bind(const tensor::arena& arena) noexcept { arena_ = &arena; }

    /// The output for this rank's rows of x. `weights`: all parameters of this rank.
    tensor::batch<const T, output> forward(const T* weights, const T* x, const deal& rows, const step_key& key) {
        for (auto& one : exchanges_) one.prepare(rows.members());
        const T* at = x;
        std::size_t exchange = 0;
        core::for_each_index<size>([&](auto index) { at = forward_layer<index>(weights, at, rows, key, exchange); });
        if constexpr (network::behind != model::exchange::none) {
            T* to = span(last_).data();
            timed([&] { exchanges_.back().forward(at, to, exchange_memory()); });
            at = to;
        }
        return {at, rows.own().rows()};
    }

    /// Where the loss writes its gradient.
    [[nodiscard]] tensor::batch<T, output> output_gradient(const deal& rows) const noexcept {
        return {span(gradients_[0]).data(), rows.own().rows()};
    }

    /// After forward() and the loss. `place(layer)` says where the gradient of a layer goes, `done(layer)` is called when it is there.
    template <class Place, class Done>
    void backward(const T* weights, const deal& rows, const step_key& key, Place&& place, Done&& done) {
        std::size_t here = 0, exchange = exchanges_.size();
        if constexpr (network::behind != model::exchange::none) {
            timed([&] { exchanges_[--exchange].backward(gradient(0), gradient(1), exchange_memory()); });
            here = 1;
        }
        core::for_each_index_reversed<size>([&](auto index) {
            if constexpr (index >= network::first_learning_layer) {
                backward_layer<index>(weights, rows, key, place, here, exchange);
                done(index);
            }
        });
    }

    /// Sent by this rank in a step with these samples, forward and backward.
    [[nodiscard]] std::size_t bytes_for(const deal& rows) {
        for (auto& one : exchanges_) one.prepare(rows.members());
        return exchanged_bytes();
    }
    /// The same for the last samples.
    [[nodiscard]] std::size_t exchanged_bytes() const noexcept {
        std::size_t sum = 0;
        for (const auto& one : exchanges_) sum += one.bytes_per_step();
        return sum;
    }
    /// Seconds in exchanges since construction.
    [[nodiscard]] double exchange_seconds() const noexcept { return exchange_seconds_; }

private:
    /// The layer works on its features of all samples of the group.
    template <std::size_t Index>
    static constexpr bool is_grouped = network::template at<Index>::after == model::placement::features;

    template <class U>
    [[nodiscard]] std::span<U> span(tensor::slice<U> where) const noexcept {
        return (*arena_)[where];
    }
    [[nodiscard]] T* gradient(std::size_t which) const noexcept { return span(gradients_[which]).data(); }
    [[nodiscard]] partition::exchange_memory<T> exchange_memory() const noexcept { return {span(staging_), span(work_)}; }

    template <class F>
    void timed(F&& f) {
        const auto begin = std::chrono::steady_clock::now();
        f();
        exchange_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    template <std::size_t Index>
    [[nodiscard]] const tensor::lane_set& lanes(const deal& rows) const noexcept {
        return is_grouped<Index> ? rows.group() : rows.own();
    }

    /// Fields that both passes have.
    template <std::size_t Index>
    void describe(auto& pass, const T* weights, const deal& rows, const step_key& key) const noexcept {
        using layer = typename network::template layer<Index>;
        pass.w = {weights + network::offset(Index)};
        pass.stash = span(stash_[Index]);
        pass.use = {team_, span(scratch_)};
        pass.random = {key.seed, core::purpose::dropout, static_cast<std::uint32_t>(Index), static_cast<std::uint32_t>(key.step)};
        pass.first_row = lanes<Index>(rows).first_row();
        if constexpr (is_grouped<Index>) pass.features = {grid_.shard() * layer::output::size, network::facts[Index].outputs};
    }

    template <std::size_t Index>
    const T* forward_layer(const T* weights, const T* at, const deal& rows, const step_key& key, std::size_t& exchange) {
        using here = typename network::template at<Index>;
        using layer = typename here::type;
        if constexpr (here::in_front != model::exchange::none) {
            T* to = span(exchanged_[Index]).data();
            timed([&] { exchanges_[exchange++].forward(at, to, exchange_memory()); });
            at = to;
        }
        inputs_[Index] = at;
        if constexpr (layers::is_view<layer>) {
            return at;
        } else {
            const std::size_t count = lanes<Index>(rows).rows();
            layers::forward_pass<T, layer> pass;
            describe<Index>(pass, weights, rows, key);
            pass.x = {at, count};
            pass.y = {span(outputs_[Index]).data(), count};
            pass.mode = key.mode;
            here::make(net_).forward(pass);
            return pass.y.data;
        }
    }

    template <std::size_t Index, class Place>
    void backward_layer(const T* weights, const deal& rows, const step_key& key, Place& place, std::size_t& here_is,
                        std::size_t& exchange) {
        using here = typename network::template at<Index>;
        using layer = typename here::type;
        constexpr bool learns_before = Index > network::first_learning_layer;
        if constexpr (!layers::is_view<layer>) {
            const std::size_t count = lanes<Index>(rows).rows();
            layers::backward_pass<T, layer> pass;
            describe<Index>(pass, weights, rows, key);
            pass.x = {inputs_[Index], count};
            pass.y = {span(outputs_[Index]).data(), count};
            pass.dy = {gradient(here_is), count};
            if constexpr (learns_before) pass.dx = {gradient(1 - here_is), count};
            const gradient_place<T> to = place(Index);
            pass.lanes = &lanes<Index>(rows);
            pass.gradient = to.data;
            pass.stride = to.stride;
            pass.partials = span(partials_).data();
            here::make(net_).backward(pass);
            here_is = 1 - here_is;
        }
        if constexpr (here::in_front != model::exchange::none) {
            --exchange;
            if constexpr (learns_before) {
                timed([&] { exchanges_[exchange].backward(gradient(here_is), gradient(1 - here_is), exchange_memory()); });
                here_is = 1 - here_is;
            }
        }
    }

    Net net_;
    partition::grid grid_;
    parallel::team team_;
    std::array<const T*, size> inputs_{};
    std::array<tensor::slice<T>, size> outputs_{};
    std::array<tensor::slice<T>, size> exchanged_{};
    std::array<tensor::slice<std::byte>, size> stash_{};
    std::array<tensor::slice<T>, 2> gradients_{};
    tensor::slice<T> last_;
    tensor::slice<T> scratch_;
    tensor::slice<T> partials_;
    tensor::slice<T> staging_;
    tensor::slice<T> work_;
    std::vector<partition::exchange<T>> exchanges_;
    const tensor::arena* arena_ = nullptr;
    double exchange_seconds_ = 0;
};

}  // namespace lockstep::train
