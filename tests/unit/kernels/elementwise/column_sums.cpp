// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/elementwise/column_sums.hpp"

#include <catch2/catch.hpp>

#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

TEMPLATE_TEST_CASE("kernels/column_sums: each column from the top down, whatever its neighbours", "[kernels]", float,
                   double) {
    for (const std::size_t n : {0, 1, 3, 4, 5, 7, 8, 9, 31, 32, 33, 67, 131})
        for (const std::size_t rows : {0, 1, 2, 50}) {
            const auto x = uniform<TestType>(rows * (n + 2), 1);
            array<TestType> want(n);
            for (std::size_t j = 0; j < n; ++j)
                for (std::size_t r = 0; r < rows; ++r) want[j] += x[r * (n + 2) + j];
            auto got = unwritten<TestType>(n);
            kernels::column_sums<TestType>(rows, n, x.data(), n + 2, got.data());
            INFO("rows " << rows << " n " << n);
            REQUIRE(same_bits(got, want));
            std::vector<double> exact(n);
            kernels::reference::column_sums<TestType>(rows, n, x.data(), n + 2, exact.data());
            REQUIRE(distance(got, exact) <= sum_tolerance<TestType>(rows, 0.5));
        }
}

TEMPLATE_TEST_CASE("kernels/column_sums: over lanes, the bits are those of the lanes added over the tree", "[kernels]",
                   float, double) {
    for (const std::vector<std::size_t>& sizes :
         std::vector<std::vector<std::size_t>>{{}, {0}, {5}, {4, 4, 4, 4}, {3, 0, 2, 7, 1}, {1, 1, 1, 1, 1, 1, 1}})
        for (const std::size_t n : {1, 7, 33, 200}) {
            std::vector<parallel::block> lanes;
            std::size_t rows = 0;
            for (const std::size_t size : sizes) {
                lanes.push_back({rows, rows + size});
                rows += size;
            }
            const auto dy = uniform<TestType>(rows * n, 1);
            array<TestType> want(n);
            for (std::size_t j = 0; j < n; ++j) {
                std::vector<TestType> sums(tensor::tree_depth(lanes.size()));
                tensor::walk(
                    lanes.size(),
                    [&](std::size_t lane, std::size_t level) {
                        sums[level] = 0;
                        for (std::size_t r = lanes[lane].first; r < lanes[lane].last; ++r) sums[level] += dy[r * n + j];
                    },
                    [&](std::size_t level) { sums[level] += sums[level + 1]; });
                if (!sums.empty()) want[j] = sums[0];
            }
            for (const int threads : thread_counts()) {
                const parallel::team team{threads};
                scratch<TestType> s(kernels::column_sums_lanes_scratch<TestType>(lanes.size(), n, team), team);
                auto got = unwritten<TestType>(n);
                kernels::column_sums_lanes<TestType>(lanes, n, dy.data(), n, got.data(), s.use);
                INFO("lanes " << lanes.size() << " n " << n << " threads " << threads);
                REQUIRE(same_bits(got, want));
            }
        }
}
