// SPDX-License-Identifier: BSD-3-Clause
// Gathered messages of fixed and of varying lengths: what one rank with all workers gets, bit for bit, on every rank,
// and no byte more than messages have.
#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "unit/reduce/many_ranks.hpp"

namespace ls = lockstep;
using ls::compress::any;
using ls::compress::error_feedback;
using ls::compress::level_coding;
using ls::compress::qsgd;
using ls::compress::threshold;
using reduce_test::layout;

namespace {

using gathered = ls::reduce::gathered_messages<float, any>;

void same_as_one_rank(const any& compressor, const layout& of, std::uint64_t steps = 3, bool all_deals = true) {
    reduce_test::same_as_one_rank<gathered>(compressor, of, steps, all_deals);
}

const qsgd elias{.levels = 3, .bucket = 100, .coding = level_coding::elias};

}  // namespace

TEST_CASE("reduce/gathered_messages: messages of any length have the bits of one rank", "[reduce]") {
    same_as_one_rank(error_feedback{ls::compress::quantize{.bits = 4}}, {400, 5, 300});
    same_as_one_rank(threshold{.value = 7.5}, {400, 5, 300});
    // None is sent, and as many as there is room for.
    same_as_one_rank(error_feedback{threshold{.value = 1e6}}, {400, 5, 300});
    same_as_one_rank(error_feedback{threshold{.value = 1e-3}}, {6, 1, 1});
    same_as_one_rank(elias, {400, 5, 300});
    same_as_one_rank(error_feedback{ls::compress::warm_up{threshold{.value = 7}, 0, 2}}, {400, 5, 300}, 4);
    same_as_one_rank(ls::compress::by_layer{elias, ls::compress::none{}, threshold{.value = 5}}, {400, 5, 300});
}

TEST_CASE("reduce/gathered_messages: of several pieces of a message", "[reduce]") {
    // A piece of a message has less than 64 KiB.
    same_as_one_rank(elias, {250'000, 5, 40'000}, 2, false);
    same_as_one_rank(threshold{.value = 6, .most_share = 0.5}, {150'000, 5, 40'000}, 2, false);
}

TEST_CASE("reduce/gathered_messages: a rank sends the bytes of its messages", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const std::size_t p = ranks.size(), rank = ranks.rank(), workers = 4;
    if (p == 3) return;  // workers of 1 and 2 ranks
    const auto on = ls::partition::make_grid<ls::partition::data>(rank, p, workers, workers);
    const layout of{400, 5, 300};
    // Of each worker: 8 bytes of length, then for each piece 8 bytes of length and the message, up to a multiple of 8.
    const auto bytes_of = [&](const threshold& compressor, std::size_t worker, std::uint64_t step) {
        const auto values = reduce_test::sum_of_lanes(of.n, worker, 1, step);
        std::size_t bytes = 8;
        for (const auto& piece : of.pieces) {
            const auto part = std::span{values}.subspan(piece.first, piece.count);
            std::size_t count = 0;
            for (const float one : part) count += std::abs(one) >= static_cast<float>(compressor.value) ? 1 : 0;
            bytes += 8 + (piece.rows == 1 ? 4 * piece.count : 8 * count) / 8 * 8 +
                     (piece.rows == 1 && piece.count % 2 == 1 ? 8 : 0);
        }
        return bytes;
    };
    std::vector<std::size_t> sent;
    for (const double value : {7.0, 4.0, 1e6}) {
        const threshold compressor{.value = value, .most_share = 1};
        reduce_test::reducer<ls::reduce::gathered_messages<float, threshold>> many{
            reduce_test::bucket_on(ranks, on, of.n), of, compressor};
        for (std::uint64_t step = 0; step < 3; ++step) {
            std::vector<float> mine;
            for (const auto& node : on.nodes_of(on.own_lanes()))
                reduce_test::append(mine, reduce_test::sum_of_lanes(of.n, node.first, node.count, step));
            (void)many(mine, step, true);
            // Doubling: the workers of this rank, then those of 2 ranks.
            std::size_t bytes = 0;
            for (std::size_t distance = 1; distance < p; distance *= 2)
                for (std::size_t worker = 0; worker < workers; ++worker)
                    if (worker * p / workers / distance == rank / distance) bytes += bytes_of(compressor, worker, step);
            INFO("from " << value << " on, step " << step << ", " << p << " ranks");
            CHECK(many.sum.bytes_per_step() == bytes);
            sent.push_back(bytes);
        }
    }
    if (p > 1) CHECK(*std::ranges::min_element(sent) < *std::ranges::max_element(sent) / 4);
}
