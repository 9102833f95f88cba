// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/pack.hpp"

#include <catch2/catch.hpp>

#include "lockstep/kernels/matrix/tile.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

TEMPLATE_TEST_CASE("kernels/pack: panels hold the matrix and zeros after its last column", "[kernels]", float, double) {
    constexpr std::size_t width = kernels::detail::tile_columns<TestType>;
    for (const std::size_t k : {0, 1, 3, 7, 8, 9, 16, 33})
        for (const std::size_t n : {1, 7, 8, 15, 16, 17, 40, 65})
            for (const bool transposed : {false, true}) {
                const std::size_t ld = (transposed ? k : n) + 3;
                const auto from = uniform<TestType>((transposed ? n : k) * ld, 1);
                const std::size_t panels = (n + width - 1) / width;
                const std::size_t stride = k * width + 5;
                auto to = unwritten<TestType>(panels * stride);
                if (transposed)
                    kernels::detail::pack_transposed<width>(k, n, from.data(), ld, to.data(), stride);
                else
                    kernels::detail::pack<width>(k, n, from.data(), ld, to.data(), stride);
                INFO("k " << k << " n " << n << " transposed " << transposed);
                for (std::size_t p = 0; p < k; ++p)
                    for (std::size_t j = 0; j < panels * width; ++j) {
                        const TestType want = j >= n ? TestType{0} : transposed ? from[j * ld + p] : from[p * ld + j];
                        REQUIRE(to[j / width * stride + p * width + j % width] == want);
                    }
            }
}
