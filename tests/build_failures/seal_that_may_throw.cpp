// SPDX-License-Identifier: BSD-3-Clause
// A user's compressor whose seal() is not noexcept: it would never be called.
// build error: lockstep: seal\(sealing\) of a compressor is const and noexcept
#include <boost/mpi/environment.hpp>

#include "lockstep/compress/top_k.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;
using namespace ls::layers;

struct halving : ls::compress::top_k {
    template <class T>
    void seal(const ls::compress::sealing<T>& in) const {
        for (T& one : in.sum) one /= 2;
    }
};

int main(int argc, char** argv) {
    boost::mpi::environment env{argc, argv, boost::mpi::threading::funneled};
    boost::mpi::communicator world;
    constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<10>{}};
    ls::trainer trainer{world,
                        ls::plan{.model = net, .loss = ls::loss::softmax_cross_entropy{}, .compressor = halving{}}};
    trainer.fit(ls::data::digits{.count = 1000}, ls::epochs{1});
}
