// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// Weights go out of one trainer and into another one, on other numbers of ranks and in other partitions: the same
// predictions, bit for bit.
#include <catch2/catch.hpp>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/model/layout.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;
namespace part = ls::partition;
using halves = part::hybrid<part::data, part::model<2>>;

constexpr auto normalised = ls::sequential{ls::input<12, 12, 1>,    ls::layers::conv<4, 3>{},  ls::layers::batch_norm{},
                                           ls::layers::relu{},      ls::layers::max_pool<2>{}, ls::layers::flatten{},
                                           ls::layers::dense<24>{}, ls::layers::relu{},        ls::layers::dense<10>{}};

template <class Net, class Partition>
auto recipe(const Net& net, const Partition& partition, std::uint64_t seed,
            ls::transport transport = ls::transport::automatic) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .partition = partition,
                    .batch = 32,
                    .seed = seed,
                    .bucket = 1,
                    .transport = transport};
}

const samples<> training{96}, test{50, 8};

/// What a program writes to a file, and what the network that wrote it says.
struct saved {
    std::vector<float> weights;
    std::vector<float> statistics;
    std::vector<float> predictions;
    std::uint64_t hash = 0;
};

template <class Trainer>
saved look(Trainer& trainer) {
    const auto y = trainer.predict(test.x);
    const auto running = trainer.running_statistics();
    return {trainer.all_weights(), {running.begin(), running.end()}, {y.begin(), y.end()}, trainer.weights_hash()};
}

template <class Net, class Partition, class Ranks>
saved train(const Net& net, const Partition& partition, const Ranks& ranks) {
    ls::trainer trainer{ranks, recipe(net, partition, 1)};
    trainer.fit(training.set(), ls::steps{7});
    return look(trainer);
}

template <class Net, class Partition, class Ranks>
void check_restored(const Net& net, const Partition& partition, const Ranks& ranks, const saved& from) {
    ls::trainer trainer{ranks, recipe(net, partition, 2)};
    CHECK(trainer.weights_hash() != from.hash);
    trainer.load_weights(from.weights, from.statistics);
    const saved here = look(trainer);
    CHECK(here.weights == from.weights);
    CHECK(here.statistics == from.statistics);
    CHECK(here.predictions == from.predictions);
    CHECK(here.hash == from.hash);
}

template <class Net>
void check_everywhere(const Net& net) {
    const mpi::communicator world;
    const MPI_Comm all = world;  // as a program in C has it
    const mpi::communicator pair = world.split(world.rank() / 2), alone = world.split(world.rank());
    const auto from_two = train(net, part::data{}, pair);
    check_restored(net, part::data{}, alone, from_two);
    check_restored(net, part::data{}, all, from_two);
    check_restored(net, halves{}, world, from_two);
    check_restored(net, part::model<2>{}, pair, from_two);
    const auto from_hybrid = train(net, halves{}, world);
    check_restored(net, part::data{}, alone, from_hybrid);
    check_restored(net, part::model<2>{}, pair, from_hybrid);
}

/// Each entry of the layouts, where weights() finds it.
template <class Net, class Partition, class Ranks>
void check_layout(const Net& net, const Partition& partition, const Ranks& ranks) {
    ls::trainer trainer{ranks, recipe(net, partition, 1)};
    trainer.fit(training.set(), ls::steps{3});
    using network = typename decltype(trainer)::network;
    const auto all = trainer.all_weights();
    const auto running = trainer.running_statistics();
    const auto check = [&](const auto& entry, std::span<const float> numbers) {
        INFO("layer " << entry.layer << " " << entry.name);
        const auto here = trainer.weights(entry.layer, entry.name);
        const std::size_t columns = here.shape()[1], shards = entry.columns / columns;
        const std::size_t first = shards == 1 ? 0 : trainer.grid().shard() * columns;
        REQUIRE(here.shape()[0] == entry.rows);
        REQUIRE(columns * shards == entry.columns);
        bool same = true;
        for (std::size_t row = 0; row < entry.rows; ++row)
            for (std::size_t column = 0; column < columns; ++column)
                same = same && here(row, column) == numbers[entry.offset + row * entry.columns + first + column];
        CHECK(same);
        return entry.size();
    };
    std::size_t weights = 0, statistics = 0;
    for (const auto& entry : ls::weight_layout<network>) weights += check(entry, all);
    for (const auto& entry : ls::statistics_layout<network>) statistics += check(entry, running);
    CHECK(weights == all.size());
    CHECK(statistics == running.size());
}

/// Keeps what it is told of new weights.
struct keeping {
    static constexpr std::string_view name = "keeping";
    using all_weights = std::vector<std::vector<float>>;
    static inline all_weights told;
    [[nodiscard]] std::string settings() const { return {}; }

    template <class Types>
    struct strategy : ls::sync::owner_updates<Types> {
        using ls::sync::owner_updates<Types>::owner_updates;
        void loaded(std::span<const float> weights) const { told.emplace_back(weights.begin(), weights.end()); }
    };
};

}  // namespace

TEST_CASE("equivalence/saved_weights: the layouts name each weight and each statistic, in every partition",
          "[equivalence]") {
    const mpi::communicator world, pair = world.split(world.rank() / 2);
    check_layout(normalised, part::data{}, world);
    check_layout(normalised, part::model<2>{}, pair);
    check_layout(normalised, halves{}, world);
}

TEST_CASE("equivalence/saved_weights: from any number of ranks and partition to any other", "[equivalence]") {
    check_everywhere(net);
}
TEST_CASE("equivalence/saved_weights: with the running statistics of a normalisation", "[equivalence]") {
    check_everywhere(normalised);
}

TEST_CASE("equivalence/saved_weights: training goes on from them, through messages and shared memory",
          "[equivalence]") {
    const mpi::communicator world;
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory}) {
        ls::trainer one{world, recipe(normalised, part::data{}, 1, transport)};
        ls::trainer other{world, recipe(normalised, part::data{}, 2, transport)};
        const auto mine = training.rows(8 * static_cast<std::size_t>(world.rank()), 8);
        for (int step = 0; step < 3; ++step) one.step(mine.x, mine.y), other.step(mine.x, mine.y);
        CHECK(one.weights_hash() != other.weights_hash());
        other.load_weights(one.all_weights(), one.running_statistics());
        for (int step = 0; step < 3; ++step) {
            one.step(mine.x, mine.y), other.step(mine.x, mine.y);
            CHECK(one.weights_hash() == other.weights_hash());
            CHECK(one.local_hash() == other.local_hash());
        }
    }
}

TEST_CASE("equivalence/saved_weights: what does not fit is refused on all ranks, and changes nothing",
          "[equivalence]") {
    const mpi::communicator world;
    const int bad = world.size() - 1;
    const auto refused = [&](const auto& net, auto&& spoil, bool everywhere, const std::string& expected) {
        ls::trainer trainer{world, recipe(net, part::data{}, 1)};
        const auto weights = trainer.all_weights();
        auto given = weights;
        std::vector<float> statistics(trainer.running_statistics().begin(), trainer.running_statistics().end());
        if (everywhere || world.rank() == bad) spoil(given, statistics);
        std::string found;
        try {
            trainer.load_weights(given, statistics);
        } catch (const ls::core::error& failure) {
            found = failure.what();
        }
        INFO(found);
        CHECK(found.find(expected) != std::string::npos);
        CHECK(trainer.all_weights() == weights);
    };
    using numbers = std::vector<float>;
    const auto drop = [](numbers& weights, numbers&) { weights.pop_back(); };
    const std::string sizes = "load_weights() was given 2713 weights for a network of 2714";
    refused(net, drop, true, sizes);
    refused(net, drop, false, sizes);
    refused(
        net, [](numbers& weights, numbers&) { weights[5] = std::numeric_limits<float>::quiet_NaN(); }, false,
        "nan at position 5");
    refused(
        net, [](numbers& weights, numbers&) { weights[5] += 1; }, false, "other numbers on rank 3 than on rank 0");
    refused(
        normalised, [](numbers&, numbers& statistics) { statistics.clear(); }, true,
        "pass running_statistics() of the same trainer after the weights");
    refused(
        net, [](numbers&, numbers& statistics) { statistics.push_back(0); }, true, "pass the weights alone");
}

TEST_CASE("equivalence/saved_weights: a strategy hears of the weights of the start, and of each load",
          "[equivalence]") {
    const mpi::communicator world;
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory}) {
        keeping::told.clear();
        ls::trainer trainer{world, ls::plan{.model = net,
                                            .loss = ls::loss::softmax_cross_entropy{},
                                            .sync = keeping{},
                                            .batch = 32,
                                            .transport = transport}};
        const auto begin = trainer.all_weights();
        trainer.fit(training.set(), ls::steps{2});
        const auto trained = trainer.all_weights();
        CHECK(keeping::told == keeping::all_weights{begin});
        CHECK(trained != begin);
        trainer.load_weights(begin);
        trainer.load_weights(trained);
        CHECK(keeping::told == keeping::all_weights{begin, begin, trained});
    }
}
