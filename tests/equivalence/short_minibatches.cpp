// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Batch normalisation after a dense layer: a short last minibatch fills fewer lanes, by a rule that knows no ranks. The
// bits are equal on any number of them, and the numbers those of a walk that was written down by itself.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"

namespace {

using namespace support;
namespace part = ls::partition;

constexpr std::size_t inputs = 6, hidden = 8, outputs = 4, batch = 16, lanes = 8;
constexpr auto normalised = ls::sequential{ls::input<inputs>, ls::layers::dense<hidden>{}, ls::layers::batch_norm{},
                                           ls::layers::relu{}, ls::layers::dense<outputs>{}};

/// y is a quadratic function of x.
struct curve {
    std::vector<double> x, y;
    explicit curve(std::size_t n) : x(n * inputs), y(n * outputs) {
        const ls::core::random_stream random{5, ls::core::purpose::user};
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = 2 * random.uniform(i) - 1;
        for (std::size_t row = 0; row < n; ++row)
            for (std::size_t i = 0; i < outputs; ++i)
                y[row * outputs + i] = x[row * inputs + i] * x[row * inputs + i + 1];
    }
    [[nodiscard]] auto set() const {
        return ls::data::in_memory<ls::tensor::shape<inputs>, ls::tensor::shape<outputs>>(x, y);
    }
};

template <class Partition = part::data>
auto recipe(const Partition& partition = {}, bool prefetch = false, bool thread = false) {
    return ls::plan{.model = normalised,
                    .loss = ls::mean_squared_error{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = 0.1},
                    .partition = partition,
                    .sampler = ls::data::ordered{},
                    .precision = ls::real<double>{},
                    .batch = batch,
                    .lanes = lanes,
                    .seed = 3,
                    .progress_thread = thread,
                    .prefetch = prefetch};
}

/// One step of the recipe on these rows, lane by lane, element by element: weights are those of dense, batch_norm and
/// dense.
void naive_step(std::vector<double>& w, const curve& from, std::size_t first, const std::vector<std::size_t>& lengths) {
    double* w1 = w.data();
    double* b1 = w1 + inputs * hidden;
    double* scale = b1 + hidden;
    double* shift = scale + hidden;
    double* w2 = shift + hidden;
    double* b2 = w2 + hidden * outputs;
    std::vector<double> g(w.size());
    const auto of = [&](const double* one) { return g.data() + (one - w.data()); };
    std::size_t rows = 0;
    for (const std::size_t length : lengths) rows += length;
    for (const std::size_t n : lengths) {
        std::vector<double> a(n * hidden), normal(n * hidden), z(n * hidden), dz(n * hidden);
        std::vector<double> inverse(hidden);
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t j = 0; j < hidden; ++j) {
                a[r * hidden + j] = b1[j];
                for (std::size_t i = 0; i < inputs; ++i)
                    a[r * hidden + j] += from.x[(first + r) * inputs + i] * w1[i * hidden + j];
            }
        for (std::size_t j = 0; j < hidden && n > 0; ++j) {
            double mean = 0, variance = 0;
            for (std::size_t r = 0; r < n; ++r) mean += a[r * hidden + j] / static_cast<double>(n);
            for (std::size_t r = 0; r < n; ++r)
                variance += std::pow(a[r * hidden + j] - mean, 2) / static_cast<double>(n);
            inverse[j] = 1 / std::sqrt(variance + 1e-5);
            for (std::size_t r = 0; r < n; ++r) {
                normal[r * hidden + j] = (a[r * hidden + j] - mean) * inverse[j];
                z[r * hidden + j] = std::fmax(0, normal[r * hidden + j] * scale[j] + shift[j]);
            }
        }
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t k = 0; k < outputs; ++k) {
                double out = b2[k];
                for (std::size_t j = 0; j < hidden; ++j) out += z[r * hidden + j] * w2[j * outputs + k];
                const double d = 2 * (out - from.y[(first + r) * outputs + k]) / static_cast<double>(outputs * rows);
                of(b2)[k] += d;
                for (std::size_t j = 0; j < hidden; ++j) {
                    of(w2)[j * outputs + k] += d * z[r * hidden + j];
                    if (z[r * hidden + j] > 0) dz[r * hidden + j] += d * w2[j * outputs + k];
                }
            }
        for (std::size_t j = 0; j < hidden; ++j) {
            double sum = 0, product = 0;
            for (std::size_t r = 0; r < n; ++r)
                sum += dz[r * hidden + j], product += dz[r * hidden + j] * normal[r * hidden + j];
            of(shift)[j] += sum;
            of(scale)[j] += product;
            for (std::size_t r = 0; r < n; ++r) {
                const double mean_taken =
                    dz[r * hidden + j] - (sum + normal[r * hidden + j] * product) / static_cast<double>(n);
                const double d = mean_taken * scale[j] * inverse[j];
                of(b1)[j] += d;
                for (std::size_t i = 0; i < inputs; ++i) of(w1)[i * hidden + j] += d * from.x[(first + r) * inputs + i];
            }
        }
        first += n;
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * g[i];
}

template <class Ranks, class Recipe>
std::uint64_t hash_after(const Ranks& ranks, const Recipe& of, const curve& on) {
    ls::trainer trainer{ranks, of};
    trainer.fit(on.set(), ls::epochs{3});
    return trainer.weights_hash();
}

}  // namespace

TEST_CASE(
    "equivalence/short_minibatches: equal bits on 1, 2, 3, 4 and 8 ranks, read ahead or not, though ranks may have no "
    "rows",
    "[equivalence]") {
    for (const std::size_t rest : {2, 3, 5, 8, 9, 15}) {
        const curve training{batch + rest};
        const auto serial = hash_after(ls::comm::group{}, recipe(), training);
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            INFO(group.size() << " ranks, " << rest << " rows at the end");
            CHECK(hash_after(group, recipe(), training) == serial);
            CHECK(hash_after(group, recipe(part::data{}, true), training) == serial);
            CHECK(hash_after(group, recipe(part::data{}, false, true), training) == serial);
        });
    }
}

TEST_CASE("equivalence/short_minibatches: the numbers of a naive walk over the lanes of the rule", "[equivalence]") {
    using lengths = std::vector<std::size_t>;
    const lengths full(lanes, 2);
    // 2 rows a lane at least: 3 rows fill one lane of 8, 5 two, 9 four, 13 six.
    const std::pair<std::size_t, lengths> cases[] = {{3, {0, 0, 0, 0, 0, 0, 0, 3}},
                                                     {5, {0, 0, 0, 2, 0, 0, 0, 3}},
                                                     {9, {0, 2, 0, 2, 0, 2, 0, 3}},
                                                     {13, {0, 2, 2, 2, 0, 2, 2, 3}}};
    for (const auto& [rest, short_lanes] : cases) {
        const curve training{batch + rest};
        on_groups({1, 3, 4}, [&, &rest = rest, &short_lanes = short_lanes](const mpi::communicator& group) {
            ls::trainer trainer{group, recipe()};
            auto expected = trainer.all_weights();
            trainer.fit(training.set(), ls::steps{2});
            naive_step(expected, training, 0, full);
            naive_step(expected, training, batch, short_lanes);
            INFO(group.size() << " ranks, " << rest << " rows at the end");
            CHECK(relative_error(trainer.all_weights(), expected) < 1e-13);
        });
    }
}

TEST_CASE("equivalence/short_minibatches: groups of a model partition may have no rows, too", "[equivalence]") {
    const auto compared = [&](const part::hybrid<part::data, part::model<2>>& halves, const mpi::communicator& group) {
        for (const std::size_t rest : {2, 3, 9}) {
            const curve training{batch + rest};
            ls::trainer trainer{group, recipe(halves)};
            ls::trainer serial{ls::comm::group{}, recipe()};
            trainer.fit(training.set(), ls::epochs{3});
            serial.fit(training.set(), ls::epochs{3});
            INFO(group.size() << " ranks, " << rest << " rows at the end");
            CHECK(relative_error(trainer.all_weights(), serial.all_weights()) < 1e-12);
            CHECK(relative_error(trainer.running_statistics(), serial.running_statistics()) < 1e-12);
        }
    };
    on_groups({2, 4}, [&](const mpi::communicator& group) { compared({}, group); });
    on_groups({8}, [&](const mpi::communicator& group) { compared({}, group); });
}

TEST_CASE(
    "equivalence/short_minibatches: step takes full minibatches as fit does, and refuses short lanes on all ranks",
    "[equivalence]") {
    on_groups({1, 3, 4}, [](const mpi::communicator& group) {
        const curve training{2 * batch};
        ls::trainer stepped{group, recipe()}, fitted{group, recipe()};
        fitted.fit(training.set(), ls::steps{2});
        const auto own = ls::train::deal::own_rows(batch, stepped.grid());
        const auto part_of = [](const std::vector<double>& all, std::size_t size, std::size_t first,
                                std::size_t count) {
            return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(first * size),
                                       all.begin() + static_cast<std::ptrdiff_t>((first + count) * size));
        };
        const auto step = [&](std::size_t first, std::size_t count) {
            return stepped.step(part_of(training.x, inputs, first, count), part_of(training.y, outputs, first, count));
        };
        step(own.first, own.size());
        step(batch + own.first, own.size());
        CHECK(stepped.weights_hash() == fitted.weights_hash());
        // A row less on the last rank. No rows on all ranks but one are no short lanes.
        const bool last = group.rank() + 1 == group.size();
        if (group.size() > 1) CHECK(step(0, last ? own.size() : 0).samples == of_all(group, own.size()).back());
        const auto before = stepped.local_hash();
        CHECK_THROWS_WITH(step(0, last ? own.size() - 1 : own.size()),
                          Catch::Contains(ls::core::text("rank ", group.size() - 1, " brought ",
                                                         of_all(group, own.size()).back() - 1, " rows")) &&
                              Catch::Contains("which leaves one 1 row, and layer 1 (batch_norm on 8: 1 position"));
        CHECK(stepped.local_hash() == before);
    });
}

TEST_CASE("equivalence/short_minibatches: plans and last minibatches without a full lane are refused on 1 and 3 ranks",
          "[equivalence]") {
    on_groups({1, 3, 4}, [](const mpi::communicator& group) {
        auto thin = recipe();
        thin.batch = lanes;
        CHECK_THROWS_WITH((ls::trainer{group, thin}),
                          Catch::Contains("a batch of 8 in 8 lanes leaves a lane 1 sample") &&
                              Catch::Contains("use at most 4 lanes or a batch of at least 16"));
        ls::trainer trainer{group, recipe()};
        const auto before = trainer.local_hash();
        const curve training{2 * batch + 1};
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::epochs{1}),
                          Catch::Contains("the last minibatch of 33 samples with a batch of 16 has 1 sample"));
        CHECK(trainer.local_hash() == before);
    });
}

TEST_CASE("equivalence/short_minibatches: a data set of one short minibatch is learnt", "[equivalence]") {
    // 8 rows in 8 lanes: with a row in each, only the last bias would learn, and the loss stay near the variance of y.
    const curve training{8};
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe()};
        losses seen;
        trainer.fit(training.set(), ls::epochs{400}, seen);
        INFO(group.size() << " ranks, loss " << seen.values.front() << " to " << seen.values.back());
        CHECK(seen.values.back() < seen.values.front() / 20);
    });
}
