// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network with its weights, for predictions: no loss, no optimizer, no MPI.
// Tested by tests/equivalence/predictor.cpp.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/kernels/elementwise/elementwise.hpp"
#include "lockstep/layers/concept.hpp"
#include "lockstep/model/memory_plan.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/saving/weight_file.hpp"
#include "lockstep/tensor/arena.hpp"
#include "lockstep/tensor/batch.hpp"
#include "lockstep/tensor/container.hpp"
#include "lockstep/tensor/label.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::infer {

inline constexpr int most_threads = 4096;  ///< of a predictor

/// How a predictor works.
struct options {
    std::size_t rows = 128;  ///< that go through the network at once: memory for the values of so many
    int threads = 1;         ///< of OpenMP
};

/// Where the values of a forward run lie: each as long as something reads it, in the place of what it is computed from
/// where its layer allows it.
struct value_plan {
    std::vector<std::size_t> values;   ///< of each node, bytes from the start; of a view those of what it views
    std::vector<std::size_t> saved;    ///< the same of what it keeps beside its value
    std::vector<std::size_t> scratch;  ///< the same of what it needs while it runs
    std::size_t bytes = 0;             ///< of all

    /// A layer, view or join, and its bytes.
    struct node {
        std::span<const std::size_t> reads;  ///< numbers of nodes
        layer_api::traits traits;            ///< says what may lie in one place
        std::size_t value = 0;               ///< bytes of its output
        std::size_t saved = 0;               ///< bytes
        std::size_t scratch = 0;             ///< bytes
    };
    /// `nodes` in the order in which they run.
    [[gnu::cold]] explicit value_plan(std::span<const node> nodes);
};

/// `predictor{net, "net.safetensors"}` has the outputs that a trainer with these weights has, bit for bit, for rows one
/// after the other in memory; what it returns is the caller's. One thread calls it at a time. Allocates on
/// construction, for what it returns, and for samples that it reads from a data set. `T`: the precision of the file.
template <class Net, class T = float>
class predictor {
    using network = model::network<Net, 1>;
    static constexpr std::size_t size = network::size;

public:
    using input = typename network::input;    ///< shape of a sample
    using output = typename network::output;  ///< shape of an output

    /// From a file of trainer::save_weights(), or state.safetensors of a checkpoint. Throws core::error where it cannot
    /// be read, or is of another network.
    predictor(const Net& net, const std::string& path, const options& how = {}) : predictor{net, how} {
        const saving::weight_names names{saving::names_of<network>(), saving::text_of(net)};
        saving::read_weights(path, names, std::span{weights_}, std::span{statistics_});
    }
    /// From trainer::all_weights() and running_statistics(), which it copies.
    predictor(const Net& net, std::span<const T> weights, std::span<const T> statistics, const options& how = {})
        : predictor{net, how} {
        if (weights.size() != weights_.size() || statistics.size() != statistics_.size())
            core::fail(
                core::text("a predictor was given ", weights.size(), " weights and ", statistics.size(),
                           " running statistics for a network of ", weights_.size(), " and ", statistics_.size()),
                "pass all_weights() and running_statistics() of a trainer with the same network");
        std::ranges::copy(weights, weights_.begin());
        std::ranges::copy(statistics, statistics_.begin());
        require_finite();
    }

    /// The outputs for some rows of the input, row after row. Throws core::error for a part of a row, and for inputs
    /// that are not finite.
    [[nodiscard]] std::vector<T> predict(std::span<const T> x) {
        require_not_moved();
        if (x.size() % input::size != 0)
            core::fail(core::text("x has ", x.size(), " numbers, no multiple of the ", input::size, " of one ",
                                  tensor::to_text<input>(), " sample"),
                       "pass whole samples, one after the other");
        require_finite(x, [](std::size_t row) { return core::text("row ", row, " of x"); });
        const std::size_t rows = x.size() / input::size;
        std::vector<T> out = room_for(rows);
        for (std::size_t at = 0; at < rows; at += how_.rows)
            forward(x.data() + at * input::size, std::min(how_.rows, rows - at), out.data() + at * output::size);
        return out;
    }
    /// The same for a container, whose extents are looked at as trainer::predict() does.
    template <class X>
        requires(tensor::is_container<X> && !requires { typename X::sample; })
    [[nodiscard]] std::vector<T> predict(const X& x) {
        const auto numbers = tensor::view_samples(x, "x", input::extents);
        constexpr bool is_same = std::is_same_v<typename decltype(numbers)::value_type, T>;
        static_assert(is_same,
                      "lockstep: x has another element type than the network computes in; convert x, or take "
                      "predictor<Net, double>");
        if constexpr (is_same) return predict(std::span<const T>{numbers});
        return {};
    }
    /// The same for all samples of a data set, in order. Allocates what it returns, and a block of at most
    /// options::rows samples with their labels.
    template <class Dataset>
        requires requires { typename Dataset::sample; }
    [[nodiscard]] std::vector<T> predict(const Dataset& set) {
        constexpr bool fits = std::is_same_v<typename Dataset::sample, input> && data::Dataset<Dataset, T>;
        static_assert(
            fits,
            "lockstep: the samples of the data set have another shape or type than the network takes; declare "
            "the network's input, or the data set, with the shape of the other");
        if constexpr (!fits)
            return {};
        else
            return predict_set(set);
    }

private:
    template <class Dataset>
    [[nodiscard]] std::vector<T> predict_set(const Dataset& set) {
        using label = typename Dataset::label;
        require_not_moved();
        data::check_set(set);
        const std::size_t all = set.size(), most = std::min(how_.rows, all);
        std::vector<std::uint64_t> rows(most);
        std::vector<T> x(most * input::size), out = room_for(all);
        std::vector<tensor::label_element<label, T>> y(most * tensor::label_size<label>);
        for (std::size_t at = 0; at < all; at += most) {
            const std::size_t count = std::min(most, all - at);
            for (std::size_t i = 0; i < count; ++i) rows[i] = at + i;
            set.read(std::span<const std::uint64_t>{rows}.first(count), tensor::batch<T, input>{x.data(), count},
                     std::span{y}.first(count * tensor::label_size<label>));
            require_finite(std::span<const T>{x}.first(count * input::size), [&](std::size_t row) {
                return core::text("sample ", at + row, " of ", data::name_of(set));
            });
            forward(x.data(), count, out.data() + at * output::size);
        }
        return out;
    }

public:
    /// What it was made from.
    [[nodiscard]] const Net& net() const noexcept { return net_; }
    /// All weights, layer by layer.
    [[nodiscard]] std::span<const T> weights() const noexcept { return weights_; }
    /// Those of all layers, one after the other.
    [[nodiscard]] std::span<const T> running_statistics() const noexcept { return statistics_; }

    /// Bytes for values and scratch.
    [[nodiscard]] std::size_t memory_bytes() const noexcept { return plan_.bytes; }

private:
    predictor(const Net& net, const options& how)
        : net_{checked(net)},
          how_{sound(how)},
          team_{how.threads},
          weights_{room_for_weights(network::parameters)},
          statistics_{room_for_weights(network::statistics)},
          plan_{nodes()} {
        memory_ = arena_.reserve<std::byte>(plan_.bytes);
        arena_.allocate("the values of a predictor", "take fewer options::rows, or a machine with more memory");
    }

    [[nodiscard, gnu::cold]] static std::vector<T> room_for_weights(std::size_t count) {
        return core::with_memory(
            "the weights of a predictor", core::checked_product("bytes of weights", count, sizeof(T)),
            "use a smaller network, or a machine with more memory", [&] { return std::vector<T>(count); });
    }
    /// The settings of its layers, as a trainer looks at them.
    [[nodiscard, gnu::cold]] static const Net& checked(const Net& net) {
        core::for_each_index<size>([&](auto index) { core::check_inner_part(net.template node<index>()); });
        return net;
    }

    [[nodiscard, gnu::cold]] static const options& sound(const options& how) {
        if (how.rows == 0) core::fail("a predictor of 0 rows at once", "take 1 or more");
        if (how.threads < 1 || how.threads > most_threads)
            core::fail(core::text("a predictor has ", how.threads, " threads"), core::text("take 1 to ", most_threads));
        if (how.threads > 1 && !parallel::has_threads)
            core::fail(core::text("a predictor has ", how.threads, " threads in a program without OpenMP"),
                       "compile with -fopenmp, or take 1");
        return how;
    }

    void require_not_moved() const {
        if (plan_.values.empty())
            core::fail("a predictor was used that was moved from", "use the one that it was moved to");
    }
    template <class Who>
    void require_finite(std::span<const T> x, const Who& who) const {
        if (const std::size_t bad = kernels::first_non_finite(x, team_); bad != x.size())
            core::fail(
                core::text(who(bad / input::size), " has the value ", x[bad], " at position ", bad % input::size),
                "remove or repair the sample");
    }
    [[gnu::cold]] void require_finite() const {
        for (const std::vector<T>* of : {&weights_, &statistics_})
            if (kernels::first_non_finite(std::span<const T>{*of}) != of->size())
                core::fail(core::text("a predictor was given ", of == &weights_ ? "weights" : "running statistics",
                                      " that are not finite"),
                           "pass those of a trainer whose losses are finite");
        saving::require_variances<network>(std::span<const T>{statistics_}, "a predictor");
    }

    [[nodiscard, gnu::cold]] std::vector<value_plan::node> nodes() const {
        std::vector<value_plan::node> out(size);
        core::for_each_index<size>([&](auto index) {
            using here = typename network::template at<index>;
            using layer = typename here::type;
            const auto bytes = [&](auto... numbers) {
                return core::checked_product("bytes of a layer for options::rows", std::size_t{numbers}..., sizeof(T));
            };
            auto& node = out[index];
            node.reads = network::graph.of(index);
            node.traits = layer_api::traits_of<layer>;
            if constexpr (!layer_api::traits_of<layer>.is_view) {
                node.value = bytes(how_.rows, layer::output::size);
                node.saved = core::checked_product("bytes of a layer for options::rows", how_.rows,
                                                   layer_api::saved_bytes<layer, T>);
                node.scratch = bytes(layer_api::scratch_size<T>(here::make(net_), how_.rows, 1, team_));
            }
        });
        return out;
    }

    /// What a call returns, before it is filled.
    [[nodiscard]] static std::vector<T> room_for(std::size_t rows) {
        const std::size_t all = core::checked_product("numbers of predictions", rows, std::size_t{output::size});
        return core::with_memory("predictions", core::checked_product("bytes of predictions", all, sizeof(T)),
                                 "predict fewer rows at once", [&] { return std::vector<T>(all); });
    }

    /// Writes the outputs of at most how_.rows rows.
    void forward(const T* x, std::size_t count, T* to) {
        std::byte* const memory = arena_[memory_].data();
        const auto value = [&](std::size_t node) { return node == model::the_samples ? x : values_[node]; };
        core::for_each_index<size>([&](auto index) {
            using here = typename network::template at<index>;
            using layer = typename here::type;
            constexpr auto traits = layer_api::traits_of<layer>;
            const T* const first = value(network::graph.read(index));
            if constexpr (traits.is_view) {
                values_[index] = first;
            } else {
                T* const y = reinterpret_cast<T*>(memory + plan_.values[index]);
                layer_api::forward_pass<T, layer> pass;
                if constexpr (layer_api::is_join<layer>)
                    for (std::size_t k = 0; k < here::inputs; ++k) pass.x[k] = value(network::graph.read(index, k));
                else
                    pass.x = {first, count};
                if constexpr (traits.has_addend) pass.addend = {value(network::graph.read(index, 1)), count};
                pass.y = {y, count};
                pass.w = {weights_.data() + network::offset(index)};
                pass.saved = {memory + plan_.saved[index], how_.rows * layer_api::saved_bytes<layer, T>};
                pass.use = {team_,
                            {reinterpret_cast<T*>(memory + plan_.scratch[index]),
                             layer_api::scratch_size<T>(here::make(net_), how_.rows, 1, team_)}};
                pass.mode = layer_api::mode::inference;
                if constexpr (layer_api::has_statistics<layer>)
                    pass.statistics = {statistics_.data() + network::facts[index].statistics_offset};
                here::make(net_).forward(pass);
                values_[index] = y;
            }
        });
        std::copy_n(values_[size - 1], count * output::size, to);
    }

    Net net_;
    options how_;
    parallel::team team_;
    std::vector<T> weights_, statistics_;
    value_plan plan_;
    tensor::arena arena_;
    tensor::slice<std::byte> memory_;
    std::array<const T*, size> values_{};
};

template <class Net>
predictor(const Net&, const std::string&) -> predictor<Net>;
template <class Net>
predictor(const Net&, const char*) -> predictor<Net>;
template <class Net>
predictor(const Net&, const std::string&, const options&) -> predictor<Net>;
template <class Net>
predictor(const Net&, const char*, const options&) -> predictor<Net>;

template <class Net, class Weights, class Statistics>
    requires requires(const Weights& weights, const Statistics& statistics) { *weights.data() + *statistics.data(); }
predictor(const Net&, const Weights&, const Statistics&, const options& = {})
    ->predictor<Net, std::remove_cvref_t<decltype(*std::declval<const Weights&>().data())>>;

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION value_plan::value_plan(std::span<const node> nodes) {
    const std::size_t n = nodes.size();
    // Who owns the memory of a value, and the last node that reads it; the result is read at the end.
    std::vector<std::size_t> root(n), last(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t from = nodes[i].reads[0];
        root[i] = !nodes[i].traits.is_view ? i : from == model::the_samples ? from : root[from];
        for (const std::size_t value : nodes[i].reads)
            if (value != model::the_samples && root[value] != model::the_samples) last[root[value]] = i;
    }
    if (root[n - 1] != model::the_samples) last[root[n - 1]] = n;
    std::vector<model::piece> pieces;
    std::vector<std::size_t> piece(n, model::no_piece);
    for (std::size_t i = 0; i < n; ++i) {
        if (nodes[i].traits.is_view) continue;
        const std::size_t from = nodes[i].reads[0], owner = from == model::the_samples ? from : root[from];
        // Not where another input is read from the same memory, or later on.
        const bool reads_once =
            nodes[i].reads.size() == 1 ||
            (nodes[i].traits.has_addend &&
             (nodes[i].reads[1] == model::the_samples ? nodes[i].reads[1] : root[nodes[i].reads[1]]) != owner);
        const bool in_place = nodes[i].traits.in_place && reads_once && owner != model::the_samples &&
                              last[owner] == i && nodes[owner].value == nodes[i].value;
        if (in_place) {
            piece[i] = piece[owner];
            pieces[piece[i]].last = std::max(last[i], i);
        } else {
            piece[i] = pieces.size();
            pieces.push_back({.bytes = nodes[i].value, .first = i, .last = std::max(last[i], i)});
        }
    }
    const std::size_t first_own = pieces.size();
    for (const node& one : nodes)
        for (const std::size_t own : {one.saved, one.scratch}) {
            const auto at = static_cast<std::size_t>(&one - nodes.data());
            pieces.push_back({.bytes = own, .first = at, .last = at, .is_scratch = true});
        }
    bytes = model::assign_offsets(pieces);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t owner = root[i] == model::the_samples ? i : root[i];
        values.push_back(piece[owner] == model::no_piece ? 0 : pieces[piece[owner]].offset);
        saved.push_back(pieces[first_own + 2 * i].offset);
        scratch.push_back(pieces[first_own + 2 * i + 1].offset);
    }
}

#endif

}  // namespace lockstep::infer

namespace lockstep {
using infer::predictor;
}  // namespace lockstep
