// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3 4
// Pushes and pulls of a parameter server: every rank makes the same updates of its strip, and learners read versions
// that are whole.
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/sync/push_pull.hpp"

namespace {

namespace ls = lockstep;

/// What update `number` makes of a weight and a gradient.
double updated(double weight, double gradient, std::uint64_t number) {
    return 0.75 * weight + gradient + static_cast<double>(number);
}
/// The gradient of a minibatch at these weights.
double gradient_of(double weight, std::uint64_t minibatch) { return 0.5 * weight - static_cast<double>(minibatch); }

}  // namespace

TEST_CASE("mpi/push_pull: weights are those of the order that all ranks were told", "[mpi]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const auto check = [&](std::size_t n, std::size_t ranks_per_learner) {
        ls::sync::push_pull<double> wires{ranks, n, ranks_per_learner};
        REQUIRE(wires.speaks() == (ranks.rank() % ranks_per_learner == 0));
        std::vector<double> weights(n);
        std::iota(weights.begin(), weights.end(), 0.0);
        std::uint64_t first = 0;
        for (const std::uint64_t count : {0U, 1U, 20U, 7U}) {
            std::uint64_t made = first;
            std::vector<std::pair<std::uint64_t, std::uint64_t>> mine, ordered;  // minibatches and versions
            std::vector<double> last_read;
            const auto update = [&](std::span<double> strip, std::span<const double> gradient, std::uint64_t number) {
                REQUIRE(number == made++);
                REQUIRE(strip.size() == wires.strip().size());
                for (std::size_t i = 0; i < strip.size(); ++i) strip[i] = updated(strip[i], gradient[i], number);
            };
            wires.begin(weights, first, count, {});
            while (wires.wait_for_task(update)) {
                const auto task = wires.task();
                // One rank is slow now and then, and serves meanwhile.
                for (std::size_t i = 0; i < 3 && ranks.rank() == task.minibatch % 3; ++i) {
                    std::this_thread::sleep_for(std::chrono::microseconds{200});
                    wires.serve(update);
                }
                for (std::size_t i = 0; i < wires.gradient().size(); ++i)
                    wires.gradient()[i] = gradient_of(wires.weights()[i], task.minibatch);
                mine.push_back({task.minibatch, task.version});
                const auto read = wires.weights();
                last_read.assign(read.begin(), read.end());
                wires.push({.minibatch = task.minibatch, .version = task.version, .samples = 1, .loss = 2});
            }
            REQUIRE(made == first + count);

            // The same from the order alone: a learner had read the weights of its version.
            std::vector<std::vector<double>> versions{weights};
            for (const auto& one : wires.events()) {
                if (one.what != ls::sync::server_event::kind::update) continue;
                REQUIRE(one.gradient.loss == 2);
                if (one.learner == ranks.rank() / ranks_per_learner)
                    ordered.push_back({one.gradient.minibatch, one.gradient.version});
                const auto& read = versions[one.gradient.version - first];
                auto next = versions.back();
                for (std::size_t i = 0; i < n; ++i)
                    next[i] = updated(next[i], gradient_of(read[i], one.gradient.minibatch), one.version);
                versions.push_back(next);
            }
            REQUIRE(versions.size() == count + 1);
            // Each rank of a learner has had its minibatches, and read the same version.
            REQUIRE(mine == ordered);
            if (!mine.empty()) REQUIRE(last_read == versions[mine.back().second - first]);
            const auto strip = wires.strip();
            for (std::size_t i = 0; i < strip.size(); ++i)
                REQUIRE(wires.served()[i] == versions.back()[strip.first + i]);
            weights = versions.back();
            first += count;
            ranks.end_together();
        }
    };
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1000}})
        for (const std::size_t ranks_per_learner : {1U, 2U, 3U, 9U}) check(n, ranks_per_learner);
}

TEST_CASE("mpi/push_pull: a learner that fails ends the round of all", "[mpi]") {
    const std::size_t ranks_per_learner = GENERATE(1, 2, 3);
    const ls::comm::group ranks{boost::mpi::communicator{}};
    if (ranks.size() == 1) return;
    ls::sync::push_pull<float> wires{ranks, 100, ranks_per_learner};
    const std::vector<float> weights(100);
    wires.begin(weights, 0, 1000, {});
    const auto update = [](std::span<float>, std::span<const float>, std::uint64_t) {};
    const auto learn = [&] {
        for (int made = 0; wires.wait_for_task(update); ++made) {
            if (made == 3 && ranks.rank() == 1) {
                ranks.announce("rank 1 gives up");
                ls::core::fail("rank 1 gives up", "it was told to");
            }
            wires.push({.minibatch = wires.task().minibatch, .version = wires.task().version});
        }
    };
    if (ranks.rank() == 1)
        CHECK_THROWS_AS(learn(), ls::core::error);
    else
        CHECK_THROWS_AS(learn(), ls::comm::remote_failure);
}
