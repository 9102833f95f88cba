// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/factors.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/core/random.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

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

template <class T>
struct layer {
    std::size_t m, n;
    std::vector<parallel::block> lanes;
    array<T> x, dy, factors;

    layer(std::size_t in, std::size_t out, const std::vector<std::size_t>& sizes, int threads)
        : m{in},
          n{out},
          lanes{lanes_of(sizes)},
          x{uniform<T>(rows() * m, 1)},
          dy{uniform<T>(rows() * n, 2)},
          factors(rows() * (m + n)) {
        kernels::put_factors<T>(rows(), m, n, x.data(), dy.data(), factors.data(), {threads});
    }
    [[nodiscard]] std::size_t rows() const { return lanes.empty() ? 0 : lanes.back().last; }

    /// As backward of a dense layer writes it.
    [[nodiscard]] array<T> gradient() const {
        auto out = unwritten<T>(m * n + n);
        scratch<T> s(std::max(kernels::gemm_lanes_scratch<T>(lanes.size(), rows(), m, n, {1}),
                              kernels::column_sums_lanes_scratch<T>(lanes.size(), n, {1})),
                     {1});
        kernels::gemm_lanes<T>(lanes, m, n, x.data(), m, dy.data(), n, out.data(), n, s.use);
        kernels::column_sums_lanes<T>(lanes, n, dy.data(), n, out.data() + m * n, s.use);
        return out;
    }
    [[nodiscard]] array<T> part(parallel::block strip, int threads) const {
        const kernels::gradient_strip of{m, n, strip};
        const parallel::team team{threads};
        scratch<T> s(kernels::form_gradient_scratch<T>(lanes.size(), rows(), of, team), team);
        auto to = unwritten<T>(of.size());
        kernels::form_gradient<T>(lanes, of, factors.data(), to.data(), s.use);
        REQUIRE(of.begin() + strip.size() <= of.size());
        return {to.begin() + static_cast<std::ptrdiff_t>(of.begin()),
                to.begin() + static_cast<std::ptrdiff_t>(of.begin() + strip.size())};
    }
};

}  // namespace

TEMPLATE_TEST_CASE("kernels/factors: any strip has the bits of the gradient that backward writes", "[kernels]", float,
                   double) {
    const core::random_stream random{3, core::purpose::user};
    std::uint64_t drawn = 0;
    const auto below = [&](std::size_t n) {
        return static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(n), drawn++));
    };
    constexpr std::size_t width = simd::width<TestType>;
    for (int turn = 0; turn < 60; ++turn) {
        // Outputs of less than a vector, about one, and many; inputs alike.
        const std::size_t sizes[] = {1 + below(3), width - 1, 1 + below(4 * width), 30 + below(70)};
        std::vector<std::size_t> rows(1 + below(12));
        for (auto& lane : rows) lane = turn % 9 == 0 ? 100 + below(200) : below(5);
        const int threads = thread_counts()[below(thread_counts().size())];
        const layer<TestType> of{sizes[below(4)], sizes[below(4)], rows, threads};
        const auto whole = of.gradient();
        const std::size_t weights = of.m * of.n, n = weights + of.n;
        const std::size_t one = below(n + 1), other = below(n + 1);
        for (const parallel::block strip : {parallel::block{0, n},
                                            {std::min(one, other), std::max(one, other)},
                                            {weights, n},
                                            {weights - 1, weights + 1},
                                            {one, one},
                                            {0, weights},
                                            {weights + below(of.n), n}}) {
            INFO("m " << of.m << " n " << of.n << " lanes " << rows.size() << " rows " << of.rows() << " strip "
                      << strip.first << ".." << strip.last << " threads " << threads);
            const array<TestType> want{whole.begin() + static_cast<std::ptrdiff_t>(strip.first),
                                       whole.begin() + static_cast<std::ptrdiff_t>(strip.last)};
            REQUIRE(same_bits(of.part(strip, threads), want));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/factors: strips of layers larger than a cache block have the same bits", "[kernels]", float,
                   double) {
    using blocks = kernels::detail::gemm_blocks<TestType>;
    const layer<TestType> of{blocks::rows + 37, blocks::columns + 51, {blocks::depth - 3, 2, 5, 0, 40}, 1};
    const auto whole = of.gradient();
    const std::size_t n = whole.size();
    for (const int threads : thread_counts())
        for (const std::size_t ranks : {2, 3, 7})
            for (const std::size_t rank : {std::size_t{0}, ranks / 2, ranks - 1}) {
                const parallel::block strip = parallel::split(n, ranks, rank);
                const array<TestType> want{whole.begin() + static_cast<std::ptrdiff_t>(strip.first),
                                           whole.begin() + static_cast<std::ptrdiff_t>(strip.last)};
                INFO("strip " << rank << " of " << ranks << ", " << threads << " threads");
                CHECK(same_bits(of.part(strip, threads), want));
            }
}

TEMPLATE_TEST_CASE("kernels/factors: the gradient is the sum of outer products", "[kernels]", float, double) {
    for (const std::size_t m : {1, 5, 40})
        for (const std::size_t n : {1, 10, 67}) {
            const layer<TestType> of{m, n, {3, 0, 4, 9, 1}, 1};
            const parallel::block all{0, m * n + n};
            const auto found = of.part(all, 1);
            double error = 0;
            // |x| and |dy| are at most 1/2, and 17 rows are added with one rounding each.
            const double bound = 17 * 17 * 0.5 * std::numeric_limits<TestType>::epsilon();
            for (std::size_t i = 0; i <= m; ++i)
                for (std::size_t j = 0; j < n; ++j) {
                    double sum = 0;
                    for (std::size_t row = 0; row < of.rows(); ++row)
                        sum += (i < m ? double{of.x[row * m + i]} : 1.0) * double{of.dy[row * n + j]};
                    error = std::max(error, std::fabs(sum - double{found[i * n + j]}));
                }
            INFO("m " << m << " n " << n);
            CHECK(error <= bound);
        }
}

TEST_CASE("kernels/factors: no rows give zeros", "[kernels]") {
    const layer<float> of{4, 6, {0, 0}, 1};
    for (const float number : of.part({5, 29}, 1)) CHECK(number == 0.0F);
}
