// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// step() on whatever rows each rank has, also none: the update is that of one rank with all of them.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/tensor/xtensor.hpp"

namespace {

using namespace support;

const samples<double> all{64};

auto recipe(std::size_t lanes) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = ls::optim::momentum{.beta = 0.9, .nesterov = true},
        .schedule = ls::optim::constant{.rate = 0.01},
        .precision = ls::real<double>{},
        .batch = 64,
        .lanes = lanes,
        .seed = 3,
    };
}
using network = ls::model::network<std::remove_const_t<decltype(net)>, 1>;

/// The loss of each row, from the outputs of the network.
template <class Trainer>
std::vector<double> row_losses(Trainer& trainer, const samples<double>::part& rows) {
    const auto y = trainer.predict(rows.x);
    std::vector<double> out;
    for (std::size_t row = 0; row < rows.y.size(); ++row) {
        double sum = 0;
        for (std::size_t i = 0; i < 10; ++i) sum += std::exp(y(row, i));
        out.push_back(std::log(sum) - y(row, static_cast<std::size_t>(rows.y[row])));
    }
    return out;
}

}  // namespace

TEST_CASE("equivalence/uneven: ranks with 0, 1 and 7 rows make the step of one rank with all rows", "[equivalence]") {
    for (const std::size_t lanes : {8U, 11U})
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            ls::trainer trainer{group, recipe(lanes)};
            ls::trainer serial{ls::comm::group{}, recipe(lanes)};
            const auto rank = static_cast<std::size_t>(group.rank());
            const std::size_t kinds[] = {7, 0, 1};
            for (std::size_t step = 0; step < 9; ++step) {
                // The last three steps have their only rows on one rank.
                const std::size_t mine =
                    step < 6 ? (group.size() == 1 ? 7 : kinds[(rank + step) % 3])
                             : (rank == (step * 5) % static_cast<std::size_t>(group.size()) ? 7 - 3 * (step - 6) : 0);
                const auto counts = of_all(group, mine);
                std::size_t before = 0, together = 0;
                for (std::size_t other = 0; other < counts.size(); ++other) {
                    if (other < rank) before += counts[other];
                    together += counts[other];
                }
                const auto own = all.rows(before, mine);
                const auto whole = all.rows(0, together);
                const auto here = trainer.step(own.x, own.y);
                const auto there = serial.step(whole.x, whole.y);
                INFO(group.size() << " ranks, " << lanes << " lanes, step " << step << ", " << mine << " rows here");
                CHECK(here.samples == together);
                CHECK(there.samples == together);
                CHECK(std::fabs(here.loss - there.loss) < 1e-12 * there.loss);
                CHECK(largest_error<network>(trainer.all_weights(), serial.all_weights()) < 1e-12);
                for (const auto& other : of_all(group, trainer.local_hash())) CHECK(other == trainer.local_hash());
            }
        });
}

TEST_CASE("equivalence/uneven: a row on a rank with one row weighs as much as one on a rank with seven",
          "[equivalence]") {
    on_groups({2, 2, 2, 2}, [](const mpi::communicator& group) {
        // Without dropout: the loss of the step is the mean of the losses of its rows.
        constexpr auto plain = ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, ls::layers::dense<10>{}};
        const auto recipe_of = [&] {
            return ls::plan{.model = plain,
                            .loss = ls::loss::softmax_cross_entropy{},
                            .optimizer = ls::optim::sgd{},
                            .schedule = ls::optim::constant{.rate = 0.5},
                            .precision = ls::real<double>{},
                            .batch = 16};
        };
        ls::trainer trainer{group, recipe_of()};
        ls::trainer seven{ls::comm::group{}, recipe_of()}, one{ls::comm::group{}, recipe_of()};
        const auto many = all.rows(0, 7), single = all.rows(7, 1);
        double sum = 0;
        for (const double loss : row_losses(seven, many)) sum += loss;
        for (const double loss : row_losses(one, single)) sum += loss;
        const auto start = trainer.all_weights();
        const auto mine = group.rank() == 0 ? many : single;
        CHECK(std::fabs(trainer.step(mine.x, mine.y).loss - sum / 8) < 1e-12 * sum / 8);
        // The update is the mean of the updates, weighted with the rows.
        seven.step(many.x, many.y);
        one.step(single.x, single.y);
        const auto from_seven = seven.all_weights(), from_one = one.all_weights();
        std::vector<double> expected(start.size());
        for (std::size_t i = 0; i < start.size(); ++i)
            expected[i] = start[i] + (7 * (from_seven[i] - start[i]) + (from_one[i] - start[i])) / 8;
        CHECK(relative_error(trainer.all_weights(), expected) < 1e-12);
    });
}

TEST_CASE("equivalence/uneven: a step without a row on any rank is an error on all of them, and the trainer goes on",
          "[equivalence]") {
    on_1_2_3_4_8([](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(8)}, other{group, recipe(8)};
        const auto before = trainer.local_hash();
        const samples<double>::part none;
        const auto mine = group.rank() == group.size() - 1 ? all.rows(0, 1) : none;
        for (int round = 0; round < 2; ++round) {
            CHECK_THROWS_WITH(
                trainer.step(none.x, none.y),
                "lockstep: no rank brought a sample to this step; call step() with at least one row on some rank");
            CHECK_THROWS_WITH(trainer.step_for(std::chrono::seconds{1}, none.x, none.y),
                              Catch::Matchers::StartsWith("lockstep: no rank brought a sample to this step"));
            if (round == 0) CHECK(trainer.local_hash() == before);
            trainer.step(mine.x, mine.y);
            other.step(mine.x, mine.y);
            CHECK(trainer.state_hash() == other.state_hash());
        }
    });
}
