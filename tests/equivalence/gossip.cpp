// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Gossip: the weights of a naive reference, and equal bits on 1, 2, 3, 4, 6, 7 and 8 ranks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "equivalence/naive_workers.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace naive_workers;
using ls::sync::gossip;
using ls::sync::graph;
using ls::sync::neighbour;

/// A graph of one's own: all weight from the next one in even phases, and unequal parts in odd ones.
std::vector<neighbour> turning_row(std::size_t workers, std::size_t worker, std::size_t phase) {
    const std::size_t next = (worker + 1) % workers;
    if (phase % 2 == 0) return {{next, 1}};
    if (next == worker) return {{worker, 1}};
    std::vector<neighbour> out{{worker, 0.7}, {next, 0.3}};
    if (next < worker) std::swap(out[0], out[1]);
    return out;
}
constexpr graph turning{"turning", [](std::size_t) -> std::size_t { return 4; }, turning_row};

/// Which phase the exchange after this step has.
std::size_t phase_of(const gossip& of, std::size_t workers, std::size_t step) {
    const std::size_t phases = of.graph.phases(workers), number = step / of.period;
    if (!of.graph.draws) return number % phases;
    return ls::core::random_stream{5, ls::core::purpose::gossip}.below(phases, number);
}

/// The mean over workers after all steps, by the samples that they have taken since the last exchange.
numbers naive_mean(const gossip& of, std::size_t workers, const numbers& begin) {
    std::vector<numbers> before(workers, begin);
    std::size_t step = 0;
    const auto exchange = [&](std::vector<numbers>& w, const numbers&) {
        if ((step + 1) % of.period == 0 && workers > 1) {
            std::vector<numbers> mixed(workers, numbers(begin.size()));
            for (std::size_t k = 0; k < workers; ++k)
                for (std::size_t i = 0; i < begin.size(); ++i) {
                    if (!of.adapts_first) mixed[k][i] = w[k][i] - before[k][i];
                    for (const auto& [other, by] : of.graph.row(workers, k, phase_of(of, workers, step)))
                        mixed[k][i] += by * (of.adapts_first ? w : before)[other][i];
                }
            w = mixed;
        }
        before = w;
        ++step;
    };
    const auto w = naive(begin, 1, 0, workers, exchange);
    numbers mean(begin.size());
    for (const numbers& one : w)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / static_cast<double>(workers);
    return mean;
}

}  // namespace

TEST_CASE("equivalence/gossip: workers that mix weights with neighbours are those of a naive reference",
          "[equivalence]") {
    for (const std::size_t workers : {1U, 2U, 3U, 4U, 5U, 8U})
        for (const auto& of : {gossip{}, gossip{.graph = ls::sync::torus, .adapts_first = true},
                               gossip{.graph = ls::sync::exponential, .period = 3},
                               gossip{.graph = ls::sync::random_pairs}, gossip{.graph = turning, .adapts_first = true}})
            on_groups({1, 3}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(of, workers)};
                const auto begin = trainer.all_weights();
                const numbers expected = naive_mean(of, workers, numbers{begin.begin(), begin.end()});
                trainer.fit(training.set(), ls::steps{steps});
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                CHECK(distance(trainer.all_weights(), expected) < 1e-12);
            });
}

TEST_CASE("equivalence/gossip: the same bits on any number of ranks, and after a resume", "[equivalence]") {
    const shared_folder folder;
    const auto same = [&](const gossip& of, std::size_t workers) {
        (void)check_same_bits(recipe(of, workers), {1, 2, 3, 4, 6, 7, 8}, folder);
    };
    for (const std::size_t workers : {1U, 2U, 5U, 8U}) {
        same({}, workers);
        same({.graph = ls::sync::random_pairs, .period = 3, .adapts_first = true}, workers);
    }
    same({.graph = turning}, 4);
    same({.graph = ls::sync::exponential}, 8);
}

TEST_CASE("equivalence/gossip: a look between two steps is the same on all ranks and changes nothing",
          "[equivalence]") {
    std::vector<std::vector<std::uint64_t>> all;
    std::vector<std::uint64_t> ends;
    for (const int ranks : {1, 2, 4, 8}) {
        std::vector<std::uint64_t> seen;
        std::uint64_t end = 0;
        on_groups({ranks}, [&](const mpi::communicator& group) {
            const auto plan = recipe(gossip{.period = 2}, 4);
            ls::trainer trainer{group, plan}, unseen{group, plan};
            unseen.fit(training.set(), ls::steps{5});
            for (std::size_t step = 0; step < 5; ++step) {
                trainer.fit(training.set(), ls::steps{1});
                seen.push_back(trainer.weights_hash());
            }
            CHECK(trainer.state_hash() == unseen.state_hash());
            end = unseen.state_hash();
        });
        if (mpi::communicator{}.rank() == 0) {
            all.push_back(seen);
            ends.push_back(end);
        }
    }
    for (const auto& one : all) CHECK(one == all[0]);
    for (const std::uint64_t one : ends) CHECK(one == ends[0]);
}

TEST_CASE("equivalence/gossip: rounding leaves weights where they are when nothing changes them", "[equivalence]") {
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        const ls::plan plan{.model = linear,
                            .loss = ls::loss::softmax_cross_entropy{},
                            .schedule = ls::optim::constant{.rate = 1e-60},  // 0 as a float
                            .sync = gossip{},
                            .batch = batch,
                            .lanes = lanes,
                            .workers = 4};
        ls::trainer trainer{group, plan};
        const std::uint64_t before = trainer.weights_hash();
        trainer.fit(samples<>{batch}.set(), ls::steps{50});
        CHECK(trainer.weights_hash() == before);
    });
}

TEST_CASE("equivalence/gossip: whether phases are drawn is a part of the recipe", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        graph drawn = ls::sync::exponential;
        drawn.draws = true;
        const ls::trainer in_turns{group, recipe(gossip{.graph = ls::sync::exponential}, 4)},
            at_random{group, recipe(gossip{.graph = drawn}, 4)};
        CHECK(in_turns.recipe_text() != at_random.recipe_text());
    });
}

TEST_CASE("equivalence/gossip: the bytes of a step are n numbers for each neighbour on another rank", "[equivalence]") {
    on_groups({4, 8}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(gossip{.period = 2}, 8)};
        const std::size_t n = trainer.all_weights().size();
        // Two workers on a rank are neighbours, and each has another one elsewhere; alone a worker has both elsewhere.
        const std::size_t bytes = 2 * n * sizeof(double);
        CHECK(trainer.averaging_bytes(0) == 0);
        CHECK(trainer.averaging_bytes(1) == bytes);
        CHECK(trainer.averaging_bytes() == bytes / 2);
    });
}

TEST_CASE("equivalence/gossip: all weights travel as one more bucket of the times", "[equivalence]") {
    const shared_folder shared;
    on_groups({1, 2, 4}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(gossip{.period = 2}, 4)};
        const std::size_t own = trainer.buckets();
        const std::string path = shared.path + "/timeline" + std::to_string(group.size());
        ls::timeline timeline{path, 8};
        trainer.fit(training.set(), ls::steps{8}, timeline);
        if (group.rank() != 0) return;
        std::ifstream file{path};
        std::size_t tracks = 0, flights = 0;  // of rank 0, whose buckets have the numbers from 1001 on
        for (std::string line; std::getline(file, line);) {
            const auto has = [&](const std::string& words) { return line.find(words) != std::string::npos; };
            tracks += has("bucket " + std::to_string(own) + ", layers 0 to ") ? 1 : 0;
            flights += has("\"pid\":1000,\"tid\":" + std::to_string(1001 + own) + ",\"ts\"") ? 1 : 0;
        }
        CHECK(flights == (group.size() > 1 ? 4 : 0));
        CHECK(tracks == (group.size() > 1 ? static_cast<std::size_t>(group.size()) : 0));
    });
}

TEST_CASE("equivalence/gossip: settings that make no sense are refused on all ranks", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [&](const gossip& of) { ls::trainer{group, recipe(of, 4)}; };
        CHECK_THROWS_WITH(make({.period = 0}), Catch::Contains("sync::gossip averages weights every 0 steps"));
        CHECK_THROWS_WITH(make({.graph = {}}), Catch::Contains("graph \"\" has no phases; use ring"));
        static std::size_t rank;
        rank = static_cast<std::size_t>(group.rank());
        const graph differs{"differs", [](std::size_t) -> std::size_t { return 1; },
                            [](std::size_t workers, std::size_t worker, std::size_t) {
                                return std::vector<neighbour>{{(worker + rank) % workers, 1}};
                            }};
        CHECK_THROWS_WITH(make({.graph = differs}),
                          Catch::Contains("graph differs of 4 workers is another one on rank 1 than on rank 0"));
        const graph lopsided{"lopsided", [](std::size_t) -> std::size_t { return 1; },
                             [](std::size_t, std::size_t, std::size_t) {
                                 return std::vector<neighbour>{{0, 1}};
                             }};
        CHECK_THROWS_WITH(
            make({.graph = lopsided}),
            Catch::Contains("graph lopsided, phase 0 of 4 workers: column 0 has a sum of 4; return rows"));
    });
}
