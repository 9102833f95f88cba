// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Normalisations that compute what stands after them: the same bits as with layers that compute for themselves.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using namespace ls::layers;
using namespace ls::layer_api;
namespace part = ls::partition;

/// The same function as relu, in a layer that the library does not know.
struct relu_apart : relu {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return activation_layer<relu_apart, Input>{};
    }
};

/// Residual blocks with both kinds of shortcuts, one around layers that run again, and rows of features.
template <class Relu>
constexpr auto net_of(const Relu& after) {
    return ls::sequential{
        ls::input<12, 12, 1>,
        conv<5, 3, conv_options{.padding = 1, .bias = bias::none}>{},
        batch_norm{},
        after,
        ls::residual{conv<5, 3, conv_options{.padding = 1, .bias = bias::none}>{}, batch_norm{}, after,
                     conv<5, 3, conv_options{.padding = 1, .bias = bias::none}>{}, batch_norm{}},
        after,
        ls::residual{conv<5, 3, conv_options{.padding = 1}>{}, batch_norm{}},
        after,
        ls::add{shortcut<9, 2>{}, ls::path{conv<9, 3, conv_options{.stride = 2, .padding = 1}>{}, batch_norm{}, after,
                                           conv<9, 3, conv_options{.padding = 1}>{}, batch_norm{}}},
        after,
        ls::recompute{ls::residual{conv<9, 3, conv_options{.padding = 1}>{}, batch_norm{}, after,
                                   conv<9, 3, conv_options{.padding = 1}>{}, batch_norm{}},
                      after},
        ls::add{ls::path{conv<17, 1, conv_options{.stride = 2}>{}, batch_norm{}},
                ls::path{conv<17, 3, conv_options{.stride = 2, .padding = 1}>{}, batch_norm{}}},
        after,
        global_mean_pool{},
        dense<24>{},
        ls::residual{dense<24>{}, batch_norm{}},
        after,
        dense<10>{}};
}
constexpr auto together = net_of(relu{});
constexpr auto apart = net_of(relu_apart{});
/// A value that the normalisation reads, and a sum after it: the gradients of both are added where the normalisation
/// writes that of its addend.
template <class Relu>
constexpr auto nested_of(const Relu& after) {
    return ls::sequential{ls::input<12, 12, 1>, conv<5, 3, conv_options{.padding = 1}>{},
                          ls::residual{ls::add{conv<5, 3, conv_options{.padding = 1}>{}, batch_norm{}}, after},
                          global_mean_pool{}, dense<10>{}};
}
constexpr auto nested_together = nested_of(relu{});
constexpr auto nested_apart = nested_of(relu_apart{});
constexpr std::size_t count = 190, batch = 61, steps = 8;
const samples<> training{count}, test{133, 8};

template <class Net, class Partition>
auto recipe(const Net& net, const Partition& partition, std::size_t lanes, std::size_t threads = 1) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .partition = partition,
                    .batch = batch,
                    .lanes = lanes,
                    .seed = 4,
                    .threads = ls::parallel::has_threads ? threads : 1};
}

struct outcome {
    std::uint64_t hash = 0;
    std::vector<double> losses;
    double test_loss = 0;
    std::vector<float> weights;
    friend bool operator==(const outcome& a, const outcome& b) {
        return a.hash == b.hash && a.losses == b.losses && a.test_loss == b.test_loss && a.weights == b.weights;
    }
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    return {trainer.weights_hash(), seen.values, trainer.evaluate(test.set()).loss, trainer.all_weights()};
}

}  // namespace

TEST_CASE(
    "equivalence/fusion: a network in fewer passes over memory has the same bits, for all lanes, threads and ranks",
    "[equivalence]") {
    for (const std::size_t lanes : {8U, 9U, 30U}) {
        const auto want = run(ls::comm::group{}, recipe(apart, part::data{}, lanes));
        INFO(lanes << " lanes");
        REQUIRE(want.losses.back() < want.losses.front());
        CHECK(run(ls::comm::group{}, recipe(together, part::data{}, lanes)) == want);
        CHECK(run(ls::comm::group{}, recipe(together, part::data{}, lanes, 2)) == want);
        CHECK(run(ls::comm::group{}, recipe(together, part::data{}, lanes, 3)) == want);
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            INFO(group.size() << " ranks");
            CHECK(run(group, recipe(together, part::data{}, lanes)) == want);
        });
    }
}

TEST_CASE("equivalence/fusion: and where what the normalisation reads is added once more", "[equivalence]") {
    const auto want = run(ls::comm::group{}, recipe(nested_apart, part::data{}, 8));
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        CHECK(run(group, recipe(nested_together, part::data{}, 8)) == want);
    });
}

TEST_CASE("equivalence/fusion: and in a model partition", "[equivalence]") {
    on_groups({2, 4}, [&](const mpi::communicator& group) {
        const auto partition = part::hybrid{part::data{}, part::model<2>{}};
        INFO(group.size() << " ranks");
        CHECK(run(group, recipe(together, partition, 8)) == run(group, recipe(apart, partition, 8)));
    });
}

TEST_CASE(
    "equivalence/fusion: weights of the one network are those of the other, and its summary lists the same layers",
    "[equivalence]") {
    ls::trainer one{ls::comm::group{}, recipe(together, part::data{}, 8)};
    ls::trainer other{ls::comm::group{}, recipe(apart, part::data{}, 8)};
    REQUIRE(one.weights_hash() == other.weights_hash());
    const auto layers_of = [](const std::string& text) { return text.substr(0, text.find("memory  ")); };
    CHECK(layers_of(ls::summary(one)) == layers_of(ls::summary(other)));
}
