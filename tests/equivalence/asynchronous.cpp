// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Asynchronous and stale-synchronous training: the weights of a naive parameter server, and equal bits on 1, 2, 3, 4,
// 6, 7 and 8 ranks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "equivalence/naive_workers.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace naive_workers;
using ls::sync::arrival_list;
using ls::sync::arrivals_of;
using ls::sync::asynchronous;

/// A server that keeps all of its versions.
numbers naive_server(const asynchronous& of, std::size_t workers, const numbers& begin) {
    const arrival_list list = arrivals_of(of, workers, 5, steps);
    std::vector<numbers> versions{begin};
    numbers v(begin.size());
    const std::size_t n = training.y.size();
    for (std::size_t step = 0, at = 0; step < steps; ++step) {
        const std::size_t rows = std::min(batch, n - at);
        numbers sum(begin.size());
        for (std::size_t k = 0; k < workers; ++k) {
            const std::size_t first = at + rows * (k * lanes / workers) / lanes,
                              last = at + rows * ((k + 1) * lanes / workers) / lanes;
            if (first == last) continue;
            const std::size_t version = list.entries[step * workers + k].version;
            const numbers g = naive_gradient(versions[version], first, last);
            double by = static_cast<double>(last - first) / static_cast<double>(rows);
            if (of.divides_by_staleness) by /= static_cast<double>(std::max<std::size_t>(1, step - version));
            for (std::size_t i = 0; i < g.size(); ++i) sum[i] += by * g[i];
        }
        numbers next = versions.back();
        for (std::size_t i = 0; i < next.size(); ++i) next[i] -= rate * (v[i] = inner_beta * v[i] + sum[i]);
        versions.push_back(next);
        at = at + rows == n ? 0 : at + rows;
    }
    return versions.back();
}

const std::vector<asynchronous> cases{{},
                                      {.learners = 3, .spread = 0.5},
                                      {.learners = 11, .bound = 2, .slowest = 5},
                                      {.learners = 5, .spread = 1, .divides_by_staleness = true}};

}  // namespace

TEST_CASE("equivalence/asynchronous: the weights are those of a naive parameter server", "[equivalence]") {
    for (const std::size_t workers : {1U, 2U, 3U, 4U, 8U})
        for (const asynchronous& of : cases)
            on_groups({1, 3}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, recipe(of, workers)};
                const auto begin = trainer.all_weights();
                const numbers expected = naive_server(of, workers, numbers{begin.begin(), begin.end()});
                trainer.fit(training.set(), ls::steps{steps});
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                CHECK(distance(trainer.all_weights(), expected) < 1e-12);
            });
}

TEST_CASE("equivalence/asynchronous: a barrier is a synchronous run", "[equivalence]") {
    on_groups({1, 4}, [&](const mpi::communicator& group) {
        ls::trainer barrier{group, recipe(asynchronous{.bound = 0}, 4)};
        ls::trainer plain{group, recipe(ls::sync::local_sgd{.start = steps}, 4)};
        barrier.fit(training.set(), ls::steps{steps});
        plain.fit(training.set(), ls::steps{steps});
        CHECK(barrier.weights_hash() == plain.weights_hash());
    });
}

TEST_CASE("equivalence/asynchronous: the same bits on any number of ranks, in a replay, and after a resume",
          "[equivalence]") {
    const shared_folder folder;
    const auto same = [&](const asynchronous& of, std::size_t workers) {
        const auto plan = recipe(of, workers);
        const outcome drawn = check_same_bits(plan, {1, 2, 3, 4, 6, 7, 8}, folder);
        INFO(of.settings() << ", " << workers << " workers");
        // A list of what arrived, of more steps than there are.
        const arrival_list list = arrivals_of(of, workers, plan.seed, steps + 20);
        on_groups({3}, [&](const mpi::communicator& group) {
            const outcome listed = run(group, recipe(asynchronous{.divides_by_staleness = of.divides_by_staleness,
                                                                  .replay = arrival_list::parse(list.text())},
                                                     workers));
            if (mpi::communicator{}.rank() == 0) {
                CHECK(listed.weights == drawn.weights);
                CHECK(listed.losses == drawn.losses);
            }
        });
    };
    for (const std::size_t workers : {1U, 5U, 8U})
        for (const asynchronous& of : cases)
            if (workers == 5 || of.learners != 0) same(of, workers);
}

TEST_CASE("equivalence/asynchronous: a step that fails leaves the weights of the server", "[equivalence]") {
    on_groups({1}, [&](const mpi::communicator& group) {
        const auto plan = recipe(asynchronous{.learners = 9}, 4);
        ls::trainer trainer{group, plan}, whole{group, plan};
        trainer.fit(training.set(), ls::steps{3});
        const std::uint64_t before = trainer.weights_hash();
        auto x = training.x;
        x.resize(batch * inputs);
        std::vector<std::int32_t> y(batch, 0);
        y[40] = 1000;  // no class
        CHECK_THROWS_AS(trainer.step(x, y), ls::core::error);
        CHECK(trainer.weights_hash() == before);
        whole.fit(training.set(), ls::steps{steps});
        trainer.fit(training.set(), ls::until_step{steps});
        CHECK(trainer.state_hash() == whole.state_hash());
    });
}

TEST_CASE("equivalence/asynchronous: at the end of its list a run can be saved, and goes on with a longer one",
          "[equivalence]") {
    const shared_folder folder;
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        // With a barrier nothing is under way where the list ends.
        const arrival_list all = arrivals_of({.bound = 0}, 4, 5, steps);
        const arrival_list few{{all.entries.begin(), all.entries.begin() + 16}};
        ls::trainer whole{group, recipe(asynchronous{.replay = all}, 4)},
            part{group, recipe(asynchronous{.replay = few}, 4)}, rest{group, recipe(asynchronous{.replay = all}, 4)};
        whole.fit(training.set(), ls::steps{steps});
        CHECK_THROWS_WITH(part.fit(training.set(), ls::steps{steps}),
                          Catch::Contains("the list of arrivals has 16 gradients, enough for 4 updates of 4"));
        const std::string path = part.save(folder.path + "/end" + std::to_string(group.size()));
        rest.resume(path, {"sync"});
        rest.fit(training.set(), ls::until_step{steps});
        CHECK(rest.weights_hash() == whole.weights_hash());
    });
}

TEST_CASE("equivalence/asynchronous: a resume that needs weights which no learner has is refused", "[equivalence]") {
    const shared_folder folder;
    on_groups({3}, [&](const mpi::communicator& group) {
        const asynchronous drawn{.learners = 9, .spread = 0.5};
        const arrival_list all = arrivals_of(drawn, 4, 5, steps);
        const arrival_list few{{all.entries.begin(), all.entries.begin() + 16}};
        const auto continued = [&](const asynchronous& first, const asynchronous& second) {
            ls::trainer part{group, recipe(first, 4)}, rest{group, recipe(second, 4)};
            part.fit(training.set(), ls::steps{4});
            rest.resume(part.save(folder.path + "/" + std::to_string(&first == &drawn)), {"sync"});
            rest.fit(training.set(), ls::until_step{steps});
            return rest.weights_hash();
        };
        ls::trainer whole{group, recipe(drawn, 4)};
        whole.fit(training.set(), ls::steps{steps});
        CHECK(continued(drawn, {.replay = all}) == whole.weights_hash());
        CHECK_THROWS_WITH(continued({.replay = few}, {.replay = all}), Catch::Contains("takes a gradient of learner"));
        CHECK_THROWS_WITH(continued({.replay = few}, drawn), Catch::Contains("and the learner has those after step"));
        // Loaded weights stand for all that learners had.
        ls::trainer trainer{group, recipe(drawn, 4)};
        trainer.fit(training.set(), ls::steps{4});
        trainer.save_weights(folder.path + "/w.safetensors");
        trainer.load_weights(folder.path + "/w.safetensors");
        CHECK_NOTHROW(trainer.fit(training.set(), ls::until_step{steps}));
    });
}

TEST_CASE("equivalence/asynchronous: settings that make no sense are refused on all ranks", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [&](const asynchronous& of) { return ls::trainer{group, recipe(of, 4)}; };
        CHECK_THROWS_WITH(make({.spread = -1}), Catch::Contains("an asynchronous run has spread = -1"));
        CHECK_THROWS_WITH(make({.slowest = 0}), Catch::Contains("an asynchronous run has slowest = 0"));
        CHECK_THROWS_WITH(make({.replay = arrival_list{{{0, 3, 0}}}}), Catch::Contains("where the newest is 0"));
        auto trainer = make({.replay = arrivals_of({}, 4, 5, 2)});
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{3}),
                          Catch::Contains("the list of arrivals has 8 gradients, enough for 2 updates of 4"));
    });
}
