// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The networks that the example trainer offers, and the runs that are compiled, each in a file of its own.

#include <boost/mpi/communicator.hpp>
#include <cstddef>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/model/sequential.hpp"
#include "options.hpp"

namespace example {

/// LeNet-style: two convolutions with pooling, two dense layers (LeCun et al. 1998, with relu and dropout).
inline auto lenet(double dropout) {
    using namespace lockstep::layers;
    return lockstep::sequential{
        lockstep::input<28, 28, 1>,
        conv<32, 5>{},
        relu{},
        max_pool<2>{},
        conv<64, 5>{},
        relu{},
        max_pool<2>{},
        flatten{},
        dense<512>{},
        relu{},
        lockstep::layers::dropout{.rate = dropout},
        dense<10>{},
    };
}

/// 784-1024-1024-10.
inline auto mlp(double dropout) {
    using namespace lockstep::layers;
    return lockstep::sequential{
        lockstep::input<28, 28, 1>,
        flatten{},
        dense<1024>{},
        relu{},
        lockstep::layers::dropout{.rate = dropout},
        dense<1024>{},
        relu{},
        lockstep::layers::dropout{.rate = dropout},
        dense<10>{},
    };
}

int run_lenet(const boost::mpi::communicator&, const options&);
int run_lenet_compressed(const boost::mpi::communicator&, const options&);
int run_lenet_in_two_shards(const boost::mpi::communicator&, const options&);
int run_lenet_in_two_stages(const boost::mpi::communicator&, const options&);
int run_lenet_of_workers(const boost::mpi::communicator&, const options&);
int run_mlp(const boost::mpi::communicator&, const options&);
int run_mlp_compressed(const boost::mpi::communicator&, const options&);
int run_mlp_in_two_shards(const boost::mpi::communicator&, const options&);
int run_mlp_in_two_stages(const boost::mpi::communicator&, const options&);
int run_mlp_of_workers(const boost::mpi::communicator&, const options&);

}  // namespace example
