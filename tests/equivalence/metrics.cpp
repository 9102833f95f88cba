// SPDX-License-Identifier: BSD-3-Clause
// A user's own metrics over a data set: by name, with the bits of one rank on any number of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
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
    CHECK_THROWS_WITH(found["recall"], "lockstep: there is no metric 'recall'; choose one of: top, score");
    CHECK_THROWS_WITH(trainer.evaluate(test.set())["top"], Catch::Contains("pass metrics::list{..} to evaluate()"));
    CHECK_THROWS_WITH(trainer.evaluate(test.set(), ls::metrics::list{top{}, other_top{}}),
                      Catch::StartsWith("lockstep: two metrics have the name 'top'; give each a name of its own"));
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
