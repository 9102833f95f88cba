// SPDX-License-Identifier: BSD-3-Clause
#include "networks.hpp"
#include "training.hpp"

int example::run_mlp_compressed(const boost::mpi::communicator& world, const options& of) { return run_compressed(world, of, mlp(of.dropout)); }
