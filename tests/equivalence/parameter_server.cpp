// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// A parameter server over messages: whatever comes first, its list of arrivals replays the run, bit for bit, on any
// number of ranks.
#include <boost/mpi/collectives.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "equivalence/groups.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

namespace ls = lockstep;
using support::on_groups;
using support::shared_folder;
using namespace ls::layers;
using ls::sync::arrival;
using ls::sync::arrival_list;
using ls::sync::asynchronous;
using ls::sync::parameter_server;

constexpr std::size_t samples = 410, batch = 24;  // the last minibatch of an epoch is short

/// Digits, of which some ranks read slowly.
struct slow_digits : ls::data::digits {
    std::chrono::microseconds pause{};
    template <class X>
    void read(std::span<const std::uint64_t> rows, X x, std::span<std::int32_t> y) const {
        std::this_thread::sleep_for(pause);
        ls::data::digits::read(rows, x, y);
    }
};
slow_digits set_of(std::size_t rank, std::size_t slow = 0) {
    return {{.count = samples}, std::chrono::microseconds{rank == slow ? 3000 : 0}};
}

/// Digits that a rank reads when the others have read ten minibatches.
struct reads_last : ls::data::digits {
    std::string file;
    bool waits = false;
    std::size_t most = batch;  // that this rank reads
    template <class X>
    void read(std::span<const std::uint64_t> rows, X x, std::span<std::int32_t> y) const {
        std::error_code none;
        const bool is_minibatch = rows.size() == most;  // before a fit() some samples are compared
        if (is_minibatch && !waits) std::ofstream{file, std::ios::app} << '.';
        while (is_minibatch && waits && (!std::filesystem::exists(file) || std::filesystem::file_size(file, none) < 10))
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        ls::data::digits::read(rows, x, y);
    }
};

template <class Sync, class Optimizer = ls::optim::momentum>
auto recipe(const Sync& sync, std::size_t threads = 1, const Optimizer& optimizer = {}, bool progress_thread = false) {
    return ls::plan{
        .model = ls::sequential{ls::input<28, 28, 1>, conv<3, 5>{}, relu{}, max_pool<4>{}, flatten{}, dropout{0.2},
                                dense<11>{}, relu{}, dense<10>{}},
        .loss = ls::softmax_cross_entropy{},
        .optimizer = optimizer,
        .schedule = ls::optim::step_decay{.rate = 0.02, .factor = 0.5, .every = 20},
        .sync = sync,
        .batch = batch,
        .workers = 1,
        .seed = 9,
        .threads = threads,
        .progress_thread = progress_thread,
    };
}

/// Losses of steps and epochs.
struct losses {
    std::vector<double> steps, epochs;
    void on_step(const ls::report::step_event& event) { steps.push_back(event.loss); }
    void on_epoch(const ls::report::epoch_event& event) { epochs.push_back(event.loss); }
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
};

struct ends_at {
    std::uint64_t step = 0;
    std::vector<std::uint64_t> heard{};
    static constexpr bool on_every_rank = true, sees_weights = false;
    bool on_step(const ls::report::step_event& event) {
        heard.push_back(event.step);
        return event.step < step;
    }
};
struct looks {
    std::vector<std::uint64_t> heard{};
    static constexpr bool on_every_rank = true;
    void on_step(const ls::report::step_event& event) { heard.push_back(event.step); }
};

struct throws_at {
    std::uint64_t step = 0;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == step) throw std::runtime_error{"an observer fails"};
    }
};

struct outcome {
    std::uint64_t weights = 0;
    losses seen;
};

/// The list of a measured run on this group, and what the run made.
template <class Sync, class Optimizer = ls::optim::momentum>
std::pair<arrival_list, outcome> measured(const boost::mpi::communicator& group, const Sync& sync, std::size_t epochs,
                                          const Optimizer& optimizer = {}, bool progress_thread = false) {
    outcome out;
    ls::trainer trainer{group, recipe(sync, 1, optimizer, progress_thread)};
    const auto set = set_of(trainer.grid().rank);
    trainer.fit(set, ls::epochs{epochs}, out.seen);
    out.weights = trainer.weights_hash();
    return {trainer.arrivals(), out};
}
template <class Optimizer = ls::optim::momentum>
outcome replayed(const boost::mpi::communicator& group, const arrival_list& list, std::size_t epochs,
                 const Optimizer& optimizer = {}) {
    outcome out;
    ls::trainer trainer{group, recipe(asynchronous{.replay = list}, 1, optimizer)};
    trainer.fit(set_of(99), ls::epochs{epochs}, out.seen);
    out.weights = trainer.weights_hash();
    return out;
}

}  // namespace

TEST_CASE("equivalence/parameter_server: a measured run is replayed bit for bit", "[equivalence]") {
    const auto check = [&](const parameter_server& sync, const auto& optimizer, const std::vector<std::size_t>& on) {
        for (const std::size_t ranks : on) {
            arrival_list list;
            outcome made;
            on_groups({static_cast<int>(ranks)}, [&](const boost::mpi::communicator& group) {
                std::tie(list, made) = measured(group, sync, 2, optimizer, sync.drain_every > 0);
                std::set<std::uint64_t> minibatches;
                for (std::size_t i = 0; i < list.entries.size(); ++i)
                    minibatches.insert(list.entries[i].minibatch == arrival::own_minibatch ? i
                                                                                           : list.entries[i].minibatch);
                CHECK(minibatches.size() == 36);
                CHECK(list.entries.size() == 36);
                CHECK(list.staleness(1).size() <= ranks + (sync.bound ? *sync.bound * ranks : 36));
            });
            std::string text = list.text();
            const boost::mpi::communicator world;
            boost::mpi::broadcast(world, text, 0);
            boost::mpi::broadcast(world, made.weights, 0);
            boost::mpi::broadcast(world, made.seen.steps, 0);
            boost::mpi::broadcast(world, made.seen.epochs, 0);
            on_groups({1, 3}, [&](const boost::mpi::communicator& group) {
                const outcome again = replayed(group, arrival_list::parse(text), 2, optimizer);
                INFO(sync.settings() << " on " << ranks << " ranks, replayed on " << group.size() << ":\n" << text);
                CHECK(again.weights == made.weights);
                CHECK(again.seen.steps == made.seen.steps);
                CHECK(again.seen.epochs == made.seen.epochs);
            });
        }
    };
    check({}, ls::optim::momentum{.beta = 0.8}, {1, 3, 8});
    check({.bound = 1}, ls::optim::sgd{}, {2, 5});
    check({.drain_every = 7}, ls::optim::adam{}, {4});
    check({.ranks_per_learner = 2}, ls::optim::momentum{.beta = 0.8}, {2, 5});
    check({.bound = 1, .drain_every = 7, .ranks_per_learner = 3}, ls::optim::adam{}, {8});
}

TEST_CASE("equivalence/parameter_server: ranks of a learner make one gradient together", "[equivalence]") {
    on_groups({5}, [&](const boost::mpi::communicator& group) {
        ls::trainer trainer{group, recipe(parameter_server{.ranks_per_learner = 2})};
        trainer.fit(set_of(trainer.grid().rank, 2), ls::epochs{1});
        std::set<std::uint64_t> learners;
        for (const arrival& one : trainer.arrivals().entries) learners.insert(one.learner);
        CHECK(learners == std::set<std::uint64_t>{0, 1, 2});
    });
    // All ranks are one: a synchronous run, and there are no others to wait for.
    std::uint64_t alone = 0;
    on_groups({4, 1}, [&](const boost::mpi::communicator& group) {
        ls::trainer trainer{group, recipe(parameter_server{.ranks_per_learner = 4})};
        ls::trainer every{group, recipe(ls::sync::every_step{})};
        trainer.fit(set_of(99), ls::epochs{2});
        every.fit(set_of(99), ls::epochs{2});
        CHECK(trainer.weights_hash() == every.weights_hash());
        for (const arrival& one : trainer.arrivals().entries) alone += one.learner;
    });
    CHECK(alone == 0);
}

TEST_CASE("equivalence/parameter_server: no learner is further ahead than the bound", "[equivalence]") {
    for (const std::uint64_t bound : {0U, 2U})
        on_groups({4}, [&](const boost::mpi::communicator& group) {
            ls::trainer trainer{group, recipe(parameter_server{.bound = bound})};
            trainer.fit(set_of(trainer.grid().rank, 2), ls::epochs{1});
            std::vector<std::size_t> made(4);
            for (const arrival& one : trainer.arrivals().entries) {
                ++made[one.learner];
                CHECK(std::ranges::max(made) - std::ranges::min(made) <= bound + 1);
            }
        });
}

TEST_CASE("equivalence/parameter_server: with a progress thread others go on while a rank reads", "[equivalence]") {
    const shared_folder folder;
    int run = 0;
    const auto check = [&](int ranks, std::size_t ranks_per_learner, std::size_t slow) {
        const std::string file = folder.path + "/read" + std::to_string(++run);
        on_groups({ranks}, [&](const boost::mpi::communicator& group) {
            const parameter_server sync{.ranks_per_learner = ranks_per_learner};
            ls::trainer trainer{group, recipe(sync, 1, ls::optim::sgd{}, true)};
            // Others of its learner wait for it, and serve.
            const std::size_t rank = trainer.grid().rank, first = rank / ranks_per_learner * ranks_per_learner,
                              together = std::min(ranks_per_learner, trainer.grid().ranks - first);
            const bool is_other = first != slow / ranks_per_learner * ranks_per_learner, is_slow = rank == slow;
            trainer.fit(
                reads_last{{.count = samples}, is_other || is_slow ? file : "/dev/null", is_slow, batch / together},
                ls::epochs{1});
            std::size_t before = 0;
            for (const arrival& one : trainer.arrivals().entries) {
                if (one.learner == slow / ranks_per_learner) break;
                ++before;
            }
            // What the rank waited for has been pushed, but for two that others are at work on.
            CHECK(before >= 10 / ranks_per_learner - 2);
            CHECK(trainer.report().seconds.total() > 0);
        });
    };
    check(3, 1, 1);
    check(3, 2, 1);
    check(4, 2, 2);
}

TEST_CASE("equivalence/parameter_server: a run goes on from a checkpoint on other ranks, with its list",
          "[equivalence]") {
    const shared_folder folder;
    const auto until = [&](int ranks, std::size_t steps, bool resumes) {
        std::pair<std::uint64_t, std::string> out;
        on_groups({ranks}, [&](const boost::mpi::communicator& group) {
            ls::trainer trainer{group, recipe(parameter_server{}, 1, ls::optim::adam{})};
            if (resumes) trainer.resume(folder.path);
            trainer.fit(set_of(trainer.grid().rank), ls::until_step{steps}, ls::checkpoint{folder.path, 6});
            out = {trainer.weights_hash(), trainer.arrivals().text()};
        });
        boost::mpi::communicator world;
        boost::mpi::broadcast(world, out.first, 0);
        boost::mpi::broadcast(world, out.second, 0);
        return out;
    };
    (void)until(3, 7, false);  // within an epoch
    (void)until(2, 25, true);  // and within the next one
    const auto [weights, text] = until(5, 40, true);
    on_groups({1, 4}, [&, &weights = weights, &text = text](const boost::mpi::communicator& group) {
        ls::trainer again{group, recipe(asynchronous{.replay = arrival_list::parse(text)}, 1, ls::optim::adam{})};
        again.fit(set_of(99), ls::until_step{40});
        CHECK(again.weights_hash() == weights);
        // And stopped within an epoch, from which minibatches have come in another order.
        const auto plan = recipe(asynchronous{.replay = arrival_list::parse(text)}, 1, ls::optim::adam{});
        ls::trainer part{group, plan}, rest{group, plan};
        part.fit(set_of(99), ls::steps{35});
        losses seen;
        rest.resume(part.save(folder.path + "/replay" + std::to_string(group.size())));
        rest.fit(set_of(99), ls::until_step{40}, seen);
        CHECK(rest.weights_hash() == weights);
        CHECK(seen.epochs.at(0) == again.report().epochs.at(1).loss);
    });
}

TEST_CASE("equivalence/parameter_server: steps, times and observers that end a run", "[equivalence]") {
    on_groups({3, 1, 4}, [&](const boost::mpi::communicator& group) {
        ls::trainer trainer{group, recipe(parameter_server{.drain_every = 5}, 2)};
        const auto set = set_of(trainer.grid().rank);
        ends_at end{3};
        looks look;
        CHECK(trainer.fit(set, ls::epochs{4}, end, look).steps == 5);  // its round is made
        CHECK(end.heard == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
        CHECK(look.heard == std::vector<std::uint64_t>{5});
        CHECK(trainer.fit(set, ls::steps{2}).steps == 2);
        const auto some = trainer.fit(set, ls::seconds{0.05});
        CHECK(some.steps >= 1);
        CHECK(some.steps < 5000);
        std::vector<float> x(784 * 2, 0.5F);
        CHECK(trainer.step(x, std::vector<int>{1, 2}).step == 8 + some.steps);
        CHECK(trainer.arrivals().entries.size() == 8 + some.steps);
        CHECK(trainer.evaluate(set).samples == samples);
        CHECK(trainer.fit(set, ls::epochs{0}).steps == 0);
    });
}

TEST_CASE("equivalence/parameter_server: after an observer has failed within a round, the trainer is at its end",
          "[equivalence]") {
    on_groups({1}, [&](const boost::mpi::communicator& group) {
        ls::trainer trainer{group, recipe(parameter_server{})}, whole{group, recipe(parameter_server{})};
        CHECK_THROWS_AS(trainer.fit(set_of(99), ls::epochs{3}, throws_at{25}), std::runtime_error);
        CHECK(trainer.report().steps == 36);
        trainer.fit(set_of(99), ls::until_epoch{3});
        whole.fit(set_of(99), ls::epochs{3});
        CHECK(trainer.weights_hash() == whole.weights_hash());
        CHECK(trainer.arrivals().entries.size() == 54);
    });
}

TEST_CASE("equivalence/parameter_server: a rank without a minibatch asks for the end of a run", "[equivalence]") {
    on_groups({3}, [&](const boost::mpi::communicator& group) {
        ls::trainer trainer{group, recipe(parameter_server{.drain_every = 2})};
        trainer.fit(set_of(99), ls::steps{2});
        if (group.rank() == 2) ls::core::stop_request::ask(15);
        CHECK_THROWS_AS(trainer.fit(set_of(99), ls::epochs{3}), ls::core::interrupted);
        CHECK(trainer.report().steps == 4);
        ls::core::stop_request::ask(0);
    });
}
