// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/gemm_lanes.hpp"

#include <catch2/catch.hpp>

#include "lockstep/kernels/matrix/gemm.hpp"
#include "lockstep/simd/map.hpp"
#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::transpose;

namespace {

std::vector<parallel::block> lanes_of(const std::vector<std::size_t>& sizes) {
    std::vector<parallel::block> lanes;
    std::size_t at = 0;
    for (const std::size_t size : sizes) {
        lanes.push_back({at, at + size});
        at += size;
    }
    return lanes;
}

std::size_t rows_of(const std::vector<parallel::block>& lanes) { return lanes.empty() ? 0 : lanes.back().last; }

template <class T>
array<T> run(const std::vector<parallel::block>& lanes, std::size_t m, std::size_t n, const array<T>& x,
             const array<T>& dy, int threads) {
    const parallel::team team{threads};
    scratch<T> s(kernels::gemm_lanes_scratch<T>(lanes.size(), rows_of(lanes), m, n, team), team);
    auto dw = unwritten<T>(m * n);
    kernels::gemm_lanes<T>(lanes, m, n, x.data(), m, dy.data(), n, dw.data(), n, s.use);
    return dw;
}

// One product for each lane into its own buffer, buffers added over the tree.
template <class T>
array<T> lane_by_lane(const std::vector<parallel::block>& lanes, std::size_t m, std::size_t n, const array<T>& x,
                      const array<T>& dy) {
    std::vector<array<T>> sums(tensor::tree_depth(lanes.size()), array<T>(m * n));
    scratch<T> s(kernels::gemm_scratch<T>(m, n, rows_of(lanes), {1}), {1});
    tensor::walk(
        lanes.size(),
        [&](std::size_t lane, std::size_t level) {
            kernels::gemm<T>(transpose::yes, transpose::no, m, n, lanes[lane].size(), x.data() + lanes[lane].first * m,
                             m, dy.data() + lanes[lane].first * n, n, sums[level].data(), n, nullptr, s.use);
        },
        [&](std::size_t level) {
            for (std::size_t i = 0; i < m * n; ++i) sums[level][i] += sums[level + 1][i];
        });
    return sums.empty() ? array<T>(m * n) : sums[0];
}

const std::vector<std::vector<std::size_t>> cuts{
    {},
    {0},
    {1},
    {5},
    {4, 4, 4, 4, 4, 4, 4, 4},
    {3, 3, 2, 2, 2},
    {3, 0, 2, 5, 1, 0},
    {0, 0, 3},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {512, 512, 512},                      // stretches end with lanes
    {0, 600, 0, 700, 513, 0, 0},          // and inside of them
    {900, 100, 24, 1, 1, 1, 1, 600, 33},  // several lanes in a stretch
};

}  // namespace

TEMPLATE_TEST_CASE("kernels/gemm_lanes: the bits are those of one product for each lane, added over the tree",
                   "[kernels]", float, double) {
    for (const auto& sizes : cuts) {
        const auto lanes = lanes_of(sizes);
        for (const auto& [m, n] : {std::pair<std::size_t, std::size_t>{1, 1},
                                   {5, 7},
                                   {6, 16},
                                   {14, 32},
                                   {29, 67},
                                   {101, 259},
                                   {simd::width<TestType> + 3, simd::width<TestType> - 1},
                                   {3 * simd::width<TestType>, simd::width<TestType> - 1}}) {
            if (rows_of(lanes) > 1000 && m > 29) continue;
            const auto x = uniform<TestType>(rows_of(lanes) * m, 1);
            const auto dy = uniform<TestType>(rows_of(lanes) * n, 2);
            const auto want = lane_by_lane(lanes, m, n, x, dy);
            for (const int threads : thread_counts()) {
                INFO("lanes " << lanes.size() << " rows " << rows_of(lanes) << " m " << m << " n " << n << " threads "
                              << threads);
                REQUIRE(same_bits(run(lanes, m, n, x, dy, threads), want));
            }
        }
    }
}

TEMPLATE_TEST_CASE("kernels/gemm_lanes: blocks of dW and stretches of rows keep the bits", "[kernels]", float, double) {
    using blocks = kernels::detail::gemm_blocks<TestType>;
    for (const auto& sizes : {std::vector<std::size_t>{9, 8, 0, 8, 7}, {blocks::depth - 3, 2, 5, 0, blocks::depth}}) {
        const auto lanes = lanes_of(sizes);
        const std::size_t m = blocks::rows + 31, n = 547;
        const auto x = uniform<TestType>(rows_of(lanes) * m, 1);
        const auto dy = uniform<TestType>(rows_of(lanes) * n, 2);
        const auto want = lane_by_lane(lanes, m, n, x, dy);
        for (const int threads : thread_counts()) CHECK(same_bits(run(lanes, m, n, x, dy, threads), want));
    }
}

TEMPLATE_TEST_CASE("kernels/gemm_lanes: whole numbers come out exactly", "[kernels]", float, double) {
    for (const auto& sizes : cuts) {
        const auto lanes = lanes_of(sizes);
        const std::size_t m = 11, n = 37, rows = rows_of(lanes);
        const auto x = integers<TestType>(rows * m, 1);
        const auto dy = integers<TestType>(rows * n, 2);
        std::vector<double> want(m * n);
        kernels::reference::gemm<TestType>(transpose::yes, transpose::no, m, n, rows, x.data(), m, dy.data(), n,
                                           want.data(), n, nullptr);
        CHECK(equal(run(lanes, m, n, x, dy, 1), want));
    }
}

TEST_CASE("kernels/gemm_lanes: rows and columns outside of the operands are left alone", "[kernels]") {
    const auto lanes = lanes_of({3, 4});
    const std::size_t m = 9, n = 21, gap = 5;
    const auto x = integers<float>(7 * (m + gap), 1);
    const auto dy = integers<float>(7 * (n + gap), 2);
    scratch<float> s(kernels::gemm_lanes_scratch<float>(2, 7, m, n, {1}), {1});
    array<float> dw(m * (n + gap), 99.0F);
    kernels::gemm_lanes<float>(lanes, m, n, x.data(), m + gap, dy.data(), n + gap, dw.data(), n + gap, s.use);
    std::vector<double> want(m * (n + gap), 99.0);
    kernels::reference::gemm<float>(transpose::yes, transpose::no, m, n, 7, x.data(), m + gap, dy.data(), n + gap,
                                    want.data(), n + gap, nullptr);
    CHECK(equal(dw, want));
}

TEST_CASE("kernels/gemm_lanes: a NaN reaches its row of the gradient", "[kernels]") {
    const auto lanes = lanes_of({2, 2, 2});
    auto x = uniform<float>(6 * 8, 1);
    const auto dy = uniform<float>(6 * 20, 2);
    x[5 * 8 + 7] = NAN;
    const auto dw = run(lanes, 8, 20, x, dy, 1);
    for (std::size_t i = 0; i < dw.size(); ++i) REQUIRE(std::isnan(dw[i]) == (i / 20 == 7));
}
