// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Groups of ranks cut out of the world.

#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <cstddef>
#include <vector>

namespace support {

namespace mpi = boost::mpi;

/// Cuts the world into groups of these sizes, in order, and runs f(group) on each of them at once. Ranks after the last
/// group wait.
template <class F>
void on_groups(const std::vector<int>& sizes, F&& f) {
    const mpi::communicator world;
    int color = 0, end = 0;
    for (const int size : sizes) {
        end += size;
        if (world.rank() < end) break;
        ++color;
    }
    const mpi::communicator group = world.split(color);
    if (static_cast<std::size_t>(color) < sizes.size()) f(group);
    world.barrier();
}

/// The value of each rank of a group, on all of them.
template <class T>
[[nodiscard]] std::vector<T> of_all(const mpi::communicator& group, const T& value) {
    std::vector<T> out;
    mpi::all_gather(group, value, out);
    return out;
}

}  // namespace support
