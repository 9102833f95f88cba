// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Compressed averaging with one worker for each rank: equal runs on equal numbers of ranks, replicas with equal bits,
// and the exact sum where nothing is left out. For any number of ranks: workers.cpp.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;
using ls::compress::quantize;
using ls::compress::top_k;

constexpr std::size_t count = 190, steps = 60;
const samples<> training{count};

template <class Compressor>
auto recipe(const Compressor& compressor, std::size_t threads, std::size_t bucket, std::uint64_t seed = 5,
            bool thread = false) {
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

/// Sends nothing, and notes the first random word of each message.
struct witness {
    static inline std::vector<std::uint32_t> words;
    static constexpr std::string_view name = "witness";
    static constexpr std::size_t slot_count = 0;

    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t) const noexcept {
        return 8;
    }
    template <class T>
    std::size_t encode(const ls::compress::encoding<T>& in) const noexcept {
        words.push_back(in.random.word(0));
        return 0;
    }
    template <class T>
    void decode_add(std::span<const std::byte>, T, std::span<T>) const noexcept {}
};

/// The words of all ranks in one step.
template <class Partition>
void draws_other_words(const mpi::communicator& group, const Partition& partition) {
    const ls::plan plan{.model = net,
                        .loss = ls::loss::softmax_cross_entropy{},
                        .partition = partition,
                        .compressor = witness{},
                        .batch = 64,
                        .bucket = 1};
    ls::trainer trainer{group, plan};
    witness::words.clear();
    trainer.fit(training.set(), ls::steps{1});
    // One for each tensor and worker. A model group has the workers of its ranks: each of them compresses its shard for
    // all of these.
    constexpr std::size_t most = 100;
    REQUIRE(witness::words.size() <= most);
    std::set<std::uint64_t> all;
    std::size_t messages = 0;
    for (std::size_t message = 0; message < most; ++message) {
        const std::uint64_t none = ~std::uint64_t{0},
                            mine = message < witness::words.size() ? witness::words[message] : none;
        for (const auto& word : of_all(group, mine)) {
            messages += word != none;
            if (word != none) all.insert(word);
        }
    }
    // A matrix and a bias in each of three layers.
    CHECK(messages >= 6 * static_cast<std::size_t>(group.size()));
    CHECK(all.size() == messages);
}

}  // namespace

TEST_CASE(
    "equivalence/compressors: no two messages of a step are rounded with the same random words, whatever the partition",
    "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) { draws_other_words(group, ls::partition::data{}); });
    on_groups({2, 4}, [&](const mpi::communicator& group) {
        draws_other_words(group, ls::partition::hybrid{ls::partition::data{}, ls::partition::model<2>{}});
    });
}

TEST_CASE("equivalence/compressors: top_k with error feedback repeats itself, and all ranks have equal weights",
          "[equivalence]") {
    repeats(error_feedback{top_k{.ratio = 0.05}});
}

TEST_CASE("equivalence/compressors: quantize with error feedback repeats itself, and all ranks have equal weights",
          "[equivalence]") {
    repeats(error_feedback{quantize{.bits = 4, .bucket = 128}});
}

TEST_CASE("equivalence/compressors: a message that leaves nothing out gives the bits of the exact sum",
          "[equivalence]") {
    // One rank sends the sum of all lanes, each of two ranks its half of the tree, and what follows is the same one
    // addition.
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

TEST_CASE(
    "equivalence/compressors: every rank owns the whole update, and sends one message of the stated size to each other "
    "rank",
    "[equivalence]") {
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        const ls::trainer trainer{group, recipe(error_feedback{top_k{.ratio = 0.05}}, 1, 1U << 20U)};
        const std::size_t n = decltype(trainer)::network::parameters;
        CHECK(trainer.optimizer_numbers() == n);  // momentum has one slot
        REQUIRE(trainer.buckets() == 1);
        // Of each matrix k pairs of a float and an index, of a bias all numbers, and each time the length; in whole
        // numbers of eight bytes.
        using network = typename decltype(trainer)::network;
        std::size_t message = 0;
        ls::core::for_each_index<network::size>([&](auto layer) {
            for (const auto& one : network::template layer<layer>::parameters) {
                const std::size_t size = one.rows * one.columns, k = (size * 5 + 99) / 100;
                message += 8 + (one.rows == 1 ? (4 * size + 7) / 8 * 8 : 8 * k);
            }
        });
        CHECK(trainer.averaging_bytes() == message * static_cast<std::size_t>(group.size() - 1));
    });
}
