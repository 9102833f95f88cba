// SPDX-License-Identifier: BSD-3-Clause
#include "networks.hpp"
#include "training.hpp"

int example::run_lenet_of_workers(const boost::mpi::communicator& world, const options& of) { return run_of_workers(world, of, lenet(of.dropout)); }
