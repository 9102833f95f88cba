// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Branches of a network: residual, add, concatenate and path, and blocks that are run again in backward: recompute.
// They are written nested and read as one flat list of nodes, each with the numbers of the nodes whose values it reads.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "lockstep/core/pack.hpp"
#include "lockstep/layers/join.hpp"

namespace lockstep::model {

/// Stands for the samples, where a node reads the value of another one.
inline constexpr std::size_t the_samples = static_cast<std::size_t>(-1);

/// The flat list: node i reads the values of nodes reads[first[i]] .. reads[first[i + 1] - 1], all below i, or
/// `the_samples`.
template <std::size_t Nodes, std::size_t Edges>
struct graph {
    std::array<std::size_t, Nodes + 1> first{};
    std::array<std::size_t, Edges> reads{};
    std::array<std::size_t, Nodes> readers{};  ///< how often the value of a node is read
    std::array<bool, Nodes> joined{};          ///< by a node that reads several
    std::array<std::size_t, Nodes> block{};    ///< number of the recompute around a node, from 1 on; 0: none

    [[nodiscard]] constexpr std::size_t inputs(std::size_t node) const noexcept {
        return first[node + 1] - first[node];
    }
    [[nodiscard]] constexpr std::size_t read(std::size_t node, std::size_t input = 0) const noexcept {
        return reads[first[node] + input];
    }
    [[nodiscard]] constexpr std::span<const std::size_t> of(std::size_t node) const noexcept {
        return std::span<const std::size_t>{reads}.subspan(first[node], inputs(node));
    }
};

/// Writes a graph from its first node to its last.
template <std::size_t Nodes, std::size_t Edges>
struct graph_writer {
    graph<Nodes, Edges> out{};
    std::size_t nodes = 0, edges = 0;
    std::size_t block = 0, blocks = 0;  ///< the one that is being written, and how many there have been

    /// A node that reads these values; returns its number.
    constexpr std::size_t node(std::span<const std::size_t> from) noexcept {
        for (const std::size_t value : from) {
            out.reads[edges++] = value;
            if (value == the_samples) continue;
            ++out.readers[value];
            if (from.size() > 1) out.joined[value] = true;
        }
        out.block[nodes] = block;
        out.first[++nodes] = edges;
        return nodes - 1;
    }
};

/// Something that stands for several nodes.
template <class Item>
inline constexpr bool is_combinator = requires {
    Item::is_combinator;
};
template <class Item>
inline constexpr std::size_t nodes_of = 1;
template <class Item>
    requires is_combinator<Item>
inline constexpr std::size_t nodes_of<Item> = Item::size;
template <class Item>
inline constexpr std::size_t edges_of = 1;
template <class Item>
    requires is_combinator<Item>
inline constexpr std::size_t edges_of<Item> = Item::edges;

/// An item has a recompute inside.
template <class Item>
inline constexpr bool holds_recompute = false;
template <class Item>
    requires is_combinator<Item>
inline constexpr bool holds_recompute<Item> = Item::recomputes;

/// Writes the nodes of an item that reads the value `from`; returns the value that it gives.
template <class Item, class Writer>
constexpr std::size_t wire(Writer& to, std::size_t from) noexcept {
    if constexpr (is_combinator<Item>)
        return Item::wire(to, from);
    else
        return to.node(std::span<const std::size_t>{&from, 1});
}

/// The spec of node `Index` of an item.
template <std::size_t Index, class Item>
[[nodiscard]] constexpr const auto& node_of(const Item& item) noexcept {
    if constexpr (is_combinator<Item>)
        return item.template node<Index>();
    else
        return item;
}

/// Items one after the other in the flat list.
template <class... Items>
struct items {
    static constexpr std::size_t nodes = (std::size_t{0} + ... + nodes_of<Items>);
    static constexpr std::size_t reads = (std::size_t{0} + ... + edges_of<Items>);
    static constexpr bool recomputes = (holds_recompute<Items> || ...);

    core::pack<Items...> specs;

    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& item_node() const noexcept {
        constexpr auto where = positions[Index];
        return node_of<where.inner>(core::get<where.item>(specs));
    }

private:
    struct position {
        std::size_t item = 0;
        std::size_t inner = 0;
    };
    static constexpr auto positions = [] {
        std::array<position, nodes> out{};
        const std::array<std::size_t, sizeof...(Items)> counts{nodes_of<Items>...};
        std::size_t at = 0;
        for (std::size_t item = 0; item < counts.size(); ++item)
            for (std::size_t inner = 0; inner < counts[item]; ++inner) out[at++] = {item, inner};
        return out;
    }();
};

/// path{layers..}: layers one after the other, as one branch. path{} is what comes in.
template <class... Specs>
struct path : items<Specs...> {
    static constexpr bool is_combinator = true;
    static constexpr std::size_t size = path::nodes, edges = path::reads;

    constexpr path(const Specs&... layers) : items<Specs...>{{layers...}} {}

    template <class Writer>
    static constexpr std::size_t wire(Writer& to, std::size_t from) noexcept {
        ((from = model::wire<Specs>(to, from)), ...);
        return from;
    }
    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& node() const noexcept {
        return this->template item_node<Index>();
    }
};
template <>
struct path<> {
    static constexpr bool is_combinator = true;
    static constexpr std::size_t size = 0, edges = 0;
    static constexpr bool recomputes = false;
    template <class Writer>
    static constexpr std::size_t wire(Writer&, std::size_t from) noexcept {
        return from;
    }
};

/// recompute{layers..}: the layers one after the other, of which forward keeps only what the first one reads; backward
/// runs them forward once more before it needs their values (Chen et al. 2016). The bits stay. Cost: one more forward
/// of these layers, but for those at their end whose values backward does not need. What holds the values of a block at
/// a time is as large as the largest block. Weights cannot have changed by then and random numbers are addressed by
/// step, so the second run has the bits of the first; what it observes for statistics is dropped. Redistributions
/// inside of a block are made again with their layers. No block stands in another one.
template <class... Specs>
struct recompute : items<Specs...> {
    static_assert(recompute::nodes > 0, "lockstep: a recompute has at least one layer");
    static_assert(!items<Specs...>::recomputes,
                  "lockstep: a recompute stands inside of another one; leave one of them out");
    static constexpr bool is_combinator = true;
    static constexpr bool recomputes = true;
    static constexpr std::size_t size = recompute::nodes, edges = recompute::reads;

    constexpr recompute(const Specs&... layers) : items<Specs...>{{layers...}} {}

    template <class Writer>
    static constexpr std::size_t wire(Writer& to, std::size_t from) noexcept {
        to.block = ++to.blocks;
        ((from = model::wire<Specs>(to, from)), ...);
        to.block = 0;
        return from;
    }
    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& node() const noexcept {
        return this->template item_node<Index>();
    }
};

/// residual{layers..}: x + layers(x) (He et al. 2015).
template <class... Specs>
struct residual : items<Specs...> {
    static_assert(sizeof...(Specs) > 0, "lockstep: a residual has at least one layer");
    static constexpr bool is_combinator = true;
    static constexpr std::size_t size = residual::nodes + 1, edges = residual::reads + 2;

    constexpr residual(const Specs&... layers) : items<Specs...>{{layers...}} {}

    template <class Writer>
    static constexpr std::size_t wire(Writer& to, std::size_t from) noexcept {
        std::array<std::size_t, 2> ends{from, from};
        ((ends[1] = model::wire<Specs>(to, ends[1])), ...);
        return to.node(ends);
    }
    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& node() const noexcept {
        if constexpr (Index == residual::nodes)
            return join;
        else
            return this->template item_node<Index>();
    }
    static constexpr layer_api::residual_join join{};
};

/// One that holds nothing but another one is no copy of it; `residual one = other` is.
template <class... Specs>
explicit residual(const residual<Specs...>&) -> residual<residual<Specs...>>;

/// Branches that begin with the same value and end in a node that reads all of them.
template <class Join, class... Paths>
struct branches : items<Paths...> {
    static_assert(sizeof...(Paths) > 1, "lockstep: add, concatenate and join have at least two paths");
    static constexpr bool is_combinator = true;
    static constexpr std::size_t size = branches::nodes + 1, edges = branches::reads + sizeof...(Paths);

    constexpr explicit branches(const Join& end, const Paths&... paths) : items<Paths...>{{paths...}}, last{end} {}

    template <class Writer>
    static constexpr std::size_t wire(Writer& to, std::size_t from) noexcept {
        const std::array<std::size_t, sizeof...(Paths)> ends{model::wire<Paths>(to, from)...};
        return to.node(ends);
    }
    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& node() const noexcept {
        if constexpr (Index == branches::nodes)
            return last;
        else
            return this->template item_node<Index>();
    }
    [[no_unique_address]] Join last;
};

/// add{path{..}, path{..}}: the sum of what the paths give, from the left. A single layer needs no path around it.
template <class... Paths>
struct add : branches<layer_api::add_join, Paths...> {
    constexpr add(const Paths&... paths) : branches<layer_api::add_join, Paths...>{{}, paths...} {}
};

/// concatenate{path{..}, path{..}}: the channels of all paths, one after the other (Szegedy et al. 2015).
template <class... Paths>
struct concatenate : branches<layer_api::concatenate_join, Paths...> {
    constexpr concatenate(const Paths&... paths) : branches<layer_api::concatenate_join, Paths...>{{}, paths...} {}
};

/// join{spec, path{..}, path{..}}: what a join of the user's makes of what the paths give. `spec.on(shapes..)` is a
/// layer with traits{.inputs = n} for the shapes of all n paths; it may have parameters.
template <class Join, class... Paths>
struct join : branches<Join, Paths...> {
    constexpr join(const Join& spec, const Paths&... paths) : branches<Join, Paths...>{spec, paths...} {}
};

}  // namespace lockstep::model

namespace lockstep {
using model::add;
using model::concatenate;
using model::join;
using model::path;
using model::recompute;
using model::residual;
}  // namespace lockstep
