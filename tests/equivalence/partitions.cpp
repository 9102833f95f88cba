// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// A network cut over a model group, alone and in replicas, against the same network on one rank: equal up to rounding;
// replicas have equal bits.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;
namespace part = ls::partition;

// 61 samples in 9 lanes: unequal lanes, and the fourth minibatch of an epoch has 7 rows, fewer than 8 ranks.
constexpr std::size_t count = 190, batch = 61, steps = 12;
using halves = part::hybrid<part::data, part::model<2>>;

template <class T>
constexpr double allowed = std::is_same_v<T, float> ? 1e-5 : 1e-12;

template <class T, class Partition>
auto recipe(const Partition& partition, std::size_t rows = batch, ls::transport transport = ls::transport::automatic,
            bool thread = false) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .schedule = ls::optim::constant{.rate = 0.01},
        .partition = partition,
        .precision = ls::real<T>{},
        .batch = rows,
        .lanes = 9,
        .seed = 11,
        .bucket = 1,
        .progress_thread = thread,
        .transport = transport,
        .all_reduce = transport == ls::transport::shared_memory ? "" : "tree:0-max",  // owners of strips
    };
}

template <class T>
struct data {
    samples<T> training{count};
    samples<T> test{100, 8};
};
template <class T>
const data<T>& all() {
    static const data<T> made;
    return made;
}

template <class T>
struct outcome {
    std::vector<T> weights;
    std::vector<double> losses;
    std::vector<T> first_predictions;
    std::vector<T> predictions;
    ls::report::evaluation tested;
    std::uint64_t hash = 0;
};

template <class T, class Partition, class Ranks>
outcome<T> run(const Ranks& ranks, const Partition& partition, ls::transport transport = ls::transport::automatic,
               bool thread = false) {
    ls::trainer trainer{ranks, recipe<T>(partition, batch, transport, thread)};
    outcome<T> out;
    const auto predict = [&] {
        const auto y = trainer.predict(all<T>().test.x);
        CHECK(y.shape()[0] == 100);
        return std::vector<T>(y.begin(), y.end());
    };
    out.first_predictions = predict();
    losses seen;
    trainer.fit(all<T>().training.set(), ls::steps{steps}, seen);
    out.losses = seen.values;
    out.weights = trainer.all_weights();
    out.hash = trainer.weights_hash() + trainer.state_hash();
    out.predictions = predict();
    out.tested = trainer.evaluate(all<T>().test.set());

    // Ranks with the same shard hold the same weights.
    const auto& grid = trainer.grid();
    if constexpr (std::is_same_v<Ranks, mpi::communicator>) {
        const auto hashes = of_all(ranks, trainer.local_hash());
        for (std::size_t rank = 0; rank < grid.ranks; ++rank)
            if (rank % grid.shards == grid.shard()) CHECK(hashes[rank] == trainer.local_hash());
        for (const auto& other : of_all(ranks, out.hash)) CHECK(other == out.hash);
    }
    return out;
}

template <class T>
void compare(const outcome<T>& here, const outcome<T>& serial) {
    using network = ls::model::network<std::remove_const_t<decltype(net)>, 1>;
    CHECK(largest_error<network>(here.weights, serial.weights) < allowed<T>);
    CHECK(relative_error(here.losses, serial.losses) < allowed<T>);
    CHECK(relative_error(here.predictions, serial.predictions) < allowed<T>);
    // Forward adds in the same order: what a rank computes of a layer, it computes from all inputs.
    const bool same_bits = here.first_predictions == serial.first_predictions;
    CHECK(same_bits);
    CHECK(std::fabs(here.tested.loss - serial.tested.loss) < allowed<T> * serial.tested.loss);
    CHECK(here.tested.samples == serial.tested.samples);
    CHECK(here.tested.accuracy == serial.tested.accuracy);
}

template <class T>
void hybrid_equals_serial() {
    const auto serial = run<T>(ls::comm::group{}, part::data{});
    REQUIRE(serial.losses.back() < 0.8 * serial.losses.front());
    std::vector<std::uint64_t> hashes;
    const auto compared = [&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        const auto here = run<T>(group, halves{}, ls::transport::messages);
        compare(here, serial);
        CHECK(run<T>(group, halves{}, ls::transport::shared_memory).hash == here.hash);
        CHECK(run<T>(group, halves{}, ls::transport::messages, true).hash == here.hash);
        hashes.push_back(here.hash);
    };
    on_groups({2, 4, 2}, compared);
    on_groups({8}, compared);
    // Each rank has been in a group of 2 or 4, and in one of 8.
    REQUIRE(hashes.size() == 2);
    CHECK(hashes[0] == hashes[1]);
    for (const auto& other : of_all(mpi::communicator{}, hashes[0])) CHECK(other == hashes[0]);
}

}  // namespace

TEST_CASE("equivalence/partitions: hybrid on 2, 4 and 8 ranks is the serial run up to rounding, in float",
          "[equivalence]") {
    hybrid_equals_serial<float>();
}

TEST_CASE("equivalence/partitions: hybrid on 2, 4 and 8 ranks is the serial run up to rounding, in double",
          "[equivalence]") {
    hybrid_equals_serial<double>();
}

TEST_CASE("equivalence/partitions: model<2> on two ranks is the serial run up to rounding, and hybrid bit for bit",
          "[equivalence]") {
    const auto serial = run<float>(ls::comm::group{}, part::data{});
    on_groups({2, 2, 2, 2}, [&](const mpi::communicator& group) {
        const auto here = run<float>(group, part::model<2>{});
        compare(here, serial);
        CHECK(run<float>(group, halves{}).hash == here.hash);
    });
}

TEST_CASE("equivalence/partitions: a shard has 1/shards of the dense layers, and of the state of the optimizer",
          "[equivalence]") {
    on_groups({2, 4, 2}, [](const mpi::communicator& group) {
        const ls::trainer trainer{group, recipe<float>(halves{})};
        using network = decltype(trainer)::network;
        const auto replicated = network::segment_size(ls::model::segment::replicated),
                   sharded = network::segment_size(ls::model::segment::sharded);
        CHECK(replicated == 4 * 9 + 4);
        CHECK(2 * sharded == (100 + 1) * 24 + (24 + 1) * 10);
        CHECK(replicated + 2 * sharded == network::parameters);
        CHECK(mpi::all_reduce(group, trainer.optimizer_numbers(), std::plus<std::size_t>{}) ==
              network::parameters);  // momentum: one slot
    });
}

TEST_CASE("equivalence/partitions: step() with as many rows as there is room for, with a few and with none",
          "[equivalence]") {
    // What whole minibatches leave for a rank, every rank may bring, also all at once.
    on_groups({2, 4, 2}, [](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe<double>(halves{})};
        ls::trainer serial{ls::comm::group{}, recipe<double>(part::data{}, 4 * batch)};
        using network = ls::model::network<std::remove_const_t<decltype(net)>, 1>;
        const auto& grid = trainer.grid();
        const auto rank = static_cast<std::size_t>(group.rank());
        const std::size_t room = ls::train::deal::capacity(batch, grid);
        const std::size_t kinds[] = {room, 0, 7, 1};
        for (std::size_t step = 0; step < 6; ++step) {
            const std::size_t mine = step == 0 ? room : kinds[(rank + step) % 4];
            const auto counts = of_all(group, mine);
            std::size_t before = 0, together = 0;
            for (std::size_t other = 0; other < grid.ranks; ++other) {
                if (other < rank) before += counts[other];
                together += counts[other];
            }
            const auto own = all<double>().training.rows(before, mine);
            const auto whole = all<double>().training.rows(0, together);
            const auto here = trainer.step(own.x, own.y);
            const auto there = serial.step(whole.x, whole.y);
            INFO(group.size() << " ranks, step " << step << ", " << mine << " rows here");
            CHECK(here.samples == together);
            CHECK(std::fabs(here.loss - there.loss) < 1e-12 * there.loss);
            CHECK(largest_error<network>(trainer.all_weights(), serial.all_weights()) < 1e-12);
        }
    });
}
