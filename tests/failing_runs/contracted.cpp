// SPDX-License-Identifier: BSD-3-Clause
// A program whose build turns -ffp-contract=off back: its trainer refuses to start.
#include "lockstep/comm/program.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        const ls::trainer trainer{world, ls::plan{.model = ls::sequential{ls::input<2>, ls::layers::dense<1>{}},
                                                  .loss = ls::mean_squared_error{},
                                                  .batch = 8}};
        return 0;
    });
}
