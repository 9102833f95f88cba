// SPDX-License-Identifier: BSD-3-Clause
#include "networks.hpp"
#include "training.hpp"

int example::run_lenet_in_two_stages(const boost::mpi::communicator& world, const options& of) {
    return run_in_stages<2>(world, of, lenet(of.dropout));
}
