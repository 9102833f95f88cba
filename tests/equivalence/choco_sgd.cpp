// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Gossip with a compressor (CHOCO-SGD): the weights of a naive reference, and equal bits on 1, 2, 3, 4, 6, 7 and 8
// ranks, and after a resume.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/naive_workers.hpp"
#include "equivalence/shared_folder.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/sync/choco_sgd.hpp"
#include "lockstep/sync/gossip.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace naive_workers;
using namespace ls::compress;
using ls::sync::choco_sgd;
using ls::sync::graph;
using ls::sync::neighbour;

/// A graph of one's own with unequal parts: a worker takes 0.6 of its own, 0.3 of the next one, 0.1 of the one after.
std::vector<neighbour> uneven_row(std::size_t workers, std::size_t worker, std::size_t) {
    std::vector<double> parts(workers);
    parts[worker] += 0.6;
    parts[(worker + 1) % workers] += 0.3;
    parts[(worker + 2) % workers] += 0.1;
    std::vector<neighbour> out;
    for (std::size_t one = 0; one < workers; ++one)
        if (parts[one] > 0) out.push_back({one, parts[one]});
    return out;
}
constexpr graph uneven{"uneven", [](std::size_t) -> std::size_t { return 1; }, uneven_row};

/// Algorithm 2 of the paper with top-k of what moved. The mean over workers after an exchange.
numbers naive_choco(const choco_sgd& of, std::size_t workers, std::size_t kept, const numbers& begin) {
    std::vector<numbers> copies(workers, begin);
    std::size_t step = 0;
    const auto exchange = [&](std::vector<numbers>& w, const numbers&) {
        if (++step % of.period != 0) return;
        for (std::size_t k = 0; k < workers; ++k) {
            numbers moved(begin.size());
            for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = w[k][i] - copies[k][i];
            for (const std::size_t i : sent_by_top_k(moved, kept)) copies[k][i] += moved[i];
        }
        for (std::size_t k = 0; k < workers; ++k)
            for (const auto& [other, by] : of.graph.row(workers, k, 0))
                for (std::size_t i = 0; i < begin.size(); ++i)
                    w[k][i] += of.gamma * by * (copies[other][i] - copies[k][i]);
    };
    const auto w = naive(begin, 1, 0, workers, exchange);
    numbers mean(begin.size());
    for (const numbers& one : w)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / static_cast<double>(workers);
    return mean;
}

/// Its messages hold no number above 0.02 in magnitude.
struct narrow : none {
    static constexpr std::string_view name = "narrow";
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t bytes = none::encode(in);
        const double infinite = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < in.values.size(); ++i)
            if (std::abs(in.values[i]) > 0.02) std::memcpy(in.message.data() + i * sizeof(T), &infinite, sizeof(T));
        return bytes;
    }
};

numbers weights_after_all(const auto& ranks, const auto& plan) {
    ls::trainer trainer{ranks, plan};
    trainer.fit(training.set(), ls::steps{steps});
    const auto all = trainer.all_weights();
    return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("equivalence/choco_sgd: the weights of a naive reference in double", "[equivalence]") {
    for (const std::size_t workers : {2U, 3U, 4U, 8U})
        for (const choco_sgd& of : {choco_sgd{.gamma = 0.4}, choco_sgd{.graph = ls::sync::torus, .period = 3},
                                    choco_sgd{.graph = uneven, .gamma = 1}})
            on_groups({1, 3, 6}, [&](const mpi::communicator& group) {
                INFO(of.settings() << ", " << workers << " workers, " << group.size() << " ranks");
                ls::trainer trainer{group, recipe(of, workers, top_k{.ratio = 0.05})};
                const auto begin = trainer.all_weights();
                const auto wanted = naive_choco(of, workers, 72, {begin.begin(), begin.end()});
                trainer.fit(training.set(), ls::steps{steps});
                CHECK(distance(trainer.all_weights(), wanted) < 1e-12);
            });
}

TEST_CASE("equivalence/choco_sgd: without compression and with gamma 1 it is gossip", "[equivalence]") {
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        const auto gossip = weights_after_all(group, recipe(ls::sync::gossip{.adapts_first = true}, 4));
        const choco_sgd of{.gamma = 1};
        CHECK(distance(weights_after_all(group, recipe(of, 4)), gossip) < 1e-13);
        CHECK(distance(weights_after_all(group, recipe(of, 4, top_k{.ratio = 1})), gossip) < 1e-13);
        CHECK(distance(weights_after_all(group, recipe(of, 4, top_k{.ratio = 0.05})), gossip) > 1e-5);
        // A worker alone has no neighbours.
        CHECK(weights_after_all(group, recipe(of, 1, top_k{.ratio = 0.05})) ==
              weights_after_all(group, recipe(ls::sync::gossip{}, 1)));
    });
}

TEST_CASE("equivalence/choco_sgd: the same bits on 1, 2, 3, 4, 6, 7 and 8 ranks, and after a resume", "[equivalence]") {
    const shared_folder folder;
    std::vector<std::uint64_t> hashes;
    const auto same = [&](const choco_sgd& sync, std::size_t workers, const auto& compressor) {
        INFO(compressor.settings());
        auto plan = recipe(sync, workers, compressor);
        plan.segment = 512;  // of 1,440 numbers
        hashes.push_back(check_same_bits(plan, {1, 2, 3, 4, 6, 7, 8}, folder).weights);
    };
    for (const std::size_t workers : {2U, 3U, 8U}) same({}, workers, top_k{.ratio = 0.05});
    same({.graph = ls::sync::torus, .period = 2}, 8, quantize{.bits = 4});
    same({.graph = uneven, .period = 3}, 5, one_bit{});
    same({}, 4, qsgd{.norm = bucket_norm::largest});
    same({}, 4, chain{top_k{.ratio = 0.1}, quantize{.bits = 8}});
    same({}, 4, warm_up{.inner = top_k{.ratio = 0.05}, .each = 1, .start = 2});
    same({.gamma = 0.5}, 4, scaled_sign{});
    same({.gamma = 0.5}, 4, none{});
    if (mpi::communicator{}.rank() == 0) {
        std::ranges::sort(hashes);
        CHECK(std::ranges::adjacent_find(hashes) == hashes.end());
    }
}

TEST_CASE("equivalence/choco_sgd: looks change nothing, and copies begin at loaded weights", "[equivalence]") {
    auto plan = recipe(choco_sgd{.period = 2}, 4, top_k{.ratio = 0.05});
    plan.optimizer.beta = 0;
    on_groups({1, 3, 8}, [&](const mpi::communicator& group) {
        ls::trainer watched{group, plan}, other{group, plan};
        other.fit(training.set(), ls::steps{steps});
        for (std::size_t step = 0; step < steps; ++step) {
            watched.fit(training.set(), ls::steps{1});
            (void)watched.weights_hash();
        }
        CHECK(watched.weights_hash() == other.weights_hash());
        CHECK(watched.state_hash() == other.state_hash());

        ls::trainer used{group, plan}, fresh{group, plan};
        const auto loaded = used.all_weights();
        const auto lanes_here = used.grid().own_lanes();
        const auto own = training.rows(7 * lanes_here.first, 7 * lanes_here.size());
        for (int i = 0; i < 4; ++i) (void)used.step(own.x, own.y);
        CHECK(used.weights_hash() != fresh.weights_hash());
        used.load_weights(loaded);
        for (int i = 0; i < 4; ++i) {
            (void)used.step(own.x, own.y);
            (void)fresh.step(own.x, own.y);
        }
        CHECK(used.weights_hash() == fresh.weights_hash());
    });
}

TEST_CASE("equivalence/choco_sgd: a message for each neighbour on another rank, and copies that count as state",
          "[equivalence]") {
    on_groups({4, 8}, [&](const mpi::communicator& group) {
        const top_k one{.ratio = 0.05};
        ls::trainer trainer{group, recipe(choco_sgd{.period = 2}, 8, one)};
        const std::string text = ls::summary(trainer);
        CHECK(text.find("transport     messages between workers") != std::string::npos);
        // Two workers on a rank are neighbours, and each has another one elsewhere; alone a worker has both elsewhere.
        const auto padded = [](std::size_t bytes) { return (8 + bytes + 7) / 8 * 8; };
        const std::size_t message = padded(one.max_bytes<double>(inputs * classes)) + padded(classes * sizeof(double));
        CHECK(trainer.averaging_bytes(0) == 0);
        CHECK(trainer.averaging_bytes(1) == 2 * message);
        CHECK(trainer.averaging_bytes() == message);
        // As long as those of the step: a warm-up first sends all numbers.
        const warm_up growing{.inner = one, .start = 2};
        const ls::trainer warm{group, recipe(choco_sgd{}, 8, growing)};
        CHECK(warm.averaging_bytes(1) > 2 * (inputs * classes) * sizeof(double));
        CHECK(warm.averaging_bytes(2) < 2 * message + 64);
        const std::size_t own = group.size() == 8 ? 1 : 2, n = inputs * classes + classes;
        CHECK(trainer.optimizer_numbers() == (own + own + 2) * n);
    });
}

TEST_CASE("equivalence/choco_sgd: what a message cannot hold is an error on all ranks", "[equivalence]") {
    on_groups({1, 2, 6}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe(choco_sgd{.period = 2}, 4, narrow{})};
        CHECK_NOTHROW(trainer.fit(training.set(), ls::steps{1}));
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{1}),
                          Catch::Contains("became infinite or NaN in step 2"));
    });
}

TEST_CASE("equivalence/choco_sgd: settings that make no sense are refused on all ranks", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [&](const choco_sgd& of) { ls::trainer{group, recipe(of, 4, top_k{.ratio = 0.05})}; };
        CHECK_THROWS_WITH(make({.period = 0}), Catch::Contains("sync::choco_sgd averages weights every 0 steps"));
        CHECK_THROWS_WITH(make({.gamma = 0}), Catch::Contains("sync::choco_sgd has gamma 0; set it above 0"));
        CHECK_THROWS_WITH(make({.gamma = 1.5}), Catch::Contains("has gamma 1.5"));
        CHECK_THROWS_WITH(make({.gamma = std::nan("")}), Catch::Contains("has gamma nan"));
        CHECK_THROWS_WITH(make({.graph = ls::sync::exponential}),
                          Catch::Contains("graph exponential, whose neighbours change in 2 phases"));
        const auto with = [&](const auto& compressor) { ls::trainer{group, recipe(choco_sgd{}, 4, compressor)}; };
        const std::string refused = "as error_feedback does, and that is refused for this compressor: ";
        CHECK_THROWS_WITH(with(error_feedback{top_k{.ratio = 0.05}}),
                          Catch::Contains(refused + "there is error_feedback"));
        CHECK_THROWS_WITH(with(qsgd{}), Catch::Contains(refused + "error_feedback around qsgd with levels = 7"));
        CHECK_THROWS_WITH(with(any{two_sided{top_k{.ratio = 0.05}}}),
                          Catch::Contains("makes no sum of all workers, which compressor any(two_sided("));
        CHECK_THROWS_WITH(make({.graph = {}}), Catch::Contains("graph \"\" has no phases; use ring"));
    });
}
