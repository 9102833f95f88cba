// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/executor.hpp"

#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/collectives/all_to_all.hpp"
#include "lockstep/collectives/halving_doubling.hpp"
#include "lockstep/collectives/hierarchical.hpp"
#include "lockstep/collectives/recursive_doubling.hpp"
#include "lockstep/collectives/ring.hpp"
#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/collectives/verify.hpp"
#include "lockstep/comm/measure_costs.hpp"
#include "lockstep/core/random.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace core = lockstep::core;
using lockstep::parallel::block;

namespace {

/// True on all ranks or on none.
bool agreed(const comm::group& ranks, bool mine) {
    for (const bool one : ranks.gather_all(mine))
        if (!one) return false;
    return true;
}

std::vector<float> values(std::size_t rank, std::size_t count, std::uint32_t step) {
    const core::random_stream numbers{11, core::purpose::user, static_cast<std::uint32_t>(rank), step};
    std::vector<float> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = (numbers.uniform(i) - 0.5F) * (i % 5 == 0 ? 1e4F : 1.0F);
    return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// What all ranks hold after a collective, computed in this process.
template <class C>
std::vector<std::vector<float>> expected(const C& collective, std::size_t ranks, std::size_t n, std::uint32_t step) {
    std::vector<collectives::schedule> programs;
    std::vector<std::vector<float>> data;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        programs.push_back(collective(rank, ranks, n));
        data.push_back(values(rank, collective.data_size(rank, ranks, n), step));
    }
    collectives::simulate<float>(programs, data);
    return data;
}

template <class C>
bool runs_as_simulated(const comm::group& ranks, const C& collective, std::size_t n, std::size_t piece) {
    comm::operation<float> sum{ranks, collective(ranks.rank(), ranks.size(), n), {.threads = 2}, piece};
    std::vector<float> work(sum.program().work_size());
    bool right = true;
    for (std::uint32_t step = 0; step < 3; ++step) {
        auto data = values(ranks.rank(), collective.data_size(ranks.rank(), ranks.size(), n), step);
        sum.start(data, work);
        sum.finish();
        right = right && same_bits(data, expected(collective, ranks.size(), n, step)[ranks.rank()]);
    }
    const auto counted = sum.program().sent();
    right = right && sum.sent_bytes() == 3 * counted.elements * sizeof(float);
    if (piece == comm::flow::largest_piece) right = right && sum.sent_messages() == 3 * counted.messages;
    return right;
}

}  // namespace

TEST_CASE("comm/executor: MPI leaves the bits of the simulation and sends what was counted", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    for (const std::size_t n : {0U, 1U, 7U, 64U, 1000U, 40'000U}) {
        for (const std::size_t lanes : {ranks.size(), std::size_t{8}, std::size_t{13}}) {
            for (const auto route : {collectives::tree_route::automatic, collectives::tree_route::direct,
                                     collectives::tree_route::least}) {
                INFO("rank " << ranks.rank() << ", " << n << " elements, " << lanes << " lanes, route " << int(route));
                REQUIRE(agreed(ranks, runs_as_simulated(ranks, collectives::tree_all_reduce{lanes, route}, n,
                                                        comm::flow::largest_piece)));
            }
        }
        REQUIRE(agreed(ranks, runs_as_simulated(ranks, collectives::ring_all_reduce{}, n, comm::flow::largest_piece)));
        REQUIRE(agreed(
            ranks, runs_as_simulated(ranks, collectives::halving_doubling_all_reduce{}, n, comm::flow::largest_piece)));
        std::vector<std::size_t> pairs;  // as if two ranks shared a host
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) pairs.push_back(rank / 2 * 2);
        for (const std::size_t lanes : {ranks.size(), std::size_t{13}}) {
            REQUIRE(agreed(ranks, runs_as_simulated(ranks, collectives::doubling_all_reduce{lanes}, n,
                                                    comm::flow::largest_piece)));
            REQUIRE(agreed(ranks, runs_as_simulated(ranks, collectives::hierarchical_all_reduce{lanes, pairs}, n,
                                                    comm::flow::largest_piece)));
        }
    }
}

TEST_CASE("comm/executor: measured costs and what is chosen by them are the same on all ranks", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const collectives::cost_model model = comm::measure_costs(ranks);
    const auto table = collectives::choose_algorithms(collectives::deal_lanes(ranks.size(), 8), sizeof(float), model);
    CHECK(table.invariant());
    const auto seen = ranks.gather_all(std::string_view{collectives::to_text(model) + table.text()});
    bool right = model.on == ranks.hosts() || ranks.size() == 1;
    for (const auto& one : seen) right = right && one == seen[0];
    if (ranks.size() == 1)
        right = right && model.on.empty() && table.text() == "tree:0-max";
    else
        right = right && model.between.latency > 0 && model.between.latency < 1 && model.seconds_per_added_byte > 0;
    CHECK(agreed(ranks, right));
}

TEST_CASE("comm/executor: messages beyond the largest piece travel in parts", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    CHECK(agreed(ranks, runs_as_simulated(ranks, collectives::tree_all_reduce{8}, 1000, 100)));
    CHECK(agreed(ranks, runs_as_simulated(ranks, collectives::ring_all_reduce{}, 999, 4)));
    // More pieces than may be under way, several messages to one peer in a round, pieces that end inside of what is
    // added.
    for (const std::size_t lanes : {std::size_t{8}, std::size_t{13}})
        for (const auto route : {collectives::tree_route::direct, collectives::tree_route::least})
            CHECK(agreed(ranks, runs_as_simulated(ranks, collectives::tree_all_reduce{lanes, route}, 5'003, 64)));
    CHECK(agreed(ranks, runs_as_simulated(ranks, collectives::ring_all_reduce{}, 200'003, comm::flow::usual_piece)));
    CHECK(agreed(ranks, runs_as_simulated(ranks, collectives::ring_all_reduce{}, 99, 3)));  // no less than an element
    const comm::flow parts{MPI_COMM_NULL, 0, 100};
    CHECK(parts.pieces(0) == 0);
    CHECK(parts.pieces(100) == 1);
    CHECK(parts.pieces(101) == 2);
}

TEST_CASE("comm/executor: the sum over lanes does not depend on the number of ranks", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::size_t n = 1000;
    const auto node = [&](const lockstep::tensor::subtree& tree) {
        std::vector<std::vector<float>> partial(lockstep::tensor::tree_depth(tree.count));
        lockstep::tensor::walk(
            tree.count, [&](std::size_t lane, std::size_t level) { partial[level] = values(tree.first + lane, n, 9); },
            [&](std::size_t level) {
                for (std::size_t i = 0; i < n; ++i) partial[level][i] += partial[level + 1][i];
            });
        return partial[0];
    };
    for (const std::size_t lanes : {std::size_t{8}, std::size_t{100}}) {
        const auto alone = node({0, lanes});
        std::vector<float> data;
        for (const auto& tree :
             lockstep::tensor::cover(lockstep::parallel::split(lanes, ranks.size(), ranks.rank()), lanes)) {
            const auto part = node(tree);
            data.insert(data.end(), part.begin(), part.end());
        }
        comm::run<float>(ranks, collectives::tree_all_reduce{lanes}(ranks.rank(), ranks.size(), n), data);
        data.resize(n);
        CHECK(agreed(ranks, same_bits(data, alone)));
    }
}

TEST_CASE("comm/executor: operations in flight do not mix their messages", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::size_t n = 20'000;
    const collectives::ring_all_reduce ring;
    const collectives::tree_all_reduce tree{8};
    comm::operation<float> first{ranks, ring(ranks.rank(), ranks.size(), n)};
    comm::operation<float> second{ranks, ring(ranks.rank(), ranks.size(), n)};
    comm::operation<float> third{ranks, tree(ranks.rank(), ranks.size(), n)};
    std::vector<float> work[3];
    for (std::uint32_t step = 0; step < 5; ++step) {
        std::vector<float> data[3] = {
            values(ranks.rank(), n, 10 * step), values(ranks.rank(), n, 10 * step + 1),
            values(ranks.rank(), tree.data_size(ranks.rank(), ranks.size(), n), 10 * step + 2)};
        comm::operation<float>* all[3] = {&first, &second, &third};
        for (std::size_t i = 0; i < 3; ++i) work[i].resize(all[i]->program().work_size());
        // Each rank starts and polls in an order of its own.
        for (std::size_t i = 0; i < 3; ++i) {
            const std::size_t which = (i + ranks.rank()) % 3;
            all[which]->start(data[which], work[which]);
        }
        for (bool done = false; !done;) {
            done = true;
            for (std::size_t i = 0; i < 3; ++i) done = all[(2 * i + ranks.rank()) % 3]->poll() && done;
        }
        const bool right = same_bits(data[0], expected(ring, ranks.size(), n, 10 * step)[ranks.rank()]) &&
                           same_bits(data[1], expected(ring, ranks.size(), n, 10 * step + 1)[ranks.rank()]) &&
                           same_bits(data[2], expected(tree, ranks.size(), n, 10 * step + 2)[ranks.rank()]);
        REQUIRE(agreed(ranks, right));
    }
    CHECK_FALSE(first.running());
}

TEST_CASE("comm/executor: what is urgent is handed over first, and nothing waits for it", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::size_t n = 100'000, piece = 64,
                      limit = 4 * piece;  // thousands of pieces, and less than a window of them
    const collectives::ring_all_reduce ring;
    const std::size_t work_size = ring(ranks.rank(), ranks.size(), n).work_size();
    std::vector<float> large_work(work_size), small_work(work_size);
    for (std::uint32_t step = 0; step < 4; ++step) {
        comm::send_order order{limit};
        comm::operation<float> large{ranks, ring(ranks.rank(), ranks.size(), n), {}, piece, {&order, 7}};
        comm::operation<float> small{ranks, ring(ranks.rank(), ranks.size(), n / 10), {}, piece, {&order, 2}};
        auto large_data = values(ranks.rank(), n, 10 * step), small_data = values(ranks.rank(), n / 10, 10 * step + 1);
        bool right = true;
        (void)ranks.gather_all(ranks.rank());
        // The first rank starts both while the others have started none: no rank takes what it sends.
        if (ranks.rank() == 0 && ranks.size() > 1) {
            if (step % 2 == 0) {
                large.start(large_data, large_work);
                right = right && large.sent_messages() >= comm::flow::window && !order.yields(7);
                small.start(small_data, small_work);
                right = right && order.yields(7) && !order.yields(2);
                // It does not see what is less urgent, of which more than the limit is under way,
                right = right && small.sent_messages() >= comm::flow::window;
                const std::size_t before = large.sent_messages();
                for (int i = 0; i < 100; ++i) (void)large.progress();
                // which hands over no more than fits under the limit,
                right = right && large.sent_messages() <= before + 4;
            } else {
                small.start(small_data, small_work);
                large.start(large_data, large_work);
                for (int i = 0; i < 100; ++i) (void)large.progress();
                // and less than a window from the beginning.
                right = right && large.sent_messages() >= 1 && large.sent_messages() <= 4 &&
                        small.sent_messages() >= comm::flow::window;
            }
        }
        (void)ranks.gather_all(ranks.rank());
        // Others in their own order; in two of the steps they move on one of the two alone as long as it takes.
        if (ranks.rank() != 0 || ranks.size() == 1) {
            auto& first = (ranks.rank() + step) % 2 == 0 ? large : small;
            first.start(&first == &large ? large_data : small_data, &first == &large ? large_work : small_work);
            (&first == &large ? small : large)
                .start(&first == &large ? small_data : large_data, &first == &large ? small_work : large_work);
        }
        for (bool done = false; !done && step < 2;) {
            const bool one = small.poll(), other = large.poll();
            done = one && other;
        }
        (step == 2 ? small : large).finish();
        (step == 2 ? large : small).finish();
        right = right && !order.yields(7);
        right = right && same_bits(large_data, expected(ring, ranks.size(), n, 10 * step)[ranks.rank()]);
        right = right && same_bits(small_data, expected(ring, ranks.size(), n / 10, 10 * step + 1)[ranks.rank()]);
        INFO("rank " << ranks.rank() << ", step " << step);
        REQUIRE(agreed(ranks, right));
    }
}

TEST_CASE("comm/executor: strips and blocks of bytes", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    std::vector<block> strips;
    for (std::size_t rank = 0, at = 0; rank < ranks.size(); ++rank) {
        const std::size_t length = rank == 1 ? 0 : 1000 * rank + 3;
        strips.push_back({at, at + length});
        at += length;
    }
    std::vector<std::byte> all(strips.back().last);
    for (std::size_t i = strips[ranks.rank()].first; i < strips[ranks.rank()].last; ++i)
        all[i] = static_cast<std::byte>(i % 251);
    comm::run<std::byte>(ranks, collectives::all_gather(ranks.rank(), strips), all);
    bool right = true;
    for (std::size_t i = 0; i < all.size(); ++i) right = right && all[i] == static_cast<std::byte>(i % 251);
    CHECK(agreed(ranks, right));

    std::vector<std::size_t> counts(ranks.size() * ranks.size());
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 7) % 5;
    const collectives::exchange_layout layout{ranks.rank(), ranks.size(), counts};
    std::vector<int> data(layout.data_size(), -1);
    for (std::size_t to = 0; to < ranks.size(); ++to)
        for (std::size_t i = layout.outgoing(to).first; i < layout.outgoing(to).last; ++i)
            data[i] = static_cast<int>(100 * ranks.rank() + to);
    comm::run<int>(ranks, collectives::all_to_all(ranks.rank(), ranks.size(), counts), data);
    right = true;
    for (std::size_t from = 0; from < ranks.size(); ++from)
        for (std::size_t i = layout.incoming(from).first; i < layout.incoming(from).last; ++i)
            right = right && data[i] == static_cast<int>(100 * from + ranks.rank());
    CHECK(agreed(ranks, right));
}

TEST_CASE("comm/executor: misuse is an error", "[comm]") {
    const comm::group alone;
    collectives::schedule program{"pair", true};
    program.add(collectives::in_data(0, 4), collectives::in_work(0, 4));
    program.end_round();
    std::vector<float> data(4);
    std::vector<float> work(4);
    comm::operation<float> sum{alone, program};
    CHECK_THROWS_AS(sum.start(std::span<float>{data}.first(3), work), core::error);
    CHECK_THROWS_AS(sum.start(data, std::span<float>{work}.first(3)), core::error);
    CHECK_THROWS_AS((comm::operation<std::byte>{alone, program}), core::error);
    work = {1, 2, 3, 4};
    sum.start(data, work);
    CHECK(sum.poll());
    CHECK(data == work);
}
