// SPDX-License-Identifier: BSD-3-Clause
// A user's strategy that says that it measures norms, and does not.
// build error: lockstep: a strategy with has_norms = true has measure_norms\(weights\), .*
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/sync/owner_updates.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct plain {
    static constexpr std::string_view name = "plain";
    static constexpr bool has_norms = true;
    std::string settings() const { return {}; }

    template <class Types>
    struct strategy : ls::sync::owner_updates<Types> {
        using ls::sync::owner_updates<Types>::owner_updates;
        std::size_t measure_norms(std::span<const float>) = delete;
    };
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = ls::optim::lars{},
        .sync = plain{},
    }};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
