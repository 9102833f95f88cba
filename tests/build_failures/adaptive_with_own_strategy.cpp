// SPDX-License-Identifier: BSD-3-Clause
// A user's strategy that says it takes compress::adaptive, and derives from what never chooses.
// build error: lockstep: takes_adaptive = true stands in a strategy whose class template derives from sync::every_step
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct own {
    static constexpr std::string_view name = "own";
    static constexpr bool takes_adaptive = true;
    std::string settings() const { return ""; }
    template <class Types>
    struct strategy : ls::sync::owner_updates<Types> {
        template <class Plan>
        explicit strategy(const ls::sync::setup<Plan>& from) : ls::sync::owner_updates<Types>{from} {}
    };
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .compressor = ls::compress::adaptive{},
                                        .sync = own{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
