// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// Observers end a run, on all ranks after the same step.
#include "lockstep/report/early_stopping.hpp"

#include <boost/mpi/collectives/all_gather.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"

namespace {

using namespace support;

const samples<> training{96}, test{50, 8};

auto recipe(double rate) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::sgd{},
                    .schedule = ls::optim::constant{.rate = rate},
                    .batch = 32};
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
    CHECK_THROWS_WITH(blind.fit(training.set(), ls::epochs{2}, ls::early_stopping{}),
                      Catch::Contains("name validate{set} before it"));
}

}  // namespace
