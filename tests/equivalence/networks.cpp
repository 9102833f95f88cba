// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Networks of the literature: batch normalisation over lanes, Winograd's convolutions, augmented images. The same bits
// on any number of ranks.
#include "lockstep/models/lenet5.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/data/augmented.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/pad_crop.hpp"
#include "lockstep/data/shapes.hpp"
#include "lockstep/models/resnet.hpp"

namespace {

using namespace support;

// 21 samples in 8 lanes, and a last minibatch of 9.
constexpr std::size_t batch = 21, count = 51, steps = 4;

template <class Net>
auto recipe(const Net& net, std::size_t threads = 1) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{.smoothing = 0.1},
                    .optimizer = ls::optim::momentum{.beta = 0.9, .nesterov = true},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .batch = batch,
                    .lanes = 8,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? threads : 1,
                    .bucket = 10'000};
}

struct outcome {
    std::uint64_t hash = 0;
    std::vector<double> losses;
    double test_loss = 0;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan, class Set>
outcome run(const Ranks& ranks, const Plan& plan, const Set& training, const Set& test) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training, ls::steps{steps}, seen);
    return {trainer.weights_hash(), seen.values, trainer.evaluate(test).loss};
}

template <class Net, class Set>
void same_everywhere(const Net& net, const Set& training, const Set& test) {
    const auto serial = run(ls::comm::group{}, recipe(net), training, test);
    for (const double loss : serial.losses) REQUIRE(std::isfinite(loss));
    const bool threads_change_nothing = run(ls::comm::group{}, recipe(net, 2), training, test) == serial;
    CHECK(threads_change_nothing);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        const auto here = run(group, recipe(net), training, test);
        INFO(group.size() << " ranks");
        CHECK(here.hash == serial.hash);
        CHECK(here.losses == serial.losses);
        CHECK(here.test_loss == serial.test_loss);
    });
}

auto images(std::size_t size, std::uint64_t first) {
    return ls::data::augmented{ls::data::shapes{.count = size, .first = first}, ls::data::pad_crop{}, ls::data::flip{}};
}

}  // namespace

TEST_CASE("equivalence/networks: a residual network with batch normalisation", "[equivalence]") {
    same_everywhere(ls::models::resnet<8>, images(count, 0), images(30, 1'000'000));
}

TEST_CASE("equivalence/networks: LeNet-5", "[equivalence]") {
    same_everywhere(ls::models::lenet5, ls::data::digits{.count = count},
                    ls::data::digits{.count = 30, .first = 1'000'000});
}

TEST_CASE("equivalence/networks: Winograd's algorithm changes the last bits only", "[equivalence]") {
    const auto training = images(count, 0), test = images(30, 1'000'000);
    const auto direct =
        run(ls::comm::group{}, recipe(ls::models::resnet<8, ls::kernels::always_direct>), training, test);
    const auto chosen = run(ls::comm::group{}, recipe(ls::models::resnet<8>), training, test);
    CHECK(direct.hash != chosen.hash);
    CHECK(direct.losses.front() != chosen.losses.front());
    // The first loss has seen one forward run of seven convolutions. F(4x4) errs by up to 52 epsilon of the largest
    // output, directly 35, both measured with 512 channels (winograd.hpp): 7 (52 + 35) 1.2e-7 = 7e-5. The loss of ten
    // classes, 2.3 at first, changes by at most twice the change of an output, which is about 1.
    CHECK(std::fabs(direct.losses.front() - chosen.losses.front()) < 1e-4 * direct.losses.front());
}
