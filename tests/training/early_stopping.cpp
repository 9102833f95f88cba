// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// Observers end a run, on all ranks after the same step.
#include "lockstep/report/early_stopping.hpp"

#include <algorithm>
#include <boost/mpi/collectives/all_gather.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/metrics/top_k.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/run_record.hpp"
#include "lockstep/sync/asynchronous.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

using namespace support;

const samples<> training{96}, test{50, 8};

template <class Sync = ls::sync::every_step>
auto recipe(double rate, const Sync& sync = {}, std::size_t workers = 0) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = rate},
                    .sync = sync,
                    .batch = 32,
                    .workers = workers};
}

/// On rank 0 only: ends the run after a step, or after an epoch.
struct step_limit {
    std::uint64_t last;
    bool on_step(const ls::report::step_event& event) const { return event.step < last; }
};
struct epoch_limit {
    std::uint64_t last;
    std::vector<std::uint64_t>* seen;
    bool on_epoch(const ls::report::epoch_event& event) const {
        seen->push_back(event.epoch);
        return event.epoch < last;
    }
};

/// Is given an event that it may change, and does not.
struct may_validate {
    static constexpr bool on_every_rank = true;
    void on_epoch(ls::report::epoch_event&) const {}
};

TEST_CASE("an observer of one rank ends the run on all of them", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(0.01)};
    trainer.fit(training.set(), ls::epochs{9}, step_limit{5});
    CHECK(trainer.report().steps == 5);
    std::vector<std::uint64_t> seen;
    trainer.fit(training.set(), ls::epochs{9}, epoch_limit{3, &seen});
    CHECK(trainer.report().steps == 9);
    if (world.rank() == 0) CHECK(seen == std::vector<std::uint64_t>{2, 3});
    // The run goes on where it was.
    trainer.fit(training.set(), ls::until_step{12});
    ls::trainer whole{world, recipe(0.01)};
    whole.fit(training.set(), ls::steps{12});
    CHECK(trainer.state_hash() == whole.state_hash());
}

/// The losses that early_stopping sees.
struct losses {
    std::vector<double> all;
    void on_epoch(const ls::report::epoch_event& event) { all.push_back(event.test->loss); }
    static constexpr bool on_every_rank = true;
};

TEST_CASE("a run that gets no better ends with its best weights", "[training]") {
    const mpi::communicator world;
    for (const bool keep_best : {true, false}) {
        ls::trainer trainer{world, recipe(0.3)};  // too much: losses on the test set go up and down
        losses seen;
        ls::early_stopping stop{.patience = 2, .keep_best = keep_best};
        trainer.fit(training.set(), ls::epochs{40}, ls::validate{test.set()}, seen, stop);
        // Naively: the first epoch after which two have passed without a smaller loss.
        std::size_t best = 0, end = 0;
        for (; end < seen.all.size() && end <= best + 2; ++end)
            if (seen.all[end] < seen.all[best]) best = end;
        REQUIRE(seen.all.size() < 40);
        CHECK(seen.all.size() == best + 3);
        CHECK(stop.best_epoch == best + 1);
        CHECK(stop.best_loss == seen.all[best]);
        CHECK(trainer.evaluate(test.set()).loss == (keep_best ? seen.all[best] : seen.all.back()));
    }
    ls::trainer blind{world, recipe(0.01)};
    CHECK_THROWS_WITH(blind.fit(training.set(), ls::epochs{2}, may_validate{}, ls::early_stopping{}),
                      Catch::Contains("name validate{set} before it"));
}

/// The accuracies.
struct accuracies {
    std::vector<double> all;
    void on_epoch(const ls::report::epoch_event& event) { all.push_back((*event.test)["accuracy"]); }
    static constexpr bool on_every_rank = true;
};

/// Measures what lockstep does not know.
struct own_validation {
    static constexpr bool on_every_rank = true;
    void on_epoch(ls::report::epoch_event& event) const {
        event.test.emplace();
        event.test->metrics.push_back({"distance", 1.5});
    }
};

TEST_CASE("a metric that has to rise ends a run, too", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(0.3)};
    accuracies seen;
    ls::early_stopping stop{.patience = 2, .monitor = "accuracy", .larger_is_better = true};
    trainer.fit(training.set(), ls::epochs{40}, ls::validate{test.set()}, seen, stop);
    std::size_t best = 0, end = 0;
    for (; end < seen.all.size() && end <= best + 2; ++end)
        if (seen.all[end] > seen.all[best]) best = end;
    REQUIRE(seen.all.size() < 40);
    CHECK(seen.all.size() == best + 3);
    CHECK(stop.best_epoch == best + 1);
    CHECK(stop.best_loss == -seen.all[best]);
    CHECK(*trainer.evaluate(test.set()).accuracy == seen.all[best]);
    // Before the first step: the trainer goes on.
    const std::uint64_t steps = trainer.report().steps;
    CHECK_THROWS_WITH(
        trainer.fit(training.set(), ls::epochs{1}, ls::validate{test.set()}, ls::early_stopping{.monitor = "recall"}),
        Catch::Contains("early_stopping looks at 'recall', which no validate{set} of this fit() measures"));
    CHECK_THROWS_WITH(
        trainer.fit(training.set(), ls::epochs{1}, ls::validate{test.set()}, ls::early_stopping{.patience = 0}),
        Catch::Contains("a patience of 0 epochs"));
    CHECK(trainer.report().steps == steps);
    trainer.fit(training.set(), ls::steps{1}, ls::validate{test.set(), ls::metrics::top_k{.k = 3}},
                ls::early_stopping{.monitor = "top_k", .larger_is_better = true});
    CHECK(trainer.report().steps == steps + 1);
    trainer.fit(training.set(), ls::steps{2}, own_validation{}, ls::early_stopping{.monitor = "distance"});
    CHECK(trainer.report().steps == steps + 3);
    const auto refuses = [&](const ls::early_stopping& by, const std::string& why) {
        ls::trainer other{world, recipe(0.3)};
        CHECK_THROWS_WITH(other.fit(training.set(), ls::epochs{1}, own_validation{}, ls::early_stopping{by}),
                          Catch::Contains(why));
    };
    refuses({.monitor = "accuracy"}, "set .larger_is_better = true for the accuracy");
    refuses({.monitor = "r_squared"}, "set .larger_is_better = true for the r_squared");
    refuses({.monitor = "max_error", .larger_is_better = true}, "leave .larger_is_better out for the max_error");
}

/// What each epoch had, and how often it came.
struct epochs_seen {
    static constexpr bool on_every_rank = true;
    std::vector<double> losses, test;
    std::vector<std::uint64_t> numbers;
    void on_epoch(const ls::report::epoch_event& event) {
        losses.push_back(event.loss);
        test.push_back(event.test->loss);
        numbers.push_back(event.epoch);
    }
};

/// Kills a run in a step.
struct killed {
    std::uint64_t step;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == step) throw std::runtime_error{"killed"};
    }
};

template <class Plan>
void check_resumed_stop(const Plan& plan) {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    ls::trainer whole{world, plan};
    epochs_seen all;
    ls::early_stopping first{.patience = 2};
    whole.fit(training.set(), ls::until_epoch{40}, ls::validate{test.set()}, all, first);
    REQUIRE(all.numbers.size() < 40);
    const std::uint64_t end = whole.report().steps;

    // Every run makes one step, and is killed in the next one. The checkpoint is named before what it has to know.
    epochs_seen parts;
    for (std::uint64_t step = 1; step <= end + 2; ++step) {
        ls::trainer trainer{world, plan};
        if (step > 1) trainer.resume(folder);
        ls::early_stopping stop{.patience = 2};
        const auto run = [&] {
            return trainer.fit(training.set(), ls::until_epoch{40}, ls::checkpoint{folder, 1, 2},
                               ls::validate{test.set()}, stop, parts, killed{step + 1});
        };
        if (step < end) {
            CHECK_THROWS(run());
            continue;
        }
        // The last step; then two runs of none.
        CHECK(run().steps == (step == end ? 1 : 0));
        CHECK(stop.best_epoch == first.best_epoch);
        CHECK(stop.best_loss == first.best_loss);
        CHECK(trainer.all_weights() == whole.all_weights());
    }
    CHECK(parts.numbers == all.numbers);
    CHECK(parts.losses == all.losses);
    CHECK(parts.test == all.test);
}

TEST_CASE("a run that is resumed stops early where it would have stopped, with the same weights", "[training]") {
    check_resumed_stop(recipe(0.3));
}

TEST_CASE("a run whose learners have weights of their own stops early, and is resumed, like others", "[training]") {
    check_resumed_stop(recipe(0.3, ls::sync::asynchronous{.learners = 6}, 4));
}

TEST_CASE("a second fit with a stop of its own runs as it would have run without an interruption", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const auto run = [&](auto& trainer, auto&... more) {
        const auto first = trainer.fit(training.set(), ls::until_epoch{40}, ls::validate{test.set()},
                                       ls::early_stopping{.patience = 1}, more...);
        const auto second =
            trainer.fit(training.set(), ls::epochs{2}, ls::validate{test.set()}, ls::early_stopping{.patience = 2});
        return std::pair{first.steps, second.steps};
    };
    ls::trainer whole{world, recipe(0.3)};
    ls::checkpoint saves{folder, 3, 1};
    const auto [first, second] = run(whole, saves);
    REQUIRE(first > 0);
    REQUIRE(second > 0);
    ls::trainer trainer{world, recipe(0.3)};
    trainer.resume(folder);
    REQUIRE(trainer.report().steps == first);
    CHECK(run(trainer) == std::pair{std::uint64_t{0}, second});
    CHECK(trainer.all_weights() == whole.all_weights());
}

TEST_CASE("a run in parts that is begun again goes on in the part that was stopped", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const samples<> fewer{64};
    // The first part is over where the second one was stopped; it has a set of another size, and ends in an epoch.
    const auto run = [&](auto& trainer, ls::early_stopping& stop, auto&... more) {
        trainer.fit(fewer.set(), ls::until_step{3}, ls::validate{test.set()});
        return trainer.fit(training.set(), ls::until_epoch{40}, ls::validate{test.set()}, stop, more...).steps;
    };
    ls::trainer whole{world, recipe(0.3)};
    ls::early_stopping first{.patience = 3};
    const auto steps = run(whole, first);
    REQUIRE(steps > 10);
    for (const std::uint64_t at : {3U, 4U, 5U, 6U, 7U, 9U}) {
        ls::trainer stopped{world, recipe(0.3)};
        ls::early_stopping none{.patience = 3};
        ls::checkpoint saves{folder, at, 1};
        killed kill{at + 1};
        stopped.fit(fewer.set(), ls::until_step{3}, ls::validate{test.set()}, ls::checkpoint{folder, at, 1});
        CHECK_THROWS(run(stopped, none, saves, kill));
        ls::trainer trainer{world, recipe(0.3)};
        trainer.resume(folder);
        // A fit that fails before its first step changes nothing of it.
        CHECK_THROWS(trainer.fit(training.set(), ls::until_epoch{40}, ls::validate{test.set()},
                                 ls::early_stopping{.patience = 3}, ls::checkpoint{"/proc/lockstep", 4}));
        if (world.size() > 1) trainer = ls::trainer{world, recipe(0.3)}, trainer.resume(folder);
        ls::early_stopping second{.patience = 3};
        run(trainer, second);
        CHECK(trainer.report().steps == whole.report().steps);
        CHECK(second.best_epoch == first.best_epoch);
        CHECK(trainer.all_weights() == whole.all_weights());
        shared.clear();
    }
}

TEST_CASE("a loss has to fall by a number from 0 on", "[training]") {
    for (const double least :
         {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        ls::trainer trainer{mpi::communicator{}, recipe(0.3)};
        CHECK_THROWS_WITH(
            trainer.fit(training.set(), ls::epochs{2}, ls::validate{test.set()},
                        ls::early_stopping{.patience = 1, .least = least}),
            Catch::Contains("early_stopping has least = ") && Catch::Contains("no finite number from 0 on"));
        CHECK(trainer.report().steps == 0);
    }
}

TEST_CASE("a stop of a part that is over leaves those of later parts alone", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    // The first part runs to its end; the second one gets no better in the end.
    const auto run = [&](auto& trainer, bool keep, auto&... more) {
        trainer.fit(training.set(), ls::until_epoch{5}, ls::validate{test.set()}, ls::early_stopping{.patience = 9});
        ls::early_stopping second{.patience = 2, .keep_best = keep};
        trainer.fit(training.set(), ls::until_epoch{30}, ls::validate{test.set()}, second, more...);
        return second.best_epoch;
    };
    for (const bool keep : {true, false}) {
        ls::trainer whole{world, recipe(0.3)};
        const auto best = run(whole, keep);
        const std::uint64_t last = whole.report().steps;
        REQUIRE(last > 18);
        // Where the first part ends; in the middle and at the end of epochs of the second one.
        for (const std::uint64_t at : {std::uint64_t{15}, std::uint64_t{17}, std::uint64_t{21}, last - 1}) {
            ls::trainer stopped{world, recipe(0.3)};
            ls::checkpoint saves{folder, at, 1};
            if (at == 15) {
                stopped.fit(training.set(), ls::until_epoch{5}, ls::validate{test.set()},
                            ls::early_stopping{.patience = 9}, saves);
            } else {
                killed kill{at + 1};
                CHECK_THROWS(run(stopped, keep, saves, kill));
            }
            ls::trainer trainer{world, recipe(0.3)};
            trainer.resume(folder);
            REQUIRE(trainer.report().steps == at);
            CHECK(run(trainer, keep) == best);
            CHECK(trainer.report().steps == last);
            CHECK(trainer.all_weights() == whole.all_weights());
            shared.clear();
        }
    }
}

TEST_CASE("an epoch that another data set ends is none of those without progress", "[training]") {
    const mpi::communicator world;
    const samples<> fewer{64};
    const auto epochs = [&](bool begins_another) {
        ls::trainer trainer{world, recipe(1e-30)};  // gets no better
        ls::early_stopping stop{.patience = 2};
        trainer.fit(training.set(), ls::epochs{1}, ls::validate{test.set()}, stop);
        if (begins_another) trainer.fit(training.set(), ls::steps{1});
        epochs_seen seen;
        trainer.fit(fewer.set(), ls::epochs{10}, ls::validate{test.set()}, stop, seen);
        return seen.numbers.size();
    };
    CHECK(epochs(true) == epochs(false));
}

TEST_CASE("a resume takes back what early_stopping has seen of later epochs", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const auto fit = [&](auto& trainer, auto& stop, std::size_t epochs) {
        trainer.fit(training.set(), ls::until_epoch{epochs}, ls::validate{test.set()}, stop);
    };
    ls::early_stopping stop{.patience = 3};
    ls::trainer trainer{world, recipe(0.01)};
    trainer.fit(training.set(), ls::steps{1}, ls::checkpoint{folder, 1, 1});
    fit(trainer, stop, 6);
    REQUIRE(stop.best_epoch > 1);
    // Back to the first epoch, where the checkpoint knows of no best one: as a new program.
    trainer.resume(folder);
    CHECK_FALSE(trainer.keeps_best());
    stop.patience = 1;
    fit(trainer, stop, 4);
    ls::early_stopping fresh{.patience = 1};
    ls::trainer other{world, recipe(0.01)};
    other.resume(folder);
    fit(other, fresh, 4);
    CHECK(stop.best_epoch == fresh.best_epoch);
    CHECK(stop.best_loss == fresh.best_loss);
    CHECK(trainer.report().steps == other.report().steps);
    CHECK(trainer.weights_hash() == other.weights_hash());
    shared.clear();

    // A checkpoint without the best weights, for a run that wants them back: refused before its first step.
    ls::trainer careless{world, recipe(0.3)};
    ls::early_stopping keeps_none{.patience = 2, .keep_best = false};
    careless.fit(training.set(), ls::until_epoch{30}, ls::validate{test.set()}, keeps_none,
                 ls::checkpoint{folder, 3, 1});
    REQUIRE(keeps_none.best_epoch > 0);
    REQUIRE(keeps_none.best_epoch < careless.report().epochs.size());
    ls::trainer again{world, recipe(0.3)};
    again.resume(folder);
    ls::early_stopping keeps{.patience = 9};
    CHECK_THROWS_WITH(fit(again, keeps, 40), Catch::Contains("was written with keep_best = false"));
}

TEST_CASE("best weights that no checkpoint has are those of now, where the last epoch was the best", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    for (const std::uint64_t every : {3, 4}) {
        // Gets better in each epoch; saved at its end, or within the next one.
        ls::trainer trainer{world, recipe(0.01)};
        ls::early_stopping keeps_none{.patience = 9, .keep_best = false};
        trainer.fit(training.set(), ls::until_step{every == 3 ? 6U : 5U}, ls::validate{test.set()}, keeps_none,
                    ls::checkpoint{folder, every, 1});
        ls::trainer again{world, recipe(0.01)};
        again.resume(folder);
        REQUIRE(again.best_epoch() == (every == 3 ? 2 : 1));
        const auto best = again.all_weights();
        ls::early_stopping keeps{.patience = 1, .least = 100};  // nothing is as much better
        const auto fit = [&] { again.fit(training.set(), ls::until_epoch{9}, ls::validate{test.set()}, keeps); };
        if (every == 3) {
            fit();
            CHECK(again.report().steps == 9);
            CHECK(again.all_weights() == best);
        } else {
            CHECK_THROWS_WITH(fit(), Catch::Contains("was written with keep_best = false"));
        }
        shared.clear();
    }
}

TEST_CASE("patience counts from the begin of a part without early_stopping before it, also after a resume",
          "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const auto run = [&](auto& trainer, auto&... more) {
        trainer.fit(training.set(), ls::until_epoch{6});
        ls::early_stopping stop{.patience = 2};
        trainer.fit(training.set(), ls::until_epoch{9}, ls::validate{test.set()}, stop, more...);
    };
    ls::trainer whole{world, recipe(0.01)}, stopped{world, recipe(0.01)}, trainer{world, recipe(0.01)};
    run(whole);
    ls::checkpoint saves{folder, 19, 1};
    killed kill{20};
    CHECK_THROWS(run(stopped, saves, kill));
    trainer.resume(folder);
    REQUIRE(trainer.report().steps == 19);
    run(trainer);
    CHECK(trainer.report().steps == whole.report().steps);
    CHECK(trainer.all_weights() == whole.all_weights());
}

TEST_CASE("rates and hours of a resumed run are those of its own steps", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    ls::trainer trainer{world, recipe(0.01)};
    trainer.fit(training.set(), ls::steps{7}, ls::checkpoint{folder, 5, 1});
    CHECK(trainer.report().timed_steps == 7);
    ls::trainer other{world, recipe(0.01)};
    other.resume(folder);
    CHECK(other.report().timed_samples == 0);
    other.fit(training.set(), ls::steps{2});
    const auto made = other.report();
    CHECK(made.steps == 7);
    CHECK(made.samples == trainer.report().samples);
    CHECK(made.timed_steps == 2);
    CHECK(made.timed_samples == 64);
    CHECK(made.samples_per_second() == 64 / made.seconds.total());
    // Back within one program: its seconds are those of all of its steps.
    trainer.resume(folder);
    trainer.fit(training.set(), ls::steps{1});
    CHECK(trainer.report().steps == 6);
    CHECK(trainer.report().timed_steps == 8);
}

TEST_CASE("a checkpoint of the last step of an epoch is there when the epoch was told", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    struct fails_in_epoch {
        void on_epoch(const ls::report::epoch_event& event) const {
            if (event.epoch == 2) throw std::runtime_error{"killed"};
        }
    };
    ls::trainer broken{world, recipe(0.01)};
    CHECK_THROWS(broken.fit(training.set(), ls::epochs{3}, ls::checkpoint{folder, 3, 2}, fails_in_epoch{}));
    ls::trainer trainer{world, recipe(0.01)};
    trainer.resume(folder);
    CHECK(trainer.report().steps == 3);
    epochs_seen seen;
    trainer.fit(training.set(), ls::until_epoch{3}, ls::validate{test.set()}, seen);
    CHECK(seen.numbers == std::vector<std::uint64_t>{2, 3});
}

/// Ends a fit before its first step, on rank 0 only.
struct not_today {
    bool on_begin(const ls::report::run_begin&) const { return false; }
};

TEST_CASE("an observer of one rank ends a fit before its first step", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)};
    CHECK(trainer.fit(training.set(), ls::epochs{1}, not_today{}).steps == 0);
    CHECK(trainer.fit(training.set(), ls::steps{1}).steps == 1);
}

/// Losses on a validation set as they are written down, one for each call.
struct scripted {
    static constexpr bool on_every_rank = true;
    std::vector<double> losses;
    std::size_t at = 0;
    void on_epoch(ls::report::epoch_event& event) {
        event.test = ls::report::evaluation{};
        event.test->loss = losses.at(at++);
    }
};

TEST_CASE("best weights from the middle of the epoch in which a fit ends come back", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)};
    ls::early_stopping stop{.patience = 3};
    scripted losses{{1, 2}};
    trainer.fit(training.set(), ls::steps{2}, losses, stop);
    const auto best = trainer.all_weights();
    trainer.fit(training.set(), ls::epochs{1}, losses, stop);
    CHECK(trainer.report().steps == 3);
    CHECK(stop.best_loss == 1);
    CHECK(trainer.all_weights() == best);
}

TEST_CASE("the best weights are those of a step: another one of its epoch is none", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    for (const bool keeps : {true, false}) {
        ls::trainer trainer{world, recipe(0.01)}, best{world, recipe(0.01)}, resumed{world, recipe(0.01)};
        scripted losses{{5, 4, 1, 9}};
        ls::early_stopping stop{.patience = 9, .keep_best = keeps};
        trainer.fit(training.set(), ls::steps{7}, losses, stop);
        trainer.fit(training.set(), ls::until_epoch{3}, losses, stop, ls::checkpoint{shared.path, 1, 1});
        best.fit(training.set(), ls::steps{7});
        resumed.resume(shared.path);
        CHECK(resumed.best_step() == 7);
        ls::early_stopping next{.patience = 9};
        const auto go_on = [&] { resumed.fit(training.set(), ls::until_epoch{3}, scripted{}, next); };
        if (keeps) {
            CHECK(trainer.all_weights() == best.all_weights());
            go_on();
            CHECK(resumed.all_weights() == best.all_weights());
        } else {
            CHECK_THROWS_WITH(go_on(), Catch::Contains("epoch 3 is the best one, and not its weights"));
        }
        shared.clear();
    }
}

TEST_CASE("a new early_stopping does not stand beside one that knows the run", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)};
    ls::early_stopping whole{.patience = 20};
    scripted losses{{5, 1, 9, 8}};
    trainer.fit(training.set(), ls::epochs{2}, losses, whole, ls::early_stopping{.patience = 2});
    CHECK_THROWS_WITH(trainer.fit(training.set(), ls::epochs{2}, losses, whole, ls::early_stopping{.patience = 2}),
                      Catch::Contains("know of other best epochs, 2 and 0 (0: none); name both of them"));
    trainer.fit(training.set(), ls::epochs{2}, losses, whole);
    CHECK(trainer.best_epoch() == 2);
}

TEST_CASE("two checkpoints of a fit do not share a folder", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    ls::trainer trainer{world, recipe(0.01)};
    CHECK_THROWS_WITH(
        trainer.fit(training.set(), ls::steps{2}, ls::checkpoint{shared.path + "/a", 2, 2},
                    ls::checkpoint{shared.path + "/../" + shared.path.substr(shared.path.rfind('/') + 1) + "/a", 3, 0}),
        Catch::Contains("two checkpoint of one fit() write to ") && Catch::Contains("of its own"));
    trainer.fit(training.set(), ls::steps{2}, ls::checkpoint{shared.path + "/a", 2, 2},
                ls::checkpoint{shared.path + "/b", 1, 0});
    CHECK(trainer.report().steps == 2);
}

/// Asks for the end of the run in a step.
struct asks_to_stop {
    static constexpr bool on_every_rank = true, sees_weights = false;
    std::uint64_t step;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == step) ls::core::stop_request::ask(SIGUSR1);
    }
};

TEST_CASE("a signal within the epoch after the best one ends with the best weights", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    for (const bool ends_epoch : {false, true}) {
        ls::trainer trainer{world, recipe(0.01)}, best{world, recipe(0.01)}, last{world, recipe(0.01)};
        ls::early_stopping stop{.patience = 9};
        // The step after the one that asks is the last: the first one of epoch 3, or the last one of epoch 2.
        const std::uint64_t end = ends_epoch ? 6 : 7;
        CHECK_THROWS_AS(trainer.fit(training.set(), ls::epochs{5}, scripted{{3, 1, 2}}, asks_to_stop{end - 1}, stop,
                                    ls::checkpoint{shared.path, 100, 1}),
                        ls::interrupted);
        ls::core::stop_request::ask(0);
        CHECK(trainer.report().steps == end);
        CHECK(stop.best_epoch == 2);
        best.fit(training.set(), ls::epochs{2});
        CHECK(trainer.all_weights() == best.all_weights());
        // What is saved has the weights of the last step, and the run goes on from there.
        ls::trainer resumed{world, recipe(0.01)};
        resumed.resume(shared.path);
        last.fit(training.set(), ls::steps{end});
        CHECK(resumed.all_weights() == last.all_weights());
        ls::early_stopping next{.patience = 9};
        resumed.fit(training.set(), ls::steps{0}, scripted{}, next);
        CHECK(resumed.all_weights() == best.all_weights());
        shared.clear();
    }
}

TEST_CASE("steps that early_stopping was not told of are after its best ones", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)}, best{mpi::communicator{}, recipe(0.01)};
    ls::early_stopping stop{.patience = 9};
    trainer.fit(training.set(), ls::epochs{1}, scripted{{1}}, stop);
    best.fit(training.set(), ls::epochs{1});
    CHECK(trainer.weights_hash() == best.weights_hash());
    trainer.fit(training.set(), ls::steps{1});
    trainer.fit(training.set(), ls::steps{0}, scripted{}, stop);
    CHECK(trainer.weights_hash() == best.weights_hash());
}

TEST_CASE("a log has the hash of the weights that the trainer keeps, whatever the order of names", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string path = shared.path + "/run.jsonl";
    const auto check = [&](bool log_first) {
        ls::trainer trainer{world, recipe(0.01)};
        ls::early_stopping stop{.patience = 1};
        ls::json_log log{path};
        if (log_first)
            trainer.fit(training.set(), ls::epochs{5}, scripted{{2, 1, 3}}, log, stop);
        else
            trainer.fit(training.set(), ls::epochs{5}, scripted{{2, 1, 3}}, stop, log);
        const std::uint64_t hash = trainer.weights_hash();
        if (world.rank() == 0) CHECK(ls::report::read_run(path).weights_hash == ls::core::hexadecimal(hash));
    };
    check(true);
    check(false);
}

TEST_CASE("patience holds over a loop of fits, also of one that is resumed between them", "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const std::vector<double> all{3, 1, 2, 4, 5, 6, 7, 8};
    for (std::size_t resumed_at = 0; resumed_at < 6; ++resumed_at) {
        ls::trainer first{world, recipe(0.01)}, second{world, recipe(0.01)};
        ls::early_stopping before{.patience = 3, .keep_best = false}, after = before;
        scripted losses{all};
        for (std::uint64_t epoch = 1; epoch <= resumed_at; ++epoch)
            first.fit(training.set(), ls::until_epoch{epoch}, losses, before, ls::checkpoint{folder, 1, 1});
        if (resumed_at > 0) second.resume(folder);
        for (std::uint64_t epoch = resumed_at + 1; epoch <= 8; ++epoch)
            second.fit(training.set(), ls::until_epoch{epoch}, losses, after);
        CHECK(second.report().epochs.size() == 5 - resumed_at);
        CHECK(after.best_epoch == 2);
        CHECK(after.best_loss == 1);
        shared.clear();
    }
}

TEST_CASE("early_stopping begins anew with another trainer", "[training]") {
    ls::early_stopping stop{.patience = 2};
    for (const std::vector<double>& losses : {std::vector<double>{3, 1, 2, 4}, {9, 8, 7, 7.5, 7.6, 1}}) {
        ls::trainer trainer{mpi::communicator{}, recipe(0.01)};
        trainer.fit(training.set(), ls::epochs{6}, scripted{losses}, stop);
        const auto best = std::min_element(losses.begin(), losses.begin() + 4) - losses.begin();
        CHECK(stop.best_epoch == static_cast<std::uint64_t>(best) + 1);
        CHECK(trainer.report().epochs.size() == static_cast<std::size_t>(best) + 3);
    }
}

TEST_CASE("one early_stopping keeps the best weights while another one does not", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)}, best{mpi::communicator{}, recipe(0.01)};
    trainer.fit(training.set(), ls::epochs{5}, scripted{{3, 1, 2, 4, 5}}, ls::early_stopping{.patience = 5},
                ls::early_stopping{.patience = 2, .keep_best = false});
    CHECK(trainer.report().epochs.size() == 4);
    best.fit(training.set(), ls::epochs{2});
    CHECK(trainer.all_weights() == best.all_weights());
    CHECK_THROWS_WITH(trainer.remember_best(1, std::numeric_limits<double>::infinity()),
                      Catch::Contains("a best epoch of the loss inf; remember finite losses"));
}

TEST_CASE("a trainer remembers one best epoch: of one number, which falls by one least step", "[training]") {
    ls::trainer trainer{mpi::communicator{}, recipe(0.01)};
    ls::validate measured{test.set(), ls::metrics::top_k{.k = 2}};
    ls::early_stopping by_loss{.patience = 3}, by_metric{.patience = 3, .monitor = "top_k", .larger_is_better = true},
        by_tenths{.patience = 3, .least = 0.1};
    CHECK_THROWS_WITH(trainer.fit(training.set(), ls::epochs{1}, measured, ls::early_stopping{by_loss},
                                  ls::early_stopping{by_metric}),
                      Catch::StartsWith("lockstep: two early_stopping look at ") &&
                          Catch::Contains(" and at larger top_k with least = 0") &&
                          Catch::Contains("; name one of them"));
    CHECK_THROWS_WITH(trainer.fit(training.set(), ls::epochs{1}, measured, by_loss, by_tenths),
                      Catch::Contains("with least = 0.1, and a trainer remembers one best epoch"));
    // It is refused before anything is done.
    trainer.fit(training.set(), ls::epochs{1}, measured, by_metric, ls::early_stopping{by_metric});
    CHECK(trainer.report().epochs.size() == 1);
}

TEST_CASE("a checkpoint of the last step of a fit that ends within an epoch has what observers made of it",
          "[training]") {
    const mpi::communicator world;
    const shared_folder shared;
    const std::string& folder = shared.path;
    const std::vector<double> losses{4, 2, 3, 5};
    ls::early_stopping whole{.patience = 9, .keep_best = false};
    scripted script{losses};
    ls::trainer one{world, recipe(0.3)};
    for (int part = 0; part < 4; ++part) one.fit(training.set(), ls::steps{1}, script, whole);
    for (std::size_t part = 0; part < 3; ++part) {
        ls::trainer trainer{world, recipe(0.3)};
        if (part > 0) trainer.resume(folder);
        ls::early_stopping stop{.patience = 9, .keep_best = false};
        trainer.fit(training.set(), ls::steps{1}, scripted{{losses[part]}}, stop, ls::checkpoint{folder, 1, 1});
        CHECK(stop.best_loss == std::min(4.0, part > 0 ? 2.0 : 4.0));
        ls::trainer next{world, recipe(0.3)};
        next.resume(folder);
        CHECK(next.best_loss() == stop.best_loss);
        CHECK(next.best_epoch() == stop.best_epoch);
    }
    CHECK(whole.best_loss == 2);
}

}  // namespace
