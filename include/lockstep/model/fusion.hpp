// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Layers as they are run: one that can computes in its own passes over memory what stands after it in the network, to
// the last bit.

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/layers/concept.hpp"
#include "lockstep/model/binding.hpp"
#include "lockstep/tensor/parameter.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::model {

/// What layer `Index` computes besides itself, which those after it are asked for: a relu right after it, or the sum of
/// another value and its own, in this order, and a relu. No other layer reads what lies between. A recompute holds all
/// of it or nothing. The other value is not what the layer reads itself: its gradient would be added in another order.
/// A sum of more than two addends stays alone, and so does one after a join, or beside which ranks redistribute values.
/// Names, numbers of layers, weights and bits are those of the layers one by one.
template <class Net, std::size_t Shards, std::size_t Index>
[[nodiscard]] consteval layer_api::epilogue epilogue_of() {
    using here = bound<Net, Shards, Index>;
    constexpr auto leads_on = [](std::size_t node) {
        const auto& graph = Net::graph;
        return node + 1 < Net::size && graph.readers[node] == 1 && graph.of(node + 1).back() == node &&
               graph.block[node] == graph.block[node + 1];
    };
    if constexpr (layer_api::takes_epilogue<typename here::type> && leads_on(Index)) {
        using next = typename bound<Net, Shards, Index + 1>::type;
        if constexpr (layer_api::as_epilogue<next> == layer_api::epilogue_part::relu)
            return layer_api::epilogue::relu;
        else if constexpr (layer_api::as_epilogue<next> == layer_api::epilogue_part::sum_of_two &&
                           !layer_api::is_join<typename here::type> && leads_on(Index + 1) &&
                           Net::graph.read(Index + 1) != Net::graph.read(Index) &&
                           here::redistribution_before == redistribution::none &&
                           here::redistribution_after == redistribution::none)
            return layer_api::as_epilogue<typename bound<Net, Shards, Index + 2>::type> ==
                           layer_api::epilogue_part::relu
                       ? layer_api::epilogue::add_relu
                       : layer_api::epilogue::none;
    }
    return layer_api::epilogue::none;
}

/// Stands for a layer that the one before it computes: its value is there already.
template <class L>
struct computed_before {
    using input = typename L::output;
    using output = typename L::output;
    static constexpr std::string_view name = L::name;
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = L::flops;
    static constexpr layer_api::traits traits{.is_view = true};
};

/// The graph as it is run, and who computes what.
template <class Net, std::size_t Shards>
struct fusion {
    static constexpr auto epilogues = []<std::size_t... Index>(std::index_sequence<Index...>) {
        return std::array<layer_api::epilogue, Net::size>{epilogue_of<Net, Shards, Index>()...};
    }
    (std::make_index_sequence<Net::size>{});

    /// A layer with an addend reads what the sum after it would: in the list of reads that is the next entry.
    static constexpr auto graph = [] {
        auto out = Net::graph;
        for (std::size_t node = 0; node < Net::size; ++node)
            if (epilogues[node] == layer_api::epilogue::add_relu) ++out.first[node + 1];
        return out;
    }();

    [[nodiscard]] static constexpr bool is_computed_before(std::size_t node) noexcept {
        return (node > 0 && epilogues[node - 1] != layer_api::epilogue::none) ||
               (node > 1 && epilogues[node - 2] == layer_api::epilogue::add_relu);
    }
};

/// A bound layer as it is run: `type` is what computes.
template <class Net, std::size_t Shards, std::size_t Index>
struct fused : bound<Net, Shards, Index> {
    using base = bound<Net, Shards, Index>;
    static constexpr layer_api::epilogue epilogue = fusion<Net, Shards>::epilogues[Index];

    static constexpr auto fuse() {
        if constexpr (fusion<Net, Shards>::is_computed_before(Index))
            return std::type_identity<computed_before<typename base::type>>{};
        else if constexpr (epilogue != layer_api::epilogue::none)
            return std::type_identity<
                decltype(std::declval<const typename base::type&>().template with_epilogue<epilogue>())>{};
        else
            return std::type_identity<typename base::type>{};
    }
    using type = typename decltype(fuse())::type;
    static_assert(
        !layer_api::traits_of<type>.has_addend || fusion<Net, Shards>::graph.inputs(Index) == 2,
        "lockstep: a layer with an addend stands where no sum is; give it in with_epilogue<epilogue::add_relu>() only");

    static constexpr type make(const Net& net) {
        if constexpr (fusion<Net, Shards>::is_computed_before(Index))
            return {};
        else if constexpr (epilogue != layer_api::epilogue::none)
            return base::make(net).template with_epilogue<epilogue>();
        else
            return base::make(net);
    }
};

}  // namespace lockstep::model
