// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network as a list of layers, written as one value. Its structure is its type; numbers such as a dropout rate are in
// the value.

#include <cstddef>
#include <type_traits>

#include "lockstep/core/pack.hpp"
#include "lockstep/model/combine.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::model {

/// sequential{input<28, 28, 1>, conv<32, 5>{}, relu{}, flatten{}, dense<10>{}}: each layer takes what the one before it
/// gives. Branches (see combine.hpp) stand in it like layers; their layers are counted in the order in which they are
/// written, the join of a branch last.
template <class Input, class... Specs>
struct sequential : items<Specs...> {
    static_assert(tensor::is_shape<Input>,
                  "lockstep: a sequential begins with the shape of a sample: sequential{ls::input<28, 28, 1>, ..}");
    static_assert(sequential::nodes > 0, "lockstep: a sequential has at least one layer after its input");
    /// Whether it can be bound; the messages above are then the only ones.
    static constexpr bool is_sound = tensor::is_shape<Input> && sequential::nodes > 0;
    using input = std::conditional_t<tensor::is_shape<Input>, Input, tensor::shape<1>>;
    /// Nodes of the flat list, joins included.
    static constexpr std::size_t size = sequential::nodes;
    static constexpr auto graph = [] {
        graph_writer<sequential::nodes, sequential::reads> to;
        std::size_t at = the_samples;
        ((at = wire<Specs>(to, at)), ...);
        return to.out;
    }();
    template <std::size_t Index>
    using spec = std::remove_cvref_t<decltype(std::declval<const items<Specs...>&>().template item_node<Index>())>;

    constexpr sequential(Input, const Specs&... layers) : items<Specs...>{{layers...}} {}

    /// What stands at an index of the flat list.
    template <std::size_t Index>
    [[nodiscard]] constexpr const auto& node() const noexcept {
        return this->template item_node<Index>();
    }
};

}  // namespace lockstep::model

namespace lockstep {

using model::sequential;

/// The shape of one sample, as the first element of a sequential: input<rows, columns, channels> or input<features>.
template <std::size_t... Extents>
inline constexpr tensor::shape<Extents...> input{};

}  // namespace lockstep
