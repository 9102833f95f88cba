// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the command line asks for.

#include <cstddef>
#include <string>

namespace benchmark {

struct options {
    std::string net;        ///< only networks whose name contains this
    std::size_t batch = 0;  ///< 0: that of the peers' programs
    std::size_t threads = 1;
    std::size_t repeats = 5;
    double seconds = 2;  ///< of each repeat, at least
    bool list = false;
    bool serial = false;    ///< the trainer in turns with a plain loop over the same work
    std::string partition;  ///< hybrid: dense layers are cut among pairs of ranks; empty: only the minibatch is cut
    std::string transport;  ///< under mpirun: how gradients go between ranks; empty: this process alone, without MPI
};

}  // namespace benchmark
