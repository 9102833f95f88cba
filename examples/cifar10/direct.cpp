// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet.hpp"
#include "training.hpp"

int example::run_direct(const boost::mpi::communicator& world, const options& of) {
    return run(world, of, ls::models::resnet<20, ls::kernels::always_direct>);
}
