// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Blocks that run again in backward: the same bits as without them, in less memory.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/conv_max_pool.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using namespace ls::layers;
namespace part = ls::partition;

/// The network with every long path inside of what `Around` makes of it: statistics, masks, saved values, branches,
/// views; layers that a model partition cuts, with every kind of redistribution before a layer, and after one whose
/// value is read twice.
template <class Around>
constexpr auto net_of(const Around& around) {
    return ls::sequential{
        ls::input<12, 12, 1>,
        around(conv<6, 3, conv_options{.padding = 1}>{}, batch_norm{}, relu{}, ls::layers::dropout{0.25},
               conv<6, 3, conv_options{.padding = 1}>{}),
        ls::residual{around(batch_norm{}, relu{}, conv<6, 3, conv_options{.padding = 1}>{}, ls::layers::tanh{},
                            conv<6, 3, conv_options{.padding = 1}>{})},
        around(conv_max_pool<6, 3, conv_max_pool_options{.padding = 1}>{},
               ls::residual{conv<6, 3, conv_options{.padding = 1}>{}, relu{}}, relu{}, flatten{}),
        around(dense<24>{}, ls::residual{ls::layers::dropout{0.25}, dense<24>{}, ls::layers::tanh{}}, batch_norm{}),
        around(dense<16>{}, batch_norm{}, dense<12>{}, relu{}, dense<10>{})};
}
constexpr auto plain = net_of([](const auto&... layers) { return ls::path{layers...}; });
constexpr auto blocks = net_of([](const auto&... layers) { return ls::recompute{layers...}; });
constexpr std::size_t count = 190, batch = 61, steps = 8;
const samples<> training{count}, test{133, 8};

template <class Net, class Partition, class T = float>
auto recipe(const Net& net, const Partition& partition, std::size_t threads = 1, std::size_t bucket = 1U << 20U,
            const ls::real<T>& precision = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .partition = partition,
                    .precision = precision,
                    .batch = batch,
                    .lanes = 9,
                    .seed = 4,
                    .threads = ls::parallel::has_threads ? threads : 1,
                    .bucket = bucket};
}

struct outcome {
    std::uint64_t hash = 0;
    std::vector<double> losses;
    double test_loss = 0;
    std::vector<float> weights;
    std::size_t activations = 0, sent = 0, redistributed = 0;
    friend bool operator==(const outcome& a, const outcome& b) {
        return a.hash == b.hash && a.losses == b.losses && a.test_loss == b.test_loss;
    }
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    return {trainer.weights_hash(),
            seen.values,
            trainer.evaluate(test.set()).loss,
            trainer.all_weights(),
            trainer.memory().activations,
            trainer.report().bytes_sent,
            trainer.redistribution_bytes()};
}

}  // namespace

TEST_CASE(
    "equivalence/recompute: blocks change no bit of weights, losses and running statistics, on any number of ranks",
    "[equivalence]") {
    const auto serial = run(ls::comm::group{}, recipe(plain, part::data{}));
    REQUIRE(serial.losses.back() < serial.losses.front());
    const auto again = run(ls::comm::group{}, recipe(blocks, part::data{}));
    CHECK(again == serial);
    CHECK(again.activations < serial.activations);
    CHECK(run(ls::comm::group{}, recipe(blocks, part::data{}, 2, 0)) == serial);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        const auto here = run(group, recipe(blocks, part::data{}, 1, 500));
        CHECK(here == serial);
        CHECK(here.sent == run(group, recipe(plain, part::data{}, 1, 500)).sent);
    });
}

TEST_CASE("equivalence/recompute: blocks around layers that a model partition cuts exchange again, and change no bit",
          "[equivalence]") {
    on_groups({2, 4}, [&](const mpi::communicator& group) {
        const auto partition = part::hybrid{part::data{}, part::model<2>{}};
        const auto here = run(group, recipe(plain, partition)), again = run(group, recipe(blocks, partition));
        INFO(group.size() << " ranks");
        CHECK(again == here);
        CHECK(again.activations < here.activations);
        CHECK(again.redistributed > here.redistributed);
        CHECK(again.redistributed < 2 * here.redistributed);
        // Of a whole minibatch; the fourth of an epoch is smaller.
        CHECK(again.sent > here.sent);
        CHECK(again.sent - here.sent <= steps * (again.redistributed - here.redistributed));
    });
}

TEST_CASE("equivalence/recompute: the partition itself is the serial run up to rounding", "[equivalence]") {
    // With a maximum inside a convolution and statistics. In double: a rounding of float decides now and then which
    // number is the largest, and then others learn. All weights in one: biases before a normalisation learn nothing but
    // rounding.
    const samples<double> numbers{count};
    const auto train = [&](const auto& ranks, const auto& partition) {
        ls::trainer trainer{ranks, recipe(plain, partition, 1, 1U << 20U, ls::real<double>{})};
        losses seen;
        trainer.fit(numbers.set(), ls::steps{4}, seen);  // the last one is smaller
        return std::pair{trainer.all_weights(), seen.values};
    };
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto [weights, all_losses] = train(ls::comm::group{}, part::data{});
        const auto [mine, seen] = train(group, part::hybrid{part::data{}, part::model<2>{}});
        INFO(group.size() << " ranks");
        CHECK(relative_error(mine, weights) < 1e-9);
        CHECK(relative_error(seen, all_losses) < 1e-9);
    });
}

TEST_CASE("equivalence/recompute: the summary names the layers that run again", "[equivalence]") {
    ls::trainer trainer{ls::comm::group{}, recipe(blocks, part::data{})};
    const std::string text = ls::summary(trainer), mark = "runs again in backward";
    std::size_t named = 0, expected = 0;
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++named;
    for (const auto& fact : decltype(trainer)::network::facts) expected += fact.runs_again;
    CHECK(named == expected);
    CHECK(expected > 5);
}
