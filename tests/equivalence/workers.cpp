// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Compressed training has the same bits on any number of ranks: state and messages belong to workers, which the recipe
// counts.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/sign_vote.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "reference/median_of_workers.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;
using ls::compress::power_sgd;
using ls::compress::quantize;
using ls::compress::terngrad;
using ls::compress::top_k;

constexpr std::size_t steps = 6;
const samples<> training{190};

/// A normalisation, whose statistics are added over workers as well.
constexpr auto normalised =
    ls::sequential{ls::input<12, 12, 1>,  ls::layers::conv<6, 3>{}, ls::layers::batch_norm{}, ls::layers::relu{},
                   ls::layers::flatten{}, ls::layers::dense<24>{},  ls::layers::relu{},       ls::layers::dense<10>{}};

/// What changes no bit.
struct machine {
    std::size_t bucket = 1U << 16U;
    bool overlap = true;
    bool thread = false;
    std::size_t threads = 1;
    ls::transport transport = ls::transport::automatic;
};
constexpr auto messages = ls::transport::messages, shared = ls::transport::shared_memory;
/// Each two of the settings meet in one of them.
constexpr machine machines[] = {{1, true, false, 1, messages},         {1, false, false, 2, shared},
                                {1U << 16U, true, true, 2, shared},    {1U << 20U, true, false, 2, messages},
                                {1U << 20U, false, false, 1, shared},  {1, true, true, 1, messages},
                                {1U << 16U, false, false, 1, messages}};

template <class Model, class Compressor, class Partition = ls::partition::data>
auto recipe(const Model& model, const Compressor& compressor, std::size_t workers, std::size_t lanes,
            std::size_t segment, const machine& on = {}, const Partition& partition = {}) {
    return ls::plan{.model = model,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::adam{},
                    .schedule = ls::optim::constant{.rate = 0.003},
                    .partition = partition,
                    .compressor = compressor,
                    .batch = 61,
                    .lanes = lanes,
                    .workers = workers,
                    .segment = segment,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread,
                    .transport = on.transport};
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
    if (plan.transport == shared && plan.workers < trainer.ranks().size())
        CHECK(trainer.transport() == "messages between workers, shared memory inside of each");
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    if (trainer.grid().shards == 1) CHECK(trainer.weights_hash() == trainer.local_hash());
    return {trainer.weights_hash(), trainer.state_hash(), seen.values};
}

/// Groups of 2, 3, 4, 6 and 8 ranks have the bits of one rank, each with other settings of the machine.
template <class Model, class Compressor>
void same_everywhere(const Model& model, const Compressor& compressor, std::size_t workers, std::size_t lanes,
                     std::size_t segment = 256) {
    INFO(Compressor::name << " " << compressor.settings() << ", " << workers << " workers, " << lanes
                          << " lanes, segments of " << segment);
    const outcome alone = run(ls::comm::group{}, recipe(model, compressor, workers, lanes, segment));
    CHECK(alone.losses.back() < alone.losses.front());
    std::size_t turn = workers + lanes;
    const auto compare = [&](const mpi::communicator& group) {
        const machine& on = machines[(turn + static_cast<std::size_t>(group.size())) % std::size(machines)];
        INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", thread "
                          << on.thread << ", threads " << on.threads << ", " << ls::reduce::name_of(on.transport));
        CHECK(run(group, recipe(model, compressor, workers, lanes, segment, on)) == alone);
    };
    on_groups({1, 3, 4}, compare);
    ++turn;
    on_groups({2, 6}, compare);
    on_groups({8}, compare);
}

}  // namespace

TEST_CASE("equivalence/workers: top_k with error feedback has the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    same_everywhere(net, error_feedback{top_k{.ratio = 0.05}}, 8, 8);
    same_everywhere(net, error_feedback{top_k{.ratio = 0.05}}, 4, 8, 0);
    same_everywhere(normalised, error_feedback{top_k{.ratio = 0.05}}, 3, 12, 64);
    same_everywhere(net, error_feedback{top_k{.ratio = 0.05}}, 6, 9);  // 8 ranks: two workers have two of them
}

TEST_CASE(
    "equivalence/workers: quantize with and without error feedback has the same bits on 1, 2, 3, 4, 6 and 8 ranks",
    "[equivalence]") {
    same_everywhere(net, error_feedback{quantize{.bits = 4, .bucket = 128}}, 8, 12, 128);
    same_everywhere(normalised, quantize{.bits = 4, .bucket = 100}, 5, 17);
    same_everywhere(net, quantize{.bits = 4, .bucket = 100}, 1, 8);
}

// One trainer type for all compressors whose messages are gathered, one for all sums of one round.
TEST_CASE("equivalence/workers: sparsifiers by thresholds have the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    using namespace ls::compress;
    same_everywhere(net, any{error_feedback{threshold{.value = 0.001, .most_share = 0.1}}}, 8, 8);
    same_everywhere(net, any{error_feedback{sampled_top_k{.ratio = 0.05}}}, 3, 12, 64);
    same_everywhere(net, any{error_feedback{gaussian_top_k{.ratio = 0.05}}}, 8, 8);
}

TEST_CASE("equivalence/workers: combinators have the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    using namespace ls::compress;
    const auto both = chain{top_k{.ratio = 0.05}, quantize{.bits = 4, .bucket = 64}};
    same_everywhere(net, any{error_feedback{both}}, 8, 8);
    same_everywhere(net, any{by_layer{error_feedback{both}, quantize{.bits = 8}, quantize{.bits = 4}}}, 3, 12, 64);
    same_everywhere(net, any{error_feedback{warm_up<top_k>{.inner = {.ratio = 0.01}, .each = 1, .start = 1}}}, 8, 8);
}

TEST_CASE("equivalence/workers: sums of random numbers have the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    using namespace ls::compress;
    using one_sum = any_reduction<algebra::ordered_sum>;
    same_everywhere(net, one_sum{error_feedback{random_k{.ratio = 0.2}}}, 8, 8);
    same_everywhere(net, one_sum{random_k{.ratio = 0.5, .unbiased = true}}, 3, 12, 64);
    same_everywhere(net, one_sum{error_feedback{random_block{.ratio = 0.2}}}, 8, 8);
}

TEST_CASE("equivalence/workers: a user's median of workers has the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    using one_sum = ls::compress::any_reduction<ls::compress::algebra::ordered_sum>;
    same_everywhere(net, one_sum{reference::median_of_workers{}}, 8, 8);
    same_everywhere(net, one_sum{reference::median_of_workers{}}, 3, 12, 64);
}

TEST_CASE("equivalence/workers: terngrad has the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    same_everywhere(net, terngrad{}, 8, 8);
    same_everywhere(normalised, terngrad{.clip = 0}, 4, 8);
    same_everywhere(net, terngrad{}, 3, 12);
    same_everywhere(net, terngrad{}, 1, 8);
}

TEST_CASE("equivalence/workers: power_sgd of ranks 1 and 2 has the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    same_everywhere(normalised, error_feedback{power_sgd{}}, 8, 8);
    same_everywhere(net, error_feedback{power_sgd{.rank = 2}}, 4, 8);
    same_everywhere(normalised, error_feedback{power_sgd{.rank = 2}}, 3, 12);
    same_everywhere(net, power_sgd{}, 5, 17);
    same_everywhere(net, error_feedback{power_sgd{}}, 1, 8);
}

TEST_CASE("equivalence/workers: power_sgd after plain steps has the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    using namespace ls::compress;
    using two_sums = any_reduction<algebra::ordered_sum, algebra::ordered_sum>;
    const auto later = [](std::uint64_t start) {
        return two_sums{warm_up{.inner = error_feedback{power_sgd{.rank = 2}}, .start = start}};
    };
    same_everywhere(normalised, later(3), 8, 8);
    same_everywhere(net, later(3), 3, 12);
    same_everywhere(net, two_sums{error_feedback{warm_up{.inner = power_sgd{}, .start = 2}}}, 1, 8);
    // It begins as without a compressor, where each worker has a lane, and is power_sgd where nothing comes before.
    const auto of = [&](const auto& compressor, std::size_t workers) {
        const outcome all = run(ls::comm::group{}, recipe(net, compressor, workers, 8, 256));
        return std::pair{all.weights, all.losses};
    };
    const auto dense = of(none{}, 0), at_once = of(error_feedback{power_sgd{.rank = 2}}, 8), third = of(later(3), 8);
    CHECK(of(later(steps), 8) == dense);
    CHECK(of(later(0), 8) == at_once);
    CHECK(third.first != dense.first);
    CHECK(third.first != at_once.first);
    CHECK(std::equal(dense.second.begin(), dense.second.begin() + 4, third.second.begin()));
    CHECK(third.second.back() != dense.second.back());
    CHECK(of(error_feedback{warm_up{.inner = power_sgd{.rank = 2}, .start = 3}}, 8) == third);
    // What is said before the first step is what that sends.
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(net, later(2), 8, 8, 256)};
        const std::size_t before = trainer.averaging_bytes();
        for (std::size_t step = 0; step < 3; ++step) {
            trainer.fit(training.set(), ls::steps{1});
            CHECK((trainer.averaging_bytes() == before) == (step < 2));
        }
    });
}

TEST_CASE("equivalence/workers: bits, votes and numbers of 16 bits have the same bits on 1, 2, 3, 4, 6 and 8 ranks",
          "[equivalence]") {
    using namespace ls::compress;
    for (const any& one : {any{two_sided{error_feedback{one_bit{}}}}, any{error_feedback{scaled_sign{}}},
                           any{qsgd{.bucket = 100, .coding = level_coding::elias}}})
        same_everywhere(net, one, 8, 8);
    same_everywhere(net, sign_vote{.momentum = 0.9}, 8, 8);
    same_everywhere(net, error_feedback{bfloat16{.stochastic = true}}, 8, 8);
}

TEST_CASE("equivalence/workers: shards of a model partition compress alike on any number of groups", "[equivalence]") {
    constexpr auto hybrid = ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}};
    const auto compare = [&](const auto& compressor, std::size_t workers, std::size_t lanes) {
        INFO(compressor.name << ", " << workers << " workers, " << lanes << " lanes");
        std::map<int, outcome> of_size;
        const auto add = [&](const mpi::communicator& group) {
            const machine& on = machines[(workers + static_cast<std::size_t>(group.size())) % std::size(machines)];
            of_size[group.size()] = run(group, recipe(normalised, compressor, workers, lanes, 256, on, hybrid));
        };
        const mpi::communicator world;
        on_groups({8}, add);
        on_groups({2, 6}, add);
        on_groups({4, 4}, add);
        for (const auto& [size, found] : of_size) {
            INFO(size << " ranks");
            CHECK(found == of_size.at(8));
        }
    };
    for (const auto& [workers, lanes] : {std::pair<std::size_t, std::size_t>{2, 8}, {3, 12}, {8, 10}})
        compare(error_feedback{quantize{.bits = 4, .bucket = 128}}, workers, lanes);
    compare(terngrad{}, 4, 8);
    compare(error_feedback{power_sgd{.rank = 2}}, 3, 12);
}

TEST_CASE("equivalence/workers: as many workers as ranks are the default", "[equivalence]") {
    const auto compressor = error_feedback{top_k{.ratio = 0.05}};
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        CHECK(run(group, recipe(net, compressor, 0, 8, 256)) == run(group, recipe(net, compressor, ranks, 8, 256)));
    });
}

TEST_CASE("equivalence/workers: workers that cannot be dealt are one error", "[equivalence]") {
    const auto compressor = error_feedback{top_k{.ratio = 0.05}};
    on_groups({8}, [&](const mpi::communicator& group) {
        CHECK_THROWS_WITH(
            ls::trainer(group, recipe(net, compressor, 9, 8, 256)),
            Catch::Contains(
                "lockstep: 9 workers share 8 lanes, so some would have no samples; set lanes to a multiple of 9, or "
                "use at most 8 workers"));
        CHECK_THROWS_WITH(
            ls::trainer(group, recipe(net, compressor, 4, 8, 100)),
            Catch::Contains(
                "lockstep: the plan has segments of 100 numbers; use a multiple of 64, or 0 for whole tensors"));
    });
}
