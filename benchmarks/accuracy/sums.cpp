// SPDX-License-Identifier: BSD-3-Clause
// Messages that are added on the way.
#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_sums(const boost::mpi::communicator& world, const options& of,
                                       const chosen_compressor& chosen) {
    return run_one_of<example::summed, example::summed_twice, example::scaled, example::counted>(world, of, chosen);
}
