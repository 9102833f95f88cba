// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Lists that are added on their way have the same bits on any number of ranks, whatever the buckets, overlap, thread
// and algorithm: with a quantised second half, and cut to the largest (gTop-k).
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/optim/adam.hpp"

namespace {

using namespace support;
using ls::compress::error_feedback;
using ls::compress::global_top_k;
using ls::compress::quantize;
using ls::compress::sparse_algorithm;
using ls::compress::sparse_sum;
using ls::compress::top_k;

constexpr std::size_t steps = 6;
const samples<> training{190};

/// What changes no bit. Each two of the settings meet in one of them, but for a thread without overlap.
struct machine {
    std::size_t bucket = 1U << 16U;
    bool overlap = true;
    bool thread = false;
};
constexpr machine machines[] = {{1, true, false},         {1, false, false},         {1U << 16U, true, true},
                                {1U << 20U, true, false}, {1U << 20U, false, false}, {1, true, true}};

template <class Compressor>
auto recipe(const Compressor& compressor, std::size_t workers, const machine& on = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::adam{},
                    .schedule = ls::optim::constant{.rate = 0.003},
                    .compressor = compressor,
                    .batch = 61,
                    .lanes = workers == 3 ? 12U : 8U,
                    .workers = workers,
                    .segment = 256,
                    .seed = 5,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread};
}

struct outcome {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    CHECK(trainer.weights_hash() == trainer.local_hash());
    return {trainer.weights_hash(), trainer.state_hash(), seen.values};
}

/// Groups of 2, 3, 4, 6 and 8 ranks have the bits of one rank; variants[i] of the compressor have equal bits.
template <class Compressor>
void same_everywhere(const std::vector<Compressor>& variants, std::size_t workers) {
    INFO(Compressor::name << " " << variants[0].settings() << ", " << workers << " workers");
    const outcome alone = run(ls::comm::group{}, recipe(variants[0], workers));
    CHECK(alone.losses.back() < alone.losses.front());
    std::size_t turn = workers;
    const auto compare = [&](const mpi::communicator& group) {
        for (const Compressor& one : variants) {
            const machine& on = machines[(turn + static_cast<std::size_t>(group.size())) % std::size(machines)];
            INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", thread "
                              << on.thread);
            CHECK(run(group, recipe(one, workers, on)) == alone);
            ++turn;
        }
    };
    on_groups({1, 3, 4}, compare);
    on_groups({2, 6}, compare);
    on_groups({8}, compare);
}

}  // namespace

TEST_CASE("equivalence/sparse_sums: sparse_sum has the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    // Most segments turn dense and are quantised with the larger ratio, none with the smaller one.
    for (const double ratio : {0.15, 0.02}) {
        std::vector<error_feedback<sparse_sum<top_k, quantize>>> variants;
        for (const auto algorithm :
             {sparse_algorithm::automatic, sparse_algorithm::recursive_doubling, sparse_algorithm::split_all_gather})
            variants.push_back({{top_k{.ratio = ratio}, quantize{.bits = 4}, algorithm}});
        for (const std::size_t workers : {8, 4, 3}) same_everywhere(variants, workers);
    }
}

TEST_CASE("equivalence/sparse_sums: global_top_k has the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    for (const std::size_t workers : {8, 4, 3}) same_everywhere(std::vector{global_top_k{.ratio = 0.05}}, workers);
}
