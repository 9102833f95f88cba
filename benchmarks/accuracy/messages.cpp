// SPDX-License-Identifier: BSD-3-Clause
// Messages that every rank decodes.
#include "kinds.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_messages(const boost::mpi::communicator& world, const options& of,
                                           const chosen_compressor& chosen) {
    return run_one_of<example::gathered, example::streamed, ls::compress::global_top_k>(world, of, chosen);
}
