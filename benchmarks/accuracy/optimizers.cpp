// SPDX-License-Identifier: BSD-3-Clause
// Methods that are an optimizer as well.
#include <variant>

#include "kinds.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "run.hpp"

std::optional<int> benchmark::run_optimizers(const boost::mpi::communicator& world, const options& of,
                                             const chosen_compressor& chosen) {
    // Decay does not pass through the momentum here: 1 / (1 - momentum) is the sum of what a term there adds.
    const double decay = of.weight_decay / (1 - of.momentum);
    if (const auto* one = std::get_if<example::with_momentum_of_workers>(&chosen))
        return run(world, of, one->compressor,
                   ls::optim::deep_gradient{.momentum = of.momentum, .nesterov = true, .decay = decay});
    if (const auto* one = std::get_if<example::with_frozen_variance>(&chosen))
        return run(world, of, one->compressor, ls::optim::one_bit_adam{.warm_up = one->warm_up});
    return {};
}
