// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3 4 8
// What goes wrong, on one rank or on all: every rank gets an exception with the same text, none waits for ever, and
// weights stay whole.
#include <algorithm>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/tensorboard.hpp"
#include "lockstep/report/timeline.hpp"

namespace {

using namespace support;
namespace part = ls::partition;

/// What is called in the middle of a forward or backward run, where a test wants a failure.
std::function<void()> in_forward;
std::function<void()> in_backward;
std::function<void()> in_construction;

/// A user's layer: y = x.
template <ls::tensor::Shape S>
struct passing_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "passing";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;

    template <class T>
    [[nodiscard]] static std::size_t scratch(std::size_t, std::size_t, ls::parallel::team) {
        if (in_construction) in_construction();
        return 0;
    }
    void forward(const auto& pass) const {
        if (in_forward) in_forward();
        std::copy_n(pass.x.data, pass.x.size(), pass.y.data);
    }
    void backward(const auto& pass) const {
        if (in_backward) in_backward();
        if (pass.wants_dx()) std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
    }
};
struct passing {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return passing_layer<Input>{};
    }
};

constexpr auto watched = ls::sequential{
    ls::input<12, 12, 1>,   ls::layers::flatten{}, ls::layers::dense<24>{}, ls::layers::relu{}, passing{},
    ls::layers::dense<10>{}};

/// Calls `before(rows)` on each read.
struct checked_set {
    using sample = support::sample;
    using label = support::label;
    const samples<>& all;
    std::function<void(std::span<const std::uint64_t>)> before;

    [[nodiscard]] std::size_t size() const { return all.y.size(); }
    [[nodiscard]] std::string name() const { return "checked set"; }
    template <class T>
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<T, sample> x, std::span<std::int32_t> y) const {
        before(rows);
        all.set().read(rows, x, y);
    }
};

struct numbers {
    std::size_t batch = 16;
    std::size_t lanes = 8;
    std::uint64_t seed = 1;
    double rate = 0.01;
    std::size_t threads = 1;
    std::size_t bucket = 1U << 20U;
    bool overlap = true;
    bool progress_thread = false;
    bool prefetch = false;
    ls::transport transport = ls::transport::automatic;
};
/// How gradients travel, and who moves them on.
struct machine {
    ls::transport transport;
    bool progress_thread;
};
constexpr machine machines[] = {{ls::transport::messages, false},
                                {ls::transport::shared_memory, false},
                                {ls::transport::messages, true},
                                {ls::transport::shared_memory, true}};

template <class Partition = part::data>
auto recipe(const numbers& of = {}, const Partition& partition = {}) {
    return ls::plan{
        .model = watched,
        .loss = ls::loss::softmax_cross_entropy{},
        .schedule = ls::optim::constant{.rate = of.rate},
        .partition = partition,
        .batch = of.batch,
        .lanes = of.lanes,
        .seed = of.seed,
        .threads = of.threads,
        .bucket = of.bucket,
        .overlap = of.overlap,
        .progress_thread = of.progress_thread,
        .prefetch = of.prefetch,
        .transport = of.transport,
    };
}

struct failure {
    std::string text;        ///< as the rank wrote it on which it happened, without the line on the weights
    bool is_remote = false;  ///< heard of from another rank
    std::size_t origin = 0;
    bool is_core = false;  ///< core::error; a user's exception passes through unchanged
};

template <class F>
std::optional<failure> failure_of(F&& f) {
    try {
        f();
    } catch (const ls::comm::remote_failure& remote) {
        return failure{remote.text(), true, remote.origin(), true};
    } catch (const ls::core::error& error) {
        const std::string text = error.what();
        return failure{text.substr(0, text.find("\n    the weights on rank ")), false, 0, true};
    } catch (const std::exception& other) {
        return failure{other.what(), false, 0, false};
    }
    return std::nullopt;
}

/// All ranks fail with `text`, and those that did not fail themselves name the rank that did.
void check_all_fail(const mpi::communicator& world, const std::optional<failure>& mine, const std::string& text,
                    std::optional<int> bad = {}) {
    const auto failed = of_all(world, mine ? 1 : 0);
    CHECK(std::count(failed.begin(), failed.end(), 1) == world.size());
    if (!mine) return;
    CHECK(mine->text == text);
    if (!bad) return;
    CHECK(mine->is_remote == (world.rank() != *bad));
    if (mine->is_remote) CHECK(mine->origin == static_cast<std::size_t>(*bad));
}

/// All ranks throw the same `text`, and know which rank it comes from where that is not rank 0.
void check_all_alike(const mpi::communicator& world, const std::optional<failure>& mine, const std::string& text) {
    const bool is_told = mine && mine->is_core && !mine->is_remote && mine->text.starts_with(text);
    for (const int one : of_all(world, is_told ? 1 : 0)) CHECK(one == 1);
    const std::string found = mine ? mine->text : "";
    for (const std::string& other : of_all(world, found)) CHECK(other == found);
}
/// Reads of a data set that only compare it over ranks, at the start of fit() and evaluate().
std::size_t compared(const mpi::communicator& world) { return world.size() > 1 ? 1 : 0; }

int last_rank(const mpi::communicator& world) { return world.size() - 1; }

const samples<> all{128};

/// After an evaluation that has failed the trainer trains and evaluates like one that has made its steps alone.
template <class Trainer, class Plan = decltype(recipe())>
void check_goes_on(const mpi::communicator& world, Trainer& trainer, const Plan& plan = recipe()) {
    ls::trainer undisturbed{world, plan};
    if (const auto steps = trainer.report().steps; steps > 0) undisturbed.fit(all.set(), ls::steps{steps});
    CHECK(trainer.evaluate(all.set()).loss == undisturbed.evaluate(all.set()).loss);
    trainer.fit(all.set(), ls::steps{3});
    undisturbed.fit(all.set(), ls::steps{3});
    CHECK(trainer.state_hash() == undisturbed.state_hash());
}

}  // namespace

TEST_CASE("training/failures: a number that is not finite in the data of one rank", "[training]") {
    const mpi::communicator world;
    for (const float bad_number : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        ls::trainer trainer{world, recipe()};
        trainer.fit(all.set(), ls::steps{3});
        world.barrier();
        const auto before = trainer.local_hash();
        auto mine = all.rows(0, 2);
        if (world.rank() == last_rank(world)) mine.x[sample::size + 5] = bad_number;
        const auto found = failure_of([&] { trainer.step(mine.x, mine.y); });
        check_all_fail(
            world, found,
            ls::core::text("lockstep: row 1 of this rank has the value ", bad_number,
                           " at position 5; remove or repair the sample: one such number makes all weights useless"),
            last_rank(world));
        CHECK(trainer.local_hash() == before);
    }
}

TEST_CASE("training/failures: a data set with a sample that is not finite", "[training]") {
    const mpi::communicator world;
    auto spoilt = all;
    spoilt.x[77 * sample::size + 3] = std::numeric_limits<float>::quiet_NaN();
    ls::trainer trainer{world, recipe()};
    // Somewhere in the epoch, on the rank that is dealt the sample.
    const auto found = failure_of([&] { trainer.fit(spoilt.set(), ls::epochs{1}); });
    check_all_fail(world, found,
                   "lockstep: sample 77 of data in memory (128 samples of 12x12x1) has the value nan at position 3; "
                   "remove or repair the sample: one "
                   "such number makes all weights useless");
    const auto remote = of_all(world, found && found->is_remote ? 1 : 0);
    CHECK(std::count(remote.begin(), remote.end(), 0) == 1);
    // An evaluation meets it as well; the trainer goes on after it.
    ls::trainer other{world, recipe()};
    check_all_alike(world, failure_of([&] { other.evaluate(spoilt.set()); }), found ? found->text : "");
    check_goes_on(world, other);
}

TEST_CASE("training/failures: an exception in a user's layer on one rank", "[training]") {
    const mpi::communicator world;
    for (const auto& on : machines) {
        const int bad = on.transport == ls::transport::messages ? 0 : last_rank(world);
        ls::trainer trainer{world, recipe({.progress_thread = on.progress_thread, .transport = on.transport})};
        trainer.fit(all.set(), ls::steps{3});
        world.barrier();
        const auto before = trainer.local_hash();
        if (world.rank() == bad) in_forward = [] { throw std::runtime_error{"the layer has run out of luck"}; };
        const auto found = failure_of([&] { trainer.fit(all.set(), ls::steps{5}); });
        in_forward = nullptr;
        check_all_fail(world, found, "the layer has run out of luck", bad);
        if (world.rank() == bad) CHECK_FALSE(found->is_core);
        CHECK(trainer.local_hash() == before);
    }
}

TEST_CASE("training/failures: an exception in backward, when other ranks have long averaged the last layer",
          "[training]") {
    const mpi::communicator world;
    const int bad = last_rank(world);
    for (const auto& on : machines) {
        ls::trainer trainer{world,
                            recipe({.bucket = 1, .progress_thread = on.progress_thread, .transport = on.transport})};
        trainer.fit(all.set(), ls::steps{3});
        world.barrier();
        const auto before = trainer.local_hash();
        if (world.rank() == bad)
            in_backward = [] {
                std::this_thread::sleep_for(std::chrono::milliseconds{100});
                throw std::runtime_error{"out of luck on the way back"};
            };
        const auto found = failure_of([&] { trainer.fit(all.set(), ls::steps{5}); });
        in_backward = nullptr;
        check_all_fail(world, found, "out of luck on the way back", bad);
        CHECK(trainer.local_hash() == before);
    }
}

TEST_CASE("training/failures: ranks that are behind end the step that the failed rank has ended", "[training]") {
    const mpi::communicator world;
    ls::trainer reference{ls::comm::group{}, recipe({.bucket = 1})};
    reference.fit(all.set(), ls::steps{3});
    std::size_t wrong = 0;
    for (int trial = 0; trial < 200; ++trial) {
        const auto& on = machines[trial / world.size() % 4];
        ls::trainer trainer{world,
                            recipe({.bucket = 1, .progress_thread = on.progress_thread, .transport = on.transport})};
        std::size_t reads = 0;
        const checked_set set{all, [&](std::span<const std::uint64_t>) {
                                  if (world.rank() == trial % world.size() && ++reads == 4 + compared(world))
                                      throw std::runtime_error{"the disk is gone"};
                              }};
        const auto found = failure_of([&] { trainer.fit(set, ls::epochs{1}); });
        wrong += !found || found->text != "the disk is gone" || trainer.local_hash() != reference.local_hash();
    }
    CHECK(wrong == 0);
}

TEST_CASE("training/failures: weights that are on their way when a rank fails arrive", "[training]") {
    const mpi::communicator world;
    // Megabytes: a message of which MPI has only the first pieces when the step is over.
    ls::plan plan{.model = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, ls::layers::dense<8192>{},
                                          ls::layers::dense<10>{}},
                  .loss = ls::loss::softmax_cross_entropy{},
                  .schedule = ls::optim::constant{.rate = 0.001},
                  .batch = 16,
                  .bucket = 1,
                  .transport = ls::transport::messages};
    ls::trainer reference{ls::comm::group{}, plan};
    reference.fit(all.set(), ls::steps{3});
    for (int bad = 0; bad < std::min(world.size(), 4); ++bad) {
        plan.progress_thread = bad % 2 == 1;
        ls::trainer trainer{world, plan};
        std::size_t reads = 0;
        const checked_set set{all, [&](std::span<const std::uint64_t>) {
                                  if (world.rank() == bad && ++reads == 4 + compared(world))
                                      throw std::runtime_error{"the disk is gone"};
                              }};
        const auto found = failure_of([&] { trainer.fit(set, ls::epochs{1}); });
        check_all_fail(world, found, "the disk is gone", bad);
        CHECK(trainer.local_hash() == reference.local_hash());
    }
}

TEST_CASE("training/failures: an exception that is no std::exception", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    bool own = false;
    if (world.rank() == 0) in_forward = [] { throw 42; };
    const auto found = failure_of([&] {
        try {
            trainer.fit(all.set(), ls::steps{5});
        } catch (int number) {
            own = number == 42;
        }
    });
    in_forward = nullptr;
    CHECK(own == (world.rank() == 0));
    if (world.rank() == 0) return;
    REQUIRE(found);
    CHECK(found->text == "an exception that is no std::exception");
    CHECK(found->origin == 0);
}

TEST_CASE("training/failures: an exception while a data set is read on one rank", "[training]") {
    const mpi::communicator world;
    const int bad = last_rank(world);
    for (const bool evaluates : {false, true}) {
        ls::trainer trainer{world, recipe()};
        std::size_t reads = 0;
        const checked_set set{all, [&](std::span<const std::uint64_t>) {
                                  if (world.rank() == bad && ++reads == 4 + compared(world))
                                      throw std::runtime_error{"the disk is gone"};
                              }};
        const auto found = failure_of([&] {
            if (evaluates)
                trainer.evaluate(set);
            else
                trainer.fit(set, ls::epochs{2});
        });
        check_all_fail(world, found, "the disk is gone", bad);
    }
}

TEST_CASE("training/failures: what goes wrong while a minibatch is read ahead is thrown in its own step",
          "[training]") {
    const mpi::communicator world;
    const int bad = last_rank(world);
    // In the middle of the first epoch, and at the first read of the second one. A fit of fewer steps does not read
    // that far.
    for (const std::size_t last_good : {3U, 8U})
        for (const bool prefetch : {false, true}) {
            ls::trainer reference{world, recipe()}, trainer{world, recipe({.prefetch = prefetch})};
            reference.fit(all.set(), ls::steps{last_good});
            std::size_t reads = 0;
            const checked_set set{all, [&](std::span<const std::uint64_t>) {
                                      if (world.rank() == bad && ++reads == last_good + 1 + compared(world))
                                          throw std::runtime_error{"the disk is gone"};
                                  }};
            CHECK(!failure_of([&] { trainer.fit(set, ls::steps{last_good}); }));
            CHECK(trainer.local_hash() == reference.local_hash());
            const auto found = failure_of([&] { trainer.fit(set, ls::epochs{2}); });
            check_all_fail(world, found, "the disk is gone", bad);
            CHECK(trainer.report().steps == last_good);
            CHECK(trainer.local_hash() == reference.local_hash());

            ls::trainer in_one{world, recipe({.prefetch = prefetch})};
            reads = 0;
            check_all_fail(world, failure_of([&] { in_one.fit(set, ls::epochs{2}); }), "the disk is gone", bad);
            CHECK(in_one.report().steps == last_good);
            CHECK(in_one.local_hash() == reference.local_hash());
        }
}

TEST_CASE("training/failures: a sample that is not finite is found where it is read ahead, with the same words",
          "[training]") {
    const mpi::communicator world;
    samples<> broken{128};
    broken.x[77 * sample::size + 9] = std::numeric_limits<float>::infinity();
    std::vector<std::string> texts;
    std::vector<std::uint64_t> steps;
    for (const bool prefetch : {false, true}) {
        ls::trainer trainer{world, recipe({.prefetch = prefetch})};
        const auto found = failure_of([&] { trainer.fit(broken.set(), ls::epochs{1}); });
        REQUIRE(found);
        texts.push_back(found->text);
        steps.push_back(trainer.report().steps);
    }
    CHECK(texts[0].find("sample 77 of data in memory") != std::string::npos);
    CHECK(texts[1] == texts[0]);
    CHECK(steps[1] == steps[0]);
}

TEST_CASE("training/failures: a failure while the next minibatch is still read", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe({.prefetch = true})};
    std::size_t ended = 0;
    const checked_set set{all, [&](std::span<const std::uint64_t>) {
                              std::this_thread::sleep_for(std::chrono::milliseconds{20});
                              ++ended;
                          }};
    if (world.rank() == 0) in_forward = [] { throw std::runtime_error{"the layer is broken"}; };
    const auto found = failure_of([&] { trainer.fit(set, ls::epochs{1}); });
    in_forward = nullptr;
    check_all_fail(world, found, "the layer is broken", 0);
    // A thread that has begun to read has ended: `ended` may be looked at without a lock.
    CHECK(ended <= 2 + compared(world));
    CHECK(ended >= 1 + compared(world));
}

TEST_CASE("training/failures: ranks compare four rows, then read those that they are dealt, and no others",
          "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    std::vector<std::uint64_t> seen;
    std::size_t reads = 0;
    const checked_set set{all, [&](std::span<const std::uint64_t> rows) {
                              if (++reads > compared(world))
                                  return (void)seen.insert(seen.end(), rows.begin(), rows.end());
                              CHECK(rows.size() == 4);
                          }};
    trainer.fit(set, ls::epochs{1});
    std::vector<std::uint64_t> everywhere;
    for (const auto& part : of_all(world, seen)) everywhere.insert(everywhere.end(), part.begin(), part.end());
    std::sort(everywhere.begin(), everywhere.end());
    std::vector<std::uint64_t> expected(all.y.size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i;
    CHECK(everywhere == expected);
}

namespace {
struct thrower {
    std::uint64_t at = 0;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == at) throw std::runtime_error{"the log is full"};
    }
};
struct thrower_on_one_rank {
    static constexpr bool on_every_rank = true;
    bool throws = false;
    void on_epoch(const ls::report::epoch_event&) const {
        if (throws) throw std::runtime_error{"the chart is full"};
    }
};
}  // namespace

TEST_CASE("training/failures: an exception in an observer", "[training]") {
    const mpi::communicator world;
    {
        ls::trainer trainer{world, recipe()};
        check_all_fail(world, failure_of([&] { trainer.fit(all.set(), ls::steps{6}, thrower{3}); }), "the log is full",
                       0);
    }
    {
        ls::trainer trainer{world, recipe()};
        const thrower_on_one_rank observer{.throws = world.rank() == last_rank(world)};
        check_all_fail(world, failure_of([&] { trainer.fit(all.set(), ls::epochs{2}, observer); }), "the chart is full",
                       last_rank(world));
    }
}

TEST_CASE("training/failures: files of logs that cannot be opened end no trainer", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()}, undisturbed{world, recipe()};
    std::uint64_t steps = 0;
    const auto refuses = [&](auto&& log) {
        CHECK_THROWS_WITH(trainer.fit(all.set(), ls::epochs{1}, log),
                          Catch::Matchers::StartsWith("lockstep: cannot ") && Catch::Matchers::Contains("nowhere/"));
        trainer.fit(all.set(), ls::steps{1});
        CHECK(trainer.report().steps == ++steps);
    };
    refuses(ls::csv_log{"nowhere/log.csv"});
    refuses(ls::json_log{"nowhere/log.jsonl"});
    refuses(ls::html_report{"nowhere/page.html"});
    refuses(ls::timeline{"nowhere/events.json"});
    refuses(ls::tensorboard{"/proc/nowhere/events"});
    undisturbed.fit(all.set(), ls::steps{steps});
    CHECK(trainer.state_hash() == undisturbed.state_hash());
}

namespace {
/// What only rank 0 calls, and what all of them would have to.
template <class Trainer>
struct alone {
    Trainer* trainer;
    bool at_begin;
    void on_begin() const {
        if (at_begin) (void)trainer->state_hash();
    }
    void on_end(const ls::report::totals&) const {
        if (!at_begin) (void)trainer->state_hash();
    }
};

/// A metric of which one rank makes no result.
struct fails_in_result {
    static constexpr std::string_view name = "fails";
    bool fails = false;
    template <ls::tensor::Shape Output>
    using label = ls::tensor::classes<Output::size>;
    template <ls::tensor::Shape>
    static constexpr std::size_t sum_count = 1;
    template <class Part>
    void add(const Part& part) const noexcept {
        part.sums[0] += 1;
    }
    double result(std::span<const double> sums, std::size_t) const {
        if (fails) throw std::runtime_error{"no room for the result"};
        return sums[0];
    }
};
}  // namespace

TEST_CASE("training/failures: a collective call of one rank is no pair of another one of the others", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    for (const bool at_begin : {true, false}) {
        ls::trainer trainer{world, recipe()};
        const auto found = failure_of([&] {
            trainer.fit(all.set(), ls::steps{2}, alone<decltype(trainer)>{&trainer, at_begin});
        });
        REQUIRE(found);
        CHECK_THAT(found->text, Catch::Matchers::Contains("of different calls; make the same calls"));
        CHECK_THAT(found->text, Catch::Matchers::Contains("state_hash"));
    }
}

TEST_CASE("training/failures: an exception in what makes a number of a metric's sums", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    const fails_in_result metric{.fails = world.rank() == last_rank(world)};
    check_all_fail(world, failure_of([&] { (void)trainer.evaluate(all.set(), metric); }), "no room for the result",
                   last_rank(world));
}

TEST_CASE("training/failures: a sample that an evaluation cannot read on one rank", "[training]") {
    const mpi::communicator world;
    if (world.size() > 4) return;  // many trainers
    const std::string text = "lockstep: a picture is cut off; write it again";
    std::size_t reads = 0, bad_read = 0;
    int bad = 0;
    const checked_set set{all, [&](std::span<const std::uint64_t>) {
                              if (++reads == bad_read && world.rank() == bad)
                                  ls::core::fail("a picture is cut off", "write it again");
                          }};
    const auto check = [&](const auto& plan, std::size_t read, const auto& call) {
        for (bad = 0; bad < world.size(); bad += std::max(1, last_rank(world))) {
            ls::trainer trainer{world, plan};
            reads = 0, bad_read = read;
            check_all_alike(world, failure_of([&] { call(trainer); }), text);
            bad_read = 0;
            check_goes_on(world, trainer, plan);
        }
    };
    const std::size_t first = compared(world) + 1;
    const fails_in_result sums{.fails = false};
    const auto evaluate = [&](auto& trainer) { trainer.evaluate(set); };
    for (std::size_t read = 1; read < first + 3; ++read) {  // where sets are compared, and in each part
        check(recipe(), read, evaluate);
        check(recipe({.batch = 48}), read, [&](auto& trainer) { trainer.evaluate(set, sums); });
    }
    check(recipe(), first + 7, evaluate);  // the last one
    // In a fit: where sets are compared, and after an epoch.
    if (world.size() > 1) check(recipe(), 1, [&](auto& trainer) { trainer.fit(set, ls::steps{1}); });
    check(recipe(), 2 * compared(world) + 3,
          [&](auto& trainer) { trainer.fit(all.set(), ls::epochs{2}, ls::validate{set}); });
    if (world.size() == 2) check(recipe({}, part::model<2>{}), first + 2, evaluate);
    if (world.size() == 4) check(recipe({}, part::hybrid<part::data, part::model<2>>{}), first + 2, evaluate);
}

TEST_CASE("training/failures: a sample that a rank cannot read, while others evaluate for longer than the timeout",
          "[training]") {
    using namespace std::chrono_literals;
    const mpi::communicator world;
    if (world.size() > 3) return;
    const checked_set set{all, [&, reads = std::size_t{0}](std::span<const std::uint64_t>) mutable {
                              if (++reads <= compared(world)) return;
                              if (world.rank() == 0) ls::core::fail("a picture is cut off", "write it again");
                              std::this_thread::sleep_for(400ms);  // 8 parts
                          }};
    auto plan = recipe();
    plan.timeout = 1500ms;
    ls::trainer trainer{world, plan};
    check_all_alike(world, failure_of([&] { trainer.evaluate(set); }),
                    "lockstep: a picture is cut off; write it again");
    // It is waited for as long as before.
    if (world.size() > 1) CHECK(trainer.ranks().aborts().timeout() == plan.timeout);
    check_goes_on(world, trainer, plan);
}

TEST_CASE("training/failures: an exception in an observer after the last step", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    check_all_fail(world, failure_of([&] { trainer.fit(all.set(), ls::steps{3}, thrower{3}); }), "the log is full", 0);
}

TEST_CASE("training/failures: ranks that were given different plans", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    const int bad = last_rank(world);
    const auto differs = [&](const numbers& odd, const std::string& what) {
        const auto found = failure_of([&] {
            const ls::trainer trainer{world, recipe(world.rank() == bad ? odd : numbers{})};
        });
        check_all_fail(world, found,
                       ls::core::text("lockstep: ranks were given different plans: ", what, " on rank ", bad,
                                      "; give every rank the same plan"));
        if (found) CHECK(found->is_core);
    };
    differs({.seed = 2}, "seed is 1 on rank 0 and 2");
    differs({.batch = 32}, "batch is 16 on rank 0 and 32");
    differs({.lanes = 9}, "lanes is 8 on rank 0 and 9");
    differs({.transport = ls::transport::messages}, "transport is automatic on rank 0 and messages");
    differs({.rate = 0.02}, "schedule is constant(rate=0.01) on rank 0 and constant(rate=0.02)");
    // Threads do not decide the result: each rank may have its own number.
    ls::trainer trainer{world, recipe({.threads = ls::parallel::has_threads && world.rank() == bad ? 2U : 1U})};
    trainer.fit(all.set(), ls::steps{2});
    for (const auto& other : of_all(world, trainer.local_hash())) CHECK(other == trainer.local_hash());
}

TEST_CASE("training/failures: plans that make no sense", "[training]") {
    const mpi::communicator world;
    const auto refused = [&](const numbers& of, const std::string& text) {
        const auto found = failure_of([&] { const ls::trainer trainer{world, recipe(of)}; });
        check_all_fail(world, found, text);
        if (found) CHECK(found->is_core);
    };
    refused({.batch = 0}, "lockstep: the batch has 0 samples; set batch to at least the number of lanes, 8");
    refused({.batch = 7}, "lockstep: 8 lanes for a batch of 7 samples; use at most 7 lanes, or a batch of at least 8");
    refused({.lanes = 0}, "lockstep: the plan has 0 lanes; set lanes to at least the number of ranks");
    refused({.threads = 0}, "lockstep: the plan has 0 threads; set threads to at least 1");
    refused({.overlap = false, .progress_thread = true},
            "lockstep: the plan asks for a progress thread, and for no overlap of communication with computation; "
            "leave one of them out");
    refused({.rate = -1}, "lockstep: constant has rate = -1, not a positive number; take a learning rate such as 0.1");
    if (world.size() == 1) return;
    const auto lanes = static_cast<std::size_t>(world.size()) - 1;
    refused({.lanes = lanes},
            ls::core::text("lockstep: ", world.size(), " ranks share ", lanes, lanes == 1 ? " lane" : " lanes",
                           ", so some would have nothing to do; set lanes to at least ", world.size(),
                           " (lanes are part of the recipe: another number gives other bits)"));
    // Only one rank's plan is wrong.
    const auto found = failure_of([&] {
        const ls::trainer trainer{world, recipe({.batch = world.rank() == 0 ? 0U : 16U})};
    });
    check_all_fail(world, found, "lockstep: the batch has 0 samples; set batch to at least the number of lanes, 8", 0);
}

TEST_CASE("training/failures: ranks that do not fill the grid", "[training]") {
    const mpi::communicator world;
    const auto count = static_cast<std::size_t>(world.size());
    const std::string ranks = ls::core::text(count, count == 1 ? " rank does" : " ranks do");
    {
        const auto found = failure_of([&] {
            const ls::trainer trainer{world, recipe({}, part::hybrid<part::data, part::model<2>>{})};
        });
        if (count % 2 == 0)
            CHECK_FALSE(found);
        else
            check_all_fail(world, found,
                           ls::core::text("lockstep: ", ranks,
                                          " not fill a hybrid partition with 2 shards; start a multiple of 2 ranks"));
    }
    {
        const auto found = failure_of([&] { const ls::trainer trainer{world, recipe({}, part::model<2>{})}; });
        if (count == 2)
            CHECK_FALSE(found);
        else
            check_all_fail(world, found,
                           ls::core::text("lockstep: ", ranks,
                                          " not fill a model partition with 2 shards; start 2 ranks, or use a hybrid "
                                          "partition to have several groups"));
    }
}

TEST_CASE("training/failures: a trainer that cannot be made on one rank", "[training]") {
    const mpi::communicator world;
    for (const int bad : {0, last_rank(world)}) {
        if (world.rank() == bad) in_construction = [] { throw std::runtime_error{"no room for scratch"}; };
        const auto found = failure_of([&] {
            ls::trainer trainer{world, recipe()};
            trainer.fit(all.set(), ls::steps{1});
        });
        in_construction = nullptr;
        check_all_fail(world, found, "no room for scratch", bad);
    }
}

/// Weights from a table that is too short on some rank.
struct from_table {
    std::vector<double> numbers;
    double value(const ls::tensor::parameter&, const ls::core::random_stream&, std::uint64_t index) const {
        if (index >= numbers.size()) throw std::runtime_error{"the table is too short"};
        return numbers[index];
    }
};

TEST_CASE("training/failures: an exception in a rule of initialisation on one rank", "[training]") {
    const mpi::communicator world;
    for (const int bad : {0, last_rank(world)}) {
        const from_table table{std::vector<double>(world.rank() == bad ? 3 : 100)};
        const auto found = failure_of([&] {
            const ls::trainer trainer{world, ls::plan{.model = ls::sequential{ls::input<4>, ls::layers::dense<2>{}},
                                                      .loss = ls::loss::mean_squared_error{},
                                                      .initialise = table,
                                                      .batch = 16}};
        });
        check_all_fail(world, found, "the table is too short", bad);
    }
}

TEST_CASE("training/failures: ranks that fit different data sets, or for different times", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    const int bad = last_rank(world);
    const std::string remedy =
        "; give every rank the same data set (a rank reads only its rows), or call step() with the rows it has";
    const samples<> fewer{96};
    {
        ls::trainer trainer{world, recipe()};
        const auto before = trainer.local_hash();
        const auto found =
            failure_of([&] { trainer.fit(world.rank() == bad ? fewer.set() : all.set(), ls::steps{2}); });
        check_all_fail(world, found,
                       ls::core::text("lockstep: rank 0 has 128 samples to fit, rank ", bad, " has 96", remedy));
        CHECK(trainer.local_hash() == before);
    }
    {
        ls::trainer trainer{world, recipe()};
        const auto found = failure_of([&] { trainer.fit(all.set(), ls::steps{world.rank() == bad ? 3U : 2U}); });
        check_all_fail(world, found,
                       ls::core::text("lockstep: rank 0 has 2 steps to fit, rank ", bad,
                                      " has 3; call fit() with the same number on every rank"));
    }
    {
        ls::trainer trainer{world, recipe()};
        const auto found = failure_of([&] { trainer.evaluate(world.rank() == bad ? fewer.set() : all.set()); });
        check_all_fail(world, found,
                       ls::core::text("lockstep: rank 0 has 128 samples to evaluate, rank ", bad, " has 96", remedy));
    }
}

TEST_CASE("training/failures: a data set without samples", "[training]") {
    const mpi::communicator world;
    const samples<> none{0};
    for (const bool evaluates : {false, true}) {
        ls::trainer trainer{world, recipe()};
        const auto before = trainer.local_hash();
        const auto found = failure_of([&] {
            if (evaluates)
                trainer.evaluate(none.set());
            else
                trainer.fit(none.set(), ls::epochs{1});
        });
        check_all_fail(world, found,
                       ls::core::text("lockstep: data in memory (0 samples of 12x12x1) has no samples to ",
                                      evaluates ? "evaluate" : "fit", "; check where it was read from"));
        CHECK(trainer.local_hash() == before);
    }
}

TEST_CASE("training/failures: rows that one rank may not bring to a step", "[training]") {
    const mpi::communicator world;
    const int bad = last_rank(world);
    const auto refused = [&](const std::string& text, auto&& spoil) {
        ls::trainer trainer{world, recipe()};
        auto mine = all.rows(0, 2);
        trainer.step(mine.x, mine.y);
        world.barrier();
        const auto before = trainer.local_hash();
        if (world.rank() == bad) spoil(mine);
        check_all_fail(world, failure_of([&] { trainer.step(mine.x, mine.y); }), text, bad);
        CHECK(trainer.local_hash() == before);
    };
    const std::string remedy =
        ", allowed are 0 to 9; correct the label: classes count from 0, and none stands for a sample to leave out";
    refused(
        "lockstep: row 1 of this rank has the label 10, allowed are 0 to 9; labels count from 0: subtract 1 if these "
        "count from 1, or declare more classes",
        [](auto& mine) { mine.y[1] = 10; });
    refused("lockstep: row 0 of this rank has the label -1" + remedy, [](auto& mine) { mine.y[0] = -1; });
    refused("lockstep: x has 2 rows and y has 1 elements; pass 1 label elements for each row",
            [](auto& mine) { mine.y.pop_back(); });
    refused(
        "lockstep: x has 287 numbers, no multiple of the 144 of one 12x12x1 sample; pass whole samples, one after the "
        "other",
        [](auto& mine) { mine.x.pop_back(); });
    const std::size_t lanes =
        ls::parallel::split(8, static_cast<std::size_t>(world.size()), static_cast<std::size_t>(bad)).size();
    refused(ls::core::text("lockstep: a rank brought ", 2 * lanes + 1, " rows to a step that has room for ", 2 * lanes,
                           "; bring fewer, or raise the batch of the plan (it is the global one)"),
            [&](auto& mine) { mine = all.rows(0, 2 * lanes + 1); });
}

TEST_CASE("training/failures: a loss that is not finite stops before the weights are touched", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe({.rate = 1e30})};
    std::uint64_t before = 0;
    std::uint64_t step = 0;
    const auto found = failure_of([&] {
        for (; step < 20; ++step) {
            before = trainer.local_hash();
            trainer.fit(all.set(), ls::steps{1});
        }
    });
    REQUIRE(step > 0);
    REQUIRE(step < 20);
    REQUIRE(found);
    CHECK_THAT(found->text,
               Catch::Matchers::StartsWith("lockstep: the loss is ") &&
                   Catch::Matchers::EndsWith(ls::core::text(
                       " in step ", step + 1, "; use a lower learning rate or a warm-up, and check the data")));
    CHECK(trainer.weights_state().steps == step);
    CHECK(trainer.weights_state().is_usable());
    for (const auto& other : of_all(world, found->text)) CHECK(other == found->text);
    CHECK(trainer.local_hash() == before);
    for (const auto& other : of_all(world, trainer.local_hash())) CHECK(other == before);
}

TEST_CASE("training/failures: after a failure the trainer refuses to go on, with the same text, and a new one works",
          "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    const int bad = last_rank(world);
    ls::trainer trainer{world, recipe()};
    trainer.fit(all.set(), ls::steps{2});
    if (world.rank() == bad) in_forward = [] { throw std::runtime_error{"out of luck"}; };
    const auto first = failure_of([&] { trainer.fit(all.set(), ls::steps{5}); });
    in_forward = nullptr;
    check_all_fail(world, first, "out of luck", bad);
    world.barrier();
    // Messages of the broken step may still be under way; to go on would add them to other samples' gradients.
    const auto before = trainer.local_hash();
    for (int attempt = 0; attempt < 3; ++attempt)
        check_all_fail(world, failure_of([&] { trainer.fit(all.set(), ls::steps{1}); }), "out of luck");
    check_all_fail(world, failure_of([&] { trainer.evaluate(all.set()); }), "out of luck");
    CHECK(trainer.local_hash() == before);

    ls::trainer second{world, recipe()};
    second.fit(all.set(), ls::steps{5});
    for (const auto& other : of_all(world, second.local_hash())) CHECK(other == second.local_hash());
}

TEST_CASE("training/failures: a failure in one trainer leaves the application's other communication alone",
          "[training]") {
    const mpi::communicator world;
    ls::trainer one{world, recipe()};
    ls::trainer two{world, recipe({.seed = 2})};
    two.fit(all.set(), ls::steps{2});
    if (world.rank() == 0) in_forward = [] { throw std::runtime_error{"only here"}; };
    const auto found = failure_of([&] { one.fit(all.set(), ls::steps{1}); });
    in_forward = nullptr;
    check_all_fail(world, found, "only here", 0);
    two.fit(all.set(), ls::steps{2});
    ls::trainer reference{ls::comm::group{}, recipe({.seed = 2})};
    reference.fit(all.set(), ls::steps{4});
    CHECK(two.weights_hash() == reference.weights_hash());
}

TEST_CASE("training/failures: trainers of one group fail each alone, and have timeouts of their own", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    const ls::comm::group ranks{world};
    ls::trainer one{ranks, recipe()};
    ls::trainer two{ranks, recipe({.seed = 2})};
    if (world.rank() == 0) in_forward = [] { throw std::runtime_error{"only here"}; };
    check_all_fail(world, failure_of([&] { one.fit(all.set(), ls::steps{1}); }), "only here", 0);
    in_forward = nullptr;
    two.fit(all.set(), ls::steps{2});
    // One that waits for as long as it takes, also for ranks that come late to its making.
    auto patient = recipe();
    patient.timeout = std::chrono::seconds{0};
    CHECK(ranks.aborts().timeout() == ls::comm::default_timeout());
    ls::trainer again{ranks, patient};
    again.fit(all.set(), ls::steps{1});
    CHECK(again.ranks().aborts().timeout().count() == 0);
    CHECK(two.ranks().aborts().timeout() == ls::comm::default_timeout());
    // Without one they have that of the group.
    ranks.aborts().set_timeout(std::chrono::seconds{77});
    ls::trainer like_the_group{ranks, recipe()};
    CHECK(like_the_group.ranks().aborts().timeout().count() == 77);
}

TEST_CASE("training/failures: trainers that share memory end in any order, also after a failure", "[training]") {
    const mpi::communicator world;
    std::optional<ls::trainer<ls::train::sound_plan<decltype(recipe())>>> trainers[3];
    for (auto& one : trainers) one.emplace(world, recipe());
    for (auto& one : trainers) one->fit(all.set(), ls::steps{2});
    CHECK(trainers[0]->transport() == (world.size() == 1 ? "none: one rank" : "shared memory"));
    if (world.rank() == 0) in_forward = [] { throw std::runtime_error{"only one of them"}; };
    check_all_fail(world, failure_of([&] { trainers[1]->fit(all.set(), ls::steps{1}); }), "only one of them", 0);
    in_forward = nullptr;
    for (int i = 0; i < 3; ++i) trainers[(world.rank() + i) % 3].reset();
    // A rank that has left all of them has not held back the others.
    ls::trainer next{world, recipe()}, reference{ls::comm::group{}, recipe()};
    next.fit(all.set(), ls::steps{2});
    reference.fit(all.set(), ls::steps{2});
    CHECK(next.weights_hash() == reference.weights_hash());
}
