// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// The search for a learning rate: the losses of a run with these rates, the same on any number of ranks, and afterwards
// a trainer that does not know of it.
#include "lockstep/train/find_learning_rate.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "equivalence/groups.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;
using namespace ls::layers;

struct rows {
    std::vector<float> x, y;
    explicit rows(std::size_t count) {
        const ls::core::random_stream random{5, ls::core::purpose::user};
        for (std::size_t row = 0; row < count; ++row) {
            float sum = 0;
            for (std::size_t i = 0; i < 6; ++i) {
                x.push_back(2 * random.uniform(row * 6 + i) - 1);
                sum += x.back();
            }
            y.push_back(sum);
        }
    }
    [[nodiscard]] auto set() const { return ls::data::in_memory<ls::tensor::shape<6>, ls::tensor::shape<1>>(x, y); }
};
const rows all{100};
constexpr ls::rate_range range{.from = 1e-4, .to = 1e3, .steps = 60};

auto adam_with_statistics() {
    return ls::plan{
        .model = ls::sequential{ls::input<6>, dense<8>{}, batch_norm{}, ls::layers::tanh{}, dropout{0.25}, dense<1>{}},
        .loss = ls::loss::mean_squared_error{},
        .optimizer = ls::optim::adam{},
        .schedule = ls::optim::constant{.rate = 0.01},
        .batch = 24};
}
constexpr auto small = ls::sequential{ls::input<6>, dense<8>{}, ls::layers::tanh{}, dense<1>{}};
auto residuals_and_pending_gradients() {
    return ls::plan{.model = small,
                    .loss = ls::loss::mean_squared_error{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.2}},
                    .sync = ls::sync::delayed{},
                    .batch = 24,
                    .workers = 4};
}
auto weights_of_workers() {
    return ls::plan{.model = small,
                    .loss = ls::loss::mean_squared_error{},
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .sync = ls::sync::local_sgd{.period = 3},
                    .batch = 24,
                    .workers = 4};
}

std::vector<double> numbers_of(const ls::rate_search& found) {
    std::vector<double> out{found.suggestion.value_or(-1), found.steepest.value_or(-1), found.has_diverged ? 1.0 : 0.0};
    for (const auto& one : found.curve) out.insert(out.end(), {one.rate, one.loss, one.smoothed});
    return out;
}

/// Of searches before the first step, in the middle of an epoch and after a whole one.
template <class Plan>
std::vector<double> search(const mpi::communicator& group, const Plan& plan) {
    ls::trainer with{group, plan}, without{group, plan};
    std::vector<double> out;
    for (const std::size_t steps : {0, 2, 3, 5}) {
        with.fit(all.set(), ls::steps{steps});
        without.fit(all.set(), ls::steps{steps});
        const auto hash = with.state_hash();
        const auto before = with.report();
        const auto found = ls::find_learning_rate(with, all.set(), range);
        // Seconds and what is divided by them are those of all steps that were made.
        const auto after = with.report();
        CHECK(after.timed_steps == before.timed_steps + found.curve.size());
        CHECK(after.timed_samples > before.timed_samples);
        CHECK(after.bytes_sent >= before.bytes_sent);
        CHECK(after.seconds.forward > before.seconds.forward);
        CHECK(after.seconds.update > before.seconds.update);
        CHECK(after.last_fit.steps == before.last_fit.steps);
        for (const double one : numbers_of(found)) out.push_back(one);
        CHECK(with.state_hash() == hash);
        CHECK(with.report().steps == without.report().steps);
        CHECK(with.report().samples == without.report().samples);
        CHECK(with.report().epochs.size() == without.report().epochs.size());
        CHECK(with.weights_state().steps == without.weights_state().steps);
        // And again: nothing of the first one is left.
        if (steps == 2) CHECK(numbers_of(ls::find_learning_rate(with, all.set(), range)) == numbers_of(found));
    }
    with.fit(all.set(), ls::steps{6});
    without.fit(all.set(), ls::steps{6});
    CHECK(with.state_hash() == without.state_hash());
    return out;
}

/// All groups of these sizes, which take all four ranks, find the same.
template <class Plan>
void check_on_ranks(const Plan& plan, const std::vector<std::vector<int>>& sizes) {
    const mpi::communicator world;
    std::vector<double> first;
    for (const auto& groups : sizes) {
        std::vector<double> mine;
        support::on_groups(groups, [&](const mpi::communicator& group) { mine = search(group, plan); });
        if (first.empty()) first = mine;
        CHECK(mine == first);
    }
    const auto hash = ls::core::hash(std::as_bytes(std::span{first}));
    CHECK(support::of_all(world, hash) == std::vector<std::uint64_t>(4, hash));
}

TEST_CASE("a search leaves no trace: statistics, dropout, Adam", "[training]") {
    check_on_ranks(adam_with_statistics(), {{1, 3}, {2, 2}, {4}});
}
TEST_CASE("a search leaves no trace: residuals and pending gradients", "[training]") {
    check_on_ranks(residuals_and_pending_gradients(), {{1, 1, 2}, {4}});
}
TEST_CASE("a search leaves no trace: weights of workers", "[training]") {
    check_on_ranks(weights_of_workers(), {{1, 1, 2}, {4}});
}

/// The plan with rates of the range.
struct ramp {
    double operator()(std::uint64_t step) const { return range.rate(step); }
};
struct losses {
    static constexpr bool on_every_rank = true;
    std::vector<double> all{};
    void on_step(const ls::report::step_event& event) { all.push_back(event.loss); }
};

TEST_CASE("the curve has the losses of a run with these rates, up to where it diverges", "[training]") {
    const mpi::communicator world;
    const auto plan = ls::plan{.model = small,
                               .loss = ls::loss::mean_squared_error{},
                               .optimizer = ls::optim::sgd{},
                               .schedule = ls::optim::constant{.rate = 0.01},
                               .batch = 24};
    ls::trainer trainer{world, plan};
    const auto found = ls::find_learning_rate(trainer, all.set(), range);
    REQUIRE(found.curve.size() > 20);
    REQUIRE(found.curve.size() < range.steps);
    CHECK(found.has_diverged);

    ls::trainer naive{world, ls::plan{.model = small,
                                      .loss = ls::loss::mean_squared_error{},
                                      .optimizer = ls::optim::sgd{},
                                      .schedule = ramp{},
                                      .batch = 24}};
    losses seen;
    naive.fit(all.set(), ls::steps{found.curve.size() - 1}, seen);
    double mean = 0, least = 1e300;
    std::size_t best = 0;
    for (std::size_t i = 0; i < seen.all.size(); ++i) {
        CHECK(seen.all[i] == found.curve[i].loss);
        CHECK(found.curve[i].rate ==
              Approx(1e-4 * std::exp(std::log(1e7) * static_cast<double>(i) / 59)).epsilon(1e-12));
        mean = 0.9 * mean + 0.1 * seen.all[i];
        const double smoothed = mean / (1 - std::pow(0.9, static_cast<double>(i + 1)));
        CHECK(found.curve[i].smoothed == Approx(smoothed).epsilon(1e-12));
        CHECK(smoothed <= 4 * std::fmin(least, smoothed) * (1 + 1e-12));
        if (smoothed < least) least = smoothed, best = i;
    }
    CHECK_FALSE(found.curve.back().smoothed <= 4 * least);
    REQUIRE(found.suggestion.has_value());
    CHECK(*found.suggestion == found.curve[best].rate / 10);
    // Where the loss falls most: before it rises.
    REQUIRE(found.steepest.has_value());
    CHECK(*found.steepest < found.curve.back().rate);
}

TEST_CASE("a search up to infinite weights comes back", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, weights_of_workers()};
    trainer.fit(all.set(), ls::steps{2});
    const auto hash = trainer.state_hash();
    const ls::rate_range far{.from = 1e20, .to = 1e38, .steps = 9, .smoothing = 0, .ends_above = 1e308};
    const auto found = ls::find_learning_rate(trainer, all.set(), far);
    CHECK(found.has_diverged);
    CHECK_FALSE(found.suggestion.has_value());
    CHECK(found.curve.size() < 9);
    CHECK(trainer.state_hash() == hash);
    CHECK(trainer.fit(all.set(), ls::steps{2}).steps == 2);

    ls::trainer adam{world, adam_with_statistics()};
    const auto before = adam.state_hash();
    CHECK(ls::find_learning_rate(adam, all.set(), far).has_diverged);
    CHECK(adam.state_hash() == before);
    CHECK(adam.fit(all.set(), ls::steps{2}).steps == 2);
}

TEST_CASE("a search leaves no trace: weights that were loaded", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, weights_of_workers()};
    trainer.load_weights(std::vector<float>(trainer.all_weights().size(), 0.01F));
    CHECK(trainer.weights_state().loaded);
    (void)ls::find_learning_rate(trainer, all.set(), range);
    CHECK(trainer.weights_state().loaded);
    trainer.fit(all.set(), ls::steps{1});
    CHECK_FALSE(trainer.weights_state().loaded);
}

TEST_CASE("ranges that make no sense", "[training]") {
    const mpi::communicator world;
    const auto says = [&](const ls::rate_range& of, const std::string& words) {
        std::string text;
        try {
            ls::trainer trainer{world, weights_of_workers()};
            (void)ls::find_learning_rate(trainer, all.set(), of);
        } catch (const ls::core::error& failure) {
            text = failure.what();
        }
        UNSCOPED_INFO(text);
        const bool mine = text.find(words) != std::string::npos;
        return support::of_all(world, mine ? 1 : 0) == std::vector<int>(4, 1);
    };
    constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
    for (const auto& [from, to] :
         {std::pair{0.0, 1.0}, {-1.0, 1.0}, {1.0, 1.0}, {2.0, 1.0}, {nan, 1.0}, {1.0, infinite}})
        CHECK(says({.from = from, .to = to}, "learning rates are searched from"));
    CHECK(says({.steps = 1}, "in 1 step;"));
    CHECK(says({.steps = std::size_t(-3)}, "take 2 to 1000000"));
    CHECK(says({.smoothing = 1}, "are smoothed with 1"));
    CHECK(says({.ends_above = 1}, "is 1 times the least one"));
    CHECK(says({.to = 1.0 + world.rank()}, "rank 0 searches a learning rate with to = 1, rank 1 with 2"));
    // Rates can only be compared where the search can be.
    ls::rate_search rising;
    for (const double loss : {1.0, 1.5, 2.0}) CHECK(rising.add({}, 0.1 * loss, loss));
    rising.conclude();
    CHECK_FALSE(rising.suggestion.has_value());
    ls::rate_search negative;
    CHECK(negative.add({.smoothing = 0}, 1, -2));
    CHECK(negative.add({.smoothing = 0}, 2, -3));
    CHECK(negative.add({.smoothing = 0}, 3, 5));
    CHECK_FALSE(negative.add({.smoothing = 0}, 4, 7));
    negative.conclude();
    CHECK(negative.suggestion == 0.2);
}

}  // namespace
