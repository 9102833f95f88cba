// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 4
// A fit() that a signal ends within an epoch leaves nothing under way: one rank alone may look at the weights after it,
// a search puts them back, and a new trainer works on the same ranks.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/groups.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/find_learning_rate.hpp"
#include "lockstep/train/trainer.hpp"
#include "training/large_weights.hpp"

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;
using namespace ls::layers;

/// Workers that meet in every fifth step.
auto local_recipe() {
    return ls::plan{
        .model = ls::sequential{ls::input<support::large_width>, dense<16>{}, ls::layers::tanh{}, dense<1>{}},
        .loss = ls::loss::mean_squared_error{},
        .optimizer = ls::optim::sgd{},
        .schedule = ls::optim::constant{.rate = 1e-3},
        .sync = ls::sync::local_sgd{.period = 5},
        .batch = 8,
        .transport = ls::transport::messages,
        .timeout = std::chrono::seconds{30}};
}

/// A handler of the last rank has noted a signal in step `at`.
struct asks {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    bool mine;
    std::uint64_t at;
    void on_step(const ls::report::step_event& event) const {
        if (mine && event.step == at) ls::core::stop_request::ask(SIGUSR1);
    }
};
/// Looks at the weights of rank 0 at the end, as logs do.
struct looks {
    static constexpr bool sees_weights = false;
    std::uint64_t* hash;
    template <class Trainer>
    void on_end(Trainer& trainer, const ls::report::totals&) const {
        *hash = trainer.weights_hash();
    }
};

/// At the begin.
struct looks_first {
    std::uint64_t* hash;
    template <class Trainer>
    void on_begin(Trainer& trainer, const ls::report::run_begin&) const {
        *hash = trainer.weights_hash();
    }
};

/// Looks at them on rank 0 after each step, and may end the run: the other ranks wait for its answer.
template <class Trainer>
struct looks_and_decides {
    Trainer* of;
    std::vector<std::uint64_t>* hashes;
    bool on_step(const ls::report::step_event& event) const {
        hashes->push_back(of->weights_hash());
        return event.step < 3;
    }
};

}  // namespace

TEST_CASE("one rank looks at the weights, and the others wait for what it says", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, support::large_recipe()}, whole{world, support::large_recipe()};
    std::vector<std::uint64_t> hashes, expected;
    trainer.fit(support::large_set(), ls::epochs{9}, looks_and_decides<decltype(trainer)>{&trainer, &hashes});
    CHECK(trainer.report().steps == 3);
    for (int step = 0; step < 3; ++step) {
        whole.fit(support::large_set(), ls::steps{1});
        expected.push_back(whole.weights_hash());
    }
    if (world.rank() == 0) CHECK(hashes == expected);
}

TEST_CASE("one rank looks at the weights after a signal within an epoch", "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    for (std::uint64_t at = 1; at < 6; ++at) {
        ls::trainer trainer{world, support::large_recipe()}, whole{world, support::large_recipe()};
        std::uint64_t hash = 0;
        CHECK_THROWS_AS(trainer.fit(support::large_set(), ls::epochs{9}, asks{is_last, at}, looks{&hash}),
                        ls::core::interrupted);
        ls::core::stop_request::ask(0);
        CHECK(trainer.report().steps == at + 1);
        whole.fit(support::large_set(), ls::until_step{at + 1});
        CHECK(trainer.weights_hash() == whole.weights_hash());
        if (world.rank() == 0) CHECK(hash == whole.weights_hash());
    }
}

TEST_CASE("a search that a signal ends leaves the weights as they were on every rank", "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    ls::trainer trainer{world, support::large_recipe()};
    trainer.fit(support::large_set(), ls::steps{3});
    const std::uint64_t before = trainer.weights_hash();
    for (int i = 0; i < 5; ++i) {
        if (is_last) ls::core::stop_request::ask(SIGUSR1);
        CHECK_THROWS_AS(ls::find_learning_rate(trainer, support::large_set(), {.steps = 20}), ls::core::interrupted);
        ls::core::stop_request::ask(0);
        CHECK(trainer.weights_hash() == before);
    }
    trainer.fit(support::large_set(), ls::steps{2});
    ls::trainer other{world, support::large_recipe()};
    other.fit(support::large_set(), ls::steps{5});
    CHECK(trainer.weights_hash() == other.weights_hash());
}

TEST_CASE("one rank looks at the mean of workers after a signal within an epoch, and at the begin of a fit",
          "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    const auto plan = [] {
        auto out = local_recipe();
        out.workers = 4;
        return out;
    }();
    for (std::uint64_t at = 1; at < 6; ++at) {
        ls::trainer trainer{world, plan}, whole{world, plan};
        std::uint64_t hash = 0, at_begin = 0;
        CHECK_THROWS_AS(trainer.fit(support::large_set(), ls::epochs{9}, asks{is_last, at}, looks{&hash}),
                        ls::core::interrupted);
        ls::core::stop_request::ask(0);
        CHECK(trainer.report().steps == at + 1);
        whole.fit(support::large_set(), ls::until_step{at + 1});
        const std::uint64_t now = whole.weights_hash();
        CHECK(trainer.weights_hash() == now);
        if (world.rank() == 0) CHECK(hash == now);
        // A step by each worker alone, and a fit that begins with a look.
        trainer.fit(support::large_set(), ls::steps{1});
        trainer.fit(support::large_set(), ls::steps{1}, looks_first{&at_begin});
        whole.fit(support::large_set(), ls::steps{1});
        const std::uint64_t later = whole.weights_hash();
        if (world.rank() == 0) CHECK(at_begin == later);
        whole.fit(support::large_set(), ls::steps{1});
        CHECK(trainer.state_hash() == whole.state_hash());
    }
}
