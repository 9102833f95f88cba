// SPDX-License-Identifier: BSD-3-Clause
// The sum would travel uncompressed: only the outermost compressor is asked for it.
// build error: lockstep: two_sided goes around by_layer; write two_sided\{by_layer\{\.\.\}\}
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/two_sided.hpp"
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
    ls::trainer trainer{world,
                        ls::plan{.model = net,
                                 .loss = ls::loss::softmax_cross_entropy{},
                                 .compressor = ls::compress::by_layer{ls::compress::two_sided{ls::compress::error_feedback{ls::compress::quantize{}}}}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
