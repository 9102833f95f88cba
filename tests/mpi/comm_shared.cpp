// SPDX-License-Identifier: BSD-3-Clause
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/node/shared_reduce.hpp"
#include "lockstep/node/shared_window.hpp"
#include "unit/node/shared_ranks.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace node = lockstep::node;
namespace core = lockstep::core;
using shared_ranks::most_vectors;
using shared_ranks::values;

namespace {

/// True on all ranks or on none.
bool agreed(const comm::group& ranks, bool mine) {
    for (const bool one : ranks.gather_all(mine))
        if (!one) return false;
    return true;
}

/// Through shared memory and over messages: equal bytes in every step.
template <class T>
bool as_over_messages(const comm::group& ranks, std::size_t lanes, std::size_t n, node::shared_route route,
                      std::uint32_t steps) {
    const collectives::tree_all_reduce tree{lanes};
    comm::operation<T> messages{ranks, tree(ranks.rank(), ranks.size(), n)};
    std::vector<T> work(messages.program().work_size());
    const std::size_t vectors = most_vectors(ranks.size(), lanes);
    node::shared_window window{
        ranks, 3 * node::shared_parts::footprint(vectors * n * sizeof(T)) + sizeof(node::shared_signal)};
    const auto data = window.memory().reserve<T>(vectors * n);
    auto sum = node::shared_all_reduce<T>(window.memory(), lanes, data, n, {}, route);
    const auto mine = window.memory().mine(data);
    bool right = true;
    for (std::uint32_t step = 0; step < steps; ++step) {
        auto expected = values<T>(ranks.rank(), tree.data_size(ranks.rank(), ranks.size(), n), step);
        std::copy(expected.begin(), expected.end(), mine.begin());
        messages.run(expected, work);
        sum.run();
        right = right && (n == 0 || std::memcmp(expected.data(), mine.data(), n * sizeof(T)) == 0);
    }
    return right;
}

}  // namespace

TEST_CASE("comm/shared: the bits of the tree over messages, between processes", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    for (const auto route : {node::shared_route::strips, node::shared_route::copies})
        for (const std::size_t lanes : {ranks.size(), std::size_t{8}, std::size_t{13}})
            for (const std::size_t n : {0U, 1U, 17U, 5003U}) {
                INFO("rank " << ranks.rank() << ", " << n << " elements, " << lanes << " lanes, route " << int(route));
                REQUIRE(agreed(ranks, as_over_messages<float>(ranks, lanes, n, route, 4)));
                REQUIRE(agreed(ranks, as_over_messages<double>(ranks, lanes, n, route, 4)));
            }
    // Long enough for a view with large pages, and no multiple of one.
    CHECK(agreed(ranks, as_over_messages<float>(ranks, ranks.size(), 750'017, node::shared_route::automatic, 2)));
}

TEST_CASE("comm/shared: a thousand calls of different sizes", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const std::vector<std::size_t> sizes{3, 1000, 20'000, 100'000};
    std::size_t bytes = 0;
    for (const std::size_t n : sizes)
        bytes += node::shared_parts::footprint(n * sizeof(float)) + node::shared_operation<float>::overhead(1, n);
    node::shared_window window{ranks, bytes};
    std::vector<lockstep::tensor::slice<float>> data;
    std::vector<node::shared_operation<float>> sums;
    for (const std::size_t n : sizes) {
        data.push_back(window.memory().reserve<float>(n));
        sums.push_back(node::shared_all_reduce<float>(window.memory(), ranks.size(), data.back(), n));
    }
    bool right = true;
    const std::size_t factors = ranks.size() * (ranks.size() + 1) / 2;
    for (std::size_t turn = 0; turn < 1000; ++turn) {
        const std::size_t which = turn % 40 == 39 ? 3 : turn % 3;
        const auto mine = window.memory().mine(data[which]);
        for (std::size_t i = 0; i < mine.size(); ++i)
            mine[i] = static_cast<float>((ranks.rank() + 1) * ((turn + i) % 1000));
        sums[which].run();
        for (std::size_t i = 0; i < mine.size(); ++i)
            right = right && mine[i] == static_cast<float>(factors * ((turn + i) % 1000));
    }
    CHECK(agreed(ranks, right));
}

TEST_CASE("comm/shared: a rank that waits for one that has failed throws its text", "[comm]") {
    const comm::group survivors{boost::mpi::communicator{}};
    if (survivors.size() == 1) return;
    for (const std::size_t n : {std::size_t{100}, std::size_t{200'000}}) {
        const comm::group ranks{boost::mpi::communicator{}};
        const std::size_t bad = ranks.size() - 1;
        std::optional<comm::remote_failure> failure;
        {
            node::shared_window window{ranks, node::shared_parts::footprint(n * sizeof(float)) +
                                                  node::shared_operation<float>::overhead(1, n)};
            const auto data = window.memory().reserve<float>(n);
            auto sum = node::shared_all_reduce<float>(window.memory(), ranks.size(), data, n);
            sum.run();
            (void)survivors.gather_all(0);  // no rank is still inside
            if (ranks.rank() == bad) {
                ranks.announce("lockstep: sample 17 has 3 bytes; write it again");
            } else {
                sum.start();
                try {
                    sum.finish();
                } catch (const comm::remote_failure& one) {
                    failure = one;
                }
                CHECK_FALSE(sum.running());
                // What was given up never seems to be over, and does not begin again.
                CHECK_THROWS_AS(sum.poll(), lockstep::core::error);
                CHECK_THROWS_AS(sum.finish(), lockstep::core::error);
                CHECK_THROWS_AS(sum.start(), lockstep::core::error);
            }
        }
        (void)survivors.gather_all(0);
        CHECK(failure.has_value() == (ranks.rank() != bad));
        if (failure) CHECK(failure->text() == "lockstep: sample 17 has 3 bytes; write it again");
        if (failure) CHECK(failure->origin() == bad);
    }
}

TEST_CASE("comm/shared: a window that cannot be had is an error on all ranks", "[comm]") {
    const comm::group ranks{boost::mpi::communicator{}};
    const auto message = [&](std::size_t bytes) -> std::string {
        try {
            const node::shared_window window{ranks, bytes};
        } catch (const core::error& failure) {
            return failure.what();
        }
        return {};
    };
    if (ranks.size() == 1) return;
    const std::string differ = message(1000 * (ranks.rank() + 1));
    CHECK(differ.find("shared window of 1024 bytes on rank 0") != std::string::npos);
    const std::string large = message(std::size_t{1} << 50U);
    CHECK(large.find("/dev/shm") != std::string::npos);
    CHECK(agreed(ranks, message(1000).empty()));
}
