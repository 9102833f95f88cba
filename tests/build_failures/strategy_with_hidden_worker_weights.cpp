// SPDX-License-Identifier: BSD-3-Clause
// A user's strategy of which only the class template says that workers have weights of their own.
// build error: lockstep: has_worker_weights = true stands in the class template strategy<Types> as well
#include <boost/mpi/environment.hpp>

#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct averaging {
    static constexpr std::string_view name = "averaging";
    std::string settings() const { return {}; }

    template <class Types>
    struct strategy : ls::sync::local_updates<Types> {
        using ls::sync::local_updates<Types>::local_updates;
    };
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .sync = averaging{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
