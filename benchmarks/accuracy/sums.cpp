// SPDX-License-Identifier: BSD-3-Clause
// Messages that are added on the way.
#include <variant>

#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_sums(const boost::mpi::communicator& world, const options& of,
                                       const chosen_compressor& chosen) {
    const auto optimizer = usual_optimizer(of);
    if (const auto* one = std::get_if<example::summed>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<example::summed_twice>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<example::scaled>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<example::counted>(&chosen)) return run(world, of, *one, optimizer);
    return {};
}
