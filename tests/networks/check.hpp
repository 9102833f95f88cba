// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One network as the library trains it, for comparison with the naive walk: what a run is told, and what it gives.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/reduce/transport.hpp"

namespace networks {

/// Numbers of a recipe; the last ones change no bit.
struct settings {
    std::size_t batch = 16, lanes = 4, samples = 40, steps = 4;
    std::uint64_t seed = 1;
    double rate = 0.05;
    std::size_t threads = 1, bucket = 1U << 20U;
    bool overlap = true, progress_thread = false, prefetch = false;
    lockstep::reduce::transport transport = lockstep::reduce::transport::automatic;
    std::string all_reduce{};
};

/// Samples, and class numbers or wanted outputs.
struct samples {
    std::vector<double> x, y;
};

/// What a run begins with.
struct beginning {
    std::vector<double> weights, running;
    samples training, test;
};

/// What a run gives. Weights after each step, or after the last one only.
struct outcome {
    std::vector<std::vector<double>> weights;
    std::vector<double> losses, running;
    double test_loss = 0, accuracy = 0;
    std::uint64_t hash = 0;
};

using runner = std::function<outcome(const lockstep::comm::group&, const settings&, const beginning&, bool each_step)>;

/// A network of this program, with its source text.
struct entry {
    std::string seed, network, loss, optimizer, settings_text;
    settings numbers;
    std::size_t shards;
    runner on_data, on_shards;  ///< the latter empty without a model partition
};
[[nodiscard]] std::vector<entry>& entries();
[[nodiscard]] std::size_t enter(entry one);

/// Trains it on 1, 2, 3 and 4 of four ranks, and compares with the naive walk. Collective over the world.
void check(const entry& one);

}  // namespace networks
