// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What numbers look like on the user's side: xtensor adaptors, for programs that include them. Parsing xtensor takes a
// second, and most programs that train never look at a tensor.

namespace lockstep::tensor {

/// of(numbers, extents), a view, and make_batch<shape>(rows), a container: defined by tensor/xtensor.hpp.
template <class T>
struct views;

template <class T>
inline constexpr bool has_views = requires {
    sizeof(views<T>);
};

}  // namespace lockstep::tensor
