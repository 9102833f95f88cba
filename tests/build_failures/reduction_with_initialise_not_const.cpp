// SPDX-License-Identifier: BSD-3-Clause
// A user's reduction whose initialise() is not const, inside error feedback, which would pass it over.
// build error: lockstep: optional members of a compressor or a reduction, .*, are const
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct counting : ls::compress::power_sgd {
    template <class T>
    void initialise(const ls::compress::shared_pass<T>& all) noexcept {
        power_sgd::initialise(all);
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .compressor = ls::compress::error_feedback{counting{}},
    }};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
