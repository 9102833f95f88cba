// SPDX-License-Identifier: BSD-3-Clause
// Whole gradients, of 32 bits or 16.
#include <variant>

#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_trees(const boost::mpi::communicator& world, const options& of,
                                        const chosen_compressor& chosen) {
    const auto optimizer = usual_optimizer(of);
    if (const auto* one = std::get_if<ls::compress::none>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<ls::compress::half>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<ls::compress::bfloat16>(&chosen)) return run(world, of, *one, optimizer);
    return {};
}
