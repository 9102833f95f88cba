// SPDX-License-Identifier: BSD-3-Clause
// A user's own metrics over a data set: by name, with the bits of one rank on any number of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"
#include "lockstep/metrics/max_error.hpp"
#include "lockstep/metrics/precision_and_recall.hpp"
#include "lockstep/metrics/r_squared.hpp"
#include "lockstep/metrics/top_k.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;

template <ls::tensor::Shape Output>
using classes_of = ls::tensor::classes<Output::size>;

/// The share of samples whose class is among the `of` largest outputs.
struct top {
    static constexpr std::string_view name = "top";
    template <ls::tensor::Shape Output>
    using label = classes_of<Output>;
    int of = 1;

    std::string settings() const { return "of=" + std::to_string(of); }
    void check() const {
        if (of < 1) ls::core::fail("top has of = " + std::to_string(of), "give 1 or more");
    }

    template <class T, ls::tensor::Shape Output>
    std::size_t operator()(ls::tensor::batch<const T, Output> y,
                           ls::tensor::targets<label<Output>, T> target) const noexcept {
        std::size_t right = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const auto scores = y.sample(row);
            const T own = scores[static_cast<std::size_t>(target[row])];
            right += std::count_if(scores.begin(), scores.end(), [&](T one) { return one > own; }) < of;
        }
        return right;
    }
};

double many_digits(float score) { return 1 / (3 + static_cast<double>(score) * static_cast<double>(score)); }

/// A number with many digits for each sample: the bits of the sum depend on the order of its addends.
struct score {
    static constexpr std::string_view name = "score";
    template <ls::tensor::Shape Output>
    using label = classes_of<Output>;

    template <class T, ls::tensor::Shape Output>
    double operator()(ls::tensor::batch<const T, Output> y,
                      ls::tensor::targets<label<Output>, T> target) const noexcept {
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row)
            sum += many_digits(y.sample(row)[static_cast<std::size_t>(target[row])]);
        return sum;
    }
};

/// Another way to be called the same.
struct other_top : top {};
/// A user's metric with sums and maxima: of each output the mean and the largest error, and the largest over rows of a
/// class that there is none of.
struct errors {
    struct of_outputs {
        std::vector<double> mean, largest;
        bool operator==(const of_outputs&) const = default;
    };
    static constexpr std::string_view name = "errors";
    template <ls::tensor::Shape Output>
    using label = Output;
    template <ls::tensor::Shape Output>
    static constexpr std::size_t sum_count = Output::size;
    template <ls::tensor::Shape Output>
    static constexpr std::size_t max_count = Output::size + 1;

    void add(const auto& pass) const noexcept {
        const std::size_t outputs = pass.sums.size();
        for (std::size_t i = 0; i < pass.y.size(); ++i) {
            const double wrong = std::abs(pass.y.data[i] - pass.target[i]);
            pass.sums[i % outputs] += wrong;
            ls::metrics::take_largest(pass.maxima[i % outputs], wrong);
        }
    }
    of_outputs result(std::span<const double> sums, std::span<const double> maxima, std::size_t rows) const {
        of_outputs out{{sums.begin(), sums.end()}, {maxima.begin(), maxima.end()}};
        for (double& one : out.mean) one /= static_cast<double>(rows);
        return out;
    }
};
/// The largest of zeros of both signs, and of a NaN with a sign: which rank has which follows from the rows.
struct signs {
    static constexpr std::string_view name = "signs";
    template <ls::tensor::Shape Output>
    using label = Output;
    template <ls::tensor::Shape Output>
    static constexpr std::size_t max_count = 2;
    double last = 0;
    bool has_nan = false;

    std::string settings() const { return ls::core::text("last=", last, " has_nan=", has_nan); }
    void add(const auto& pass) const noexcept {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        for (const auto t : pass.target) {
            ls::metrics::take_largest(pass.maxima[0], t < last ? -0.0 : 0.0);
            ls::metrics::take_largest(pass.maxima[1], t < last || !has_nan ? 1.0 : std::copysign(nan, -1.0));
        }
    }
    double result(std::span<const double>, std::span<const double> maxima, std::size_t) const {
        return std::signbit(maxima[0]) ? -1 : 1;
    }
};
/// A regression has no accuracy of its own.
struct all_close {
    static constexpr std::string_view name = "accuracy";
    template <ls::tensor::Shape Output>
    using label = Output;
    double operator()(const auto& y, const auto&) const noexcept { return static_cast<double>(y.rows); }
};
/// As an evaluation has them already.
struct named_loss : top {
    static constexpr std::string_view name = "loss";
};
struct named_accuracy : top {
    static constexpr std::string_view name = "accuracy";
};

const samples<> training{96}, test{131, 8};  // the last part of 62 has 7 rows: lanes without any

auto recipe() {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .batch = 62,
                    .lanes = 31,
                    .seed = 4};
}

/// What it says after each epoch.
struct history {
    static constexpr bool on_every_rank = true;
    std::vector<double> tops{}, scores{};
    void on_epoch(const ls::report::epoch_event& event) {
        tops.push_back((*event.test)["top"]), scores.push_back((*event.test)["score"]);
    }
};

template <class Ranks>
history run(const Ranks& ranks) {
    ls::trainer trainer{ranks, recipe()};
    history seen;
    trainer.fit(training.set(), ls::epochs{8}, ls::validate{test.set(), top{.of = 3}, score{}}, seen);
    const auto found = trainer.evaluate(test.set(), ls::metrics::list{top{.of = 3}, score{}, ls::metrics::accuracy{}});
    CHECK(found.metrics.size() == 3);
    CHECK(found["accuracy"] == found.accuracy.value());
    CHECK(found["top"] > found["accuracy"]);
    CHECK(seen.tops.size() == 8);
    CHECK(seen.tops.back() == found["top"]);
    CHECK(seen.scores.back() == found["score"]);
    return seen;
}

}  // namespace

TEST_CASE("equivalence/metrics: the same bits on any number of ranks", "[equivalence]") {
    const auto serial = run(ls::comm::group{}), here = run(mpi::communicator{});
    CHECK(here.tops == serial.tops);
    CHECK(here.scores == serial.scores);
}

TEST_CASE("equivalence/metrics: they are means over all samples", "[equivalence]") {
    ls::trainer trainer{mpi::communicator{}, recipe()};
    const auto found = trainer.evaluate(test.set(), ls::metrics::list{top{.of = 3}, score{}});
    const auto y = trainer.predict(test.x);
    std::size_t right = 0;
    double sum = 0;
    for (std::size_t row = 0; row < test.y.size(); ++row) {
        const float own = y(row, static_cast<std::size_t>(test.y[row]));
        std::size_t above = 0;
        for (std::size_t i = 0; i < 10; ++i) above += y(row, i) > own;
        right += above < 3;
        sum += many_digits(own);
    }
    CHECK(found["top"] == static_cast<double>(right) / 131);
    CHECK(found["score"] == Approx(sum / 131).epsilon(1e-12));
}

TEST_CASE("equivalence/metrics: names", "[equivalence]") {
    ls::trainer trainer{ls::comm::group{}, recipe()};
    const auto found = trainer.evaluate(test.set(), ls::metrics::list{top{}, score{}});
    CHECK(found["accuracy"] == found.accuracy.value());
    CHECK(found["loss"] == found.loss);
    CHECK_THROWS_WITH(found["recall"],
                      "lockstep: there is no metric 'recall'; choose one of: loss, top, score, accuracy");
    CHECK_THROWS_WITH(
        trainer.evaluate(test.set())["top"],
        "lockstep: there is no metric 'top'; pass metrics::list{..} to evaluate(), or choose one of: loss, accuracy");
    ls::report::evaluation without = found;
    without.accuracy.reset();
    CHECK_THROWS_WITH(without["accuracy"], "lockstep: there is no metric 'accuracy'; choose one of: loss, top, score");
    CHECK_THROWS_WITH(trainer.evaluate(test.set(), ls::metrics::list{top{}, other_top{}}),
                      Catch::StartsWith("lockstep: two metrics have the name 'top'; give each a name of its own"));
    CHECK_THROWS_WITH(trainer.evaluate(test.set(), named_loss{}),
                      Catch::StartsWith("lockstep: a metric has the name 'loss', which the evaluation has already"));
    CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{1}, ls::validate{test.set(), named_accuracy{}}),
                      Catch::StartsWith("lockstep: a metric has the name 'accuracy', which the evaluation has"));
    CHECK(trainer.report().steps == 0);
}

TEST_CASE("equivalence/metrics: one by itself is a list of one", "[equivalence]") {
    ls::trainer trainer{mpi::communicator{}, recipe()};
    const auto alone = trainer.evaluate(test.set(), top{.of = 3});
    STATIC_REQUIRE(std::is_same_v<decltype(alone), const ls::report::measured<top>>);
    CHECK(alone["top"] == trainer.evaluate(test.set(), ls::metrics::list{top{.of = 3}})["top"]);
    STATIC_REQUIRE(std::is_same_v<decltype(trainer.evaluate(test.set(), {})), ls::report::evaluation>);
}

TEST_CASE("equivalence/metrics: those that make no sense, or that differ between ranks, are refused", "[equivalence]") {
    ls::trainer alone{ls::comm::group{}, recipe()};
    CHECK_THROWS_WITH(alone.evaluate(test.set(), ls::metrics::list{top{.of = 0}}),
                      Catch::StartsWith("lockstep: top has of = 0; give 1 or more"));
    const mpi::communicator world;
    if (world.size() == 1) return;
    ls::trainer trainer{world, recipe()};
    CHECK_THROWS_WITH(trainer.evaluate(test.set(), ls::metrics::list{top{.of = world.rank() + 1}}),
                      Catch::Contains("top(of=1) on rank 0"));
}

namespace {

/// Several sums with many digits, for another number of them than outputs; and what sample 0 is labelled with.
struct digits_of_scores {
    static constexpr std::string_view name = "digits_of_scores";
    template <ls::tensor::Shape Output>
    using label = classes_of<Output>;
    template <ls::tensor::Shape Output>
    static constexpr std::size_t sum_count = 7;

    void add(const auto& pass) const noexcept {
        for (std::size_t row = 0; row < pass.y.rows; ++row)
            for (std::size_t i = 0; i < 7; ++i)
                pass.sums[i] += many_digits(pass.y.sample(row)[i]) + static_cast<double>(pass.first[0]);
    }
    std::vector<double> result(std::span<const double> sums, std::size_t rows) const {
        std::vector<double> out{sums.begin(), sums.end()};
        out.push_back(static_cast<double>(rows));
        return out;
    }
};

struct several {
    std::vector<double> digits, precision, recall;
    std::vector<std::uint64_t> counts;
    double top = 0, score = 0;
    bool operator==(const several&) const = default;
};

namespace metrics = ls::metrics;

template <class Ranks>
several measure(const Ranks& ranks) {
    ls::trainer trainer{ranks, recipe()};
    trainer.fit(training.set(), ls::epochs{4});
    const auto found =
        trainer.evaluate(test.set(), metrics::list{metrics::confusion_matrix{}, score{}, digits_of_scores{},
                                                   metrics::precision_and_recall{}, metrics::top_k{.k = 3}});
    CHECK(found.metrics.size() == 2);  // those that are one number
    CHECK(found["score"] == found.template get<score>());
    const auto& scores = found.template get<metrics::precision_and_recall>();
    return {found.template get<digits_of_scores>(),
            scores.precision,
            scores.recall,
            found.template get<metrics::confusion_matrix>().counts,
            found["top_k"],
            found["score"]};
}

}  // namespace

TEST_CASE("equivalence/metrics: several sums have the same bits on any number of ranks, and are those of plain loops",
          "[equivalence]") {
    const mpi::communicator world;
    const several serial = measure(ls::comm::group{}), here = measure(world);
    CHECK(here == serial);

    ls::trainer trainer{world, recipe()};
    trainer.fit(training.set(), ls::epochs{4});
    const auto y = trainer.predict(test.x);
    std::vector<std::uint64_t> counts(100);
    std::vector<double> digits(7);
    std::size_t top = 0;
    for (std::size_t row = 0; row < test.y.size(); ++row) {
        const auto label = static_cast<std::size_t>(test.y[row]);
        std::size_t best = 0, above = 0;
        for (std::size_t i = 0; i < 10; ++i) {
            if (y(row, i) > y(row, best)) best = i;
            above += y(row, i) > y(row, label);
            if (i < 7) digits[i] += many_digits(y(row, i)) + static_cast<double>(test.y[0]);
        }
        ++counts[10 * label + best];
        top += above < 3;
    }
    CHECK(here.counts == counts);
    CHECK(here.top == static_cast<double>(top) / 131);
    CHECK(here.digits.at(7) == 131);
    for (std::size_t i = 0; i < 7; ++i) CHECK(here.digits[i] == Approx(digits[i]).epsilon(1e-12));
    for (std::size_t c = 0; c < 10; ++c) {
        double predicted = 0, labelled = 0;
        for (std::size_t other = 0; other < 10; ++other)
            predicted += static_cast<double>(counts[10 * other + c]),
                labelled += static_cast<double>(counts[10 * c + other]);
        const auto right = static_cast<double>(counts[11 * c]);
        CHECK(here.precision.at(c) == (predicted > 0 ? right / predicted : 0));
        CHECK(here.recall.at(c) == (labelled > 0 ? right / labelled : 0));
    }
    // Every rank refuses it with the same words, and goes on.
    CHECK_THROWS_WITH(trainer.evaluate(test.set(), metrics::list{metrics::top_k{.k = 10}}),
                      Catch::StartsWith("lockstep: top_k has k = 10 among 10 classes: every answer would be right;"));
    CHECK(trainer.evaluate(test.set(), metrics::list{metrics::top_k{.k = 9}})["top_k"] > 0);
}

TEST_CASE("equivalence/metrics: R^2 of a regression far from 0, and targets that are all alike", "[equivalence]") {
    constexpr std::size_t rows = 77, outputs = 3;
    const ls::core::random_stream random{8, ls::core::purpose::user};
    std::vector<double> x(2 * rows), t(outputs * rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = 1e6 + x[2 * (i / outputs)] + 0.1 * random.normal(1000 + i);
    const auto set = ls::data::in_memory<ls::tensor::shape<2>, ls::tensor::shape<outputs>>(x, t);
    const auto run = [&](const auto& ranks) {
        ls::trainer trainer{ranks, ls::plan{.model = ls::sequential{ls::input<2>, ls::layers::dense<outputs>{}},
                                            .loss = ls::loss::mean_squared_error{},
                                            .precision = ls::real<double>{},
                                            .batch = 30,
                                            .lanes = 5}};
        trainer.fit(set, ls::epochs{40});
        const auto found = trainer.evaluate(set, metrics::list{metrics::r_squared{}});
        const auto& got = found.template get<metrics::r_squared>();
        CHECK(found["r_squared"] == got.mean);
        CHECK_THROWS_WITH(found["accuracy"], Catch::Contains("choose one of: loss, r_squared"));
        CHECK(trainer.evaluate(set, all_close{})["accuracy"] == 1);
        const auto y = trainer.predict(x);
        const auto far = trainer.evaluate(set, metrics::list{errors{}, metrics::r_squared{}, metrics::max_error{}});
        CHECK(far.template get<metrics::r_squared>().outputs == got.outputs);
        const auto& by_output = far.template get<errors>();
        REQUIRE(by_output.mean.size() == outputs);
        REQUIRE(by_output.largest.size() == outputs + 1);
        CHECK(by_output.largest.back() == -std::numeric_limits<double>::infinity());
        double largest_of_all = 0;
        for (std::size_t i = 0; i < outputs; ++i) {
            double mean = 0, largest = 0;
            for (std::size_t row = 0; row < rows; ++row) {
                const double wrong = std::abs(y(row, i) - t[row * outputs + i]);
                mean += wrong / rows;
                largest = std::max(largest, wrong);
            }
            CHECK(by_output.mean[i] == Approx(mean).epsilon(1e-12));
            CHECK(by_output.largest[i] == largest);
            largest_of_all = std::max(largest_of_all, largest);
        }
        CHECK(far["max_error"] == largest_of_all);
        CHECK(trainer.evaluate(set, metrics::max_error{})["max_error"] == largest_of_all);
        double mean_of_all = 0;
        for (std::size_t i = 0; i < outputs; ++i) {
            long double mean = 0, wrong = 0, variation = 0;
            for (std::size_t row = 0; row < rows; ++row) mean += t[row * outputs + i] / static_cast<long double>(rows);
            for (std::size_t row = 0; row < rows; ++row) {
                const long double of = t[row * outputs + i];
                wrong += (y(row, i) - of) * (y(row, i) - of);
                variation += (of - mean) * (of - mean);
            }
            const auto expected = static_cast<double>(1 - wrong / variation);
            CHECK(std::abs(got.outputs.at(i) - expected) <= 1e-12 * (1 + std::abs(1 - expected)));
            mean_of_all += expected / outputs;
        }
        CHECK(got.mean == Approx(mean_of_all).epsilon(1e-12));

        const std::vector<double> alike(t.size(), 3);
        const auto still = ls::data::in_memory<ls::tensor::shape<2>, ls::tensor::shape<outputs>>(x, alike);
        std::string said;
        try {
            (void)trainer.evaluate(still, metrics::list{metrics::r_squared{}});
        } catch (const ls::core::error& error) {
            said = error.what();
        }
        CHECK(said.starts_with("lockstep: r_squared is not defined: all 77 targets of output 0 are alike"));
        const auto [least, most] = std::ranges::minmax(t);
        CHECK(trainer.evaluate(set, signs{2 * most})["signs"] == -1);
        for (const double bound : {least, (least + most) / 2, most}) {
            CHECK(trainer.evaluate(set, signs{bound})["signs"] == 1);
            std::string message;
            try {
                (void)trainer.evaluate(set, signs{bound, true});
            } catch (const ls::core::error& failure) {
                message = failure.what();
            }
            CHECK(message.starts_with("lockstep: signs is nan over "));
        }
        return std::pair{got.outputs, by_output};
    };
    CHECK(run(mpi::communicator{}) == run(ls::comm::group{}));
}

namespace {
/// Cross entropy of two classes from one output.
struct logistic {
    static constexpr std::string_view name = "logistic";
    template <ls::tensor::Shape>
    using label = ls::tensor::classes<2>;
    std::string settings() const { return {}; }

    template <class T, ls::tensor::Shape Output>
    double operator()(ls::tensor::batch<const T, Output> y, ls::tensor::targets<ls::tensor::classes<2>, T> target,
                      ls::tensor::batch<T, Output> dy, T scale) const noexcept {
        double sum = 0;
        for (std::size_t row = 0; row < y.rows; ++row) {
            const double score = y.data[row], is_second = target[row];
            sum += std::log1p(std::exp(is_second > 0 ? -score : score));
            if (dy.data != nullptr) dy.data[row] = scale * static_cast<T>(1 / (1 + std::exp(-score)) - is_second);
        }
        return sum;
    }
};
}  // namespace

TEST_CASE("equivalence/metrics: there is no accuracy where classes have no outputs of their own", "[equivalence]") {
    const std::vector<float> x{-2, -1, 0.5F, 1, 2, 3};
    const std::vector<int> kinds{0, 0, 1, 1, 1, 1};
    const auto set = ls::data::in_memory<ls::tensor::shape<1>, ls::tensor::classes<2>>(x, kinds);
    ls::trainer trainer{
        mpi::communicator{},
        ls::plan{
            .model = ls::sequential{ls::input<1>, ls::layers::dense<1>{}}, .loss = logistic{}, .batch = 6, .lanes = 4}};
    const double before = trainer.evaluate(set).loss;
    trainer.fit(set, ls::epochs{20});
    const auto found = trainer.evaluate(set);
    CHECK(found.loss < before);
    CHECK_FALSE(found.accuracy.has_value());
}
