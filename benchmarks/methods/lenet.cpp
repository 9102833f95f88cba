// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/lenet5.hpp"
#include "methods.hpp"

void benchmark::compare_lenet(const boost::mpi::communicator& world, const options& given) {
    compare<10>(world, given, ls::models::lenet5);
}
