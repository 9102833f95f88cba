// SPDX-License-Identifier: BSD-3-Clause
// The package alone: headers, the vector type, MPI.
#include <iostream>

#include "lockstep/comm/program.hpp"
#include "lockstep/simd/batch.hpp"

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [](const boost::mpi::communicator& world) {
        std::cout << "rank " << world.rank() << " of " << world.size() << ", " << lockstep::simd::width<float> << " floats a vector\n";
        return 0;
    });
}
