// SPDX-License-Identifier: BSD-3-Clause
// Nor inside warm_up, whose lists a sparse_sum takes.
// build error: lockstep: sparse_sum goes around a compressor .*, and around no other sparse_sum; write .*
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .compressor = ls::compress::sparse_sum{
            ls::compress::warm_up{ls::compress::sparse_sum{ls::compress::top_k{}, ls::compress::quantize{.bits = 4}}}},
    }};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
