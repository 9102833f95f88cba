// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reducer that fits a compressor: whether its messages may be added decides, so a wrong pair cannot be built.

#include <type_traits>

#include "lockstep/compress/concept.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/reduce/tree_sum.hpp"

namespace lockstep::reduce {

template <class T, class C>
inline constexpr bool keeps_lane_order = C::kind == compress::kind::sum;

template <class T, compress::Compressor<T> C>
using reducer_for = std::conditional_t<keeps_lane_order<T, C>, tree_sum<T>, gathered_messages<T, C>>;

/// Where gradients and weights lie: only sums over the lane tree go through shared memory.
template <class T, compress::Compressor<T> C>
using memory_for = std::conditional_t<keeps_lane_order<T, C>, node_memory, own_memory>;

template <class T, compress::Compressor<T> C>
[[nodiscard]] auto make_reducer(const bucket& of, const C& compressor, tensor::arena& arena) {
    if constexpr (keeps_lane_order<T, C>)
        return tree_sum<T>{of, arena};
    else
        return gathered_messages<T, C>{of, compressor, arena};
}

}  // namespace lockstep::reduce
