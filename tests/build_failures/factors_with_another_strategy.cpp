// SPDX-License-Identifier: BSD-3-Clause
// A strategy that has not said what it does with factors.
// build error: lockstep: this strategy does not say takes_factors = true, so its steps are not defined with factors; leave .factors out, or use sync::every_step
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/sync/owner_updates.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct own_strategy {
    static constexpr std::string_view name = "own_strategy";
    std::string settings() const { return {}; }

    template <class Types>
    using strategy = ls::sync::owner_updates<Types>;
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{
        world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .sync = own_strategy{}, .factors = ls::sync::factors{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
