// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/graph.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/random.hpp"

namespace {

using namespace lockstep::sync;

const std::array<graph, 4> all_graphs{ring, torus, exponential, random_pairs};

/// What is left of the differences between workers after so many exchanges.
double spread_after(const graph& of, std::size_t workers, std::size_t exchanges) {
    std::vector<double> x(workers);
    for (std::size_t k = 0; k < workers; ++k) x[k] = std::sin(static_cast<double>(3 * k + 1));
    const lockstep::core::random_stream random{1, lockstep::core::purpose::gossip};
    for (std::size_t number = 0; number < exchanges; ++number) {
        const std::size_t phases = of.phases(workers);
        const std::size_t phase = of.draws ? random.below(phases, number) : number % phases;
        std::vector<double> next(workers);
        for (std::size_t k = 0; k < workers; ++k)
            for (const neighbour& one : of.row(workers, k, phase)) next[k] += one.weight * x[one.worker];
        x = next;
    }
    const auto [least, most] = std::ranges::minmax(x);
    return most - least;
}

}  // namespace

TEST_CASE("sync/graph: the matrices of every graph are doubly stochastic for any number of workers", "[sync]") {
    for (const graph& of : all_graphs)
        for (std::size_t workers = 1; workers <= 67; ++workers) {
            INFO(of.name << ", " << workers << " workers");
            CHECK_NOTHROW(check_graph(of, workers));
        }
}

TEST_CASE("sync/graph: neighbours are those of the graph", "[sync]") {
    const auto others = [](const graph& of, std::size_t workers, std::size_t worker, std::size_t phase = 0) {
        std::vector<std::size_t> out;
        for (const neighbour& one : of.row(workers, worker, phase))
            if (one.worker != worker) out.push_back(one.worker);
        return out;
    };
    using list = std::vector<std::size_t>;
    CHECK(others(ring, 1, 0).empty());
    CHECK(others(ring, 2, 0) == list{1});
    CHECK(others(ring, 6, 0) == list{1, 5});
    CHECK(ring.row(6, 3, 0)[0].weight == 1.0 / 3);
    // Three rows of four.
    CHECK(others(torus, 12, 5) == list{1, 4, 6, 9});
    CHECK(others(torus, 12, 0) == list{1, 3, 4, 8});
    CHECK(torus.row(12, 5, 0)[2].weight == 1.0 / 5);
    CHECK(others(torus, 7, 0) == list{1, 6});
    CHECK(exponential.phases(8) == 3);
    CHECK(exponential.phases(9) == 4);
    CHECK(others(exponential, 8, 6, 1) == list{0});
    CHECK(others(exponential, 9, 6, 3) == list{5});
}

TEST_CASE("sync/graph: exponential makes the mean of 2^k workers in k exchanges", "[sync]") {
    for (const std::size_t log : {1U, 2U, 3U, 6U}) {
        CHECK(spread_after(exponential, std::size_t{1} << log, log) < 1e-14);
        CHECK(spread_after(exponential, std::size_t{1} << log, log - 1) > 1e-3);
    }
}

TEST_CASE("sync/graph: differences vanish, the faster the better connected", "[sync]") {
    for (const graph& of : all_graphs) CHECK(spread_after(of, 15, 200) < 1e-3);
    CHECK(spread_after(torus, 64, 40) < spread_after(ring, 64, 40) / 4);
}

TEST_CASE("sync/graph: in a tournament of random_pairs every pair comes once", "[sync]") {
    for (std::size_t workers = 1; workers <= 21; ++workers) {
        std::set<std::pair<std::size_t, std::size_t>> seen;
        std::size_t alone = 0;
        for (std::size_t phase = 0; phase < random_pairs.phases(workers); ++phase)
            for (std::size_t worker = 0; worker < workers; ++worker) {
                const auto row = random_pairs.row(workers, worker, phase);
                if (row.size() == 1)
                    ++alone;
                else
                    seen.insert({row[0].worker, row[1].worker});
            }
        INFO(workers << " workers");
        CHECK(seen.size() == workers * (workers - 1) / 2);
        CHECK(alone == (workers % 2 == 0 ? 0 : workers));
    }
}

TEST_CASE("sync/graph: rows that make no sense are refused with their values", "[sync]") {
    using rows = std::vector<neighbour> (*)(std::size_t, std::size_t, std::size_t);
    const auto refused = [](rows of, const std::string& text) {
        CHECK_THROWS_WITH(check_graph({"mine", [](std::size_t) -> std::size_t { return 1; }, of}, 3),
                          Catch::Contains("graph mine, phase 0 of 3 workers: " + text));
    };
    refused(
        [](std::size_t, std::size_t, std::size_t) {
            return std::vector<neighbour>{{3, 1}};
        },
        "row 0 has worker 3 where one from 0 to 2 is to come");
    refused(
        [](std::size_t, std::size_t w, std::size_t) {
            return std::vector<neighbour>{{w, 0.5}, {w, 0.5}};
        },
        "row 0 has worker 0 where one from 1 to 2 is to come");
    refused(
        [](std::size_t, std::size_t w, std::size_t) {
            return std::vector<neighbour>{{w, 0.9}};
        },
        "row 0 has a sum of 0.9");
    refused(
        [](std::size_t, std::size_t, std::size_t) {
            return std::vector<neighbour>{{0, 1.5}, {1, -0.5}};
        },
        "row 0 has the weight -0.5");
    refused(
        [](std::size_t, std::size_t, std::size_t) {
            return std::vector<neighbour>{{0, 1}};
        },
        "column 0 has a sum of 3");
    CHECK_THROWS_WITH(check_graph({}, 3), Catch::Contains("graph \"\" has no phases"));
    CHECK_THROWS_WITH(check_graph({"mine", ring.phases}, 3), Catch::Contains("graph \"mine\" has no rows"));
    CHECK_THROWS_WITH(check_graph({"mine", [](std::size_t) -> std::size_t { return 0; }, ring.row}, 3),
                      Catch::Contains("graph mine has 0 phases"));
}
