// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// Runs for a time, steps for a time, and trainers that move: all ranks do the same, with the bits of counted steps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "equivalence/groups.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/binary_cross_entropy.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/timeline.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/find_learning_rate.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;
using namespace ls::layers;
using namespace std::chrono_literals;

constexpr std::size_t width = 6, batch = 24;

auto recipe() {
    return ls::plan{.model = ls::sequential{ls::input<width>, dense<8>{}, ls::layers::tanh{}, dense<2>{}},
                    .loss = ls::loss::mean_squared_error{},
                    .optimizer = ls::optim::momentum{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .batch = batch};
}

/// Rows first .. first + count - 1 of a function of six numbers.
struct rows {
    std::vector<float> x, y;
    rows(std::size_t first, std::size_t count) {
        const ls::core::random_stream random{5, ls::core::purpose::user};
        for (std::size_t row = first; row < first + count; ++row) {
            float sum = 0, first_two = 0;
            for (std::size_t i = 0; i < width; ++i) {
                x.push_back(2 * random.uniform(row * width + i) - 1);
                sum += x.back();
                if (i < 2) first_two += x.back();
            }
            y.push_back(sum);
            y.push_back(first_two);
        }
    }
    [[nodiscard]] auto set() const { return ls::data::in_memory<ls::tensor::shape<width>, ls::tensor::shape<2>>(x, y); }
};
const rows all{0, 100};

/// f() throws on this rank, with this in its words.
template <class F>
bool throws(const F& f, const std::string& words) {
    try {
        f();
    } catch (const ls::core::error& failure) {
        UNSCOPED_INFO(failure.what());
        return std::string{failure.what()}.find(words) != std::string::npos;
    }
    return false;
}
/// On all ranks.
bool everywhere(const mpi::communicator& world, bool mine) {
    bool out = true;
    for (const bool one : ls::comm::group{world}.gather_all(mine)) out = out && one;
    return out;
}
template <class T>
bool equal_everywhere(const mpi::communicator& world, const T& mine) {
    bool out = true;
    for (const T& one : ls::comm::group{world}.gather_all(mine)) out = out && one == mine;
    return everywhere(world, out);
}

/// Sleeps in each step, on the last rank only: the clock of the first one decides.
struct slow {
    static constexpr bool on_every_rank = true, sees_weights = false;
    std::chrono::milliseconds time;
    std::vector<ls::report::step_event> seen{};
    void on_step(const ls::report::step_event& event) {
        seen.push_back(event);
        std::this_thread::sleep_for(time);
    }
    void on_epoch(const ls::report::epoch_event&) const { std::this_thread::sleep_for(time); }
};

TEST_CASE("fit() for some seconds makes counted steps, on all ranks alike", "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    ls::trainer timed{world, recipe()};
    slow first{is_last ? 10ms : 0ms};
    const auto made = timed.fit(all.set(), ls::seconds{0.25}, first);
    CHECK(equal_everywhere(world, made.steps));
    CHECK(made.steps >= 1);
    CHECK(made.steps == timed.report().steps);
    CHECK(timed.report().last_fit.steps == made.steps);
    // It is the time that has ended it: the next step would have been expected to end later, or the clock is past it.
    if (world.rank() == 0) CHECK(made.seconds > 0.05);
    REQUIRE(first.seen.size() == made.steps);
    for (std::size_t i = 0; i < first.seen.size(); ++i) {
        const bool ends = i + 1 == first.seen.size();
        CHECK(first.seen[i].time_is_over == ends);
        CHECK(first.seen[i].steps_left == (ends ? 0U : 1U));
        CHECK(first.seen[i].seconds_asked == 0.25);
        // What observers have done after epochs is no time of steps, and a part of the time that is asked for.
        const double aside =
            std::chrono::duration<double>(first.time).count() * static_cast<double>(first.seen[i].epoch - 1);
        CHECK(first.seen[i].seconds_used > first.seen[i].seconds + aside - 1e-9);
    }

    // A second one, with the time as a duration, and reading ahead; then a counted fit() goes on.
    const auto more = timed.fit(all.set(), ls::seconds{20ms});
    CHECK(more.steps >= 1);
    const auto counted = timed.fit(all.set(), ls::steps{3});
    CHECK(counted.steps == 3);
    ls::trainer whole{world, recipe()};
    const auto same = whole.fit(all.set(), ls::until_step{made.steps + more.steps + 3});
    CHECK(same.steps == made.steps + more.steps + 3);
    CHECK(whole.state_hash() == timed.state_hash());
}

TEST_CASE("no time, a time that is none, and other times on ranks", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    const auto before = trainer.state_hash();
    CHECK(trainer.fit(all.set(), ls::seconds{0}).steps == 0);
    CHECK(trainer.fit(all.set(), ls::seconds{-0.0}).steps == 0);
    CHECK(trainer.state_hash() == before);
    CHECK(trainer.fit(all.set(), ls::seconds{1e-9}).steps == 1);
    CHECK(trainer.fit(all.set(), ls::epochs{0}).steps == 0);
    for (const double time : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
        CHECK(everywhere(world, throws(
                                    [&] {
                                        ls::trainer other{world, recipe()};
                                        other.fit(all.set(), ls::seconds{time});
                                    },
                                    "pass a number of seconds of at least 0")));
    if (world.size() > 1)
        CHECK(everywhere(world, throws(
                                    [&] {
                                        ls::trainer other{world, recipe()};
                                        other.fit(all.set(), ls::seconds{1.0 + world.rank()});
                                    },
                                    "rank 0 has 1 seconds to fit, rank 1 has 2 seconds")));
    // Another kind of number is another length.
    const auto fits = [&](auto on_first, auto on_others, const std::string& words) {
        return everywhere(world, throws(
                                     [&] {
                                         ls::trainer other{world, recipe()};
                                         if (world.rank() == 0)
                                             other.fit(all.set(), on_first);
                                         else
                                             other.fit(all.set(), on_others);
                                     },
                                     words));
    };
    if (world.size() > 1) {
        CHECK(fits(ls::seconds{1}, ls::steps{5}, "rank 0 has 1 seconds to fit, rank 1 has 5 steps"));
        CHECK(fits(ls::epochs{2}, ls::steps{2}, "rank 0 has 2 epochs to fit, rank 1 has 2 steps"));
        CHECK(
            fits(ls::until_epoch{2}, ls::until_step{2}, "has 2 epochs of the whole run to fit, rank 1 has 2 steps of"));
    }
}

/// 5, 7 and 9 rows on three ranks, 8 on one.
rows own_rows(const mpi::communicator& world) {
    if (world.size() == 1) return {0, 8};
    const std::size_t rank = static_cast<std::size_t>(world.rank());
    return {10 * rank, world.size() == 3 ? 3 + 2 * rank : 2};
}

TEST_CASE("step_for() makes steps on the rows of each rank until the time is over", "[training]") {
    const mpi::communicator world;
    const rows own = own_rows(world);
    ls::trainer trainer{world, recipe()};
    std::uint64_t steps = 0;
    double loss = 0;
    for (const auto budget : {30ms, 5ms, 0ms, -3ms, 20ms}) {
        // What other ranks ask for does not count.
        const auto made = trainer.step_for(world.rank() == 0 ? budget : 100s, own.x, own.y);
        CHECK(equal_everywhere(world, made.steps));
        CHECK(made.loss.has_value() == (made.steps > 0));
        if (budget <= 0ms) CHECK(made.steps == 0);
        if (made.loss) loss = *made.loss;
        steps += made.steps;
        CHECK(made.step == steps);
    }
    CHECK(steps > 0);
    CHECK(trainer.report().steps == steps);
    ls::trainer one_by_one{world, recipe()};
    double last = 0;
    for (std::uint64_t step = 0; step < steps; ++step) last = one_by_one.step(own.x, own.y).loss;
    CHECK(last == loss);
    CHECK(one_by_one.state_hash() == trainer.state_hash());
    // And with a data set after it.
    trainer.fit(all.set(), ls::steps{2});
    one_by_one.fit(all.set(), ls::steps{2});
    CHECK(one_by_one.state_hash() == trainer.state_hash());
}

TEST_CASE("a slow step forbids further ones for a while only", "[training]") {
    const mpi::communicator world;
    ls::train::time_limit limit;
    const auto now = std::chrono::steady_clock::now();
    limit.step_begins(now);
    limit.step_ends(now + 64ms);
    const ls::train::time_limit::use limited{limit, now, 0.010};
    int declined = 0;
    while (!limit.allows_first(now)) REQUIRE(++declined < 10);
    CHECK(declined == 3);  // 64, 32, 16 ms are too much
    CHECK_FALSE(limit.allows_first(now + 11ms));
    limit.step_begins(now);
    limit.step_ends(now + 3ms);
    limit.step_begins(now + 3ms);
    CHECK_FALSE(limit.is_over(now + 4ms, 1));  // 6, 9
    limit.step_begins(now + 6ms);
    CHECK(limit.is_over(now + 7ms, 1));  // 9, 12
    // Of the first one nothing is known but how long its forward took, with eight workers also seven backward.
    ls::train::time_limit fresh;
    const ls::train::time_limit::use too{fresh, now, 0.010};
    fresh.step_begins(now);
    CHECK_FALSE(fresh.is_over(now + 1ms, 1));  // 3, 6
    CHECK(fresh.is_over(now + 2ms, 1));        // 6, 12
    CHECK_FALSE(fresh.is_over(now + 4ms, 8));  // 4.4, 8.7
    CHECK(fresh.is_over(now + 5ms, 8));        // 5.5, 10.9
}

TEST_CASE("step_for() refuses what step() refuses, and a budget that is no number", "[training]") {
    const mpi::communicator world;
    const auto refuses = [&](auto budget, const std::vector<float>& x, const std::vector<float>& y,
                             const std::string& words) {
        ls::trainer trainer{world, recipe()};
        return everywhere(world, throws([&] { trainer.step_for(budget, x, y); }, words));
    };
    const rows own = own_rows(world);
    const std::vector<float> none;
    CHECK(refuses(1ms, none, none, "no rank brought a sample"));
    CHECK(refuses(0ms, none, none, "no rank brought a sample"));
    CHECK(refuses(1ms, own.x, none, "has 0 elements"));
    using seconds = std::chrono::duration<double>;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    CHECK(refuses(seconds{std::numeric_limits<double>::quiet_NaN()}, own.x, own.y, "a budget of nan s"));
    CHECK(refuses(seconds{infinity}, own.x, own.y, "a budget of inf s"));
    // Nobody asks the others for theirs.
    ls::trainer trainer{world, recipe()};
    const auto made = trainer.step_for(world.rank() == 0 ? seconds{0} : seconds{infinity}, own.x, own.y);
    CHECK(everywhere(world, made.steps == 0));
}

/// What a handler of a program would do, in the second step of a run.
struct asked_to_end {
    static constexpr bool on_every_rank = true;
    bool mine;
    void on_step(const ls::report::step_event& event) const {
        if (mine && event.step == 2) ls::core::stop_request::ask(SIGUSR1);
    }
};
/// Ends a fit after a step, on rank 0.
struct ends_at {
    std::uint64_t step;
    bool on_step(const ls::report::step_event& event) const { return event.step < step; }
};

TEST_CASE("what a handler of one rank notes ends a fit on all of them, and a time goes with other ends", "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    ls::trainer trainer{world, recipe()};
    CHECK(everywhere(world, throws([&] { trainer.fit(all.set(), ls::seconds{100}, asked_to_end{is_last}); },
                                   "told to end by SIGUSR1 and ends after step 3")));
    CHECK(trainer.report().steps == 3);
    CHECK(trainer.report().last_fit.stop_signal == SIGUSR1);
    const rows own = own_rows(world);
    const auto made = trainer.step_for(100s, own.x, own.y);
    CHECK(made.steps == 1);
    CHECK(made.stop_signal == SIGUSR1);
    ls::core::stop_request::ask(0);
    CHECK(trainer.fit(all.set(), ls::seconds{100}, ends_at{6}).steps == 2);

    ls::trainer whole{world, recipe()};
    whole.fit(all.set(), ls::steps{3});
    whole.step(own.x, own.y);
    whole.fit(all.set(), ls::until_step{6});
    CHECK(whole.state_hash() == trainer.state_hash());
}

/// What a handler would do while observers hear of a step, an epoch or the end.
struct asked_late {
    static constexpr bool on_every_rank = true;
    enum class moment { step, epoch, end };
    bool mine;
    moment when;
    std::uint64_t at;  // step or epoch
    void on_step(const ls::report::step_event& event) const {
        if (mine && when == moment::step && event.step == at) ls::core::stop_request::ask(SIGUSR1);
    }
    void on_epoch(const ls::report::epoch_event& event) const {
        if (mine && when == moment::epoch && event.epoch == at) ls::core::stop_request::ask(SIGUSR1);
    }
    void on_end(const ls::report::totals&) const {
        if (mine && when == moment::end) ls::core::stop_request::ask(SIGUSR1);
    }
};
/// Counts what it hears of a stop, before the end, on rank 0.
struct counts_stops {
    int* stops;
    bool* is_over;
    bool saves = true;
    [[nodiscard]] bool saves_at_stop() const { return saves; }
    template <class Trainer>
    void on_stop(Trainer& trainer, const ls::report::totals& run) const {
        *stops += run.last_fit.stop_signal == SIGUSR1 && trainer.report().steps == run.steps && !*is_over ? 1 : 100;
    }
    void on_end(const ls::report::totals&) const { *is_over = true; }
};

TEST_CASE("a signal that comes after the last step ends a fit on all ranks, with a checkpoint", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    const bool is_last = world.rank() == world.size() - 1;
    ls::trainer whole{world, recipe()};
    whole.fit(all.set(), ls::until_step{5});
    const auto hash_of_epoch = whole.state_hash();
    whole.fit(all.set(), ls::until_step{7});
    using moment = asked_late::moment;
    const auto check = [&](auto until, std::uint64_t last, moment when, std::uint64_t every, auto... more) {
        folder.clear();
        ls::trainer trainer{world, recipe()};
        const ls::checkpoint saves{.folder = folder.path, .every = every};
        const asked_late late{is_last, when, when == moment::epoch ? (last + 4) / 5 : last};
        CHECK(everywhere(world, throws([&] { trainer.fit(all.set(), until, ls::checkpoint{saves}, late, more...); },
                                       ls::core::text("told to end by SIGUSR1 and ends after step ", last, ";"))));
        CHECK(trainer.report().last_fit.stop_signal == SIGUSR1);
        ls::core::stop_request::ask(0);
        ls::trainer next{world, recipe()};
        next.resume(folder.path);
        CHECK(next.report().steps == last);
        CHECK(next.state_hash() == (last == 5 ? hash_of_epoch : whole.state_hash()));
        CHECK(next.fit(all.set(), ls::until_step{last}, ls::checkpoint{saves}).steps == 0);
    };
    int stops = 0;
    bool is_over = false;
    check(ls::epochs{1}, 5, moment::step, 1000);
    check(ls::epochs{1}, 5, moment::epoch, 5);
    check(ls::steps{7}, 7, moment::epoch, 2);
    check(ls::seconds{1000}, 7, moment::step, 7, ends_at{7});
    check(ls::steps{7}, 7, moment::epoch, 1000, counts_stops{&stops, &is_over});
    CHECK(stops == (world.rank() == 0 ? 1 : 0));
}

TEST_CASE("a signal in the last step is one stop for observers, and no checkpoint is written twice", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    const bool is_last = world.rank() == world.size() - 1;
    for (const std::uint64_t at : {3U, 4U, 5U}) {  // within an epoch, in its last step and after it
        folder.clear();
        int stops = 0;
        bool is_over = false;
        ls::trainer trainer{world, recipe()};
        const auto run = [&] {
            trainer.fit(all.set(), ls::epochs{1}, ls::checkpoint{.folder = folder.path, .every = 5},
                        counts_stops{&stops, &is_over}, asked_late{is_last, asked_late::moment::step, at});
        };
        CHECK(everywhere(world, throws(run, "told to end by SIGUSR1")));
        ls::core::stop_request::ask(0);
        CHECK(stops == (world.rank() == 0 ? 1 : 0));
        const auto step = std::min<std::uint64_t>(at + 1, 5);
        CHECK(std::filesystem::exists(ls::core::text(folder.path, "/step-", step)));
        CHECK_FALSE(std::filesystem::exists(ls::core::text(folder.path, "/step-", step, ".2")));
        world.barrier();
    }
}

TEST_CASE("a signal after the last step of a fit that saves nothing counts in the next one", "[training]") {
    const mpi::communicator world;
    const support::shared_folder folder;
    const bool is_last = world.rank() == world.size() - 1;
    using moment = asked_late::moment;
    for (const bool saves : {false, true}) {
        ls::trainer trainer{world, recipe()};
        int stops = 0;
        bool is_over = false;
        const auto run = [&](auto until, const auto&... late) {
            // What comes at the end is too late for a checkpoint as well.
            if (saves) return trainer.fit(all.set(), until, ls::checkpoint{.folder = folder.path}, late...).stop_signal;
            return trainer.fit(all.set(), until, counts_stops{&stops, &is_over, false}, late...).stop_signal;
        };
        CHECK(run(ls::epochs{1}, asked_late{is_last, saves ? moment::end : moment::epoch, 1}) == 0);
        CHECK(run(ls::until_epoch{1}) == 0);  // of no step
        CHECK(trainer.report().steps == 5);
        CHECK(stops == 0);
        is_over = false;
        CHECK(everywhere(world, throws([&] { (void)run(ls::epochs{1}); }, "SIGUSR1 and ends after step 6")));
        ls::core::stop_request::ask(0);
    }
}

TEST_CASE("a time expects what observers take after each step, not what they take now and then", "[training]") {
    ls::train::time_limit limit;
    const ls::train::time_limit::clock::time_point start{1000s};
    const auto at = [&](std::chrono::milliseconds time) { return start + time; };
    const auto step = [&](std::chrono::milliseconds begin) {
        limit.step_begins(at(begin));
        limit.step_ends(at(begin + 10ms));
    };
    const auto is_over = [&](std::chrono::milliseconds begin) {
        auto next = limit;
        next.step_begins(at(begin));
        return next.is_over(at(begin + 5ms), 1);
    };
    {
        const ls::train::time_limit::use limited{limit, start, 1.0};
        step(0ms);    // then 100 ms of observers
        step(110ms);  // and again
        step(220ms);
        // One more step ends at 890 + 10 + 100 + 10.
        CHECK(is_over(890ms));
        CHECK_FALSE(is_over(870ms));
    }
    {
        const ls::train::time_limit::use limited{limit, start, 1.0};
        step(0ms);
        step(10ms);
        step(820ms);  // after an evaluation of 800 ms
        CHECK_FALSE(is_over(830ms));
        step(830ms);
        CHECK(is_over(985ms));
    }
    {
        const ls::train::time_limit::use limited{limit, start, 1.0};
        step(0ms);
        CHECK_FALSE(is_over(510ms));  // after an evaluation of 500 ms
    }
    // Nothing is expected of the observers of another fit.
    const ls::train::time_limit::use limited{limit, start, 0.1};
    CHECK_FALSE(is_over(70ms));
    CHECK(is_over(85ms));
}

/// A trainer that is a member.
class surrogate {
public:
    explicit surrogate(const mpi::communicator& world) : trainer_{world, recipe()} {}
    void learn(std::size_t steps) { trainer_.fit(all.set(), ls::steps{steps}); }
    [[nodiscard]] std::uint64_t hash() { return trainer_.state_hash(); }

private:
    ls::trainer_of<decltype(recipe())> trainer_;
};

/// Calls the trainer on every rank.
template <class Call>
struct calls {
    static constexpr bool on_every_rank = true;
    Call call;
    template <class Trainer>
    void on_step(Trainer& trainer, const ls::report::step_event&) const {
        call(trainer);
    }
};

TEST_CASE("what an observer may not call is one sentence", "[training]") {
    const mpi::communicator world;
    const auto refused = [&](const auto& call, const char* name) {
        for (const bool prefetch : {false, true}) {
            auto plan = recipe();
            plan.prefetch = prefetch;
            ls::trainer trainer{world, plan};
            const calls<std::remove_cvref_t<decltype(call)>> observer{call};
            const std::string text = name + std::string{" was called by an observer, within a fit() of this trainer"};
            CHECK(throws([&] { trainer.fit(all.set(), ls::steps{7}, observer); }, text.c_str()));
        }
    };
    refused([](auto& trainer) { trainer.fit(all.set(), ls::steps{1}); }, "fit()");
    refused([](auto& trainer) { (void)ls::find_learning_rate(trainer, all.set(), {.steps = 3}); },
            "find_learning_rate()");
    refused([](auto& trainer) { trainer.resume("/tmp/none"); }, "resume()");
    const rows own = own_rows(world);
    refused([&](auto& trainer) { trainer.step(own.x, own.y); }, "step()");
    refused([&](auto& trainer) { trainer.step_for(1ms, own.x, own.y); }, "step_for()");
    // Looks are allowed, and change nothing.
    ls::trainer still{world, recipe()};
    still.fit(all.set(), ls::steps{7});
    auto plan = recipe();
    plan.prefetch = true;
    ls::trainer looked{world, plan};
    const auto look = [](auto& trainer) {
        (void)trainer.evaluate(all.set());
        (void)trainer.weights_hash();
    };
    looked.fit(all.set(), ls::steps{7}, calls<decltype(look)>{look});
    CHECK(looked.state_hash() == still.state_hash());
    // And a fit() after a fit() is no fit() within one.
    looked.fit(all.set(), ls::steps{2});
}

TEST_CASE("two timelines are one error on all ranks", "[training]") {
    const mpi::communicator world;
    const support::shared_folder shared;
    ls::timeline first{shared.path + "/a.json"}, second{shared.path + "/b.json"}, none{""};
    ls::trainer trainer{world, recipe()};
    CHECK(everywhere(
        world, throws([&] { trainer.fit(all.set(), ls::steps{1}, first, second); }, "fit() was given two timelines")));
    // So are two outputs of one name. The trainer is as it was, and one without a path is none.
    CHECK(everywhere(world, throws(
                                [&] {
                                    trainer.fit(all.set(), ls::steps{1}, ls::report::csv_log{shared.path + "/log"},
                                                ls::report::json_log{shared.path + "/log"});
                                },
                                "log\" is named twice, and is written")));
    CHECK(trainer.fit(all.set(), ls::steps{3}, first, none).steps == 3);
}

/// The epoch of each step.
struct firsts {
    std::vector<std::uint64_t>* epochs;
    void on_step(const ls::report::step_event& event) const { epochs->push_back(event.epoch); }
};

TEST_CASE("a data set of another size begins an epoch of its own", "[training]") {
    const mpi::communicator world;
    const rows fewer{0, 64};
    ls::trainer trainer{world, recipe()};
    std::vector<std::uint64_t> epochs;
    for (int turn = 0; turn < 3; ++turn) {
        trainer.fit(all.set(), ls::steps{1}, firsts{&epochs});
        trainer.fit(fewer.set(), ls::steps{1}, firsts{&epochs});
    }
    if (world.rank() == 0) CHECK(epochs == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6});
    // With its first step only: a fit that makes none leaves the place where it is.
    ls::trainer stays{world, recipe()};
    epochs.clear();
    stays.fit(all.set(), ls::steps{3}, firsts{&epochs});
    CHECK(stays.fit(fewer.set(), ls::until_step{2}).steps == 0);
    CHECK(stays.fit(all.set(), ls::epochs{1}, firsts{&epochs}).steps == 2);
    if (world.rank() == 0) CHECK(epochs == std::vector<std::uint64_t>{1, 1, 1, 1, 1});
    ls::trainer straight{world, recipe()};
    straight.fit(all.set(), ls::epochs{1});
    CHECK(stays.state_hash() == straight.state_hash());
    // Where an epoch has ended nothing is left to end.
    ls::trainer other{world, recipe()};
    epochs.clear();
    other.fit(fewer.set(), ls::epochs{1});
    other.fit(all.set(), ls::steps{1}, firsts{&epochs});
    if (world.rank() == 0) CHECK(epochs == std::vector<std::uint64_t>{2});
}

TEST_CASE("a fit that fails before its first step leaves the place in the data set", "[training]") {
    const ls::comm::group alone;
    const rows fewer{0, 64};
    for (const bool same_size : {false, true}) {
        ls::trainer trainer{alone, recipe()}, straight{alone, recipe()};
        trainer.fit(all.set(), ls::steps{3});
        const std::uint64_t before = trainer.state_hash();
        rows broken = same_size ? all : fewer;
        std::fill(broken.x.begin(), broken.x.end(), std::numeric_limits<float>::infinity());
        CHECK_THROWS_AS(trainer.fit(broken.set(), ls::steps{4}), ls::core::error);
        CHECK(trainer.state_hash() == before);
        trainer.fit(all.set(), ls::until_epoch{2});
        straight.fit(all.set(), ls::until_epoch{2});
        CHECK(trainer.report().steps == straight.report().steps);
        CHECK(trainer.state_hash() == straight.state_hash());
    }
}

TEST_CASE("a validation that cannot be made is an error before the first step", "[training]") {
    const mpi::communicator world;
    const rows nothing{0, 0};
    ls::trainer trainer{world, recipe()};
    CHECK(everywhere(world, throws([&] { trainer.fit(all.set(), ls::epochs{1}, ls::validate{nothing.set()}); },
                                   "has no samples to evaluate")));
    CHECK(trainer.report().steps == 0);
    if (world.size() == 1) return;
    const rows other{world.rank() == 0 ? 0U : 1U, 20};
    ls::trainer second{world, recipe()};
    CHECK(everywhere(world, throws([&] { second.fit(all.set(), ls::epochs{1}, ls::validate{other.set()}); },
                                   "is another one on rank 1 than on rank 0")));
    CHECK(second.report().steps == 0);
}

/// 50 samples until it has been asked `until` times, then 100, as of a file that grows.
struct growing {
    using sample = ls::tensor::shape<width>;
    using label = ls::tensor::shape<2>;
    std::size_t until;
    std::size_t* asked;
    bool* reads_nothing;

    [[nodiscard]] std::size_t size() const { return (*asked)++ < until ? 50 : 100; }
    template <class T>
    void read(std::span<const std::uint64_t> numbers, ls::tensor::batch<T, sample> x, std::span<T> y) const {
        *reads_nothing = *reads_nothing || numbers.empty();
        all.set().read(numbers, x, y);
    }
};

TEST_CASE("a data set that grows has the size that it had when a call began", "[training]") {
    const mpi::communicator world;
    const bool is_last = world.rank() == world.size() - 1;
    const rows half{0, 50};
    ls::trainer trainer{world, recipe()}, straight{world, recipe()};
    straight.fit(half.set(), ls::epochs{1});
    bool reads_nothing = false;
    for (std::size_t until = 1; until < 7; ++until) {
        // On all ranks alike, and on the last one alone.
        for (const bool alike : {true, false}) {
            std::size_t asked = 0;
            const growing set{alike || is_last ? until : 1000, &asked, &reads_nothing};
            const auto found = trainer.evaluate(set), expected = trainer.evaluate(half.set());
            CHECK(found.samples == 50);
            CHECK(found.loss == expected.loss);
            ls::trainer other{world, recipe()};
            asked = 0;
            CHECK(other.fit(set, ls::epochs{1}).steps == 3);
            CHECK(other.state_hash() == straight.state_hash());
        }
    }
    // The last minibatch has two rows: some ranks have none, and their sets are not asked for them.
    CHECK_FALSE(reads_nothing);
}

TEST_CASE("a target that the loss does not take is one error, with its row", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, ls::plan{.model = ls::sequential{ls::input<2>, dense<1>{}},
                                        .loss = ls::binary_cross_entropy{},
                                        .batch = 6,
                                        .lanes = 6}};
    std::vector<float> x(12, 0.5F), y{0, 1, 0.25F, 1, 0, 1};
    const auto set = [&] { return ls::data::in_memory<ls::tensor::shape<2>, ls::tensor::shape<1>>(x, y); };
    trainer.fit(set(), ls::steps{2});
    const auto before = trainer.weights_hash();
    y[4] = -1;
    CHECK(throws([&] { trainer.evaluate(set()); }, "has the target -1, the loss takes 0 to 1; scale the targets"));
    if (world.size() > 1) return;
    y[4] = 1.5F;
    CHECK(throws([&] { trainer.fit(set(), ls::steps{1}); }, "has the target 1.5, the loss takes 0 to 1"));
    CHECK(trainer.weights_hash() == before);
}

TEST_CASE("a trainer moves with its class, before and after its first steps", "[training]") {
    const mpi::communicator world;
    ls::trainer still{world, recipe()};
    still.fit(all.set(), ls::steps{7});
    const auto hash = still.state_hash();

    std::vector<surrogate> several;
    for (int i = 0; i < 5; ++i) several.emplace_back(world);  // the vector grows
    std::optional<surrogate> maybe;
    maybe.emplace(world);
    std::optional<surrogate> taken = std::move(maybe);
    for (auto& one : several) one.learn(3);
    taken->learn(3);
    several.push_back(std::move(*taken));
    several.insert(several.begin(), surrogate{world});
    several.front().learn(3);
    surrogate last = std::move(several.back());
    several.back() = surrogate{world};  // what was moved from takes another one
    several.back().learn(3);
    for (auto& one : several) {
        one.learn(4);
        CHECK(one.hash() == hash);
    }
    last.learn(4);
    CHECK(last.hash() == hash);

    ls::trainer first{world, recipe()};
    auto second = std::move(first);
    second.fit(all.set(), ls::steps{7});
    CHECK(second.state_hash() == hash);
    // NOLINTNEXTLINE(bugprone-use-after-move)
    CHECK(throws([&] { first.fit(all.set(), ls::steps{1}); }, "this trainer has been moved from"));
    CHECK(throws([&] { (void)first.weights_state(); }, "use the one that it was moved to"));
    CHECK(throws([&] { (void)first.running_statistics(); }, "use the one that it was moved to"));
    auto& itself = second;
    second = std::move(itself);
    CHECK(second.state_hash() == hash);
}

}  // namespace

namespace {

/// In each step another thread calls f(), and leaves the text of its error.
template <class F>
struct calls_in_a_thread {
    static constexpr bool on_every_rank = true, sees_weights = false;
    F f;
    std::vector<std::string>* texts;
    void on_step(const ls::report::step_event&) {
        std::thread{[this] {
            try {
                f();
            } catch (const std::exception& failure) {
                texts->emplace_back(failure.what());
            }
        }}.join();
    }
};
template <class F>
calls_in_a_thread(F, std::vector<std::string>*) -> calls_in_a_thread<F>;

}  // namespace

TEST_CASE("two threads in calls on the same ranks are one error, and the first goes on", "[training]") {
    const mpi::communicator world;
    ls::trainer still{world, recipe()};
    still.fit(all.set(), ls::steps{7});
    ls::trainer trainer{world, recipe()}, other{world, recipe()};
    std::vector<std::string> texts;
    if (world.size() > 1) {
        trainer.fit(all.set(), ls::steps{4}, calls_in_a_thread{[&] { other.fit(all.set(), ls::steps{1}); }, &texts});
        REQUIRE(texts.size() == 4);
        for (const std::string& text : texts)
            CHECK(text ==
                  "lockstep: a thread calls fit while another one is in a call on the same ranks; call all trainers of "
                  "these ranks from one thread at a time");
        trainer.fit(all.set(), ls::steps{3});
    } else {
        trainer.fit(all.set(), ls::steps{7});
    }
    CHECK(trainer.state_hash() == still.state_hash());
    // Nothing of the other one has begun.
    other.fit(all.set(), ls::steps{7});
    CHECK(other.state_hash() == still.state_hash());
}
