// SPDX-License-Identifier: BSD-3-Clause
// A user's optimizer whose propose() is not noexcept: it would never be called.
// build error: lockstep: propose\(pass\) and sent\(pass\) of an optimizer are const and noexcept
#include <boost/mpi/environment.hpp>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct proposing {
    static constexpr std::string_view name = "proposing";
    static constexpr std::size_t slot_count = 0, worker_slot_count = 1;

    std::string settings() const { return {}; }
    template <class T>
    void propose(const ls::optim::proposal_pass<T>& pass) const {
        for (std::size_t i = 0; i < pass.values.size(); ++i) pass.values[i] += pass.own[0][i];
    }
    template <class T>
    void update(const ls::optim::update_pass<T>& pass) const noexcept {
        for (std::size_t i = 0; i < pass.weights.size(); ++i)
            pass.weights[i] -= static_cast<T>(pass.rate) * pass.gradient[i];
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world,
                        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .optimizer = proposing{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
