// SPDX-License-Identifier: BSD-3-Clause
// Reductions over messages: what one rank with all workers gets, bit for bit, on every rank; bytes as in the formulas.
#include <bit>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/rounds.hpp"
#include "lockstep/sync/buckets.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;

namespace {

constexpr std::size_t bias = 5, rows = 24, columns = 19, n = bias + rows * columns;

std::vector<ls::reduce::piece> pieces() {
    return {{.first = 0, .count = bias, .tensor = 3, .rows = 1, .columns = bias},
            {.first = bias, .count = rows * columns, .tensor = 4, .rows = rows, .columns = columns}};
}

/// Of a lane, in whole 64ths: sums of lanes are exact, whatever their order.
float number(std::size_t lane, std::size_t i, std::uint64_t step) {
    return static_cast<float>((41 * i + 59 * lane + 17 * step) % 211) / 64 - 1.75F;
}
std::vector<float> sum_of_lanes(std::size_t first, std::size_t count, std::uint64_t step) {
    std::vector<float> out(n);
    for (std::size_t lane = first; lane < first + count; ++lane)
        for (std::size_t i = 0; i < n; ++i) out[i] += number(lane, i, step);
    return out;
}
void append(std::vector<float>& to, const std::vector<float>& what) { to.insert(to.end(), what.begin(), what.end()); }

template <class R>
struct reducer {
    ls::tensor::arena arena;
    ls::reduce::rounds<float, R> sum;
    reducer(ls::reduce::bucket of, const R& reduction) : sum{with_pieces(of), reduction, arena} {
        arena.allocate();
        sum.bind(arena);
    }
    static const ls::reduce::bucket& with_pieces(ls::reduce::bucket& of) {
        of.deal.pieces = pieces();
        of.deal.seed = 23;
        return of;
    }
    std::vector<float> operator()(std::vector<float> gradient, std::uint64_t step, bool polls) {
        sum.start(gradient, step);
        while (polls && !sum.poll()) {
        }
        sum.finish();
        arena.check();
        gradient.resize(n);
        return gradient;
    }
};

ls::reduce::bucket bucket_on(const ls::comm::group& ranks, const ls::partition::grid& on) {
    const auto groups = ls::sync::make_bucket_groups(on, ranks, ranks);
    return ls::sync::bucket_of({.segment = ls::model::segment::replicated, .count = n}, on, groups, {}, nullptr);
}

template <class R>
void same_as_one_rank(const R& reduction) {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    for (const auto& [workers, lanes] :
         std::vector<std::pair<std::size_t, std::size_t>>{{1, 8}, {2, 8}, {3, 12}, {4, 8}, {5, 10}, {7, 16}, {8, 8}}) {
        INFO(R::name << " " << reduction.settings() << ", " << workers << " workers, " << lanes << " lanes, "
                     << ranks.size() << " ranks");
        const auto on = ls::partition::make_grid<ls::partition::data>(ranks.rank(), ranks.size(), lanes, workers);
        reducer<R> many{bucket_on(ranks, on), reduction};
        reducer<R> alone{reduce_test::bucket_of_workers(n, workers, on.worker_lanes(), columns, n), reduction};
        for (std::uint64_t step = 0; step < 4; ++step) {
            std::vector<float> mine, all;
            for (const auto& node : on.nodes_of(on.own_lanes()))
                append(mine, sum_of_lanes(node.first, node.count, step));
            for (std::size_t worker = 0; worker < workers; ++worker)
                append(all, sum_of_lanes(worker * on.worker_lanes(), on.worker_lanes(), step));
            CHECK(many(mine, step, step % 2 == 0) == alone(all, step, false));
        }
        // A number of the last lane.
        for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> mine;
            for (const auto& node : on.nodes_of(on.own_lanes())) append(mine, sum_of_lanes(node.first, node.count, 4));
            if (on.own_lanes().last == on.lanes) mine.back() = bad;
            for (const float one : many(mine, 4, true)) REQUIRE(std::isnan(one));
        }
    }
}

}  // namespace

TEST_CASE("reduce/rounds: terngrad over messages has the bits of one rank", "[reduce]") {
    same_as_one_rank(ls::compress::terngrad{});
    same_as_one_rank(ls::compress::terngrad{.clip = 0});
}

TEST_CASE("reduce/rounds: power_sgd over messages has the bits of one rank", "[reduce]") {
    same_as_one_rank(ls::compress::error_feedback{ls::compress::power_sgd{}});
    same_as_one_rank(ls::compress::error_feedback{ls::compress::power_sgd{.rank = 4}});
    same_as_one_rank(ls::compress::power_sgd{.rank = 20});  // added as it is
}

TEST_CASE("reduce/rounds: numbers of 16 bits over messages have the bits of one rank", "[reduce]") {
    same_as_one_rank(ls::compress::half{});
    same_as_one_rank(ls::compress::error_feedback{ls::compress::bfloat16{.stochastic = true}});
}

TEST_CASE("reduce/rounds: a rank sends what the formulas say", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const std::size_t p = ranks.size();
    if (!std::has_single_bit(p)) return;
    const auto on = ls::partition::make_grid<ls::partition::data>(ranks.rank(), p, 8, 8);
    const std::size_t rounds = static_cast<std::size_t>(std::bit_width(p)) - 1;
    // Short sums by doubling: the flag, the bias, a scale and words of six numbers; P and Q.
    const reducer<ls::compress::terngrad> ternary{bucket_on(ranks, on), {}};
    CHECK(ternary.sum.bytes_per_step() == rounds * sizeof(float) * (1 + bias + 1 + (rows * columns + 5) / 6));
    using feedback = ls::compress::error_feedback<ls::compress::power_sgd>;
    const reducer<feedback> low{bucket_on(ranks, on), {{.rank = 2}}};
    CHECK(low.sum.bytes_per_step() == rounds * sizeof(float) * (1 + bias + 2 * (rows + columns)));
    // Two bytes for each number, and the flag.
    const reducer<ls::compress::half> halves_of{bucket_on(ranks, on), {}};
    CHECK(halves_of.sum.bytes_per_step() == rounds * 2 * (1 + bias + rows * columns));
    // A long one by the tree.
    auto bucket = bucket_on(ranks, on);
    bucket.n = 2560;
    const auto halves = ls::reduce::make_worker_sum(bucket, bucket.n, sizeof(float), true);
    CHECK(halves.sum.sent().elements + halves.share.sent().elements == 2 * bucket.n * (p - 1) / p);
}
