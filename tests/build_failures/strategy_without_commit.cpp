// SPDX-License-Identifier: BSD-3-Clause
// A user's strategy that makes no weights.
// build error: lockstep: plan::sync has name, settings\(\) and a class template strategy<Types> with the words of a step
#include <boost/mpi/environment.hpp>
#include <string>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct hold_still {
    static constexpr std::string_view name = "hold_still";
    std::string settings() const { return {}; }

    template <class Types>
    struct strategy {
        template <class Plan>
        explicit strategy(const ls::sync::setup<Plan>&) {}
        void bind(const ls::tensor::arena&) {}
        void begin(std::uint64_t) {}
    };
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .sync = hold_still{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
