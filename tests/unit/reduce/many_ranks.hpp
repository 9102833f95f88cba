// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reducers on several ranks beside one that has all workers.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <boost/mpi/communicator.hpp>

#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/concept.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/sync/buckets.hpp"
#include "unit/reduce/naive_streams.hpp"
#include "unit/reduce/one_rank.hpp"

namespace reduce_test {

namespace ls = lockstep;

struct layout {
    std::size_t n = 0;
    std::vector<ls::reduce::piece> pieces{};
    explicit layout(std::vector<ls::reduce::piece> all) : pieces{std::move(all)} {
        for (const auto& one : pieces) n += one.count;
    }
    /// A matrix, a bias, a matrix in two segments.
    layout(std::size_t first, std::size_t bias, std::size_t segment) : n{first + bias + 2 * segment} {
        pieces = {{.first = 0, .count = first, .tensor = 3, .rows = 2, .columns = first / 2},
                  {.first = first, .count = bias, .tensor = 4, .rows = 1, .columns = bias},
                  {.first = first + bias, .count = segment, .tensor = 5, .rows = 2, .columns = segment},
                  {.first = first + bias + segment,
                   .count = segment,
                   .tensor = 5,
                   .offset = segment,
                   .rows = 2,
                   .columns = segment}};
    }
};

/// Of a lane, in whole 64ths: sums of lanes are exact, whatever their order; those of workers are rounded.
inline float number(std::size_t lane, std::size_t i, std::uint64_t step) {
    const std::uint64_t mixed = (i * 2654435761U + lane * 40503U + step * 97U) % 1009;
    return static_cast<float>(mixed) / 64 - 7.75F;
}
inline std::vector<float> sum_of_lanes(std::size_t n, std::size_t first, std::size_t count, std::uint64_t step) {
    std::vector<float> out(n);
    for (std::size_t lane = first; lane < first + count; ++lane)
        for (std::size_t i = 0; i < n; ++i) out[i] += number(lane, i, step);
    return out;
}
inline void append(std::vector<float>& to, const std::vector<float>& what) {
    to.insert(to.end(), what.begin(), what.end());
}

template <class R>
struct reducer {
    std::size_t n;
    ls::tensor::arena arena;
    R sum;
    template <class C>
    reducer(ls::reduce::bucket of, const layout& on, const C& compressor)
        : n{on.n}, sum{with_pieces(of, on), compressor, arena} {
        arena.allocate();
        sum.bind(arena);
    }
    static const ls::reduce::bucket& with_pieces(ls::reduce::bucket& of, const layout& on) {
        of.deal.pieces = on.pieces;
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

inline ls::reduce::bucket bucket_on(const ls::comm::group& ranks, const ls::partition::grid& on, std::size_t n,
                                    const ls::comm::group& sharing, ls::node::shared_parts* inside = nullptr) {
    const auto groups = ls::sync::make_bucket_groups(on, ranks, ranks, sharing);
    return ls::sync::bucket_of({.segment = ls::model::segment::replicated, .count = n}, on, groups, {}, nullptr,
                               inside);
}
inline ls::reduce::bucket bucket_on(const ls::comm::group& ranks, const ls::partition::grid& on, std::size_t n) {
    return bucket_on(ranks, on, n, ls::sync::make_sharing_group(on, ranks));
}

/// Whose ranks add up a shared worker in each other's memory.
template <class R>
struct shared_reducer {
    std::size_t n;
    ls::comm::group sharing;
    ls::tensor::arena arena;
    ls::reduce::worker_memory memory;
    ls::reduce::bucket of;
    R sum;
    ls::tensor::slice<float> gradient;

    template <class C>
    shared_reducer(const ls::comm::group& ranks, const ls::partition::grid& on, const layout& pieces,
                   const C& compressor)
        : n{pieces.n},
          sharing{ls::sync::make_sharing_group(on, ranks)},
          memory{ranks, sharing, on.workers, ls::reduce::transport::shared_memory, 4096 + 8 * n * sizeof(float), arena},
          of{bucket_on(ranks, on, n, sharing, memory.inside())},
          sum{reducer<R>::with_pieces(of, pieces), compressor, arena},
          gradient{arena.reserve_shared<float>(ls::reduce::gradient_vectors(of) * n)} {
        arena.allocate();
        sum.bind(arena);
    }
    std::vector<float> operator()(const std::vector<float>& mine, std::uint64_t step, bool polls) {
        std::ranges::copy(mine, arena[gradient].begin());
        sum.start(arena[gradient], step);
        while (polls && !sum.poll()) {
        }
        sum.finish();
        arena.check();
        const auto out = arena[gradient].first(n);
        return {out.begin(), out.end()};
    }
};

/// Every rank has the bits of one rank with all workers, for several deals of them. A number that is not finite makes
/// all NaN.
template <class R, class C>
void same_as_one_rank(const C& compressor, const layout& of, std::uint64_t steps = 3, bool all_deals = true) {
    const ls::comm::group ranks{boost::mpi::communicator{}};
    for (const auto& [workers, lanes] :
         std::vector<std::pair<std::size_t, std::size_t>>{{1, 8}, {2, 8}, {3, 12}, {4, 8}, {5, 10}, {7, 16}, {8, 8}}) {
        if (!all_deals && workers != 3 && workers != 4) continue;
        INFO(C::name << " " << compressor.settings() << ", " << of.n << " numbers, " << workers << " workers, " << lanes
                     << " lanes, " << ranks.size() << " ranks");
        const auto on = ls::partition::make_grid<ls::partition::data>(ranks.rank(), ranks.size(), lanes, workers);
        reducer<R> many{bucket_on(ranks, on, of.n), of, compressor};
        std::optional<shared_reducer<R>> through_memory;
        if (ranks.size() > workers) {
            through_memory.emplace(ranks, on, of, compressor);
            CHECK((through_memory->memory.inside() != nullptr) == (through_memory->sharing.size() > 1));
        }
        reducer<R> alone{reduce_test::bucket_of_workers(of.n, workers, on.worker_lanes(), 1, of.n), of, compressor};
        for (std::uint64_t step = 0; step < steps; ++step) {
            std::vector<float> mine, all;
            for (const auto& node : on.nodes_of(on.own_lanes()))
                append(mine, sum_of_lanes(of.n, node.first, node.count, step));
            for (std::size_t worker = 0; worker < workers; ++worker)
                append(all, sum_of_lanes(of.n, worker * on.worker_lanes(), on.worker_lanes(), step));
            const auto expected = alone(all, step, false);
            CHECK(naive::same_bits<float>(many(mine, step, step % 2 == 0), expected));
            if (through_memory) CHECK(naive::same_bits<float>((*through_memory)(mine, step, step % 2 != 0), expected));
        }
        // A number of the last lane.
        for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> mine;
            for (const auto& node : on.nodes_of(on.own_lanes()))
                append(mine, sum_of_lanes(of.n, node.first, node.count, 4));
            if (on.own_lanes().last == on.lanes) mine.back() = bad;
            const auto is_lost = [](const std::vector<float>& sum) {
                return std::ranges::all_of(sum, [](float one) { return std::isnan(one); });
            };
            CHECK(is_lost(many(mine, 4, true)));
            if (through_memory) CHECK(is_lost((*through_memory)(mine, 4, false)));
        }
    }
}

}  // namespace reduce_test
