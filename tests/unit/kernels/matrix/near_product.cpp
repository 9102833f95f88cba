// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/near_product.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/kernels/matrix/gemm.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::transpose;

namespace {

template <class T>
using near = kernels::detail::near_product<T>;

template <class T>
kernels::detail::product<T> small(std::size_t m, std::size_t n, std::size_t k) {
    return {transpose::no, transpose::no, m, n, k, nullptr, k, nullptr, n, nullptr, n, true, nullptr};
}

/// A small product with unused columns at the end of every row, computed by gemm() or gemm_accumulate().
template <class T>
struct sample {
    transpose ta;
    transpose tb;
    std::size_t m;
    std::size_t n;
    std::size_t k;
    static constexpr std::size_t gap = 3;
    std::size_t lda = (ta == transpose::no ? k : m) + gap;
    std::size_t ldb = (tb == transpose::no ? n : k) + gap;
    std::size_t ldc = n + gap;
    array<T> a = uniform<T>((ta == transpose::no ? m : k) * lda, 1);
    array<T> b = uniform<T>((tb == transpose::no ? k : n) * ldb, 2);
    array<T> c = uniform<T>(m * ldc, 3);
    array<T> bias = uniform<T>(n, 4);

    /// Rows of C with their gaps, where chains start from the bias or continue what C held.
    array<T> chains(bool starts) const {
        array<T> out = c;
        for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < n; ++j) {
                T& sum = out[i * ldc + j];
                if (starts) sum = bias[j];
                for (std::size_t q = 0; q < k; ++q)
                    sum = std::fma(a[ta == transpose::no ? i * lda + q : q * lda + i],
                                   b[tb == transpose::no ? q * ldb + j : j * ldb + q], sum);
            }
        return out;
    }
    array<T> product(bool starts) const {
        array<T> out = c;
        scratch<T> s(kernels::gemm_scratch<T>(m, n, k, {1}), {1});
        if (starts)
            kernels::gemm<T>(ta, tb, m, n, k, a.data(), lda, b.data(), ldb, out.data(), ldc, bias.data(), s.use);
        else
            kernels::gemm_accumulate<T>(ta, tb, m, n, k, a.data(), lda, b.data(), ldb, out.data(), ldc, s.use);
        return out;
    }
};

}  // namespace

#if defined(__FMA__)
TEMPLATE_TEST_CASE(
    "kernels/near_product: elements are chains over ascending k, for every number of rows and vectors; gaps stay",
    "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    for (const transpose ta : {transpose::no, transpose::yes})
        for (const transpose tb : {transpose::no, transpose::yes})
            for (const std::size_t m : {20, 21, 23, 36, 37})
                for (const std::size_t n : {w - w / 4, w, w + 1, 2 * w, 3 * w - 1, 4 * w, 5 * w - 3, 9 * w + 2})
                    for (const std::size_t k : {std::size_t{1}, w - 1, 2 * w + 3}) {
                        const sample<TestType> s{ta, tb, m, n, k};
                        INFO("m " << m << " n " << n << " k " << k << " transposed " << (ta == transpose::yes)
                                  << (tb == transpose::yes));
                        REQUIRE(same_bits(s.product(true), s.chains(true)));
                        REQUIRE(same_bits(s.product(false), s.chains(false)));
                    }
    // With a transposed B they may be twice as large.
    for (const transpose ta : {transpose::no, transpose::yes}) {
        const std::size_t m = sizeof(TestType) == 4 ? 120 : 80, k = sizeof(TestType) == 4 ? 128 : 64;
        const sample<TestType> s{ta, transpose::yes, m, 128, k};
        REQUIRE(same_bits(s.product(true), s.chains(true)));
        REQUIRE(same_bits(s.product(false), s.chains(false)));
    }
}
#endif

TEST_CASE(
    "kernels/near_product: takes small products of enough rows and vectors; narrow ones where A would have to be "
    "transposed",
    "[kernels]") {
    constexpr std::size_t w = simd::width<float>;
    CHECK(near<float>::takes(small<float>(64, 64, 64)));
    CHECK_FALSE(near<float>::takes(small<float>(19, 64, 64)));
    CHECK_FALSE(near<float>::takes(small<float>(64, 2 * w, 64)));
    CHECK_FALSE(near<float>::takes(small<float>(512, 512, 512)));
    auto turned = small<float>(128, 128, 128);
    CHECK_FALSE(near<float>::takes(turned));
    turned.tb = transpose::yes;
    CHECK(near<float>::takes(turned));
    turned.m = 160;
    CHECK_FALSE(near<float>::takes(turned));
    CHECK_FALSE(near<float>::takes(small<float>(64, 0, 64)));
    CHECK_FALSE(near<float>::takes(small<float>(64, 64, 0)));
    CHECK(near<float>::takes(small<float>(20, 3 * w / 5 + 1, 5)));
    CHECK(near<float>::takes(small<float>(100'000, w, 5)));
    CHECK_FALSE(near<float>::takes(small<float>(20, 3 * w / 5, 5)));
    auto narrow = small<float>(64, w, 64);
    narrow.starts = false;
    CHECK_FALSE(near<float>::takes(narrow));
    narrow = small<float>(64, w, 64);
    narrow.ta = transpose::yes;
    CHECK_FALSE(near<float>::takes(narrow));
}
