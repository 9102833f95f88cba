// SPDX-License-Identifier: BSD-3-Clause
#include "networks.hpp"
#include "training.hpp"

int example::run_mlp(const boost::mpi::communicator& world, const options& of) { return run<1>(world, of, mlp(of.dropout)); }
