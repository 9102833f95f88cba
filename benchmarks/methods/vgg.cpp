// SPDX-License-Identifier: BSD-3-Clause
#include "methods.hpp"
#include "small_vgg.hpp"

void benchmark::compare_vgg(const boost::mpi::communicator& world, const options& given) {
    compare<10>(world, given, small_vgg);
}
