// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Owner updates: each rank keeps the optimizer's state of its strip and of nothing else, and sends what the formula
// says.
#include <bit>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/collectives/tree.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
namespace optim = ls::optim;

constexpr std::size_t slots = 2;  // adam

auto recipe(std::size_t lanes, std::size_t bucket, const char* algorithm = "tree:0-max",
            ls::transport transport = ls::transport::messages,
            const ls::collectives::sum_family& sums = ls::collectives::lane_tree_sums) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = ls::optim::adam{},
        .schedule = ls::optim::constant{.rate = 0.002},
        .batch = 64,
        .lanes = lanes,
        .bucket = bucket,
        .transport = transport,
        .all_reduce = algorithm,
        .sums = sums,
    };
}

/// An optimizer as a user writes it: a loop over the elements of the pass, and whatever it is told.
struct by_hand {
    double pull = 0.5;

    static constexpr std::string_view name = "by_hand";
    static constexpr std::size_t slot_count = 2;
    [[nodiscard]] std::string settings() const { return ls::core::text("pull=", pull); }

    template <class T>
    void update(const optim::update_pass<T>& pass) const noexcept {
        for (std::size_t i = 0; i < pass.weights.size(); ++i) {
            pass.slots[0][i] += pass.gradient[i];
            pass.slots[1][i] += pass.weights[i] * (pass.decays ? T(1) : T(2));
            const T step = pass.gradient[i] + static_cast<T>(pull) * pass.slots[0][i] + T(0.001) * pass.slots[1][i];
            pass.weights[i] -= static_cast<T>(pass.rate / (1.0 + static_cast<double>(pass.step))) * step;
        }
    }
};
static_assert(optim::Optimizer<by_hand> && !optim::HasRule<by_hand>);

/// 31,010 parameters: strips of several pieces, of which weights and biases are parts.
inline constexpr auto wide = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, ls::layers::dense<200>{},
                                            ls::layers::relu{}, ls::layers::dense<10>{}};

template <class Ranks, class Optimizer>
std::uint64_t hash_of_wide(const Ranks& ranks, const Optimizer& optimizer, std::size_t bucket, ls::transport transport,
                           bool thread) {
    const samples<> training{128};
    ls::trainer trainer{ranks, ls::plan{.model = wide,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = optimizer,
                                        .schedule = ls::optim::constant{.rate = 0.01},
                                        .batch = 64,
                                        .lanes = 8,
                                        .threads = ls::parallel::has_threads ? 2 : 1,
                                        .bucket = bucket,
                                        .progress_thread = thread,
                                        .transport = transport}};
    trainer.fit(training.set(), ls::steps{5});
    return trainer.weights_hash();
}

}  // namespace

TEST_CASE(
    "equivalence/owner_updates: an optimizer of the user's own, alone and in weight_decay, sees every element once",
    "[equivalence]") {
    const auto compare = [](const auto& optimizer) {
        constexpr auto messages = ls::transport::messages, shared = ls::transport::shared_memory;
        const std::uint64_t serial = hash_of_wide(ls::comm::group{}, optimizer, 1, messages, false);
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            INFO(group.size() << " ranks");
            for (const std::size_t bucket : {1U, 1U << 20U}) {
                CHECK(hash_of_wide(group, optimizer, bucket, messages, false) == serial);
                for (const bool thread : {false, true})
                    CHECK(hash_of_wide(group, optimizer, bucket, shared, thread) == serial);
            }
        });
    };
    compare(by_hand{});
    compare(optim::weight_decay{.rate = 0.01, .inner = by_hand{}});
    compare(optim::weight_decay{.rate = 0.01, .inner = optim::adam{}});
}

TEST_CASE("equivalence/owner_updates: the optimizer's state is there once, in equal parts", "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const std::size_t bucket : {1U, 1U << 20U})
            for (const std::size_t lanes : {8U, 11U}) {
                const ls::trainer trainer{group, recipe(lanes, bucket)};
                const std::size_t n = decltype(trainer)::network::parameters;
                const double part = static_cast<double>(slots * n) / group.size();
                // A strip of m numbers begins and ends at most one cache line of 16 numbers, and the rest of the last
                // one, away from m/p.
                const double rounding =
                    static_cast<double>(slots * trainer.buckets()) * 2 * ls::collectives::strip_grain;
                INFO(group.size() << " ranks, " << lanes << " lanes, buckets of " << bucket);
                CHECK(mpi::all_reduce(group, trainer.optimizer_numbers(), std::plus<std::size_t>{}) == slots * n);
                CHECK(std::fabs(static_cast<double>(trainer.optimizer_numbers()) - part) < rounding);
                CHECK(trainer.buckets() == (bucket == 1 ? 3U : 1U));
            }
    });
}

TEST_CASE(
    "equivalence/owner_updates: by doubling every rank owns all, and sends n log2(p) elements; costs are measured or "
    "not needed",
    "[equivalence]") {
    on_groups({2, 4, 2}, [&](const mpi::communicator& group) {
        const ls::trainer whole{group, recipe(8, 1U << 20U, "doubling:0-max")};
        const std::size_t n = decltype(whole)::network::parameters,
                          log2 = std::bit_width(static_cast<std::size_t>(group.size())) - 1;
        CHECK(whole.optimizer_numbers() == slots * n);
        CHECK(whole.averaging_bytes() == n * log2 * sizeof(float));
        CHECK(whole.all_reduce_algorithm() == "doubling:0-max (as asked)");
        const ls::trainer measured{group, recipe(8, 0, "")};
        CHECK(measured.all_reduce_algorithm().find("tree:") != std::string::npos);
        CHECK(measured.all_reduce_algorithm().find("(measured: ") != std::string::npos);
    });
    const ls::trainer alone{ls::comm::group{}, recipe(8, 0, "")};
    CHECK(alone.all_reduce_algorithm().empty());
    CHECK_THROWS_WITH((ls::trainer{ls::comm::group{}, recipe(8, 1, "ring:0-max")}),
                      Catch::Contains("sums by ring; use tree or doubling, or set sums to collectives::all_sums"));
    CHECK_THROWS_WITH((ls::trainer{ls::comm::group{}, recipe(8, 1, "tree:0-9")}),
                      Catch::Contains("does not end at max"));
}

TEST_CASE("equivalence/owner_updates: ring and halving-doubling, on request, add in another order and say so",
          "[equivalence]") {
    const samples<> training{64};
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const char* algorithm : {"tree:0-max", "ring:0-max", "halving-doubling:0-max"}) {
            ls::trainer trainer{group, recipe(8, 1000, algorithm, ls::transport::messages, ls::collectives::all_sums)};
            ls::trainer tree{group, recipe(8, 1000)};
            trainer.fit(training.set(), ls::steps{3});
            tree.fit(training.set(), ls::steps{3});
            INFO(group.size() << " ranks, " << algorithm);
            const bool invariant = algorithm == std::string_view{"tree:0-max"};
            if (group.size() > 2) CHECK((trainer.weights_hash() == tree.weights_hash()) == invariant);
            CHECK(trainer.weights_hash() == trainer.local_hash());
            CHECK(trainer.evaluate(training.set()).loss == Approx(tree.evaluate(training.set()).loss).epsilon(1e-4));
            if (group.size() > 1) {
                CHECK((trainer.all_reduce_algorithm().find("bits depend on the number of ranks") ==
                       std::string::npos) == invariant);
                CHECK(ls::summary(trainer).find(trainer.all_reduce_algorithm()) != std::string::npos);
            }
        }
    });
}

TEST_CASE("equivalence/owner_updates: bytes are those of the formula, of the schedules, and of the report",
          "[equivalence]") {
    const samples<> training{128};
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const std::size_t bucket : {1U, 1U << 20U})
            for (const std::size_t lanes : {8U, 11U, 16U}) {
                ls::trainer trainer{group, recipe(lanes, bucket)};
                using network = decltype(trainer)::network;
                const auto ranks = static_cast<std::size_t>(group.size()),
                           rank = static_cast<std::size_t>(group.rank());
                const std::size_t n = network::parameters;
                INFO(ranks << " ranks, " << lanes << " lanes, buckets of " << bucket);

                std::size_t scheduled = 0;
                for (const auto& range : ls::sync::make_buckets<network>(bucket)) {
                    const auto runs = ls::collectives::deal_lanes(ranks, lanes);
                    const auto strips = ls::collectives::tree_strips(runs, range.count);
                    scheduled += ls::collectives::tree_reduce_scatter(rank, runs, range.count, strips).sent().elements +
                                 ls::collectives::all_gather(rank, strips).sent().elements;
                }
                CHECK(trainer.averaging_bytes() == scheduled * sizeof(float));

                const std::size_t together =
                    mpi::all_reduce(group, trainer.averaging_bytes(), std::plus<std::size_t>{});
                if (std::has_single_bit(ranks) && lanes % ranks == 0) {
                    // 2 n (p-1)/p elements: in the mean exactly, on one rank up to the rounding of the strips that it
                    // forwards.
                    CHECK(together == 2 * n * (ranks - 1) * sizeof(float));
                    const double formula =
                        2.0 * static_cast<double>(n * (ranks - 1)) / static_cast<double>(ranks) * sizeof(float);
                    const double rounding = static_cast<double>(trainer.buckets() * ranks * 2 *
                                                                ls::collectives::strip_grain * sizeof(float));
                    CHECK(std::fabs(static_cast<double>(trainer.averaging_bytes()) - formula) <=
                          (ranks == 1 ? 0 : rounding));
                } else {
                    CHECK(together >= 2 * n * (ranks - 1) * sizeof(float));
                }

                trainer.fit(training.set(), ls::steps{3});
                std::vector<ls::parallel::block> sums;  // four numbers of each lane
                for (const auto& run : ls::collectives::deal_lanes(ranks, lanes))
                    sums.push_back({4 * run.first, 4 * run.last});
                const std::size_t for_losses = ls::collectives::all_gather(rank, sums).sent().elements * sizeof(double);
                CHECK(trainer.report().bytes_sent == 3 * (trainer.averaging_bytes() + for_losses));
                CHECK(trainer.redistribution_bytes() == 0);

                // Through shared memory no message but those for the losses, the same bits and the same owners; the
                // memory is what is planned.
                ls::trainer shared{group, recipe(lanes, bucket, "", ls::transport::shared_memory)};
                CHECK(shared.transport() == (ranks == 1 ? "none: one rank" : "shared memory"));
                shared.fit(training.set(), ls::steps{3});
                CHECK(shared.averaging_bytes() == 0);
                CHECK(shared.report().bytes_sent == 3 * for_losses);
                CHECK(shared.weights_hash() == trainer.weights_hash());
                CHECK(shared.optimizer_numbers() == trainer.optimizer_numbers());
                CHECK(shared.memory().sum() == shared.memory_bytes());
            }
    });
}
