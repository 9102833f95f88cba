// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Compressed averaging: equal runs on equal numbers of ranks, replicas with equal bits, and the exact sum where nothing is left out.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;
using ls::compress::quantize;
using ls::compress::top_k;

constexpr std::size_t count = 190, steps = 60;
const samples<> training{count};

template <class Compressor>
auto recipe(const Compressor& compressor, std::size_t threads, std::size_t bucket, std::uint64_t seed = 5, bool thread = false) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .schedule = ls::optim::constant{.rate = 0.01},
        .compressor = compressor,
        .batch = 61,
        .lanes = 8,
        .seed = seed,
        .threads = ls::parallel::has_threads ? threads : 1,
        .bucket = bucket,
        .progress_thread = thread,
    };
}

struct outcome {
    std::uint64_t weights = 0;
    double first_loss = 0;
    double last_loss = 0;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    CHECK(trainer.weights_hash() == trainer.local_hash());
    return {trainer.local_hash(), seen.values.front(), seen.values.back()};
}

template <class Compressor>
void repeats(const Compressor& compressor) {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const std::size_t bucket : {std::size_t{1}, std::size_t{1} << 20U}) {
            INFO(Compressor::name << " on " << group.size() << " ranks, buckets of " << bucket);
            const outcome once = run(group, recipe(compressor, 1, bucket));
            const outcome again = run(group, recipe(compressor, 2, bucket, 5, true));
            CHECK(once.weights == again.weights);
            CHECK(once.last_loss == again.last_loss);
            CHECK(once.last_loss < 0.8 * once.first_loss);
            for (const auto& other : of_all(group, once.weights)) CHECK(other == once.weights);
            CHECK(run(group, recipe(compressor, 1, bucket, 6)).weights != once.weights);
        }
    });
}

}  // namespace

TEST_CASE("equivalence/compressors: top_k with error feedback repeats itself, and all ranks have equal weights", "[equivalence]") {
    repeats(error_feedback{top_k{.ratio = 0.05}});
}

TEST_CASE("equivalence/compressors: quantize with error feedback repeats itself, and all ranks have equal weights", "[equivalence]") {
    repeats(error_feedback{quantize{.bits = 4, .bucket = 128}});
}

TEST_CASE("equivalence/compressors: a message that leaves nothing out gives the bits of the exact sum", "[equivalence]") {
    // One rank sends the sum of all lanes, each of two ranks its half of the tree, and what follows is the same one addition.
    const auto everything = error_feedback{top_k{.ratio = 1}};
    const auto exact = recipe(ls::compress::none{}, 1, 0);
    const outcome serial = run(ls::comm::group{}, exact);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        INFO(group.size() << " ranks");
        CHECK(run(group, exact).weights == serial.weights);
        const outcome sent = run(group, recipe(everything, 1, 0));
        if (group.size() <= 2) CHECK(sent.weights == serial.weights);
        CHECK(std::fabs(sent.first_loss - serial.first_loss) == 0);
        // Beyond that the messages are added in the order of ranks: the same up to rounding.
        CHECK(std::fabs(sent.last_loss - serial.last_loss) < 1e-3 * serial.last_loss);
    });
}

TEST_CASE("equivalence/compressors: every rank owns the whole update, and sends one message of the stated size to each other rank",
          "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        const ls::trainer trainer{group, recipe(error_feedback{top_k{.ratio = 0.05}}, 1, 1U << 20U)};
        const std::size_t n = decltype(trainer)::network::parameters;
        CHECK(trainer.optimizer_numbers() == n);  // momentum has one slot
        REQUIRE(trainer.buckets() == 1);
        // k pairs of a float and an index, and the length, in whole numbers of eight bytes.
        const std::size_t k = (n * 5 + 99) / 100;
        const std::size_t message = (8 * k + 8 + 7) / 8 * 8;
        CHECK(trainer.averaging_bytes() == message * static_cast<std::size_t>(group.size() - 1));
    });
}
