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
        INFO("n " << v.size() << " k " << k);
        std::vector<std::uint32_t> indices(std::min(k, v.size()));
        array<T> room(kernels::selection_room(v.size(), k));
        REQUIRE(kernels::top_k_by_sample<T>(v, k, indices, room) == indices.size());
        REQUIRE(indices == want);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/selection: the largest magnitudes in order of their indices", "[kernels]", float, double) {
    for (const std::size_t n : {0, 1, 2, 3, 17, 1000, 4095, 4099, 70001}) require_choice(uniform<TestType>(n, 1));
}

TEMPLATE_TEST_CASE("kernels/selection: of equal magnitudes the lowest indices", "[kernels]", float, double) {
    for (const std::size_t n : {1, 5, 100, 999, 5000}) {
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

TEMPLATE_TEST_CASE("kernels/selection: a few large numbers where no sample finds them, and many where all samples do",
                   "[kernels]", float, double) {
    for (const std::size_t n : {4096, 20011})
        for (const std::size_t stride : {1, 2, 32, 64, 1000}) {
            array<TestType> v(n, TestType{0.5F});
            for (std::size_t i = 0; i < n; i += stride) v[i] = static_cast<TestType>(i % 7);
            require_choice(v);
        }
}

TEMPLATE_TEST_CASE("kernels/selection: all that reach a threshold, or the largest of these", "[kernels]", float,
                   double) {
    using T = TestType;
    for (const std::size_t n : {0, 1, 15, 16, 17, 31, 32, 33, 64, 1009, 6007}) {
        auto v = uniform<T>(n, 1);
        if (n > 20) v[20] = std::numeric_limits<T>::quiet_NaN();
        for (const double least : {0.0, 0.1, 0.9, 0.999, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
            const T threshold = static_cast<T>(least);
            std::vector<std::uint32_t> all;
            for (std::size_t i = 0; i < n; ++i)
                if (!(std::abs(v[i]) < threshold)) all.push_back(static_cast<std::uint32_t>(i));
            for (const std::size_t room : {std::size_t{0}, std::size_t{1}, n / 3, n}) {
                std::vector<std::uint32_t> found(room + 1, 77U);
                REQUIRE(kernels::select_above<T>(v, threshold, std::span{found}.first(room)) == all.size());
                REQUIRE(found[room] == 77U);
                REQUIRE(std::equal(found.begin(),
                                   found.begin() + static_cast<std::ptrdiff_t>(std::min(room, all.size())),
                                   all.begin()));
                if (room == 0) continue;
                // The largest of those are the largest of all.
                std::vector<std::uint32_t> most(std::min(room, n));
                array<T> scratch(kernels::selection_room(n, room));
                REQUIRE(kernels::select_largest_above<T>(v, threshold, room, most, scratch) == all.size());
                most.resize(std::min(room, all.size()));
                REQUIRE(most == kernels::reference::top_k<T>(v, most.size()));
            }
        }
    }
}
