// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/resnet.hpp"
#include "training.hpp"

int example::run_winograd(const boost::mpi::communicator& world, const options& of) { return run(world, of, ls::models::resnet<20>); }
