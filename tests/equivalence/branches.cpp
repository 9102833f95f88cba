// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Networks with branches: the same bits on any number of ranks, and up to rounding the same network in a model
// partition.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "network/own_join.hpp"

namespace {

using namespace support;
using namespace ls::layers;
namespace part = ls::partition;

// Values with several readers before and after layers that a model partition cuts; joins of cut and uncut layers; a
// view of a cut layer.
constexpr auto branched = ls::sequential{ls::input<12, 12, 1>,
                                         conv<4, 3>{},
                                         ls::residual{relu{}, conv<4, 3, conv_options{.padding = 1}>{}},
                                         relu{},
                                         ls::add{ls::path{conv<6, 3, conv_options{.stride = 2, .padding = 1}>{}, relu{},
                                                          conv<6, 3, conv_options{.padding = 1}>{}},
                                                 shortcut<6, 2>{}},
                                         ls::concatenate{ls::path{}, ls::path{conv<2, 1>{}, relu{}}},
                                         flatten{},
                                         dense<24>{},
                                         ls::residual{relu{}, ls::layers::dropout{0.25}, dense<24>{}, relu{}},
                                         ls::join{support::gate{.scale = 0.5}, dense<24>{}, ls::path{}},
                                         flatten{},
                                         ls::concatenate{relu{}, ls::path{dense<8>{}, flatten{}, relu{}}},
                                         dense<10>{}};
constexpr std::size_t count = 190, batch = 61, steps = 12;
const samples<> training{count}, test{133, 8};

template <class Partition>
auto recipe(const Partition& partition, std::size_t threads = 1, std::size_t bucket = 1U << 20U) {
    return ls::plan{.model = branched,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .partition = partition,
                    .batch = batch,
                    .lanes = 9,
                    .seed = 4,
                    .threads = ls::parallel::has_threads ? threads : 1,
                    .bucket = bucket};
}

struct outcome {
    std::vector<float> weights;
    std::uint64_t hash = 0;
    std::vector<double> losses;
    double test_loss = 0;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    return {trainer.all_weights(), trainer.weights_hash(), seen.values, trainer.evaluate(test.set()).loss};
}

}  // namespace

TEST_CASE("equivalence/branches: the same bits on 1, 2, 3, 4 and 8 ranks, for all threads and buckets",
          "[equivalence]") {
    const auto serial = run(ls::comm::group{}, recipe(part::data{}));
    REQUIRE(serial.losses.back() < 0.9 * serial.losses.front());
    CHECK(run(ls::comm::group{}, recipe(part::data{}, 2, 0)).hash == serial.hash);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const std::size_t bucket : {1U, 1000U}) {
            const auto here = run(group, recipe(part::data{}, 1, bucket));
            INFO(group.size() << " ranks, buckets of " << bucket);
            CHECK(here.hash == serial.hash);
            CHECK(here.losses == serial.losses);
            CHECK(here.test_loss == serial.test_loss);
        }
    });
}

TEST_CASE("equivalence/branches: a model partition is the same network up to rounding", "[equivalence]") {
    using network = ls::model::network<std::remove_const_t<decltype(branched)>, 1>;
    const auto serial = run(ls::comm::group{}, recipe(part::data{}));
    std::vector<std::uint64_t> hashes;
    const auto compared = [&](const mpi::communicator& group) {
        const auto here = run(group, recipe(part::hybrid{part::data{}, part::model<2>{}}));
        INFO(group.size() << " ranks");
        CHECK(largest_error<network>(here.weights, serial.weights) < 1e-5);
        CHECK(relative_error(here.losses, serial.losses) < 1e-5);
        CHECK(std::fabs(here.test_loss - serial.test_loss) < 1e-5 * serial.test_loss);
        for (const auto& other : of_all(group, here.hash)) CHECK(other == here.hash);
        hashes.push_back(here.hash);
    };
    on_groups({2, 4}, compared);
    on_groups({8}, compared);
    for (const auto hash : hashes) CHECK(hash == hashes.front());
}

TEST_CASE("equivalence/branches: the memory of a trainer by kind", "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        const ls::trainer trainer{group, recipe(part::data{})};
        const auto memory = trainer.memory();
        CHECK(memory.sum() == trainer.memory_bytes());
        CHECK(memory.weights == sizeof(float) * decltype(trainer)::network::parameters);
        CHECK(memory.optimizer == sizeof(float) * trainer.optimizer_numbers());
        CHECK(memory.gradients % memory.weights == 0);  // one set for each node of the lanes
        CHECK(memory.scratch < memory.activations);
        // Samples and class numbers of a rank's part of the minibatch, and what is lost to cache lines: less than one
        // for each array.
        const std::size_t rows = ls::train::deal::capacity(batch, trainer.grid());
        const std::size_t samples = rows * (sample::size * sizeof(float) + sizeof(std::int32_t));
        CHECK(memory.data >= samples);
        CHECK(memory.data < samples + 64 * (5 + 3 * trainer.buckets()));
    });
}
