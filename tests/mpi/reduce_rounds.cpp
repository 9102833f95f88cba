// SPDX-License-Identifier: BSD-3-Clause
// Reductions over messages: what one rank with all workers gets, bit for bit, on every rank; bytes as in the formulas.
#include <bit>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/rounds.hpp"
#include "unit/reduce/many_ranks.hpp"

namespace ls = lockstep;

namespace {

constexpr std::size_t bias = 5, rows = 24, columns = 19, n = bias + rows * columns;

const reduce_test::layout whole{
    {{.first = 0, .count = bias, .tensor = 3, .rows = 1, .columns = bias},
     {.first = bias, .count = rows * columns, .tensor = 4, .rows = rows, .columns = columns}}};

template <class R>
using reducer = reduce_test::reducer<ls::reduce::rounds<float, R>>;

template <class R>
void same_as_one_rank(const R& reduction) {
    reduce_test::same_as_one_rank<ls::reduce::rounds<float, R>>(reduction, whole, 4);
}

/// What a trial says is left, and what a step of a single worker then leaves, which the trial has not changed.
template <class R>
void trial_is_as_a_step(const R& reduction) {
    INFO(R::name);
    constexpr std::uint64_t step = 5;
    const ls::compress::error_feedback<R> compressor{reduction};
    reducer<ls::compress::error_feedback<R>> tried{reduce_test::bucket_of_workers(n, 1, 8, 1, n), whole, compressor};
    reducer<ls::compress::error_feedback<R>> other{reduce_test::bucket_of_workers(n, 1, 8, 1, n), whole, compressor};
    std::vector<float> gradient = reduce_test::sum_of_lanes(n, 0, 8, step), room(n);
    double squares = 0;
    for (const auto& piece : whole.pieces)
        if (!ls::compress::is_dense(reduction, {piece.rows, piece.columns}))
            for (std::size_t i = 0; i < piece.count; ++i) squares += std::pow(double{gradient[piece.first + i]}, 2);
    const auto trial = tried.sum.try_on(gradient, step, 1U << 17U, room);
    CHECK(trial.squares == Approx(squares));
    CHECK(trial.lost > 0);
    CHECK(trial.lost < trial.squares);
    CHECK((trial.encode > 0 && trial.finish > 0));
    CHECK(tried.sum.compressed() == (ls::compress::is_dense(reduction, {1, bias}) ? n - bias : n));
    CHECK(tried(gradient, step, false) == other(gradient, step, false));
    double left = 0;
    tried.sum.visit_state(
        [&](const ls::tensor::state_part<float>& part) {
            if (part.role == "compressor")
                for (const float one : part.numbers) left += double{one} * double{one};
        },
        0);
    CHECK(trial.lost == Approx(left));
    // Numbers that are not finite are not handed to it.
    gradient.back() = std::numeric_limits<float>::infinity();
    CHECK(std::isinf(tried.sum.try_on(gradient, step, 1U << 17U, room).squares));
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

TEST_CASE("reduce/rounds: a trial leaves what a step leaves, and changes nothing", "[reduce]") {
    trial_is_as_a_step(ls::compress::power_sgd{.rank = 2});
    trial_is_as_a_step(ls::compress::random_k{.ratio = 0.2});
    trial_is_as_a_step(ls::compress::random_block{.ratio = 0.2});
}

TEST_CASE("reduce/rounds: a rank sends what the formulas say", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const std::size_t p = ranks.size();
    if (!std::has_single_bit(p)) return;
    const auto on = ls::partition::make_grid<ls::partition::data>(ranks.rank(), p, 8, 8);
    auto bucket = reduce_test::bucket_on(ranks, on, n);
    const std::size_t rounds = static_cast<std::size_t>(std::bit_width(p)) - 1;
    // Short sums by doubling: the flag, the bias, a scale and words of six numbers; P and Q.
    const reducer<ls::compress::terngrad> ternary{bucket, whole, ls::compress::terngrad{}};
    CHECK(ternary.sum.bytes_per_step() == rounds * sizeof(float) * (1 + bias + 1 + (rows * columns + 5) / 6));
    using feedback = ls::compress::error_feedback<ls::compress::power_sgd>;
    const reducer<feedback> low{bucket, whole, feedback{{.rank = 2}}};
    CHECK(low.sum.bytes_per_step() == rounds * sizeof(float) * (1 + bias + 2 * (rows + columns)));
    // Two bytes for each number, and the flag.
    const reducer<ls::compress::half> halves_of{bucket, whole, ls::compress::half{}};
    CHECK(halves_of.sum.bytes_per_step() == rounds * 2 * (1 + bias + rows * columns));
    // A long one by the tree.
    bucket.n = 2560;
    const auto halves = ls::reduce::make_worker_sum(bucket, bucket.n, sizeof(float), true);
    CHECK(halves.sum.sent().elements + halves.share.sent().elements == 2 * bucket.n * (p - 1) / p);
}
