// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The command line of the example trainer as a value.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/sync/graph.hpp"

namespace example {

struct options {
    std::string net = "lenet";
    std::string data = "digits";
    std::size_t epochs = 4;
    std::size_t steps = 0;  // 0: epochs decide
    std::size_t batch = 128;
    std::size_t lanes = 8;
    std::string partition = "data";
    std::string compress = "none";
    std::size_t workers = 0;  // one for each rank
    std::string sync = "every";
    std::string factors = "never";
    std::string optimizer = "momentum";
    double rate = 0.05;
    std::string schedule = "cosine";
    double momentum = 0.9;
    double weight_decay = 1e-4;
    double clip = std::numeric_limits<double>::infinity();  // none
    double dropout = 0.4;
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    std::string transport = "automatic";
    std::string progress = "polling";
    std::string all_reduce;
    double timeout = -1;  // negative: as the environment says
    std::size_t train_samples = 20'000;
    std::size_t test_samples = 4'000;
    std::string csv;
    std::string log;
    std::string timeline;
    std::string report;
    std::string html;
    std::string tensorboard;  // folder
    std::string checkpoint;  // folder; empty: none
    std::size_t checkpoint_every = 500;
    bool checkpoint_behind = false;
    std::string resume;
    std::vector<std::string> may_change{};
    std::string save_weights, load_weights;
    bool plan_only = false;
    bool quiet = false;
    bool list_compressors = false;
    bool compress_statistics = false;
    std::string compress_choices;  // file
    std::string sync_arrivals;     // file

    // From `partition`.
    std::size_t shards = 1, stages = 1;
    bool replicates = true;
    // From `compress`: in a file of their own are those that are neither none nor gathered.
    bool is_compressed_otherwise = false;
    // From `sync`: whether it is compiled with what workers have weights of their own for, and the settings of these.
    bool is_of_workers = false;
    std::size_t period = 0;                              // local
    lockstep::sync::graph graph = lockstep::sync::ring;  // gossip, choco
    double gamma = 0;                                    // choco
    std::size_t learners = 0;                            // asynchronous; 0: as many as workers
    std::optional<std::uint64_t> bound{};                // asynchronous, server: of the stale-synchronous
    std::size_t ranks_per_learner = 1;                   // server
    std::string replay{};                                // asynchronous: file of arrivals; empty: they are drawn
};

}  // namespace example
