// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a collective is: a value that writes the program of each rank.

#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/collectives/schedule.hpp"

namespace lockstep::collectives {

/// collective(rank, ranks, sizes...) is the schedule of `rank` among `ranks`; all ranks pass equal sizes. A plain sum
/// or gather of n elements has one size, n. `invariant` says that the bits of the result do not depend on the number of
/// ranks; `name` is for printing.
template <class C, class... Sizes>
concept Collective = requires(const C& collective, std::size_t rank, std::size_t ranks, const Sizes&... sizes) {
    { collective(rank, ranks, sizes...) } -> std::same_as<schedule>;
    { C::name } -> std::convertible_to<std::string_view>;
    { C::invariant } -> std::convertible_to<bool>;
};

/// A collective over n elements that leaves the sum of all ranks in the first n elements of data on every rank.
/// data_size(rank, ranks, n): elements that the caller provides; the tree takes one vector for each node of a rank's
/// lanes, not only one.
template <class C>
concept AllReduce = Collective<C, std::size_t> &&
    requires(const C& collective, std::size_t rank, std::size_t ranks, std::size_t n) {
    { collective.data_size(rank, ranks, n) } -> std::same_as<std::size_t>;
};

}  // namespace lockstep::collectives
