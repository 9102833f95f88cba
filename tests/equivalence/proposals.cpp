// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Optimizers that propose what travels have the same bits on any number of ranks, and go on after a checkpoint on
// another one.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;

constexpr std::size_t steps = 9;
const samples<> training{190};

/// What changes no bit.
struct machine {
    std::size_t bucket = 1U << 16U;
    bool overlap = true;
    bool thread = false;
    std::size_t threads = 1;
};
/// Each two of the settings meet in one of them.
constexpr machine machines[] = {{1, true, false, 1},         {1, false, false, 2},         {1U << 16U, true, true, 2},
                                {1U << 20U, true, false, 2}, {1U << 20U, false, false, 1}, {1, true, true, 1}};

template <class Optimizer, class Compressor, class Partition = ls::partition::data>
auto recipe(const Optimizer& optimizer, const Compressor& compressor, std::size_t workers, const machine& on = {},
            const Partition& partition = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = optimizer,
                    .schedule = ls::optim::constant{.rate = optimizer.name == "deep_gradient" ? 0.02 : 0.002},
                    .partition = partition,
                    .compressor = compressor,
                    .batch = 61,
                    .lanes = workers == 3 ? 12U : 8U,
                    .workers = workers,
                    .segment = 256,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread};
}
/// 1-bit Adam in and after its warm-up.
auto one_bit(std::size_t workers, const machine& on = {}, std::uint64_t warm_up = 4) {
    return recipe(ls::optim::one_bit_adam{.warm_up = warm_up},
                  error_feedback{ls::compress::quantize{.bits = 3, .bucket = 64}}, workers, on);
}
auto deep(std::size_t workers, const machine& on = {}) {
    return recipe(ls::optim::deep_gradient{.momentum = 0.8, .nesterov = true, .clip = 4},
                  error_feedback{ls::compress::top_k{.ratio = 0.05}}, workers, on);
}
/// All numbers, then four ratios of a step each, then the last one.
const error_feedback falling_ratio{ls::compress::warm_up{ls::compress::top_k{.ratio = 0.02}, 1, 2}};
template <class Compressor>
auto deep_with(const Compressor& compressor, std::size_t workers, const machine& on = {}) {
    return recipe(ls::optim::deep_gradient{.momentum = 0.8, .clip = 4}, compressor, workers, on);
}
auto deep_streams(std::size_t workers, const machine& on = {}) {
    return deep_with(ls::compress::sparse_sum{falling_ratio}, workers, on);
}

struct outcome {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    if (trainer.grid().shards == 1) CHECK(trainer.weights_hash() == trainer.local_hash());
    return {trainer.weights_hash(), trainer.state_hash(), seen.values};
}

/// Groups of 2, 3, 4 and 8 ranks have the bits of one rank, each with other settings of the machine.
template <class Make>
void same_everywhere(const Make& make, std::size_t workers) {
    INFO(workers << " workers");
    const outcome alone = run(ls::comm::group{}, make(workers, machine{}));
    CHECK(alone.losses.back() < alone.losses.front());
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        const machine& on = machines[(workers + static_cast<std::size_t>(group.size())) % std::size(machines)];
        INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", thread "
                          << on.thread << ", threads " << on.threads);
        CHECK(run(group, make(workers, on)) == alone);
    });
}

/// A run in three parts, each on another number of ranks, ends with the bits of one that was not stopped.
template <class Make>
void goes_on(const Make& make) {
    const shared_folder shared;
    const std::string& folder = shared.path;
    std::uint64_t expected = 0;
    on_groups({8}, [&](const mpi::communicator& group) {
        ls::trainer whole{group, make(8, machine{})};
        whole.fit(training.set(), ls::steps{steps});
        expected = whole.state_hash();
    });
    const int worlds[] = {3, 8, 1};
    const std::size_t until[] = {3, 6, steps};
    for (std::size_t stage = 0; stage < 3; ++stage)
        on_groups({worlds[stage]}, [&](const mpi::communicator& group) {
            ls::trainer trainer{group, make(8, machines[stage])};
            if (stage > 0) trainer.resume(folder);
            CHECK(trainer.report().steps == (stage == 0 ? 0 : until[stage - 1]));
            trainer.fit(training.set(), ls::until_step{until[stage]}, ls::checkpoint{folder, 3, 1});
            if (stage == 2) CHECK(trainer.state_hash() == expected);
        });
}

}  // namespace

TEST_CASE("equivalence/proposals: 1-bit Adam has the same bits on 1, 2, 3, 4 and 8 ranks", "[equivalence]") {
    for (const std::size_t workers : {8, 3})
        same_everywhere([](std::size_t of, const machine& on) { return one_bit(of, on); }, workers);
}

TEST_CASE("equivalence/proposals: deep gradient compression has the same bits on 1, 2, 3, 4 and 8 ranks",
          "[equivalence]") {
    for (const std::size_t workers : {8, 3})
        same_everywhere([](std::size_t of, const machine& on) { return deep(of, on); }, workers);
}

TEST_CASE("equivalence/proposals: deep gradient compression by sparse sums has the same bits on 1, 2, 3, 4 and 8 ranks",
          "[equivalence]") {
    for (const std::size_t workers : {8, 3})
        same_everywhere([](std::size_t of, const machine& on) { return deep_streams(of, on); }, workers);
    // Two numbers have one sum, so two workers end with the bits of gathered messages, masks and residuals included.
    const outcome gathered = run(ls::comm::group{}, deep_with(falling_ratio, 2));
    on_groups({2, 3, 1}, [&](const mpi::communicator& group) {
        CHECK(run(group, deep_with(ls::compress::sparse_sum{falling_ratio}, 2)) == gathered);
    });
}

TEST_CASE("equivalence/proposals: runs go on after a checkpoint on other ranks", "[equivalence]") {
    goes_on([](std::size_t of, const machine& on) { return one_bit(of, on); });
    goes_on([](std::size_t of, const machine& on) { return deep(of, on); });
    goes_on([](std::size_t of, const machine& on) { return deep_streams(of, on); });
}

TEST_CASE("equivalence/proposals: shards propose alike on any number of groups, also beside a reduction in rounds",
          "[equivalence]") {
    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    for (const std::size_t workers : {8, 3}) {
        std::map<int, outcome> of_size;
        const auto add = [&](const mpi::communicator& group) {
            const machine& on = machines[(workers + static_cast<std::size_t>(group.size())) % std::size(machines)];
            of_size[group.size()] = run(group, recipe(ls::optim::one_bit_adam{.warm_up = 4},
                                                      error_feedback{ls::compress::power_sgd{}}, workers, on, hybrid));
        };
        on_groups({8}, add);
        on_groups({2, 6}, add);
        on_groups({4, 4}, add);
        for (const auto& [size, found] : of_size) {
            INFO(size << " ranks, " << workers << " workers");
            CHECK(found == of_size.at(8));
        }
    }
}

TEST_CASE("equivalence/proposals: the warm-up of 1-bit Adam is Adam without a compressor", "[equivalence]") {
    on_groups({4}, [](const mpi::communicator& group) {
        ls::trainer warm{group, one_bit(8, {}, steps)};
        ls::trainer adam{group, recipe(ls::optim::adam{}, ls::compress::none{}, 8)};
        warm.fit(training.set(), ls::steps{steps});
        adam.fit(training.set(), ls::steps{steps});
        CHECK(warm.weights_hash() == adam.weights_hash());
    });
}

TEST_CASE("equivalence/proposals: bytes of dense steps and of compressed ones are counted as they are sent",
          "[equivalence]") {
    on_groups({2, 4}, [](const mpi::communicator& group) {
        const auto sent_in = [&](auto& trainer) {
            const std::size_t before = trainer.report().bytes_sent;
            trainer.fit(training.set(), ls::steps{1});
            return trainer.report().bytes_sent - before;
        };
        const auto p = static_cast<std::size_t>(group.size());
        ls::trainer trainer{group, one_bit(8, {}, 2)};
        ls::trainer compressed{group, one_bit(8, {}, 1)};
        compressed.fit(training.set(), ls::steps{1});
        const std::size_t numbers = trainer.all_weights().size(), dense = 2 * numbers * sizeof(float) * (p - 1) / p;
        const std::size_t small = sent_in(compressed);
        for (std::size_t step = 0; step < 4; ++step) {
            const std::size_t sent = sent_in(trainer);
            INFO(p << " ranks, step " << step << ": " << sent << " bytes, dense " << dense << ", compressed " << small);
            if (step < 2)
                CHECK(sent >= dense);
            else
                CHECK(sent == small);
        }
        CHECK(small != dense);
    });
}
