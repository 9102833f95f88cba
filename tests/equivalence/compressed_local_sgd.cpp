// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Local SGD whose workers send through a compressor how far they have come: the weights of a naive reference, and equal
// bits on 1, 2, 3, 4, 6 and 8 ranks, and after a resume.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/naive_workers.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/sync/outer_momentum.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace naive_workers;
using namespace ls::compress;
using ls::sync::local_sgd;
using ls::sync::momenta;
using ls::sync::outer_momentum;

/// Qsparse-local-SGD with top-k of the weights; the biases, a vector, go whole.
struct naive_top_k {
    static constexpr bool takes_parts = true;
    std::size_t kept = 0;
    mutable numbers start;
    mutable std::vector<numbers> residual;

    void operator()(std::vector<numbers>& w, const numbers& parts) const {
        if (parts.empty()) {
            start = w[0];
            return;
        }
        residual.resize(w.size(), numbers(start.size()));
        numbers sum(start.size());
        for (std::size_t k = 0; k < w.size(); ++k) {
            numbers& rest = residual[k];
            for (std::size_t i = 0; i < start.size(); ++i) rest[i] += parts[k] * (start[i] - w[k][i]);
            for (const std::size_t i : sent_by_top_k(rest, kept)) {
                sum[i] += rest[i];
                rest[i] = 0;
            }
        }
        for (std::size_t i = 0; i < start.size(); ++i) start[i] -= sum[i];
        w.assign(w.size(), start);
    }
};

}  // namespace

TEST_CASE("equivalence/compressed_local_sgd: the weights of a naive reference in double", "[equivalence]") {
    for (const std::size_t workers : {2U, 3U, 4U, 8U})
        for (const local_sgd& of : {local_sgd{.period = 1}, local_sgd{.period = 3}, local_sgd{.period = 2, .start = 3}})
            on_groups({1, 6}, [&](const mpi::communicator& group) {
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                ls::trainer trainer{group, recipe(of, workers, error_feedback{top_k{.ratio = 0.05}})};
                const auto begin = trainer.all_weights();
                const naive_top_k between{.kept = 72, .start = {begin.begin(), begin.end()}, .residual = {}};
                const auto wanted = naive(between.start, of.period, of.start, workers, between);
                // 9 steps, or 6 after 3: a whole number of periods.
                trainer.fit(training.set(), ls::steps{steps});
                CHECK(distance(trainer.all_weights(), wanted[0]) < 1e-12);
                const auto exact = naive(numbers(begin.begin(), begin.end()), of.period, of.start, workers,
                                         [](std::vector<numbers>& w, const numbers& mean) {
                                             if (!mean.empty()) w.assign(w.size(), mean);
                                         });
                CHECK(distance(wanted[0], exact[0]) > 1e-4);
            });
}

TEST_CASE("equivalence/compressed_local_sgd: a compressor that sends all, and a single worker, leave the exact mean",
          "[equivalence]") {
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        const auto after = [&](const auto& sync, std::size_t workers, const auto& compressor) {
            ls::trainer trainer{group, recipe(sync, workers, compressor)};
            trainer.fit(training.set(), ls::steps{steps});
            const auto all = trainer.all_weights();
            return numbers(all.begin(), all.end());
        };
        const local_sgd of{.period = 3, .momentum = momenta::average};
        CHECK(distance(after(of, 4, top_k{.ratio = 1}), after(of, 4, none{})) < 1e-13);
        const outer_momentum outer{.period = 3, .start = 2};
        CHECK(distance(after(outer, 4, top_k{.ratio = 1}), after(outer, 4, none{})) < 1e-13);
        CHECK(after(of, 1, top_k{.ratio = 0.01}) == after(of, 1, none{}));
        // Before `start` gradients are added as they are.
        const local_sgd late{.period = 3, .start = steps};
        CHECK(after(late, 4, top_k{.ratio = 0.01}) == after(late, 4, none{}));
    });
}

TEST_CASE("equivalence/compressed_local_sgd: the same bits on 1, 2, 3, 4, 6 and 8 ranks, and after a resume",
          "[equivalence]") {
    const shared_folder folder;
    std::vector<std::uint64_t> hashes;
    const auto same = [&](const auto& sync, std::size_t workers, const auto& compressor) {
        INFO(compressor.settings());
        auto plan = recipe(sync, workers, compressor);
        plan.segment = 512;  // of 1,440 numbers
        hashes.push_back(check_same_bits(plan, {1, 2, 3, 4, 6, 8}, folder).weights);
    };
    // A resume after step 5: within a period, and at its end.
    for (const std::size_t workers : {2U, 3U, 8U}) {
        same(local_sgd{.period = 3}, workers, error_feedback{top_k{.ratio = 0.05}});
        same(local_sgd{.period = 5, .momentum = momenta::average}, workers, quantize{.bits = 4});
        same(outer_momentum{.period = 2, .start = 1}, workers, error_feedback{one_bit{}});
    }
    same(local_sgd{.period = 2}, 4, two_sided{one_bit{}});
    same(local_sgd{.period = 2}, 4, qsgd{});
    same(local_sgd{.period = 2}, 4, error_feedback{power_sgd{.rank = 2}});
    same(local_sgd{.period = 2, .start = 2}, 4, error_feedback{random_k{.ratio = 0.1}});
    same(local_sgd{.period = 2}, 4, sparse_sum{error_feedback{top_k{.ratio = 0.1}}});
    same(local_sgd{.period = 2}, 4, error_feedback{chain{top_k{.ratio = 0.1}, quantize{.bits = 8}}});
    same(local_sgd{.period = 2}, 4, bfloat16{});
    if (mpi::communicator{}.rank() == 0) {
        std::ranges::sort(hashes);
        CHECK(std::ranges::adjacent_find(hashes) == hashes.end());
    }
}

TEST_CASE("equivalence/compressed_local_sgd: looks at the mean change nothing", "[equivalence]") {
    const auto plan = recipe(local_sgd{.period = 4}, 4, error_feedback{top_k{.ratio = 0.05}});
    on_groups({1, 3, 8}, [&](const mpi::communicator& group) {
        ls::trainer watched{group, plan}, other{group, plan};
        other.fit(training.set(), ls::steps{steps});
        for (std::size_t step = 0; step < steps; ++step) {
            watched.fit(training.set(), ls::steps{1});
            (void)watched.weights_hash();
            (void)watched.evaluate(training.set());
        }
        CHECK(watched.weights_hash() == other.weights_hash());
        CHECK(watched.state_hash() == other.state_hash());
    });
}

TEST_CASE("equivalence/compressed_local_sgd: loaded weights are where all workers go on from", "[equivalence]") {
    // Within a period, and with a compressor that keeps nothing: only the count of samples and of steps is left.
    auto plan = recipe(local_sgd{.period = 4}, 4, top_k{.ratio = 0.05});
    plan.optimizer.beta = 0;
    on_groups({1, 3, 8}, [&](const mpi::communicator& group) {
        ls::trainer used{group, plan}, fresh{group, plan};
        const auto loaded = used.all_weights();
        const auto lanes_here = used.grid().own_lanes();
        const auto own = training.rows(7 * lanes_here.first, 7 * lanes_here.size());
        for (int i = 0; i < 6; ++i) (void)used.step(own.x, own.y);
        used.load_weights(loaded);
        CHECK(used.weights_hash() == fresh.weights_hash());
        // Both are at the end of a period two steps later.
        for (int i = 0; i < 2; ++i) (void)fresh.step(own.x, own.y);
        fresh.load_weights(loaded);
        for (int i = 0; i < 2; ++i) {
            (void)used.step(own.x, own.y);
            (void)fresh.step(own.x, own.y);
        }
        CHECK(used.weights_hash() == fresh.weights_hash());
    });
}

TEST_CASE("equivalence/compressed_local_sgd: what a message cannot hold is an error on all ranks", "[equivalence]") {
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        auto plan = recipe(local_sgd{.period = 2}, 4, half{});
        plan.schedule.rate = 1e7;  // weights of more than 65,504
        ls::trainer trainer{group, plan};
        CHECK_NOTHROW(trainer.fit(training.set(), ls::steps{1}));
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{1}),
                          Catch::Contains("became infinite or NaN in step 2"));
    });
}

TEST_CASE("equivalence/compressed_local_sgd: between two periods losses travel alone, and then messages",
          "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        auto plan = recipe(local_sgd{.period = 4}, 4, error_feedback{top_k{.ratio = 0.05}});
        ls::trainer trainer{group, plan};
        const std::string text = ls::summary(trainer);
        CHECK(text.find("workers       4, each with weights of its own") != std::string::npos);
        CHECK(text.find("transport     messages between workers") != std::string::npos);
        // Slots of two workers, and the weights from which they send how far they have come.
        const auto exact = recipe(local_sgd{.period = 4}, 4, none{});
        CHECK(trainer.optimizer_numbers() ==
              ls::trainer{group, exact}.optimizer_numbers() + inputs * classes + classes);
        std::vector<std::size_t> sent{0};
        for (int i = 0; i < 5; ++i) {
            trainer.fit(training.set(), ls::steps{1});
            sent.push_back(trainer.report().bytes_sent);
        }
        const std::size_t losses_alone = sent[1];
        for (const std::size_t step : {2U, 3U, 5U}) CHECK(sent[step] - sent[step - 1] == losses_alone);
        // Two workers on this rank, each with a message for the weights and one for the biases, after 8 bytes each.
        const top_k one{.ratio = 0.05};
        const std::size_t message = one.max_bytes<double>(inputs * classes) + classes * sizeof(double);
        CHECK(sent[4] - sent[3] == losses_alone + 2 * (message + 16));
    });
}
