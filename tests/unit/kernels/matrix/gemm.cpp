// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/gemm.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::transpose;

namespace {

struct product {
    transpose ta = transpose::no;
    transpose tb = transpose::no;
    std::size_t m = 0;
    std::size_t n = 0;
    std::size_t k = 0;
    std::size_t gap = 0;  // unused columns at the end of each row

    std::size_t lda() const { return (ta == transpose::no ? k : m) + gap; }
    std::size_t ldb() const { return (tb == transpose::no ? n : k) + gap; }
    std::size_t ldc() const { return n + gap; }
    std::size_t a_size() const { return (ta == transpose::no ? m : k) * lda(); }
    std::size_t b_size() const { return (tb == transpose::no ? k : n) * ldb(); }
};

template <class T>
array<T> run(const product& p, const array<T>& a, const array<T>& b, const T* bias, int threads) {
    const parallel::team team{threads};
    scratch<T> s(kernels::gemm_scratch<T>(p.m, p.n, p.k, team), team);
    array<T> c(p.m * p.ldc(), T{99});
    kernels::gemm<T>(p.ta, p.tb, p.m, p.n, p.k, a.data(), p.lda(), b.data(), p.ldb(), c.data(), p.ldc(), bias, s.use);
    return c;
}

template <class T>
std::vector<double> wanted(const product& p, const array<T>& a, const array<T>& b, const T* bias) {
    std::vector<double> c(p.m * p.ldc(), 99.0);
    kernels::reference::gemm<T>(p.ta, p.tb, p.m, p.n, p.k, a.data(), p.lda(), b.data(), p.ldb(), c.data(), p.ldc(),
                                bias);
    return c;
}

template <class F>
void for_transposes(F&& f) {
    for (const transpose ta : {transpose::no, transpose::yes})
        for (const transpose tb : {transpose::no, transpose::yes}) f(ta, tb);
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/gemm: whole numbers come out exactly, on all edge sizes", "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    constexpr std::size_t tall = kernels::detail::tile_rows;
    for_transposes([](transpose ta, transpose tb) {
        for (const std::size_t m :
             {std::size_t{0}, std::size_t{1}, std::size_t{2}, tall - 1, tall, tall + 1, std::size_t{31}})
            for (const std::size_t n :
                 {std::size_t{0}, std::size_t{1}, w - 1, w, w + 1, 2 * w - 1, 2 * w, 2 * w + 1, std::size_t{53}})
                for (const std::size_t k : {std::size_t{0}, std::size_t{1}, w - 1, w, w + 1, std::size_t{29}}) {
                    const product p{ta, tb, m, n, k, (m + n + k) % 3};
                    const auto a = integers<TestType>(p.a_size(), 1);
                    const auto b = integers<TestType>(p.b_size(), 2);
                    const auto bias = integers<TestType>(n, 3);
                    const TestType* with = k % 2 == 0 ? bias.data() : nullptr;
                    INFO("m " << m << " n " << n << " k " << k);
                    REQUIRE(equal(run(p, a, b, with, 1), wanted(p, a, b, with)));
                }
    });
}

TEMPLATE_TEST_CASE("kernels/gemm: sizes beyond the cache blocks", "[kernels]", float, double) {
    using blocks = kernels::detail::gemm_blocks<TestType>;
    for_transposes([](transpose ta, transpose tb) {
        for (const auto& [m, n, k] : {std::array<std::size_t, 3>{blocks::rows + 7, 37, blocks::depth + 3},
                                      std::array<std::size_t, 3>{11, blocks::columns + 17, 2 * blocks::depth + 5}}) {
            const product p{ta, tb, m, n, k, 1};
            const auto a = integers<TestType>(p.a_size(), 1);
            const auto b = integers<TestType>(p.b_size(), 2);
            INFO("m " << m << " n " << n << " k " << k);
            REQUIRE(equal(run<TestType>(p, a, b, nullptr, 1), wanted<TestType>(p, a, b, nullptr)));
        }
    });
}

TEMPLATE_TEST_CASE("kernels/gemm: the rounding error is that of one chain", "[kernels]", float, double) {
    for (const std::size_t k : {7, 300, 1500}) {
        const product p{transpose::no, transpose::no, 19, 23, k, 0};
        const auto a = uniform<TestType>(p.a_size(), 1);
        const auto b = uniform<TestType>(p.b_size(), 2);
        const auto bias = uniform<TestType>(p.n, 3);
        CHECK(distance(run(p, a, b, bias.data(), 1), wanted(p, a, b, bias.data())) <= sum_tolerance<TestType>(k, 0.25));
    }
}

#if defined(__FMA__)
TEMPLATE_TEST_CASE(
    "kernels/gemm: each element is a chain of fused multiply-adds over ascending k that starts from the bias",
    "[kernels]", float, double) {
    for_transposes([](transpose ta, transpose tb) {
        const product p{ta, tb, 15, 37, 777, 0};
        const auto a = uniform<TestType>(p.a_size(), 1);
        const auto b = uniform<TestType>(p.b_size(), 2);
        const auto bias = uniform<TestType>(p.n, 3);
        array<TestType> chain(p.m * p.n);
        for (std::size_t i = 0; i < p.m; ++i)
            for (std::size_t j = 0; j < p.n; ++j) {
                TestType sum = bias[j];
                for (std::size_t q = 0; q < p.k; ++q)
                    sum = std::fma(ta == transpose::no ? a[i * p.k + q] : a[q * p.m + i],
                                   tb == transpose::no ? b[q * p.n + j] : b[j * p.k + q], sum);
                chain[i * p.n + j] = sum;
            }
        CHECK(same_bits(run(p, a, b, bias.data(), 1), chain));
    });
}
#endif

TEMPLATE_TEST_CASE("kernels/gemm: equal bits for every number of threads", "[kernels]", float, double) {
    for_transposes([](transpose ta, transpose tb) {
        for (const auto& [m, n, k] : {std::array<std::size_t, 3>{97, 131, 311}, std::array<std::size_t, 3>{2, 200, 50},
                                      std::array<std::size_t, 3>{200, 3, 50}}) {
            const product p{ta, tb, m, n, k, 0};
            const auto a = uniform<TestType>(p.a_size(), 1);
            const auto b = uniform<TestType>(p.b_size(), 2);
            const auto alone = run<TestType>(p, a, b, nullptr, 1);
            for (const int threads : {2, 3, 4, 7}) CHECK(same_bits(run<TestType>(p, a, b, nullptr, threads), alone));
        }
    });
}

TEMPLATE_TEST_CASE("kernels/gemm: a row alone has the bits it has among others, and so has a column", "[kernels]",
                   float, double) {
    for (const transpose tb : {transpose::no, transpose::yes}) {
        const product p{transpose::no, tb, 29, 61, 523, 0};
        const auto a = uniform<TestType>(p.a_size(), 1);
        const auto b = uniform<TestType>(p.b_size(), 2);
        const auto all = run<TestType>(p, a, b, nullptr, 1);
        for (std::size_t row = 0; row < p.m; ++row) {
            const array<TestType> mine(a.begin() + static_cast<std::ptrdiff_t>(row * p.k),
                                       a.begin() + static_cast<std::ptrdiff_t>((row + 1) * p.k));
            const array<TestType> want(all.begin() + static_cast<std::ptrdiff_t>(row * p.n),
                                       all.begin() + static_cast<std::ptrdiff_t>((row + 1) * p.n));
            REQUIRE(same_bits(run<TestType>({transpose::no, tb, 1, p.n, p.k, 0}, mine, b, nullptr, 1), want));
        }
    }
    const product p{transpose::no, transpose::yes, 9, 47, 300, 0};
    const auto a = uniform<TestType>(p.a_size(), 1);
    const auto b = uniform<TestType>(p.b_size(), 2);
    const auto all = run<TestType>(p, a, b, nullptr, 1);
    for (std::size_t column = 0; column < p.n; ++column) {
        const array<TestType> mine(b.begin() + static_cast<std::ptrdiff_t>(column * p.k),
                                   b.begin() + static_cast<std::ptrdiff_t>((column + 1) * p.k));
        const auto got = run<TestType>({transpose::no, transpose::yes, p.m, 1, p.k, 0}, a, mine, nullptr, 1);
        for (std::size_t row = 0; row < p.m; ++row) REQUIRE(got[row] == all[row * p.n + column]);
    }
}

// Every way through the blocks: operands as they lie, panels packed beforehand and between links, one cut and several,
// one strip and several.
TEMPLATE_TEST_CASE("kernels/gemm: an element has the same bits in a small product and in every part of a large one",
                   "[kernels]", float, double) {
    using blocks = kernels::detail::gemm_blocks<TestType>;
    for_transposes([](transpose ta, transpose tb) {
        for (const std::size_t k : {std::size_t{1}, std::size_t{64}, blocks::depth + 13}) {
            const product p{ta, tb, blocks::rows + 5, k == 1 ? blocks::columns + 3 : std::size_t{607}, k, 0};
            const auto a = uniform<TestType>(p.a_size(), 1);
            const auto b = uniform<TestType>(p.b_size(), 2);
            const auto bias = uniform<TestType>(p.n, 3);
            const auto all = run<TestType>(p, a, b, bias.data(), 1);
            for (const int threads : {2, 3}) REQUIRE(same_bits(run<TestType>(p, a, b, bias.data(), threads), all));
            for (const auto& [row, m, column, n] : {std::array<std::size_t, 4>{0, 1, 0, 1},
                                                    {3, 7, 5, 20},
                                                    {17, 64, 100, 64},
                                                    {p.m - 25, 25, p.n - 330, 330}}) {
                INFO("k " << k << " row " << row << " m " << m << " column " << column << " n " << n);
                scratch<TestType> s(kernels::gemm_scratch<TestType>(m, n, k, {1}), {1});
                array<TestType> c(m * n);
                kernels::gemm<TestType>(ta, tb, m, n, k, a.data() + row * (ta == transpose::no ? p.lda() : 1), p.lda(),
                                        b.data() + column * (tb == transpose::no ? 1 : p.ldb()), p.ldb(), c.data(), n,
                                        bias.data() + column, s.use);
                bool same = true;
                for (std::size_t i = 0; i < m; ++i)
                    same = same && std::memcmp(c.data() + i * n, all.data() + (row + i) * p.n + column,
                                               n * sizeof(TestType)) == 0;
                REQUIRE(same);
            }
        }
    });
}

TEMPLATE_TEST_CASE("kernels/gemm: more rows than share a block of B", "[kernels]", float, double) {
    using blocks = kernels::detail::gemm_blocks<TestType>;
    for_transposes([](transpose ta, transpose tb) {
        const product p{ta, tb, blocks::most_rows + 11, 21, blocks::depth + 1, 0};
        const auto a = integers<TestType>(p.a_size(), 1);
        const auto b = integers<TestType>(p.b_size(), 2);
        CHECK(equal(run<TestType>(p, a, b, nullptr, 1), wanted<TestType>(p, a, b, nullptr)));
    });
}

TEST_CASE("kernels/gemm: a result too large for the caches has the bits of its rows alone", "[kernels]") {
    // 32 MiB in rows of whole cache lines and in others, with fewer links than a block and with more.
    for (const auto& [gap, k] : {std::array<std::size_t, 2>{16, 5}, {16, 400}, {3, 5}}) {
        const product p{transpose::yes, transpose::no, 512, 16384, k, gap};
        const auto a = uniform<float>(p.a_size(), 1);
        const auto b = uniform<float>(p.b_size(), 2);
        const auto all = run<float>(p, a, b, nullptr, 1);
        for (const std::size_t row : {0, 300, 511}) {
            array<float> c(p.n);
            scratch<float> s(kernels::gemm_scratch<float>(1, p.n, k, {1}), {1});
            kernels::gemm<float>(p.ta, p.tb, 1, p.n, k, a.data() + row, p.lda(), b.data(), p.ldb(), c.data(), p.n,
                                 nullptr, s.use);
            REQUIRE(std::equal(c.begin(), c.end(), all.begin() + static_cast<std::ptrdiff_t>(row * p.ldc())));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/gemm: accumulating continues the chain", "[kernels]", float, double) {
    const std::size_t m = 13, n = 41, k = 90, cut = 37;
    const auto a = uniform<TestType>(m * k, 1);
    const auto b = uniform<TestType>(k * n, 2);
    const auto whole = run<TestType>({transpose::no, transpose::no, m, n, k, 0}, a, b, nullptr, 1);
    scratch<TestType> s(kernels::gemm_scratch<TestType>(m, n, k, {2}), {2});
    array<TestType> c(m * n);
    kernels::gemm<TestType>(transpose::no, transpose::no, m, n, cut, a.data(), k, b.data(), n, c.data(), n, nullptr,
                            s.use);
    kernels::gemm_accumulate<TestType>(transpose::no, transpose::no, m, n, k - cut, a.data() + cut, k,
                                       b.data() + cut * n, n, c.data(), n, s.use);
    CHECK(same_bits(c, whole));
}

TEMPLATE_TEST_CASE("kernels/gemm: fewer columns than a vector, in several cuts, continued, between numbers that stay",
                   "[kernels]", float, double) {
    constexpr std::size_t width = lockstep::simd::width<TestType>,
                          deep = kernels::detail::gemm_blocks<TestType>::depth + 5;
    for_transposes([](transpose ta, transpose tb) {
        for (const auto& [m, n] : {std::array<std::size_t, 2>{2 * width + 3, width - 1},
                                   {width, 1},
                                   {3 * width, 3},
                                   {width + 5, width / 2 + 1}}) {
            INFO("m " << m << " n " << n);
            const product p{ta, tb, m, n, deep, 0};
            const auto a = integers<TestType>(p.a_size(), 1);
            const auto b = integers<TestType>(p.b_size(), 2);
            const auto bias = integers<TestType>(n, 3);
            const auto once = wanted<TestType>(p, a, b, nullptr);
            CHECK(equal(run<TestType>(p, a, b, bias.data(), 1), wanted<TestType>(p, a, b, bias.data())));
            constexpr std::size_t gap = 2;
            array<TestType> c(m * (n + gap), TestType{7});
            scratch<TestType> s(kernels::gemm_scratch<TestType>(m, n, deep, {1}), {1});
            kernels::gemm_accumulate<TestType>(ta, tb, m, n, deep, a.data(), p.lda(), b.data(), p.ldb(), c.data(),
                                               n + gap, s.use);
            bool right = true;
            for (std::size_t i = 0; i < m; ++i)
                for (std::size_t j = 0; j < n + gap; ++j)
                    right = right && c[i * (n + gap) + j] == (j < n ? 7 + once[i * n + j] : 7);
            CHECK(right);
        }
    });
}

TEST_CASE("kernels/gemm: a NaN reaches its row or column and nothing else", "[kernels]") {
    const product p{transpose::no, transpose::no, 17, 35, 19, 0};
    auto a = uniform<float>(p.a_size(), 1);
    auto b = uniform<float>(p.b_size(), 2);
    a[16 * p.k + 18] = NAN;
    b[3 * p.n + 34] = INFINITY;
    a[5 * p.k + 3] = 0;
    const auto c = run<float>(p, a, b, nullptr, 1);
    for (std::size_t i = 0; i < p.m; ++i)
        for (std::size_t j = 0; j < p.n; ++j) {
            INFO(i << ' ' << j);
            REQUIRE(std::isnan(c[i * p.n + j]) == (i == 16 || (i == 5 && j == 34)));
        }
}

TEST_CASE("kernels/gemm: scratch grows with every size", "[kernels]") {
    std::size_t before = 0;
    for (std::size_t size = 0; size < 3000; size += 37) {
        const std::size_t now = kernels::gemm_scratch<float>(size, size, size, {3});
        REQUIRE(now >= before);
        before = now;
    }
}

namespace {

/// Rows of C with a gap after each, whose numbers stay.
template <class T>
struct outcome {
    array<T> c;
    std::size_t n, ldc;
    bool same_row(std::size_t row, const outcome& other, std::size_t at) const {
        return std::memcmp(&c[row * ldc], &other.c[at * ldc], ldc * sizeof(T)) == 0;
    }
};

}  // namespace

TEMPLATE_TEST_CASE("kernels/gemm: a few rows: a row has the bits that it has among many", "[kernels]", float, double) {
    using T = TestType;
    using few = kernels::detail::few_rows_product<T>;
    constexpr std::size_t w = simd::width<T>, gap = 3, many = 37;
    // Beyond one strip of sums, and B beyond far, for some.
    const std::size_t beyond = few::most_sums + 2 * w + 5;
    bool far_seen = false, narrow_seen = false, walks_seen = false;
    for (const auto& [n, k] : std::vector<std::pair<std::size_t, std::size_t>>{{1, 1},
                                                                               {1, 300},
                                                                               {w - 1, 9},
                                                                               {w, 33},
                                                                               {w + 1, 7},
                                                                               {4 * w, 6},
                                                                               {4 * w - 1, 130},
                                                                               {4 * w + 1, 5},
                                                                               {7 * w + 3, 2},
                                                                               {10 * w, 801},
                                                                               {beyond, 37},
                                                                               {beyond, 3},
                                                                               {257, 600}})
        for (const bool starts : {true, false})
            for (const transpose ta : {transpose::no, transpose::yes}) {
                const std::size_t ldb = n + gap, ldc = n + gap;
                const auto whole = uniform<T>(many * k, 1), b = uniform<T>(k * ldb, 2), bias = uniform<T>(n, 3),
                           before = uniform<T>(many * ldc, 4);
                const auto product = [&](std::size_t first, std::size_t m) {
                    // A of these rows, side by side.
                    array<T> a(m * k);
                    for (std::size_t i = 0; i < m; ++i)
                        for (std::size_t p = 0; p < k; ++p)
                            a[ta == transpose::no ? i * k + p : p * m + i] = whole[(first + i) * k + p];
                    outcome<T> out{array<T>(m * ldc), n, ldc};
                    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(first * ldc), m * ldc, out.c.begin());
                    const parallel::team team{1};
                    scratch<T> s(kernels::gemm_scratch<T>(m, n, k, team), team);
                    const std::size_t lda = ta == transpose::no ? k : m;
                    if (starts)
                        kernels::gemm<T>(ta, transpose::no, m, n, k, a.data(), lda, b.data(), ldb, out.c.data(), ldc,
                                         bias.data(), s.use);
                    else
                        kernels::gemm_accumulate<T>(ta, transpose::no, m, n, k, a.data(), lda, b.data(), ldb,
                                                    out.c.data(), ldc, s.use);
                    return out;
                };
                INFO("n " << n << " k " << k << " starts " << starts << " transposed " << (ta == transpose::yes));
                const auto all = product(0, many);
                // Against the chain itself.
                for (const std::size_t i : {std::size_t{0}, many - 1})
                    for (const std::size_t j : {std::size_t{0}, n / 2, n - 1}) {
                        T sum = starts ? bias[j] : before[i * ldc + j];
                        for (std::size_t p = 0; p < k; ++p) sum = std::fma(whole[i * k + p], b[p * ldb + j], sum);
                        REQUIRE(all.c[i * ldc + j] == sum);
                    }
                for (const std::size_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16}) {
                    const std::size_t first = m % 5;
                    const auto some = product(first, m);
                    for (std::size_t i = 0; i < m; ++i) REQUIRE(some.same_row(i, all, first + i));
                    const kernels::detail::product<T> asked{ta,      transpose::no, m,       n,   k,    nullptr, k,
                                                            nullptr, ldb,           nullptr, ldc, true, nullptr};
                    far_seen = far_seen || (m == 2 && n > few::narrow * w && few::takes(asked));
                    narrow_seen = narrow_seen || (m > few::most && few::takes(asked));
                    walks_seen = walks_seen || (m > few::most && n > w && few::takes(asked));
                }
            }
    CHECK(far_seen);
    CHECK(narrow_seen);
    CHECK(walks_seen == (few::most_far > few::most));
}

TEST_CASE("kernels/gemm: a few rows: products of nothing are not taken", "[kernels]") {
    using few = kernels::detail::few_rows_product<float>;
    const auto asked = [](transpose tb, std::size_t m, std::size_t n, std::size_t k) {
        return few::takes({transpose::no, tb, m, n, k, nullptr, k, nullptr, n, nullptr, n, true, nullptr});
    };
    CHECK(asked(transpose::no, 1, 100, 100));
    CHECK_FALSE(asked(transpose::yes, 1, 100, 100));
    CHECK_FALSE(asked(transpose::no, 0, 100, 100));
    CHECK_FALSE(asked(transpose::no, 1, 0, 100));
    CHECK_FALSE(asked(transpose::no, 1, 100, 0));
}
