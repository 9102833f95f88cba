// SPDX-License-Identifier: BSD-3-Clause
// Whole gradients, of 32 bits or 16.
#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_trees(const boost::mpi::communicator& world, const options& of,
                                        const chosen_compressor& chosen) {
    return run_one_of<ls::compress::none, example::half_sums, example::bfloat16_sums>(world, of, chosen);
}
