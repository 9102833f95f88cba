// SPDX-License-Identifier: BSD-3-Clause
// A user's optimizer whose rule() is not noexcept: it would be called in the middle of an update.
// build error: lockstep: rule\(pass\) and norm_rule\(pass\) of an optimizer are const and noexcept
#include <boost/mpi/environment.hpp>
#include <vector>

#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct by_layer {
    static constexpr std::string_view name = "by_layer";
    static constexpr std::size_t slot_count = 0;
    std::vector<double> rates{1.0, 0.5};

    std::string settings() const { return {}; }
    template <class T>
    auto rule(const ls::optim::update_pass<T>& pass) const {
        const auto rate = static_cast<T>(pass.rate * rates.at(pass.tensor.layer));
        return [rate](auto& w, const auto& g) { w -= rate * g; };
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
                        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .optimizer = by_layer{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
