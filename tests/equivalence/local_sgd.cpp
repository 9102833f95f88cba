// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Local SGD: the bits of its workers on 1, 2, 3, 4, 6 and 8 ranks, and the weights of a naive reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using ls::sync::local_sgd;
using ls::sync::momenta;

// A short last minibatch of 7 rows, which leaves workers without rows; 9 steps, which neither 2 nor 4 divides.
constexpr std::size_t batch = 61, steps = 9;
const samples<> training{3 * batch + 7};

/// What changes no bit.
struct machine {
    std::size_t bucket = 1000;
    std::size_t threads = 1;
    bool overlap = true;
    ls::transport transport = ls::transport::automatic;
    const char* all_reduce = "";
};

auto recipe(const local_sgd& sync, std::size_t workers, const machine& on = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::adam{},
                    .schedule = ls::optim::constant{.rate = 0.003},
                    .sync = sync,
                    .batch = batch,
                    .workers = workers,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .transport = on.transport,
                    .all_reduce = on.all_reduce};
}

struct outcome {
    std::uint64_t weights = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan, std::size_t of_steps = steps) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{of_steps}, seen);
    return {trainer.weights_hash(), seen.values};
}

/// f on groups of 1, 2, 3, 4, 6 and 8 ranks of a world of eight.
template <class F>
void on_all_groups(F&& f) {
    on_1_2_3_4_8(f);
    on_groups({6}, f);
}

struct looking {
    std::vector<std::uint64_t> hashes;  // of rank 0, which is told alone
    template <class Trainer>
    void on_step(Trainer& trainer, const ls::report::step_event&) {
        hashes.push_back(trainer.weights_hash());
    }
};

/// A dense network that a naive reference computes in double: 144 - 5 - 10.
constexpr std::size_t inputs = sample::size, hidden = 5, classes = 10;
constexpr auto dense_net = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, ls::layers::dense<hidden>{},
                                          ls::layers::relu{}, ls::layers::dense<classes>{}};
const samples<double> in_double{3 * batch + 7};
constexpr double rate = 0.05;

template <class Sync>
auto dense_recipe(const Sync& sync, std::size_t workers, std::size_t rows, double beta) {
    return ls::plan{.model = dense_net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::momentum{.beta = beta},
                    .schedule = ls::optim::constant{.rate = rate},
                    .sampler = ls::data::ordered{},
                    .precision = ls::real<double>{},
                    .sync = sync,
                    .batch = rows,
                    .workers = workers,
                    .seed = 5};
}

/// Weights of the dense network: those of the first layer, its biases, those of the second layer, its biases.
using numbers = std::vector<double>;

/// The sum of the gradients of the rows first .. last - 1.
numbers naive_gradient(const numbers& w, std::size_t first, std::size_t last) {
    const double* w1 = w.data();
    const double* b1 = w1 + inputs * hidden;
    const double* w2 = b1 + hidden;
    const double* b2 = w2 + hidden * classes;
    numbers out(w.size());
    double* g1 = out.data();
    double* h1 = g1 + inputs * hidden;
    double* g2 = h1 + hidden;
    double* h2 = g2 + hidden * classes;
    for (std::size_t row = first; row < last; ++row) {
        const double* x = in_double.x.data() + row * inputs;
        double z[hidden], p[classes], sum = 0;
        for (std::size_t j = 0; j < hidden; ++j) {
            z[j] = b1[j];
            for (std::size_t i = 0; i < inputs; ++i) z[j] += x[i] * w1[i * hidden + j];
        }
        for (std::size_t c = 0; c < classes; ++c) {
            p[c] = b2[c];
            for (std::size_t j = 0; j < hidden; ++j) p[c] += std::max(z[j], 0.0) * w2[j * classes + c];
            sum += p[c] = std::exp(p[c]);
        }
        for (std::size_t c = 0; c < classes; ++c)
            p[c] = p[c] / sum - (static_cast<std::size_t>(in_double.y[row]) == c ? 1 : 0);
        for (std::size_t c = 0; c < classes; ++c) h2[c] += p[c];
        for (std::size_t j = 0; j < hidden; ++j) {
            if (z[j] <= 0) continue;
            double dz = 0;
            for (std::size_t c = 0; c < classes; ++c) {
                g2[j * classes + c] += z[j] * p[c];
                dz += w2[j * classes + c] * p[c];
            }
            h1[j] += dz;
            for (std::size_t i = 0; i < inputs; ++i) g1[i * hidden + j] += x[i] * dz;
        }
    }
    return out;
}

/// The mean over workers after so many steps on minibatches in the order of the samples.
numbers naive(const numbers& begin, const local_sgd& of, std::size_t workers, double beta, std::size_t of_steps) {
    constexpr std::size_t lanes = 8;
    const std::size_t n = in_double.y.size();
    std::vector<numbers> w(workers, begin), v(workers, numbers(begin.size()));
    numbers samples(workers);  // since the last mean
    const auto mean = [&](const std::vector<numbers>& all) {
        numbers out(begin.size());
        double sum = 0;
        for (const double one : samples) sum += one;
        for (std::size_t k = 0; k < workers; ++k)
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] += all[k][i] * (sum > 0 ? samples[k] / sum : 1 / static_cast<double>(workers));
        return out;
    };
    std::size_t at = 0;
    for (std::size_t step = 0; step < of_steps; ++step) {
        const std::size_t rows = std::min(batch, n - at);
        for (std::size_t k = 0; k < workers; ++k) {
            // Lane l of 8 has rows l R / 8 .. (l + 1) R / 8 - 1; worker k of W has lanes k 8 / W .. (k + 1) 8 / W - 1.
            std::size_t first = at + rows * (k * lanes / workers) / lanes,
                        last = at + rows * ((k + 1) * lanes / workers) / lanes;
            if (step < of.start)
                first = at, last = at + rows;
            else
                samples[k] += static_cast<double>(last - first);
            if (first == last) continue;
            const numbers g = naive_gradient(w[k], first, last);
            for (std::size_t i = 0; i < g.size(); ++i) {
                v[k][i] = beta * v[k][i] + g[i] / static_cast<double>(last - first);
                w[k][i] -= rate * v[k][i];
            }
        }
        if (step >= of.start && (step + 1 - of.start) % of.period == 0) {
            w.assign(workers, mean(w));
            if (of.momentum == momenta::average) v.assign(workers, mean(v));
            std::ranges::fill(samples, 0.0);
        }
        at = at + rows == n ? 0 : at + rows;
    }
    return mean(w);
}

}  // namespace

TEST_CASE("equivalence/local_sgd: the weights of a naive reference in double", "[equivalence]") {
    // Not after a multiple of the period: the workers then have different weights. Steps 3 and 7 have 7 rows: a worker
    // of eight has none.
    for (const std::size_t workers : {4, 8, 3})
        for (const local_sgd& sync :
             {local_sgd{.period = 4}, local_sgd{.period = 2, .start = 2, .momentum = momenta::average}})
            on_groups({2, 6}, [&](const mpi::communicator& group) {
                INFO(workers << " workers on " << group.size() << " ranks, " << sync.settings());
                ls::trainer trainer{group, dense_recipe(sync, workers, batch, 0.9)};
                const numbers begin = trainer.all_weights();
                trainer.fit(in_double.set(), ls::steps{steps});
                const numbers wanted = naive(begin, sync, workers, 0.9, steps);
                CHECK(relative_error(begin, wanted) > 1e-3);
                CHECK(relative_error(trainer.all_weights(), wanted) < 1e-12);
            });
}

TEST_CASE("equivalence/local_sgd: a period of one step is the synchronous step", "[equivalence]") {
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        const auto after = [&](const auto& sync, std::size_t rows, double beta) {
            ls::trainer trainer{group, dense_recipe(sync, 4, rows, beta)};
            trainer.fit(in_double.set(), ls::steps{3});
            return trainer.all_weights();
        };
        const auto synchronous = after(ls::sync::every_step{}, 48, 0);
        CHECK(relative_error(after(local_sgd{.period = 1}, 48, 0), synchronous) < 1e-13);
        // With unequal rows as well, because each worker counts by its own.
        CHECK(relative_error(after(local_sgd{.period = 1}, batch, 0), after(ls::sync::every_step{}, batch, 0)) < 1e-13);
        CHECK(relative_error(after(local_sgd{.period = 2}, 48, 0), synchronous) > 1e-6);
        // Before `start` each bit is that of the synchronous step, with a momentum and unequal rows as well: 4 trees of
        // 2 lanes are one of 8.
        CHECK(after(local_sgd{.start = 3}, batch, 0.9) == after(ls::sync::every_step{}, batch, 0.9));
        CHECK(after(local_sgd{.start = 2}, batch, 0.9) != after(ls::sync::every_step{}, batch, 0.9));
    });
}

TEST_CASE("equivalence/local_sgd: the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    const local_sgd recipes[] = {{.period = 4}, {.period = 4, .momentum = momenta::average}, {.period = 2, .start = 5}};
    // By doubling all ranks of a worker keep its slots, by a tree each keeps a strip.
    const machine machines[] = {{.bucket = 1, .all_reduce = "tree:0-max"},
                                {.bucket = 1U << 20U, .threads = 2, .overlap = false},
                                {.all_reduce = "doubling:0-max"},
                                {.threads = 2, .overlap = false, .transport = ls::transport::messages}};
    std::vector<std::uint64_t> hashes;
    for (const std::size_t workers : {4, 8})
        for (const local_sgd& sync : recipes) {
            const outcome alone = run(ls::comm::group{}, recipe(sync, workers));
            CHECK(alone.losses.size() == steps);
            hashes.push_back(alone.weights);
            // Each recipe meets another machine on each number of ranks.
            on_all_groups([&](const mpi::communicator& group) {
                const std::size_t which = hashes.size() + static_cast<std::size_t>(group.size());
                machine on = machines[which % std::size(machines)];
                if (which % 4 == 1 && group.size() > 1) on.transport = ls::transport::shared_memory;
                if (which % 4 == 2 && group.size() % 3 == 0) on = machines[0];  // doubling takes powers of two
                INFO(workers << " workers on " << group.size() << " ranks, " << sync.settings());
                CHECK(run(group, recipe(sync, workers, on)) == alone);
            });
        }
    std::ranges::sort(hashes);
    CHECK(std::ranges::adjacent_find(hashes) == hashes.end());
}

TEST_CASE("equivalence/local_sgd: lanes that workers do not divide, and one worker for each rank", "[equivalence]") {
    auto plan = recipe({.period = 4, .start = 1}, 3);
    plan.lanes = 11;
    const outcome alone = run(ls::comm::group{}, plan);
    on_all_groups([&](const mpi::communicator& group) { CHECK(run(group, plan) == alone); });
    on_groups({4, 4}, [&](const mpi::communicator& group) {
        CHECK(run(group, recipe({.period = 4}, 0), 5) == run(group, recipe({.period = 4}, 4), 5));
    });
}

TEST_CASE("equivalence/local_sgd: ranks that add nothing to a mean leave the sign of its zeros", "[equivalence]") {
    auto plan = dense_recipe(local_sgd{.period = 1, .momentum = momenta::average}, 4, batch, 0.9);
    plan.schedule.rate = 1e-30;
    const auto zeros = [&](const auto& ranks) {
        ls::trainer trainer{ranks, plan};
        trainer.load_weights(numbers(decltype(trainer)::network::parameters, -0.0));
        trainer.fit(in_double.set(), ls::steps{2});
        const numbers weights = trainer.all_weights();
        CHECK(std::ranges::any_of(weights, [](double w) { return w == 0 && std::signbit(w); }));
        return trainer.weights_hash();
    };
    const std::uint64_t alone = zeros(ls::comm::group{});
    on_all_groups([&](const mpi::communicator& group) { CHECK(zeros(group) == alone); });
}

namespace {

struct looking_at_end {
    std::uint64_t seen = 0;
    template <class Trainer>
    void on_end(Trainer& trainer, const ls::report::totals&) {
        seen = trainer.weights_hash();
    }
};

}  // namespace

TEST_CASE("equivalence/local_sgd: an observer looks at the end of a fit of no step", "[equivalence]") {
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe({.period = 4}, 4)};
        trainer.fit(training.set(), ls::steps{1});
        looking_at_end look;
        trainer.fit(training.set(), ls::steps{0}, look);
        const std::uint64_t mean = trainer.weights_hash();
        if (group.rank() == 0) CHECK(look.seen == mean);
    });
}

TEST_CASE("equivalence/local_sgd: a mean that overflows is an error on all ranks", "[equivalence]") {
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        auto tiny = dense_recipe(local_sgd{.period = 1}, 4, 56, 0.9);
        tiny.schedule.rate = 1e-300;
        ls::trainer trainer{group, tiny};
        auto all = trainer.all_weights();
        for (std::size_t i = 1; i <= 10; ++i) all[all.size() - i] = 1e308;
        trainer.load_weights(all);
        const auto lanes = trainer.grid().own_lanes();
        const auto own = in_double.rows(7 * lanes.first, 7 * lanes.size());
        CHECK_THROWS_WITH(trainer.step(own.x, own.y), Catch::Contains("became infinite or NaN in step 1"));
    });
}

TEST_CASE("equivalence/local_sgd: looks at the mean change nothing, and a rank may look where all have",
          "[equivalence]") {
    const auto plan = recipe({.period = 4, .start = 2, .momentum = momenta::average}, 4);
    std::vector<std::uint64_t> wanted;
    for (std::size_t of = 1; of <= steps; ++of) wanted.push_back(run(ls::comm::group{}, plan, of).weights);
    on_all_groups([&](const mpi::communicator& group) {
        ls::trainer trainer{group, plan};
        looking seen;
        trainer.fit(training.set(), ls::steps{5}, seen);
        CHECK(trainer.weights_hash() == wanted[4]);
        CHECK(trainer.local_hash() == wanted[4]);
        const auto evaluation = trainer.evaluate(training.set());
        trainer.fit(training.set(), ls::steps{steps - 5}, seen);
        if (group.rank() == 0) CHECK(seen.hashes == wanted);
        CHECK(trainer.weights_hash() == wanted.back());
        // The mean of step 5 in a trainer of its own is evaluated alike.
        ls::trainer other{group, plan};
        other.fit(training.set(), ls::steps{5});
        const auto mean = other.all_weights();
        CHECK(other.evaluate(training.set()).loss == evaluation.loss);
        other.load_weights(mean);
        CHECK(other.weights_hash() == wanted[4]);
        CHECK(other.evaluate(training.set()).loss == evaluation.loss);
        other.load_weights(trainer.all_weights());
        CHECK(other.weights_hash() == wanted.back());
    });
}

TEST_CASE("equivalence/local_sgd: with a batch normalisation", "[equivalence]") {
    constexpr auto normalised = ls::sequential{ls::input<12, 12, 1>, ls::layers::conv<4, 3>{}, ls::layers::batch_norm{},
                                               ls::layers::relu{},   ls::layers::flatten{},    ls::layers::dense<16>{},
                                               ls::layers::relu{},   ls::layers::dense<10>{}};
    const auto plan = [&](std::size_t workers, std::size_t bucket, std::size_t threads) {
        return ls::plan{.model = normalised,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .sync = local_sgd{.period = 3, .momentum = momenta::average},
                        .batch = batch,
                        .workers = workers,
                        .seed = 5,
                        .threads = ls::parallel::has_threads ? threads : 1,
                        .bucket = bucket};
    };
    for (const std::size_t workers : {4, 8}) {
        ls::trainer alone{ls::comm::group{}, plan(workers, 1000, 2)};
        alone.fit(training.set(), ls::steps{5});
        const double loss = alone.evaluate(training.set()).loss;
        on_all_groups([&](const mpi::communicator& group) {
            ls::trainer trainer{group, plan(workers, 1, 1)};
            trainer.fit(training.set(), ls::steps{5});
            CHECK(std::ranges::equal(trainer.running_statistics(), alone.running_statistics()));
            CHECK(trainer.evaluate(training.set()).loss == loss);
            CHECK(trainer.weights_hash() == alone.weights_hash());
        });
    }
}

TEST_CASE("equivalence/local_sgd: rows that ranks bring themselves", "[equivalence]") {
    const auto plan = recipe({.period = 2}, 4);
    const auto rows = training.rows(0, 56);
    ls::trainer alone{ls::comm::group{}, plan};
    for (int i = 0; i < 3; ++i) (void)alone.step(rows.x, rows.y);
    on_all_groups([&](const mpi::communicator& group) {
        ls::trainer trainer{group, plan};
        // Seven rows for each lane.
        const auto lanes = trainer.grid().own_lanes();
        const auto own = training.rows(7 * lanes.first, 7 * lanes.size());
        for (int i = 0; i < 3; ++i) (void)trainer.step(own.x, own.y);
        CHECK(trainer.weights_hash() == alone.weights_hash());
    });
}

TEST_CASE("equivalence/local_sgd: memory and bytes count all workers, and the summary names them", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        const ls::trainer one{group, recipe({.period = 4}, 2, {.transport = ls::transport::messages})};
        ls::trainer two{group, recipe({.period = 4}, 4, {.transport = ls::transport::messages})};
        constexpr std::size_t n = decltype(one)::network::parameters * sizeof(float);
        CHECK(one.memory().weights == n);
        CHECK(one.memory().optimizer == 2 * n);
        CHECK(two.memory().weights == 2 * n);
        CHECK(two.memory().optimizer == 4 * n);
        CHECK(two.memory().gradients == 2 * n);
        const std::string text = ls::summary(two);
        CHECK(text.find("workers       4, each with weights of its own\n") != std::string::npos);
        CHECK(text.find("sync          local_sgd(period=4 start=0 momentum=keep)\n") != std::string::npos);
        // Between two means only losses travel.
        std::vector<std::size_t> sent{0};
        for (int i = 0; i < 5; ++i) {
            two.fit(training.set(), ls::steps{1});
            sent.push_back(two.report().bytes_sent);
        }
        const std::size_t losses_alone = sent[1];
        for (const int step : {2, 3, 5})
            CHECK(sent[static_cast<std::size_t>(step)] - sent[static_cast<std::size_t>(step) - 1] == losses_alone);
        CHECK(sent[4] - sent[3] == losses_alone + n);  // half of the sums and half of the mean
    });
    on_groups({6}, [](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe({.period = 4}, 4, {.transport = ls::transport::messages})};
        CHECK(ls::summary(trainer).find("\n              ranks of each: 0-1, 2-3, 4, 5\n") != std::string::npos);
    });
}

TEST_CASE("equivalence/local_sgd: what it says of bytes and transport is what it does", "[equivalence]") {
    on_groups({4}, [&](const mpi::communicator& group) {
        const auto make = [&](const local_sgd& sync, std::size_t workers, ls::transport transport) {
            return ls::trainer{group, recipe(sync, workers, {.transport = transport})};
        };
        // What travels beside gradients and weights.
        auto local = make({.period = 4}, 4, ls::transport::messages);
        local.fit(training.set(), ls::steps{1});
        const std::size_t others = local.report().bytes_sent;
        const auto sent = [&](auto& trainer, std::size_t count) {
            const std::size_t before = trainer.report().bytes_sent;
            trainer.fit(training.set(), ls::steps{count});
            return trainer.report().bytes_sent - before - count * others;
        };
        for (const std::size_t workers : {1, 2}) {
            INFO(workers << " workers");
            auto trainer = make({.period = 4}, workers, ls::transport::messages);
            CHECK(sent(trainer, 4) == 4 * trainer.averaging_bytes());
            CHECK(trainer.averaging_bytes(0) + trainer.averaging_bytes(1) + trainer.averaging_bytes(2) +
                      trainer.averaging_bytes(3) ==
                  4 * trainer.averaging_bytes());
        }
        auto late = make({.period = 4, .start = 2}, 2, ls::transport::messages);
        const std::string text = ls::summary(late);
        CHECK(text.find("\n              in each of the first 2 steps " + ls::core::grouped(late.averaging_bytes(0)) +
                        " bytes to average\n") != std::string::npos);
        CHECK(late.averaging_bytes(0) > late.averaging_bytes());
        CHECK(late.synchronous_steps() == 2);
        CHECK(make({.start = 2}, 1, ls::transport::messages).synchronous_steps() == 0);
        CHECK(local.synchronous_steps() == 0);
        CHECK(sent(late, 1) == late.averaging_bytes(0));
        CHECK(sent(late, 1) == late.averaging_bytes(1));
        CHECK(sent(late, 4) == 4 * late.averaging_bytes());
        CHECK(ls::summary(local).find("in each of the first") == std::string::npos);

        // Means may go through shared memory; ranks that share a worker add by messages.
        const auto one = make({}, 1, ls::transport::automatic);
        CHECK(one.transport() == "messages: the ranks of the one worker add its gradients by them");
        CHECK(make({}, 1, ls::transport::messages).transport() == "messages, as the plan says");
        const auto two = make({}, 2, ls::transport::shared_memory), four = make({}, 4, ls::transport::shared_memory);
        CHECK(two.transport() == "shared memory for the means of workers, messages inside of each");
        CHECK(two.averaging_bytes() > 0);
        CHECK(four.transport() == "shared memory");
        CHECK(four.averaging_bytes() == 0);
        CHECK(four.all_reduce_algorithm().empty());
        for (const std::string& algorithm : {one.all_reduce_algorithm(), two.all_reduce_algorithm()})
            CHECK(algorithm.find("(measured: ") != std::string::npos);
        CHECK_THROWS_WITH(make({}, 1, ls::transport::shared_memory),
                          Catch::Contains("the plan asks for shared memory, and for one worker with weights of its "
                                          "own, which 4 ranks share: "));
    });
    CHECK(ls::trainer{ls::comm::group{}, recipe({}, 1, {.transport = ls::transport::shared_memory})}.transport() ==
          "none: one rank");
}

TEST_CASE("equivalence/local_sgd: what cannot be is refused on all ranks, and no rank waits for one that has failed",
          "[equivalence]") {
    const auto error_of = [](const auto& f) {
        try {
            f();
        } catch (const std::exception& error) {
            const std::string text = error.what();
            return text.substr(0, text.find('\n'));
        }
        return std::string{"no error"};
    };
    // All ranks find it, and one may hear of another before.
    const auto refuses = [&](const auto& ranks, const auto& plan, const std::string& error) {
        const std::string told = error_of([&] { ls::trainer{ranks, plan}; });
        INFO(told);
        CHECK(told.ends_with("lockstep: " + error));
    };
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        refuses(group, recipe({.period = 0}, 4),
                "sync::local_sgd averages weights every 0 steps; set period to at least 1, or leave sync out for "
                "synchronous steps");
        refuses(group, recipe({}, 9),
                "9 workers share 8 lanes, so some would have no samples; set lanes to a multiple of 9, or use at most "
                "8 workers");
        auto plan = recipe({}, 4);
        plan.progress_thread = true;
        refuses(group, plan,
                "the plan asks for a progress thread with sync::local_sgd, most steps of which send nothing between "
                "layers; leave "
                "progress_thread out");
        // The last rank fails before its forward, in a step that is to end with a mean.
        for (const std::size_t fails_in : {0, 1, 2}) {
            ls::trainer trainer{group, recipe({.period = 2, .start = 1}, 4)};
            const auto lanes = trainer.grid().own_lanes();
            auto own = training.rows(7 * lanes.first, 7 * lanes.size());
            for (std::size_t i = 0; i < fails_in; ++i) (void)trainer.step(own.x, own.y);
            const bool is_bad = group.rank() + 1 == group.size();
            if (is_bad) own.x[3] = std::nanf("");
            const std::string told = error_of([&] { (void)trainer.step(own.x, own.y); });
            CHECK(told.find("row 0 of this rank has the value nan at position 3") != std::string::npos);
            CHECK((told.find("lockstep: row 0") == 0) == is_bad);
            CHECK(trainer.weights_state().steps == fails_in);
            CHECK(error_of([&] { (void)trainer.weights_hash(); }).find("has the value nan") != std::string::npos);
        }
        // The weights of the last worker become infinite in a step that ends with a mean: its rank says so, the others
        // in their next call.
        auto diverging = dense_recipe(local_sgd{.period = 1}, 4, 56, 0.9);
        diverging.schedule.rate = 1e200;
        ls::trainer trainer{group, diverging};
        const auto lanes = trainer.grid().own_lanes();
        auto own = in_double.rows(7 * lanes.first, 7 * lanes.size());
        const bool is_last = group.rank() + 1 == group.size();
        for (double& one : own.x) one *= is_last ? 1e150 : 1;
        const std::string first = error_of([&] { (void)trainer.step(own.x, own.y); });
        const std::string next = error_of([&] { (void)trainer.evaluate(in_double.set()); });
        INFO(first << " / " << next);
        CHECK((!is_last || first.find("lockstep: the weight of layer") == 0));
        CHECK(next.find("became infinite or NaN in step 1, whose loss was finite") != std::string::npos);
    });
    // A look is collective: a rank that looks alone is found, not waited for.
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        for (const auto transport : {ls::transport::messages, ls::transport::shared_memory}) {
            ls::trainer trainer{group, recipe({.period = 4}, 4, {.transport = transport})};
            trainer.fit(training.set(), ls::steps{1});
            const std::string told = error_of([&] {
                if (group.rank() == 0)
                    (void)trainer.weights_hash();
                else
                    trainer.fit(training.set(), ls::steps{1});
            });
            INFO(told);
            CHECK(told.find("wait in different calls") != std::string::npos);
        }
    });
}
