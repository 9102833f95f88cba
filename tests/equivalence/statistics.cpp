// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Statistics of layers: averaged over the lanes of all ranks with the same bits, whatever the ranks, the compressor and
// the partition.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;
namespace part = ls::partition;

/// Training: y = x - the means of the lane; inference: y = x - the running means. `count` is the mean of 1.
template <ls::tensor::Shape S>
struct centre_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "centre";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr std::array statistics{
        ls::tensor::parameter{.name = "mean", .columns = S::size, .initial = ls::tensor::start::zeros},
        ls::tensor::parameter{.name = "count", .initial = ls::tensor::start::ones}};
    static constexpr double flops = 2.0 * S::size;

    template <class Pass>
    void forward(const Pass& pass) const {
        using T = typename Pass::value_type;
        if (pass.mode == ls::layer_api::mode::inference) {
            for (std::size_t row = 0; row < pass.x.rows; ++row)
                for (std::size_t i = 0; i < S::size; ++i)
                    pass.y.sample(row)[i] = pass.x.sample(row)[i] - pass.statistics[0][i];
            return;
        }
        pass.each_lane_observed([&](ls::parallel::block rows, const auto& s) {
            for (std::size_t i = 0; i < S::size; ++i) {
                T sum = 0;
                for (std::size_t row = rows.first; row < rows.last; ++row) sum += pass.x.sample(row)[i];
                for (std::size_t row = rows.first; row < rows.last; ++row)
                    pass.y.sample(row)[i] = pass.x.sample(row)[i] - sum / static_cast<T>(rows.size());
                s[0][i] = sum;
            }
            s[1][0] = static_cast<T>(rows.size());
        });
    }
    void backward(const auto& pass) const {
        if (pass.wants_dx()) std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
    }
    template <class T>
    void absorb(std::span<T> running, std::span<const T> observed) const noexcept {
        for (std::size_t i = 0; i < running.size(); ++i)
            running[i] += static_cast<T>(0.25) * (observed[i] - running[i]);
    }
};
struct centre {
    template <ls::tensor::Shape S>
    constexpr auto on(S) const {
        return centre_layer<S>{};
    }
};

constexpr auto centred = ls::sequential{
    ls::input<12, 12, 1>,  ls::layers::conv<4, 3>{}, centre{}, ls::layers::relu{}, ls::layers::max_pool<2>{},
    ls::layers::flatten{}, ls::layers::dense<24>{},  centre{}, ls::layers::relu{}, ls::layers::dense<10>{}};
constexpr std::size_t count = 190, batch = 61,
                      steps = 12;  // the fourth minibatch of an epoch has 7 rows: lanes without any
const samples<> training{count}, test{133, 8};

template <class Partition, class Compressor>
auto recipe(const Partition& partition, const Compressor& compressor, const char* algorithm = "", bool thread = false) {
    return ls::plan{.model = centred,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .partition = partition,
                    .compressor = compressor,
                    .batch = batch,
                    .lanes = 9,
                    .seed = 3,
                    .progress_thread = thread,
                    .all_reduce = algorithm};
}

struct outcome {
    std::uint64_t hash = 0;
    std::uint64_t local = 0;
    std::uint64_t state = 0;
    std::vector<float> statistics;
    double test_loss = 0;
};

template <class Ranks, class Partition, class Compressor>
outcome run(const Ranks& ranks, const Partition& partition, const Compressor& compressor, bool thread = false) {
    ls::trainer trainer{ranks, recipe(partition, compressor, "", thread)};
    trainer.fit(training.set(), ls::steps{steps});
    const auto running = trainer.running_statistics();
    return {trainer.weights_hash(),
            trainer.local_hash(),
            trainer.state_hash(),
            {running.begin(), running.end()},
            trainer.evaluate(test.set()).loss};
}

}  // namespace

TEST_CASE("equivalence/statistics: the same bits of weights and statistics on 1, 2, 3, 4 and 8 ranks",
          "[equivalence]") {
    const auto serial = run(ls::comm::group{}, part::data{}, ls::compress::none{});
    REQUIRE(serial.statistics.size() == 10 * 10 * 4 + 1 + 24 + 1);
    CHECK(serial.statistics[400] == 1);  // the mean of ones
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const bool thread : {false, true}) {
            const auto here = run(group, part::data{}, ls::compress::none{}, thread);
            INFO(group.size() << " ranks" << (thread ? ", progress thread" : ""));
            CHECK(here.hash == serial.hash);
            CHECK(here.state == serial.state);
            CHECK(here.statistics == serial.statistics);
            CHECK(here.test_loss == serial.test_loss);
        }
    });
}

TEST_CASE("equivalence/statistics: they enter the hash and what the network predicts", "[equivalence]") {
    ls::trainer trainer{ls::comm::group{}, recipe(part::data{}, ls::compress::none{})};
    const auto before = trainer.predict(test.x);
    const std::vector<float> first(before.begin(), before.end());
    const auto hash = trainer.weights_hash();
    REQUIRE(trainer.running_statistics()[0] == 0);
    // A rate of 0 leaves the weights alone, but not the statistics.
    ls::trainer still{ls::comm::group{}, ls::plan{.model = centred,
                                                  .loss = ls::loss::softmax_cross_entropy{},
                                                  .schedule = [](std::uint64_t) { return 0.0; },
                                                  .batch = batch,
                                                  .lanes = 9,
                                                  .seed = 3}};
    CHECK(still.weights_hash() == hash);
    still.fit(training.set(), ls::steps{1});
    CHECK(still.all_weights() == trainer.all_weights());
    CHECK(still.weights_hash() != hash);
    CHECK(still.local_hash() != trainer.local_hash());
    const auto after = still.predict(test.x);
    CHECK(!std::equal(first.begin(), first.end(), after.begin()));
    CHECK(still.weights(1, "mean")(0, 3) == still.running_statistics()[3]);
    CHECK(still.weights(6, "mean").shape()[1] == 24);
    CHECK_THROWS_WITH(still.weights(6, "variance"), Catch::Contains("choose one of: mean, count"));

    CHECK(still.weights(6, "count")(0, 0) == 1);
}

TEST_CASE("equivalence/statistics: a compressor of gradients leaves them exact, and all replicas equal",
          "[equivalence]") {
    const ls::compress::error_feedback<ls::compress::top_k> compressor{ls::compress::top_k{.ratio = 0.1}};
    const auto first = [&](const auto& ranks) {
        auto plan = recipe(part::data{}, compressor);
        plan.workers = 3;
        ls::trainer trainer{ranks, plan};
        trainer.fit(training.set(), ls::steps{1});
        return std::vector<float>(trainer.running_statistics().begin(), trainer.running_statistics().end());
    };
    const auto serial = first(ls::comm::group{});
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        CHECK(first(group) == serial);  // weights of the first step are those of the seed
        const auto here = run(group, part::data{}, compressor);
        for (const auto& other : of_all(group, here.local)) CHECK(other == here.local);
    });
}

TEST_CASE("equivalence/statistics: a model partition averages them over all samples; equal on all ranks",
          "[equivalence]") {
    const auto serial = run(ls::comm::group{}, part::data{}, ls::compress::none{});
    const part::hybrid halves{part::data{}, part::model<2>{}};
    const auto compared = [&](const mpi::communicator& group) {
        const auto here = run(group, halves, ls::compress::none{});
        INFO(group.size() << " ranks");
        // Backward adds partial sums of shards: equal up to rounding, as all weights of a model partition.
        CHECK(relative_error(here.statistics, serial.statistics) < 1e-5);
        for (const auto& other : of_all(group, here.hash)) CHECK(other == here.hash);
        const auto bits = ls::core::hash(std::as_bytes(std::span{here.statistics}));
        for (const auto& other : of_all(group, bits)) CHECK(other == bits);
    };
    on_groups({2, 4}, compared);
    on_groups({8}, compared);
}

TEST_CASE("equivalence/statistics: one reduce-scatter and one gather in a step, nothing without statistics",
          "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(part::data{}, ls::compress::none{}, "tree:0-max")};
        using network = decltype(trainer)::network;
        trainer.fit(training.set(), ls::steps{2});
        const auto ranks = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
        const auto runs = ls::collectives::deal_lanes(ranks, 9);
        const auto strips = ls::collectives::tree_strips(runs, network::statistics);
        const std::size_t scheduled =
            ls::collectives::tree_reduce_scatter(rank, runs, network::statistics, strips).sent().elements +
            ls::collectives::all_gather(rank, strips).sent().elements;
        std::vector<ls::parallel::block> sums;
        for (const auto& run : runs) sums.push_back({4 * run.first, 4 * run.last});
        const std::size_t for_losses = ls::collectives::all_gather(rank, sums).sent().elements * sizeof(double);
        CHECK(trainer.report().bytes_sent == 2 * (trainer.averaging_bytes() + scheduled * sizeof(float) + for_losses));
    });
    static_assert(ls::model::network<std::remove_const_t<decltype(net)>, 1>::statistics == 0);
}
