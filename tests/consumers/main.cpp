// SPDX-License-Identifier: BSD-3-Clause
// The program that all consumer projects build: headers, the vector type, threads and MPI.
#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/mpi/environment.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "lockstep/core/hash.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/shape.hpp"

int main(int argc, char** argv) {
    const boost::mpi::environment environment{argc, argv, boost::mpi::threading::funneled};
    const boost::mpi::communicator world;
    const int ranks = boost::mpi::all_reduce(world, 1, std::plus<int>{});
    if (world.rank() == 0) {
        std::printf("%d ranks, %zu floats per vector, threads %s, %s\n", ranks, lockstep::simd::width<float>,
                    lockstep::parallel::has_threads ? "on" : "off",
                    lockstep::core::hexadecimal(lockstep::core::hash("lockstep")).c_str());
    }
    return ranks == world.size() ? 0 : 1;
}
