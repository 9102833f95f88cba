// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Gradients of the step before: the bits of a reference that holds them back, on any number of ranks.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/find_learning_rate.hpp"

namespace {

using namespace support;

const samples<> training{190};
constexpr std::size_t steps = 7;
constexpr auto rates = [](std::uint64_t step) { return 0.02 / static_cast<double>(1 + step); };

template <class Sync, class Compressor = ls::compress::none, class Partition = ls::partition::data>
auto recipe(const Sync& sync, ls::transport transport = ls::transport::automatic, std::size_t bucket = 1000,
            bool overlap = true, const Compressor& compressor = {}, const Partition& partition = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = rates,
                    .partition = partition,
                    .compressor = compressor,
                    .sync = sync,
                    .batch = 61,
                    .workers = 4,
                    .seed = 5,
                    .bucket = bucket,
                    .overlap = overlap,
                    .transport = transport};
}

struct outcome {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

/// In two calls: what is pending outlives the first.
template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{3}, seen);
    (void)trainer.evaluate(training.set());
    trainer.fit(training.set(), ls::steps{steps - 3}, seen);
    return {trainer.weights_hash(), trainer.state_hash(), seen.values};
}

}  // namespace

TEST_CASE(
    "equivalence/delayed: the first step changes no weight, the second applies the first gradient with its own rate",
    "[equivalence]") {
    // The weights after two delayed steps are those after one step at the rate of the second.
    const auto of = [](const auto& sync, auto schedule) {
        return ls::plan{.model = net,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .optimizer = ls::optim::adam{},
                        .schedule = schedule,
                        .sync = sync,
                        .batch = 61,
                        .seed = 5};
    };
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        ls::trainer delayed{group, of(ls::sync::delayed{}, rates)};
        const std::uint64_t before = delayed.weights_hash();
        delayed.fit(training.set(), ls::steps{1});
        CHECK(delayed.weights_hash() == before);
        delayed.fit(training.set(), ls::steps{1});
        ls::trainer plain{group, of(ls::sync::every_step{}, [](std::uint64_t) { return rates(1); })};
        plain.fit(training.set(), ls::steps{1});
        CHECK(delayed.weights_hash() == plain.weights_hash());
    });
}

TEST_CASE("equivalence/delayed: the same bits on 1, 2, 3, 4 and 8 ranks, by messages and shared memory",
          "[equivalence]") {
    const outcome alone = run(ls::comm::group{}, recipe(ls::sync::delayed{}));
    CHECK(alone.losses.back() < alone.losses.front());
    CHECK(run(ls::comm::group{}, recipe(ls::sync::every_step{})) != alone);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        CHECK(run(group, recipe(ls::sync::delayed{}, ls::transport::messages, 1)) == alone);
        CHECK(run(group, recipe(ls::sync::delayed{}, ls::transport::messages, 1U << 20U, false)) == alone);
        if (group.size() > 1) CHECK(run(group, recipe(ls::sync::delayed{}, ls::transport::shared_memory)) == alone);
    });
}

TEST_CASE("equivalence/delayed: with a compressor and in a hybrid partition as well", "[equivalence]") {
    const auto compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}};
    const auto plan = [&](std::size_t bucket) {
        return recipe(ls::sync::delayed{}, ls::transport::automatic, bucket, true, compressor);
    };
    const outcome alone = run(ls::comm::group{}, plan(1000));
    on_groups({2, 6}, [&](const mpi::communicator& group) { CHECK(run(group, plan(1)) == alone); });
    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    const auto cut = recipe(ls::sync::delayed{}, ls::transport::messages, 1000, true, ls::compress::none{}, hybrid);
    std::uint64_t pair = 0;
    on_groups({2, 2, 2, 2}, [&](const mpi::communicator& group) { pair = run(group, cut).weights; });
    on_groups({8}, [&](const mpi::communicator& group) { CHECK(run(group, cut).weights == pair); });
}

TEST_CASE("equivalence/delayed: to look at the state changes none of it, and it is the same on any number of ranks",
          "[equivalence]") {
    std::uint64_t mine = 0;
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(ls::sync::delayed{}, ls::transport::messages, 1000, true,
                                          ls::compress::error_feedback{ls::compress::power_sgd{.rank = 2}})};
        trainer.fit(training.set(), ls::steps{3});
        mine = trainer.state_hash();
        CHECK(trainer.state_hash() == mine);
    });
    for (const std::uint64_t other : of_all(mpi::communicator{}, mine)) CHECK(other == mine);
}

TEST_CASE("equivalence/delayed: alone, a run goes on after a failure with the gradient that was pending",
          "[equivalence]") {
    const mpi::communicator world;
    const std::string folder = ls::core::text("/tmp/lockstep-delayed-", ::getpid());
    static bool is_bad = false;
    for (const bool overlap : {false, true}) {
        const ls::plan plan{
            .model = net,
            .loss = ls::loss::softmax_cross_entropy{},
            .schedule = [](std::uint64_t) { return is_bad ? std::numeric_limits<double>::quiet_NaN() : 0.02; },
            .sync = ls::sync::delayed{},
            .batch = 61,
            .seed = 5,
            .bucket = 1000,
            .overlap = overlap};
        const ls::comm::group alone;
        // After so many steps, also before the first one; a step that fails after backward, one that fails before it
        // begins, and a call without a step.
        for (const std::size_t before : {0, 1, 4, 5}) {
            INFO(before << " steps before, overlap " << overlap);
            ls::trainer whole{alone, plan}, trainer{alone, plan};
            whole.fit(training.set(), ls::steps{before});
            trainer.fit(training.set(), ls::steps{before});
            const std::uint64_t hash = trainer.state_hash();
            REQUIRE(hash == whole.state_hash());
            is_bad = true;
            CHECK_THROWS_AS(trainer.fit(training.set(), ls::steps{1}), ls::core::error);
            is_bad = false;
            CHECK(trainer.state_hash() == hash);
            const std::vector<float> row(sample::size, std::numeric_limits<float>::infinity());
            CHECK_THROWS_AS(trainer.step(row, std::vector<std::int32_t>{1}), ls::core::error);
            CHECK(trainer.state_hash() == hash);
            CHECK_THROWS_AS(trainer.load_best(), ls::core::error);
            CHECK(trainer.state_hash() == hash);
            (void)ls::find_learning_rate(trainer, training.set(), {.steps = 5});
            CHECK(trainer.state_hash() == hash);
            const std::string path = trainer.save(folder);
            ls::trainer resumed{alone, plan};
            resumed.resume(folder);
            std::filesystem::remove_all(folder);
            for (auto* one : {&whole, &trainer, &resumed}) one->fit(training.set(), ls::steps{4});
            CHECK(trainer.state_hash() == whole.state_hash());
            CHECK(resumed.state_hash() == whole.state_hash());
        }
        if (world.rank() > 0) break;
    }
}

TEST_CASE("equivalence/delayed: alone, weights that are loaded after a failure are not spoilt by its gradient",
          "[equivalence]") {
    static double rate = 0.02;
    const ls::plan plan{.model = net,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .schedule = [](std::uint64_t) { return rate; },
                        .sync = ls::sync::delayed{},
                        .batch = 61,
                        .seed = 5};
    ls::trainer trainer{ls::comm::group{}, plan};
    trainer.fit(training.set(), ls::steps{3});
    const auto good = trainer.all_weights();
    rate = 1e38;  // weights become infinite
    CHECK_THROWS_AS(trainer.fit(training.set(), ls::steps{9}), ls::core::error);
    rate = 0.02;
    trainer.load_weights(good);
    trainer.fit(training.set(), ls::steps{2});
    CHECK(trainer.weights_state().is_usable());
}

TEST_CASE("equivalence/delayed: bytes that were sent are those of each step", "[equivalence]") {
    // Messages of other lengths in each step: those of even and of odd steps have reducers of their own.
    const auto compressor = ls::compress::error_feedback{ls::compress::gaussian_top_k{.ratio = 0.05}};
    on_groups({4}, [&](const mpi::communicator& group) {
        const auto sent = [&](const auto& sync) {
            auto plan = recipe(sync, ls::transport::messages, 1000, true, compressor);
            std::vector<std::size_t> out;
            ls::trainer trainer{group, plan};
            for (std::size_t step = 0; step < 5; ++step) {
                const std::size_t before = trainer.report().bytes_sent;
                trainer.fit(training.set(), ls::steps{1});
                out.push_back(trainer.report().bytes_sent - before);
            }
            return out;
        };
        const auto delayed = sent(ls::sync::delayed{}), plain = sent(ls::sync::every_step{});
        // The messages of the first step are those of the first update, which is in the second step.
        CHECK(delayed[1] == plain[0]);
        for (std::size_t step = 2; step < delayed.size(); ++step) {
            INFO("step " << step << ": " << delayed[step] << ", before " << delayed[step - 1]);
            CHECK(delayed[step] != delayed[step - 1]);
        }
    });
}

TEST_CASE("equivalence/delayed: a progress thread is refused", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        auto plan = recipe(ls::sync::delayed{});
        plan.progress_thread = true;
        CHECK_THROWS_WITH(ls::trainer(group, plan),
                          "lockstep: the plan asks for a progress thread with sync::delayed, which hides its "
                          "communication without one; leave progress_thread out");
    });
}
