// SPDX-License-Identifier: BSD-3-Clause
// Messages without indices.
// build error: lockstep: sparse_sum goes around a compressor that sends indices and values, and around no other sparse_sum; write sparse_sum\{compress::top_k\{\.ratio = 0\.01\}\}, with error_feedback inside or around it
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
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
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::sparse_sum{ls::compress::quantize{}}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
