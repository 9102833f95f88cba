// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Strategies that make something of the mean of workers: the weights of a naive reference, and equal bits on 1, 2, 3,
// 4, 6 and 8 ranks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/naive_workers.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/sync/elastic_averaging.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/sync/outer_momentum.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace naive_workers;
using ls::sync::elastic_averaging;
using ls::sync::momenta;
using ls::sync::outer_momentum;

/// A strategy of one's own: workers go half of the way to their mean, and so differ after it.
struct half_way {
    std::uint64_t period = 3, start = 0;
    momenta momentum = momenta::keep;
    static constexpr bool has_worker_weights = true;
    static constexpr std::string_view name = "half_way";
    [[nodiscard]] std::string settings() const { return ls::core::text("period=", period); }

    template <class Types>
    class strategy : public ls::sync::local_updates<Types> {
        using T = typename Types::value_type;

    public:
        using ls::sync::local_updates<Types>::local_updates;
        [[nodiscard]] bool commit(std::span<T> weights, double by, std::uint64_t step) {
            return this->commit_means(
                weights, by, step, [](std::span<const T>) noexcept {},
                [](std::span<const T> mean, std::span<T> worker) noexcept {
                    for (std::size_t i = 0; i < mean.size(); ++i) worker[i] += (mean[i] - worker[i]) / 2;
                });
        }
    };
};

}  // namespace

TEST_CASE("equivalence/outer_steps: slow weights and their momentum are those of a naive reference", "[equivalence]") {
    for (const std::size_t workers : {1U, 2U, 4U, 8U})
        for (const auto& of : {outer_momentum{.period = 1}, outer_momentum{.period = 3, .nesterov = false},
                               outer_momentum{.period = 3, .start = 3, .rate = 0.5, .beta = 0.8},
                               outer_momentum{.period = 9, .rate = 1, .beta = 0}})
            on_groups({1, 3}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(of, workers)};
                const auto begin = trainer.all_weights();
                numbers slow{begin.begin(), begin.end()}, velocity(begin.size());
                const auto outer = [&](std::vector<numbers>& w, const numbers& mean) {
                    if (mean.empty()) {
                        slow = w[0];
                        return;
                    }
                    for (std::size_t i = 0; i < slow.size(); ++i) {
                        const double g = slow[i] - mean[i];
                        velocity[i] = of.beta * velocity[i] + g;
                        slow[i] -= of.rate * (of.nesterov ? g + of.beta * velocity[i] : velocity[i]);
                    }
                    w.assign(w.size(), slow);
                };
                const auto expected = naive(slow, of.period, of.start, workers, outer);
                trainer.fit(training.set(), ls::steps{steps});
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                CHECK(distance(trainer.all_weights(), expected[0]) < 1e-12);
            });
}

TEST_CASE("equivalence/outer_steps: workers on an elastic to a centre are those of a naive reference",
          "[equivalence]") {
    for (const std::size_t workers : {1U, 2U, 4U, 8U})
        for (const auto& of :
             {elastic_averaging{.period = 1}, elastic_averaging{.period = 2, .beta = 0.5, .alpha = 0.3},
              elastic_averaging{.period = 4, .beta = 1, .alpha = 1}})
            on_groups({1, 3}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(of, workers)};
                const auto begin = trainer.all_weights();
                numbers centre{begin.begin(), begin.end()};
                const double alpha = of.alpha > 0 ? of.alpha : of.beta / static_cast<double>(workers);
                const auto draw = [&](std::vector<numbers>& w, const numbers& mean) {
                    for (std::size_t i = 0; i < centre.size(); ++i) {
                        for (numbers& one : w) one[i] -= alpha * (one[i] - centre[i]);
                        centre[i] += of.beta * (mean[i] - centre[i]);
                    }
                };
                (void)naive(centre, of.period, 0, workers, draw);
                trainer.fit(training.set(), ls::steps{steps});
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                CHECK(distance(trainer.all_weights(), centre) < 1e-12);
            });
}

TEST_CASE("equivalence/outer_steps: the same bits on 1, 2, 3, 4, 6 and 8 ranks, and after a resume", "[equivalence]") {
    const shared_folder folder;
    const auto same = [&](const auto& sync, std::size_t workers) {
        (void)check_same_bits(recipe(sync, workers), {1, 2, 3, 4, 6, 8}, folder);
    };
    for (const std::size_t workers : {1U, 2U, 8U}) {
        same(outer_momentum{.period = 3, .start = 1}, workers);
        same(elastic_averaging{.period = 3}, workers);
    }
    same(half_way{}, 4);
}

TEST_CASE("equivalence/outer_steps: synchronous steps move slow weights along, and a resume may begin local ones",
          "[equivalence]") {
    const shared_folder folder;
    const auto with_start = [](std::uint64_t start, std::uint64_t period) {
        return recipe(outer_momentum{.period = period, .start = start}, 4);
    };
    on_groups({3}, [&](const mpi::communicator& group) {
        ls::trainer whole{group, with_start(5, 2)}, first{group, with_start(1000, 2)}, second{group, with_start(5, 2)};
        whole.fit(training.set(), ls::steps{steps});
        first.fit(training.set(), ls::steps{5});
        (void)first.save(folder.path + "/synchronous");
        second.resume(folder.path + "/synchronous", {"sync"});
        second.fit(training.set(), ls::until_step{steps});
        CHECK(second.weights_hash() == whole.weights_hash());
        CHECK(second.state_hash() == whole.state_hash());
        // Workers differ when synchronous steps begin again, and every rank takes their mean.
        ls::trainer local{group, with_start(0, 4)}, later{group, with_start(5, 2)};
        local.fit(training.set(), ls::steps{2});
        (void)local.save(folder.path + "/local");
        later.resume(folder.path + "/local", {"sync"});
        for (std::size_t step = 2; step < steps; ++step) {
            later.fit(training.set(), ls::steps{1});
            const std::uint64_t hash = later.weights_hash();
            std::uint64_t of_first = hash;
            boost::mpi::broadcast(group, of_first, 0);
            CHECK(hash == of_first);
        }
    });
}

TEST_CASE("equivalence/outer_steps: a look after each step is the same on all ranks", "[equivalence]") {
    const auto looks = [](const auto& sync) {
        std::vector<std::vector<std::uint64_t>> all;
        for (const int ranks : {1, 2, 4}) {
            std::vector<std::uint64_t> seen;
            on_groups({ranks}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(sync, 4)};
                for (std::size_t step = 0; step < 5; ++step) {
                    trainer.fit(training.set(), ls::steps{1});
                    const std::uint64_t hash = trainer.weights_hash();
                    std::uint64_t of_first = hash;
                    boost::mpi::broadcast(group, of_first, 0);
                    CHECK(hash == of_first);
                    seen.push_back(hash);
                }
            });
            if (mpi::communicator{}.rank() == 0) all.push_back(seen);
        }
        for (const auto& one : all) CHECK(one == all[0]);
    };
    looks(half_way{});
    looks(outer_momentum{.period = 2, .start = 1});
    looks(elastic_averaging{.period = 2});
}

TEST_CASE("equivalence/outer_steps: settings that make no sense are refused on all ranks", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [&](const auto& sync) { ls::trainer{group, recipe(sync, 4)}; };
        CHECK_THROWS_WITH(make(outer_momentum{.period = 0}),
                          Catch::Contains("sync::outer_momentum averages weights every 0 steps; set period"));
        CHECK_THROWS_WITH(make(outer_momentum{.rate = 0}), Catch::Contains("has rate = 0"));
        CHECK_THROWS_WITH(make(outer_momentum{.beta = 1}), Catch::Contains("has beta = 1"));
        CHECK_THROWS_WITH(make(elastic_averaging{.beta = 0}), Catch::Contains("has beta = 0"));
        CHECK_THROWS_WITH(make(elastic_averaging{.alpha = 2}), Catch::Contains("has alpha = 2"));
        CHECK_THROWS_WITH(make(half_way{.period = 0}), Catch::Contains("half_way averages weights every 0 steps"));
    });
}
