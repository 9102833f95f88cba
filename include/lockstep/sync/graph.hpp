// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whose weights a worker mixes into its own: the graphs of gossip.
// Tested by tests/unit/sync/graph.cpp.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::sync {

/// Of a row of the mixing matrix: weights w become the sum of weight x w[worker] over the row.
struct neighbour {
    std::size_t worker = 0;
    double weight = 0;
};

/// A mixing matrix for any number of workers, or several of them, the phases, of which each exchange has one. A graph
/// of one's own is one more object of this type. Another matrix needs another name: a recipe has the name, and whether
/// phases are drawn.
struct graph {
    std::string_view name;
    /// How many matrices there are, at least 1.
    std::size_t (*phases)(std::size_t workers) = nullptr;
    /// The row of a worker, itself included, in ascending order of workers. Rows and columns have sums of 1.
    std::vector<neighbour> (*row)(std::size_t workers, std::size_t worker, std::size_t phase) = nullptr;
    /// Each exchange draws its phase from the seed of the run; without it phases take turns.
    bool draws = false;
};

namespace detail {

/// Each of them once, with equal weights.
[[nodiscard, gnu::cold]] std::vector<neighbour> equal_weights(std::vector<std::size_t> workers);
[[nodiscard, gnu::cold]] std::vector<neighbour> ring_row(std::size_t workers, std::size_t worker, std::size_t phase);
[[nodiscard, gnu::cold]] std::vector<neighbour> torus_row(std::size_t workers, std::size_t worker, std::size_t phase);
[[nodiscard, gnu::cold]] std::vector<neighbour> exponential_row(std::size_t workers, std::size_t worker,
                                                                std::size_t phase);
[[nodiscard, gnu::cold]] std::vector<neighbour> pairs_row(std::size_t workers, std::size_t worker, std::size_t phase);

}  // namespace detail

/// Both neighbours on a ring, 1/3 each; the only other of two workers 1/2.
inline constexpr graph ring{"ring", [](std::size_t) -> std::size_t { return 1; }, detail::ring_row};

/// The four neighbours on a torus, as square as the number of workers allows, 1/5 each; with two rows there are three,
/// 1/4 each. A prime number has a ring.
inline constexpr graph torus{"torus", [](std::size_t) -> std::size_t { return 1; }, detail::torus_row};

/// One neighbour, 1/2: 1, 2, 4, .. workers further on a ring, in turns (Assran et al., ICML 2019, arXiv:1811.10792;
/// Ying et al., NeurIPS 2021, arXiv:2110.13363). After log2(W) exchanges of unchanged weights all of W = 2^k workers
/// have their mean.
inline constexpr graph exponential{
    "exponential", [](std::size_t workers) -> std::size_t { return workers < 3 ? 1 : std::bit_width(workers - 1); },
    detail::exponential_row};

/// Disjoint pairs, 1/2, drawn anew for each exchange from a tournament in which every pair comes once. With an odd
/// number of workers one of them is left out.
inline constexpr graph random_pairs{
    "random_pairs", [](std::size_t workers) -> std::size_t { return workers < 3 ? 1 : workers - 1 + workers % 2; },
    detail::pairs_row, true};

/// Throws core::error where a row names workers that there are not, twice, or not in ascending order, and where a row
/// or a column does not have a sum of 1. Returns a hash of all rows. Cost: all rows.
[[gnu::cold]] std::uint64_t check_graph(const graph& of, std::size_t workers);

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION std::vector<neighbour> equal_weights(std::vector<std::size_t> workers) {
    std::ranges::sort(workers);
    const auto twice = std::ranges::unique(workers);
    workers.erase(twice.begin(), twice.end());
    std::vector<neighbour> out;
    for (const std::size_t one : workers) out.push_back({one, 1 / static_cast<double>(workers.size())});
    return out;
}

LOCKSTEP_FUNCTION std::vector<neighbour> ring_row(std::size_t workers, std::size_t worker, std::size_t) {
    return equal_weights({worker, (worker + 1) % workers, (worker + workers - 1) % workers});
}

LOCKSTEP_FUNCTION std::vector<neighbour> torus_row(std::size_t workers, std::size_t worker, std::size_t) {
    std::size_t rows = 1;
    for (std::size_t i = 2; i * i <= workers; ++i)
        if (workers % i == 0) rows = i;
    const std::size_t columns = workers / rows, row = worker / columns, column = worker % columns;
    const auto at = [&](std::size_t down, std::size_t right) {
        return (row + down) % rows * columns + (column + right) % columns;
    };
    return equal_weights({worker, at(1, 0), at(rows - 1, 0), at(0, 1), at(0, columns - 1)});
}

LOCKSTEP_FUNCTION std::vector<neighbour> exponential_row(std::size_t workers, std::size_t worker, std::size_t phase) {
    return equal_weights({worker, (worker + (std::size_t{1} << phase)) % workers});
}

LOCKSTEP_FUNCTION std::vector<neighbour> pairs_row(std::size_t workers, std::size_t worker, std::size_t phase) {
    // The last one stays where it is; the others, on a circle, meet the one as far on the other side.
    const std::size_t last = workers - 1 + workers % 2, circle = last;
    std::size_t other = worker == last ? phase : (2 * phase + circle - worker) % circle;
    if (other == worker) other = last;
    return equal_weights({worker, other < workers ? other : worker});
}

}  // namespace detail

LOCKSTEP_FUNCTION std::uint64_t check_graph(const graph& of, std::size_t workers) {
    constexpr double tolerance = 1e-9;
    if (of.phases == nullptr || of.row == nullptr)
        core::fail(core::text("graph \"", of.name, "\" has no ", of.phases == nullptr ? "phases" : "rows"),
                   "use ring, torus, exponential or random_pairs, or set name, phases and row");
    const std::size_t phases = of.phases(workers);
    std::uint64_t hash = phases;
    if (phases == 0) core::fail(core::text("graph ", of.name, " has 0 phases"), "return at least 1");
    for (std::size_t phase = 0; phase < phases; ++phase) {
        std::vector<double> columns(workers);
        const auto refuse = [&](const auto&... what) {
            core::fail(core::text("graph ", of.name, ", phase ", phase, " of ", workers, " workers: ", what...),
                       "return rows in ascending order of workers, with rows and columns whose sums are 1");
        };
        for (std::size_t worker = 0; worker < workers; ++worker) {
            double sum = 0;
            std::size_t least = 0;
            for (const neighbour& one : of.row(workers, worker, phase)) {
                if (one.worker < least || one.worker >= workers)
                    refuse("row ", worker, " has worker ", one.worker, " where one from ", least, " to ", workers - 1,
                           " is to come");
                if (!(one.weight >= 0)) refuse("row ", worker, " has the weight ", one.weight);
                least = one.worker + 1;
                sum += one.weight;
                columns[one.worker] += one.weight;
                const std::array<std::uint64_t, 3> entry{worker, one.worker, std::bit_cast<std::uint64_t>(one.weight)};
                hash = core::hash({reinterpret_cast<const char*>(entry.data()), sizeof entry}, hash);
            }
            if (!(std::abs(sum - 1) < tolerance)) refuse("row ", worker, " has a sum of ", sum);
        }
        for (std::size_t worker = 0; worker < workers; ++worker)
            if (!(std::abs(columns[worker] - 1) < tolerance))
                refuse("column ", worker, " has a sum of ", columns[worker]);
    }
    return hash;
}

#endif

}  // namespace lockstep::sync
