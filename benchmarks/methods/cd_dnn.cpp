// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/models/cd_dnn.hpp"
#include "methods.hpp"

void benchmark::compare_cd_dnn(const boost::mpi::communicator& world, const options& given) {
    compare<9304>(world, given, ls::models::cd_dnn);
}
