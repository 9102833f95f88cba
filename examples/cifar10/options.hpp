// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The command line as a value, and the two programs that are compiled, each in a file of its own.

#include <boost/mpi/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace example {

struct options {
    std::string data = "shapes";
    std::size_t epochs = 15;
    std::size_t steps = 0;  // 0: epochs decide
    std::size_t batch = 128;
    std::size_t lanes = 4;
    double rate = 0.2;
    double rise = 0.2;  // part of the steps before the peak
    double momentum = 0.9;
    double weight_decay = 5e-4;
    double smoothing = 0;
    std::size_t shift = 4;
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    std::size_t train_samples = 50'000;
    std::size_t test_samples = 10'000;
    std::size_t held_out = 0;
    std::string csv;
    std::string log;
    std::string report;
    std::string html;
    std::string tensorboard;  // folder
    std::string checkpoint;   // folder; empty: none
    std::size_t checkpoint_every = 500;
    std::string resume;
    std::string save_weights;
    bool direct = false;
    bool plan_only = false;
    bool quiet = false;
};

int run_winograd(const boost::mpi::communicator&, const options&);
int run_direct(const boost::mpi::communicator&, const options&);

}  // namespace example
