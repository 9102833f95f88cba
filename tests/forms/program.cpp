// SPDX-License-Identifier: BSD-3-Clause
// A few steps of a network with most kinds of layers; prints a hash of the weights.
#include <iostream>
#include <string>
#include <type_traits>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        constexpr auto net = ls::sequential{
            ls::input<28, 28, 1>,
            conv<8, 5>{},
            relu{},
            max_pool<2>{},
            conv<16, 3, conv_options{.padding = 1}>{},
            batch_norm{},
            gelu{},
            mean_pool<2>{},
            flatten{},
            dense<32>{},
            relu{},
            dense<10>{},
        };
        // With its types written out, which clang 16 cannot find.
        using plan = ls::plan<std::remove_const_t<decltype(net)>, ls::softmax_cross_entropy, ls::optim::momentum>;
        ls::trainer<plan> trainer{world, plan{.model = net,
                                              .loss = ls::softmax_cross_entropy{},
                                              .optimizer = ls::optim::momentum{},
                                              .schedule = ls::optim::constant{0.05},
                                              .partition = ls::partition::data{},
                                              .compressor = ls::compress::none{},
                                              .batch = 32,
                                              .seed = 7}};
        trainer.fit(ls::data::digits{.count = 128}, ls::epochs{1});
        const std::string hash = ls::core::hexadecimal(trainer.weights_hash());
        if (world.rank() == 0) std::cout << "weights " << hash << std::endl;
        return 0;
    });
}
