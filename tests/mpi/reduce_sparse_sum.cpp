// SPDX-License-Identifier: BSD-3-Clause
// Sums of streams over messages: what one rank with all workers gets, bit for bit, on every rank; bytes as in the
// formulas.
#include <algorithm>
#include <bit>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/sparse_sum.hpp"
#include "unit/reduce/many_ranks.hpp"
#include "unit/reduce/naive_streams.hpp"

namespace ls = lockstep;
using ls::compress::error_feedback;
using ls::compress::global_top_k;
using ls::compress::quantize;
using ls::compress::sparse_algorithm;
using ls::compress::sparse_sum;
using ls::compress::top_k;

namespace {

using reduce_test::append;
using reduce_test::bucket_on;
using reduce_test::layout;
using reduce_test::sum_of_lanes;

template <class C>
using reducer = reduce_test::reducer<ls::reduce::sparse_sum<float, C>>;

template <class C>
void same_as_one_rank(const C& compressor, const layout& of, std::uint64_t steps = 3, bool all_deals = true) {
    reduce_test::same_as_one_rank<ls::reduce::sparse_sum<float, C>>(compressor, of, steps, all_deals);
}

template <class Inner>
auto by(const Inner& inner, sparse_algorithm which) {
    sparse_sum out{inner};
    out.algorithm = which;
    return out;
}

constexpr sparse_algorithm both[] = {sparse_algorithm::recursive_doubling, sparse_algorithm::split_all_gather};

}  // namespace

TEST_CASE("reduce/sparse_sum: both algorithms over messages have the bits of one rank", "[reduce]") {
    for (const auto which : both) {
        same_as_one_rank(by(error_feedback{top_k{.ratio = 0.05}}, which), {400, 5, 300});
        same_as_one_rank(by(top_k{.ratio = 1}, which), {6, 5, 1});
        same_as_one_rank(by(top_k{.ratio = 1e-9}, which), {6, 1, 1});
    }
    same_as_one_rank(error_feedback{sparse_sum{top_k{.ratio = 0.3}}}, {400, 5, 300});
    // Lists of other lengths for each worker, and empty ones.
    same_as_one_rank(sparse_sum{ls::compress::threshold{.value = 7.5}}, {400, 5, 300});
    same_as_one_rank(sparse_sum{error_feedback{ls::compress::threshold{.value = 1e6}}}, {400, 5, 300});
}

TEST_CASE("reduce/sparse_sum: streams of several pieces, sparse and dense", "[reduce]") {
    // A piece of a message has less than 64 KiB.
    for (const auto which : both) {
        same_as_one_rank(by(top_k{.ratio = 0.08}, which), {150'000, 5, 40'000}, 2, false);
        same_as_one_rank(by(top_k{.ratio = 0.4}, which), {150'000, 5, 40'000}, 2, false);
    }
}

TEST_CASE("reduce/sparse_sum: a quantised second half over messages has the bits of one rank", "[reduce]") {
    same_as_one_rank(sparse_sum{error_feedback{top_k{.ratio = 0.3}}, quantize{.bits = 4}}, {9000, 5, 4100});
    same_as_one_rank(error_feedback{sparse_sum{top_k{.ratio = 0.6}, quantize{.bits = 8, .bucket = 100}}},
                     {30'000, 5, 400});
}

TEST_CASE("reduce/sparse_sum: global_top_k over messages has the bits of one rank", "[reduce]") {
    same_as_one_rank(global_top_k{.ratio = 0.05}, {400, 5, 300}, 5);
    same_as_one_rank(global_top_k{.ratio = 0.3}, {60'000, 5, 300}, 2, false);
    same_as_one_rank(global_top_k{.ratio = 1}, {6, 5, 1});
}

TEST_CASE("reduce/sparse_sum: a rank sends what the formulas say", "[reduce]") {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    const std::size_t p = ranks.size(), rank = ranks.rank(), workers = 8;
    if (!std::has_single_bit(p)) return;
    const auto on = ls::partition::make_grid<ls::partition::data>(rank, p, workers, workers);
    const std::size_t rounds = static_cast<std::size_t>(std::bit_width(p)) - 1, each = workers / p;
    for (double ratio : {0.01, 0.1, 0.6})
        for (std::size_t n : {4, 600, 6000}) {
            INFO(ratio << " of " << n << " numbers, " << p << " ranks");
            layout of{n, 5, 1};
            of.pieces.resize(2);
            of.n = n + 5;
            // The streams of all workers, and of nodes of their tree.
            std::vector<float> mine;
            std::vector<naive::entries<float>> messages;
            for (std::size_t worker = 0; worker < workers; ++worker) {
                const auto values = sum_of_lanes(of.n, worker, 1, 0);
                messages.push_back(naive::largest<float>(std::span{values}.first(n), top_k{.ratio = ratio}.count(n)));
            }
            for (const auto& node : on.nodes_of(on.own_lanes()))
                append(mine, sum_of_lanes(of.n, node.first, node.count, 0));
            const auto node = [&](std::size_t first, std::size_t count) {
                return naive::tree<float>(std::span<const naive::entries<float>>{messages}.subspan(first, count),
                                          [](const auto& a, const auto& b) { return naive::add(a, b); });
            };
            // Doubling: the node of this rank, then those of 2, 4, .. ranks.
            std::size_t bytes = 0;
            for (std::size_t distance = 1; distance < p; distance *= 2)
                bytes += naive::stream_bytes(node(rank / distance * distance * each, distance * each), {0, n});
            reducer<sparse_sum<top_k>> doubling{bucket_on(ranks, on, of.n), of,
                                                by(top_k{.ratio = ratio}, sparse_algorithm::recursive_doubling)};
            (void)doubling(mine, 0, true);
            // As sent: a message is several pieces, but the bytes are its own.
            CHECK(doubling.sum.sent().elements == bytes);
            if (bytes < ls::comm::flow::usual_piece) CHECK(doubling.sum.sent().messages == rounds);
            // Split: each other rank's part of the node, then sums of the parts that this rank has.
            const auto part = [&](std::size_t which) { return ls::parallel::split(n, p, which, 16); };
            bytes = 0;
            for (std::size_t other = 0; other < p; ++other)
                if (other != rank) bytes += naive::stream_bytes(node(rank * each, each), part(other));
            for (std::size_t distance = 1; distance < p; distance *= 2)
                for (std::size_t other = rank / distance * distance; other < rank / distance * distance + distance;
                     ++other)
                    bytes += naive::stream_bytes(node(0, workers), part(other));
            reducer<sparse_sum<top_k>> split{bucket_on(ranks, on, of.n), of,
                                             by(top_k{.ratio = ratio}, sparse_algorithm::split_all_gather)};
            (void)split(mine, 0, true);
            CHECK(split.sum.sent().elements == bytes);
            CHECK(doubling.sum.algorithm() == ls::collectives::sparse_algorithm::recursive_doubling);
            CHECK(split.sum.algorithm() == ls::collectives::sparse_algorithm::split_all_gather);
            // gTop-k: as many entries in each round.
            reducer<global_top_k> cut{bucket_on(ranks, on, of.n), of, global_top_k{.ratio = ratio}};
            (void)cut(mine, 0, true);
            CHECK(cut.sum.sent().elements == rounds * (16 + 8 * top_k{.ratio = ratio}.count(n)));
        }
    // The second half: 4 bits a number, a scale for each 512, a header for each owner of chunks of 4,096.
    layout of{8192 * p, 5, 1};
    of.pieces.resize(2);
    of.n = 8192 * p + 5;
    const std::size_t strip = 8 + 2 * (4096 / 2 + 8 * 4);
    using rounded = sparse_sum<top_k, quantize>;
    const reducer<rounded> dense{bucket_on(ranks, on, of.n), of, rounded{top_k{.ratio = 0.9}, quantize{.bits = 4}}};
    // Before it every worker's streams are dense: parts of 8,192 numbers to p - 1 others.
    CHECK(dense.sum.bytes_per_step() == (p - 1) * (8192 * sizeof(float) + strip) + rounds * 5 * sizeof(float));
}
