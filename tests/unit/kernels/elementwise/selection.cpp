// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/elementwise/selection.hpp"

#include <catch2/catch.hpp>

#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

namespace {

template <class T>
std::vector<std::uint32_t> chosen(const array<T>& v, std::size_t k, int threads) {
    const parallel::team team{threads};
    std::vector<std::uint32_t> indices(std::min(k, v.size())), words(kernels::top_k_scratch(team), 12345U);
    REQUIRE(kernels::top_k<T>(v, k, indices, words, team) == indices.size());
    return indices;
}

template <class T>
void require_choice(const array<T>& v) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{2}, v.size() / 100, v.size() / 3,
                                v.size() - (v.size() > 0), v.size(), v.size() + 5}) {
        const auto want = kernels::reference::top_k<T>(v, k);
        for (const int threads : thread_counts()) {
            INFO("n " << v.size() << " k " << k << " threads " << threads);
            REQUIRE(chosen(v, k, threads) == want);
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/selection: the largest magnitudes in order of their indices", "[kernels]", float, double) {
    for (const std::size_t n : {0, 1, 2, 3, 17, 1000, 4099}) require_choice(uniform<TestType>(n, 1));
}

TEMPLATE_TEST_CASE("kernels/selection: of equal magnitudes the lowest indices", "[kernels]", float, double) {
    for (const std::size_t n : {1, 5, 100, 999}) {
        require_choice(integers<TestType>(n, 1));
        require_choice(array<TestType>(n));
        require_choice(array<TestType>(n, TestType{-2}));
    }
}

TEMPLATE_TEST_CASE("kernels/selection: magnitudes of every size, and numbers that are not finite", "[kernels]", float,
                   double) {
    auto v = uniform<TestType>(501, 1);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::ldexp(v[i], static_cast<int>(i % 250) - 140);
    require_choice(v);
    v[77] = std::numeric_limits<TestType>::infinity();
    v[400] = -std::numeric_limits<TestType>::infinity();
    v[500] = std::numeric_limits<TestType>::quiet_NaN();
    v[12] = TestType{-0.0};
    v[13] = std::numeric_limits<TestType>::denorm_min();
    require_choice(v);
}
