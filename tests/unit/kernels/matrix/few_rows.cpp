// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/matrix/few_rows.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "lockstep/kernels/matrix/gemm.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::transpose;

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

TEMPLATE_TEST_CASE("kernels/few_rows: a row has the bits that it has among many", "[kernels]", float, double) {
    using T = TestType;
    using few = kernels::detail::few_rows_product<T>;
    constexpr std::size_t w = simd::width<T>, gap = 3, many = 37;
    // Beyond one strip of sums, and B beyond far, for some.
    const std::size_t beyond = few::most_sums + 2 * w + 5;
    bool far_seen = false, narrow_seen = false;
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
                                                                               {beyond, 18},
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
                }
            }
    CHECK(far_seen);
    CHECK(narrow_seen);
}

TEST_CASE("kernels/few_rows: products of nothing are not taken", "[kernels]") {
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
