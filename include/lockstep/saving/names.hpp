// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the arrays of a network are called in files.
// Tested by tests/equivalence/weight_files.cpp.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/pass.hpp"
#include "lockstep/model/network.hpp"
#include "lockstep/saving/network_text.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::saving {

/// A parameter or statistic of the whole network: `shards` blocks of columns, each rows x columns on its own ranks.
struct named_array {
    std::string name;  ///< LAYER.KIND.PARAMETER, such as 0.conv.weight
    std::size_t rows = 1;
    std::size_t columns = 1;  ///< of one shard
    std::size_t shards = 1;
    std::size_t tensor = 0;  ///< its number in tensor::state_part, without shards; of statistics: that of the layer
    bool is_square = false;  ///< no number is below 0
    std::size_t layer = 0;   ///< counted from 0

    [[nodiscard]] std::size_t size() const noexcept { return rows * columns; }
};

/// What the state of a network may belong to.
struct named_arrays {
    std::vector<named_array> parameters;
    std::vector<named_array> statistics;
};

/// All of a network, layer by layer.
template <class Network>
[[nodiscard, gnu::cold]] named_arrays names_of() {
    named_arrays out;
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        const model::layer_facts& fact = Network::facts[layer];
        const auto add = [&](std::vector<named_array>& to, const tensor::parameter& one, std::size_t shards,
                             std::size_t number) {
            to.push_back({core::text(layer, ".", fact.name, ".", one.name), one.rows, one.columns, shards, number,
                          one.is_square, layer});
        };
        const std::size_t shards = fact.segment == model::segment::sharded ? Network::shards : 1;
        for (const auto& one : fact.tensors) add(out.parameters, one, shards, out.parameters.size());
        for (const auto& one : fact.observed) add(out.statistics, one, 1, layer);
    }
    return out;
}

/// Throws core::error where a running variance is below 0. `who`: what was given these statistics of the network.
template <class Network, class T>
[[gnu::cold]] void require_variances(std::span<const T> statistics, std::string_view who) {
    for (const named_array& one : names_of<Network>().statistics) {
        const auto part = statistics.first(one.size());
        statistics = statistics.subspan(part.size());
        const auto bad = one.is_square ? std::ranges::find_if(part, [](T number) { return number < 0; }) : part.end();
        if (bad != part.end())
            core::fail(core::text(who, " was given ", *bad, " at position ", bad - part.begin(), " of ", one.name),
                       "pass running_statistics() of a trainer as they are: means and variances in its order");
    }
}

/// rows x columns of the whole network; one extent for vectors.
[[nodiscard]] inline std::vector<std::size_t> shape_of(const named_array& of) {
    const std::size_t columns = of.columns * of.shards;
    return of.rows > 1 ? std::vector{of.rows, columns} : std::vector{columns};
}

/// A network in words: what each layer reads and gives, its parameters, windows and settings. Equal for equal networks;
/// others of the library's layers have other words, and those of layers with settings() of their own.
template <class Net>
[[nodiscard, gnu::cold]] std::string text_of(const Net& net) {
    using network = model::network<Net, 1>;
    std::string out = tensor::to_text<typename Net::input>();
    core::for_each_index<Net::size>([&](auto index) {
        using layer = typename network::template layer<index>;
        const auto& spec = net.template node<index>();
        const auto& fact = network::facts[index];
        out += core::text(" ", fact.name, "->", fact.outputs, "/", fact.parameters);
        if constexpr (layer_api::has_details<layer>) out += details_text(layer::details);
        if (Net::graph.inputs(index) > 1 || Net::graph.read(index) + 1 != index)
            for (const std::size_t value : Net::graph.of(index)) out += core::text("<", value + 1);
        if constexpr (requires { std::string{spec.settings()}; })
            out += core::text("(", std::string{spec.settings()}, ")");
    });
    return out;
}

}  // namespace lockstep::saving
