// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A network as a list of layers, written as one value. Its structure is its type; numbers such as a dropout rate are in the value.

#include <cstddef>
#include <type_traits>

#include "lockstep/core/pack.hpp"
#include "lockstep/tensor/shape.hpp"

namespace lockstep::model {

/// sequential{input<28, 28, 1>, conv<32, 5>{}, relu{}, flatten{}, dense<10>{}}: each layer takes what the one before it gives.
template <class Input, class... Specs>
struct sequential {
    static_assert(tensor::is_shape<Input>,
                  "lockstep: a sequential begins with the shape of a sample: sequential{ls::input<28, 28, 1>, ..}");
    static_assert(sizeof...(Specs) > 0, "lockstep: a sequential has at least one layer behind its input");
    /// Whether it can be bound; the messages above are then the only ones.
    static constexpr bool is_sound = tensor::is_shape<Input> && sizeof...(Specs) > 0;
    using input = std::conditional_t<tensor::is_shape<Input>, Input, tensor::shape<1>>;
    static constexpr std::size_t size = sizeof...(Specs);
    template <std::size_t Index>
    using spec = core::element<Index, core::pack<Specs...>>;

    core::pack<Specs...> specs;

    constexpr sequential(Input, const Specs&... layers) : specs{layers...} {}
};

}  // namespace lockstep::model

namespace lockstep {

using model::sequential;

/// The shape of one sample, as the first element of a sequential: input<rows, columns, channels> or input<features>.
template <std::size_t... Extents>
inline constexpr tensor::shape<Extents...> input{};

}  // namespace lockstep
