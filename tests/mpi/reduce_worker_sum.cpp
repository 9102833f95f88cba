// SPDX-License-Identifier: BSD-3-Clause
// The sum of a worker that ranks share: over messages and through shared memory the bits of the lane tree.
#include <bit>
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/reduce/worker_sum.hpp"
#include "lockstep/tensor/lanes.hpp"

namespace ls = lockstep;

namespace {

/// Numbers whose sum depends on the order.
template <class T>
std::vector<T> numbers_of(std::size_t lane, std::size_t n, std::uint64_t step) {
    const ls::core::random_stream random{100 * step + lane, ls::core::purpose::user};
    std::vector<T> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(random.normal(i));
    return out;
}
template <class T>
std::vector<T> add(std::vector<T> to, const std::vector<T>& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    return to;
}
/// Of lanes first .. first + count - 1, count a power of two, of which those from `lanes` on are not there.
template <class T>
std::vector<T> tree(std::size_t first, std::size_t count, std::size_t lanes, std::size_t n, std::uint64_t step) {
    if (count == 1) return numbers_of<T>(first, n, step);
    auto left = tree<T>(first, count / 2, lanes, n, step);
    if (first + count / 2 >= lanes) return left;
    return add(std::move(left), tree<T>(first + count / 2, count / 2, lanes, n, step));
}

template <class T>
void has_the_bits_of_the_tree(std::size_t lanes, std::size_t n, ls::reduce::transport transport, int threads) {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    if (ranks.size() == 1 || lanes < ranks.size()) return;
    INFO(lanes << " lanes, " << n << " numbers, " << ls::reduce::name_of(transport) << ", " << threads << " threads");
    const auto runs = ls::collectives::deal_lanes(ranks.size(), lanes);
    ls::tensor::arena arena;
    ls::reduce::worker_memory memory{ranks, ranks, 1, transport, 1U << 22U, arena};
    ls::reduce::bucket of{.ranks = ranks, .runs = runs, .lanes = lanes, .n = n, .team = {threads}};
    of.deal = {
        .workers = 1, .lanes = lanes, .own = {0, 1}, .sharing = ranks, .lanes_of = runs, .memory = memory.inside()};
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) of.deal.parts.push_back(rank);
    const auto sum = ls::reduce::worker_sum<T>::make(of, arena);
    REQUIRE(sum);
    CHECK((sum->bytes() == 0) == (transport == ls::reduce::transport::shared_memory));
    const auto gradient = arena.reserve_shared<T>(ls::reduce::gradient_vectors(of) * n);
    const auto work = arena.reserve<T>(sum->work_size());
    arena.allocate();
    for (std::uint64_t step = 0; step < 3; ++step) {
        std::size_t at = 0;
        for (const auto& node : ls::tensor::cover(runs[ranks.rank()], lanes)) {
            const auto part = tree<T>(node.first, std::bit_ceil(node.count), node.first + node.count, n, step);
            std::ranges::copy(part, arena[gradient].subspan(at++ * n, n).begin());
        }
        sum->start(arena[gradient], arena[work]);
        const auto wait = [](auto& operation) {
            operation.finish();
            return true;
        };
        const auto look = [](auto& operation) { return operation.poll(); };
        while (!(step == 1 ? sum->advance(wait) : sum->advance(look))) {
        }
        const auto expected = tree<T>(0, std::bit_ceil(lanes), lanes, n, step);
        const auto found = arena[gradient].first(n);
        CHECK(std::vector<T>(found.begin(), found.end()) == expected);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("reduce/worker_sum: over messages and through shared memory the bits of the lane tree", "[reduce]",
                   float, double) {
    using ls::reduce::transport;
    for (const auto by : {transport::messages, transport::shared_memory})
        for (const std::size_t lanes : {2U, 3U, 4U, 5U, 8U, 12U})
            for (const std::size_t n : {1U, 3U, 64U, 1000U, 5003U})
                has_the_bits_of_the_tree<TestType>(lanes, n, by, lanes % 2 == 0 ? 1 : 2);
}

TEST_CASE("reduce/worker_sum: a worker of one rank needs none", "[reduce]") {
    ls::tensor::arena arena;
    ls::reduce::bucket of{.ranks = {}, .runs = {{0, 4}}, .lanes = 4, .n = 10, .team = {}};
    of.deal = {.workers = 1, .lanes = 4, .own = {0, 1}};
    CHECK(ls::reduce::worker_sum<float>::make(of, arena) == nullptr);
}
