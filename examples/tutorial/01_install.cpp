// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        if (world.rank() == 0)
            std::cout << world.size() << " ranks, " << ls::simd::instruction_set() << ", " << ls::simd::width<float> << " floats a vector\n";
        return 0;
    });
}
