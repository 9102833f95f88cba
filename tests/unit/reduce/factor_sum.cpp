// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/factor_sum.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/core/random.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;

static_assert(ls::reduce::Reducer<ls::reduce::factor_sum<float>> &&
              ls::reduce::Reducer<ls::reduce::tree_or_factor_sum<double>, double>);

TEST_CASE("reduce/factor_sum: one rank forms the gradient of its rows, in each step of other rows", "[reduce]") {
    constexpr std::size_t m = 9, q = 5, n = m * q + q, lanes = 4, room = 12;
    std::vector<std::size_t> lengths(lanes);
    ls::reduce::bucket of = reduce_test::bucket_of(n, lanes);
    of.factors = {.inputs = m, .outputs = q, .rows = room, .lengths = lengths};
    ls::tensor::arena arena;
    const auto slice = arena.reserve<double>(of.factors.numbers());
    ls::reduce::tree_or_factor_sum<double> sum{of, arena};
    arena.allocate();
    sum.bind(arena);
    CHECK(sum.owned() == ls::parallel::block{0, n});
    CHECK(sum.poll());
    const ls::core::random_stream random{3, ls::core::purpose::user};
    std::uint64_t drawn = 0;
    for (const std::vector<std::size_t>& rows :
         {std::vector<std::size_t>{3, 3, 3, 3}, {0, 2, 0, 1}, {0, 0, 0, 0}, {1, 0, 4, 2}}) {
        lengths = rows;
        const std::span<double> factors = sum.own_factors(arena[slice]);
        REQUIRE(factors.size() == room * (m + q));
        for (double& number : factors) number = random.uniform(drawn++) - 0.5;
        std::vector<double> want(n);
        for (std::size_t row = 0; row < rows[0] + rows[1] + rows[2] + rows[3]; ++row)
            for (std::size_t j = 0; j < q; ++j) {
                const double dy = factors[row * (m + q) + m + j];
                for (std::size_t i = 0; i < m; ++i) want[i * q + j] += factors[row * (m + q) + i] * dy;
                want[m * q + j] += dy;
            }
        sum.start(arena[slice], 0);
        sum.finish();
        // A second look at the same sum finds it again.
        for (int look = 0; look < 2; ++look) {
            std::vector<double> found(n, std::nan(""));
            sum.update(found, [&](ls::parallel::block part, std::span<const double> sums) {
                REQUIRE(part.size() == sums.size());
                std::ranges::copy(sums, found.begin() + static_cast<std::ptrdiff_t>(part.first));
            });
            // At most 12 products of numbers up to 1/2, each rounded once.
            for (std::size_t i = 0; i < n; ++i) CHECK(std::fabs(found[i] - want[i]) <= 12 * 12 * 0.5 * 1.2e-16);
        }
        sum.share(want);
        CHECK(sum.poll());
    }
    CHECK(sum.bytes_per_step() == 0);
}

TEST_CASE("reduce/factor_sum: a bucket without factors is a tree_sum", "[reduce]") {
    ls::tensor::arena arena;
    ls::reduce::tree_or_factor_sum<float> sum{reduce_test::bucket_of(3, 2), arena};
    arena.allocate();
    sum.bind(arena);
    std::vector<float> gradient{1, 2, 3}, found(3);
    sum.start(gradient, 0);
    sum.finish();
    sum.update(found, [&](ls::parallel::block part, std::span<const float> sums) {
        std::ranges::copy(sums, found.begin() + static_cast<std::ptrdiff_t>(part.first));
    });
    CHECK(found == gradient);
}
