// SPDX-License-Identifier: BSD-3-Clause
// Messages that every rank decodes.
#include <variant>

#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_messages(const boost::mpi::communicator& world, const options& of,
                                           const chosen_compressor& chosen) {
    const auto optimizer = usual_optimizer(of);
    if (const auto* one = std::get_if<example::gathered>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<example::streamed>(&chosen)) return run(world, of, *one, optimizer);
    if (const auto* one = std::get_if<ls::compress::global_top_k>(&chosen)) return run(world, of, *one, optimizer);
    return {};
}
