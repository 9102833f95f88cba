// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/normalisation/softmax.hpp"

#include <catch2/catch.hpp>
#include <cfenv>

#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;

namespace {

std::vector<std::int32_t> labels_for(std::size_t rows, std::size_t n) {
    const core::random_stream random{5, core::purpose::user, 1};
    std::vector<std::int32_t> labels(rows);
    for (std::size_t r = 0; r < rows; ++r) labels[r] = static_cast<std::int32_t>(random.below(n, r));
    return labels;
}

// The exponential errs by two units in the last place, its argument by half of one of |x| up to 5, the sum of n terms
// by n/width of them.
template <class T>
double tolerance(std::size_t n) {
    return (8 + static_cast<double>(n) / static_cast<double>(simd::width<T>)) *
           static_cast<double>(std::numeric_limits<T>::epsilon());
}

}  // namespace

// A program may trap them.
TEMPLATE_TEST_CASE("kernels/softmax: usual rows raise no floating-point exception", "[kernels]", float, double) {
    for (std::size_t n = 1; n < 3 * simd::width<TestType>; ++n) {
        auto x = uniform<TestType>(3 * n, 1);
        auto dy = x, y = x;
        std::feclearexcept(FE_ALL_EXCEPT);
        (void)kernels::softmax_cross_entropy_rows<TestType>(3, n, x.data(), labels_for(3, n).data(), TestType{1},
                                                            dy.data(), {1});
        kernels::softmax<TestType>(3, n, x.data(), y.data(), {1});
        CHECK(std::fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW) == 0);
    }
}

TEMPLATE_TEST_CASE("kernels/softmax: loss and gradient against the reference", "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{2}, w - 1, w, w + 1, std::size_t{10}, 2 * w, std::size_t{101}, std::size_t{1000}})
        for (const std::size_t rows : {0, 1, 3, 17}) {
            auto x = uniform<TestType>(rows * n, 1);
            for (auto& value : x) value *= 10;
            const auto labels = labels_for(rows, n);
            std::vector<double> want(rows * n), plain(rows * n);
            const double loss = kernels::reference::softmax_cross_entropy_rows<TestType>(
                rows, n, x.data(), labels.data(), 0.25, want.data());
            kernels::reference::softmax<TestType>(rows, n, x.data(), plain.data());
            auto dy = unwritten<TestType>(rows * n);
            auto y = dy;
            INFO("rows " << rows << " n " << n);
            const double got = kernels::softmax_cross_entropy_rows<TestType>(
                rows, n, x.data(), labels.data(), static_cast<TestType>(0.25), dy.data(), {1});
            CHECK(std::abs(got - loss) <= static_cast<double>(rows) * tolerance<TestType>(n));
            CHECK(distance(dy, want) <= 0.25 * tolerance<TestType>(n));
            kernels::softmax<TestType>(rows, n, x.data(), y.data(), {1});
            CHECK(distance(y, plain) <= tolerance<TestType>(n));
            // The loss alone, in place, and with threads: the same bits.
            CHECK(kernels::softmax_cross_entropy_rows<TestType>(rows, n, x.data(), labels.data(), TestType{1}, nullptr,
                                                                {1}) == got);
            for (const int threads : {2, 3}) {
                auto shared = x;
                CHECK(kernels::softmax_cross_entropy_rows<TestType>(rows, n, shared.data(), labels.data(),
                                                                    static_cast<TestType>(0.25), shared.data(),
                                                                    {threads}) == got);
                CHECK(same_bits(shared, dy));
            }
        }
}

TEMPLATE_TEST_CASE("kernels/softmax: smoothed labels against their definition", "[kernels]", float, double) {
    for (const std::size_t n : {1, 2, 7, 8, 9, 10, 101})
        for (const double smoothing : {0.1, 0.5}) {
            constexpr std::size_t rows = 5;
            auto x = uniform<TestType>(rows * n, 1);
            for (auto& value : x) value *= 10;
            const auto labels = labels_for(rows, n);
            std::vector<double> p(rows * n), want(rows * n);
            kernels::reference::softmax<TestType>(rows, n, x.data(), p.data());
            // Many terms of both signs of rounding: their sum needs more digits than what it is compared with.
            long double loss = 0;
            for (std::size_t i = 0; i < rows * n; ++i) {
                const double target = smoothing / static_cast<double>(n) +
                                      (i % n == static_cast<std::size_t>(labels[i / n]) ? 1 - smoothing : 0);
                long double powers = 0;
                for (std::size_t j = i / n * n; j < (i / n + 1) * n; ++j)
                    powers += std::exp(static_cast<long double>(x[j]));
                loss -= target * (static_cast<long double>(x[i]) - std::log(powers));
                want[i] = 0.25 * (p[i] - target);
            }
            auto dy = unwritten<TestType>(rows * n);
            const auto run = [&](const TestType* from, TestType* to, int threads) {
                return kernels::softmax_cross_entropy_rows<TestType>(rows, n, from, labels.data(), TestType{0.25}, to,
                                                                     {threads}, smoothing);
            };
            const double got = run(x.data(), dy.data(), 1);
            INFO("n " << n << " smoothing " << smoothing);
            CHECK(std::abs(static_cast<double>(got - loss)) <= rows * tolerance<TestType>(n));
            // Two more roundings of numbers below 1 than without.
            CHECK(distance(dy, want) <=
                  0.25 * (tolerance<TestType>(n) + static_cast<double>(std::numeric_limits<TestType>::epsilon())));
            CHECK(run(x.data(), nullptr, 2) == got);
            auto shared = x;
            CHECK(run(shared.data(), shared.data(), 3) == got);
            CHECK(same_bits(shared, dy));
        }
}

TEST_CASE("kernels/softmax: many rows are added in ascending order, and each row is by itself", "[kernels]") {
    for (const std::size_t n : {2, 3, 4, 5, 7, 10, 13, 16, 17, 31, 32, 33}) {
        const std::size_t rows = n == 13 ? 1300 : 75;
        const auto x = uniform<float>(rows * n, 1);
        auto labels = labels_for(rows, n);
        for (const double smoothing : {0.0, 0.1}) {
            double sum = 0;
            array<float> each(rows * n), all(rows * n), each_y(rows * n), all_y(rows * n);
            for (std::size_t r = 0; r < rows; ++r) {
                const std::size_t at = r * n;
                sum += kernels::softmax_cross_entropy_rows<float>(1, n, x.data() + at, labels.data() + r, 1.0F,
                                                                  each.data() + at, {1}, smoothing);
                kernels::softmax<float>(1, n, x.data() + at, each_y.data() + at, {1});
            }
            INFO("n " << n << " smoothing " << smoothing);
            CHECK(kernels::softmax_cross_entropy_rows<float>(rows, n, x.data(), labels.data(), 1.0F, all.data(), {3},
                                                             smoothing) == sum);
            CHECK(same_bits(all, each));
            kernels::softmax<float>(rows, n, x.data(), all_y.data(), {2});
            CHECK(same_bits(all_y, each_y));
        }
    }
}

TEST_CASE("kernels/softmax: a label that is no class makes its row NaN and no other", "[kernels]") {
    for (const std::size_t n : {3, 10, 33})
        for (const std::int32_t bad : {-1, static_cast<std::int32_t>(n), std::numeric_limits<std::int32_t>::max()}) {
            constexpr std::size_t rows = 40;
            const auto x = uniform<float>(rows * n, 1);
            auto labels = labels_for(rows, n);
            array<float> want(rows * n), got(rows * n);
            REQUIRE(std::isfinite(
                kernels::softmax_cross_entropy_rows<float>(rows, n, x.data(), labels.data(), 1.0F, want.data(), {1})));
            labels[5] = bad;
            CHECK(std::isnan(
                kernels::softmax_cross_entropy_rows<float>(rows, n, x.data(), labels.data(), 1.0F, got.data(), {1})));
            for (std::size_t i = 0; i < rows * n; ++i) {
                if (i / n == 5)
                    REQUIRE(std::isnan(got[i]));
                else
                    REQUIRE(got[i] == want[i]);
            }
        }
}

TEMPLATE_TEST_CASE("kernels/softmax: large logits neither overflow nor lose the loss", "[kernels]", float, double) {
    array<TestType> x{TestType{30000}, TestType{29990}, TestType{-30000}};
    const std::int32_t label = 1;
    array<TestType> dy(3);
    const double loss =
        kernels::softmax_cross_entropy_rows<TestType>(1, 3, x.data(), &label, TestType{1}, dy.data(), {1});
    CHECK(std::abs(loss - (10 + std::log1p(std::exp(-10.0)))) <=
          20 * static_cast<double>(std::numeric_limits<TestType>::epsilon()));
    CHECK(dy[2] == 0);
    CHECK(std::abs(static_cast<double>(dy[0] + dy[1])) <=
          4 * static_cast<double>(std::numeric_limits<TestType>::epsilon()));
}

TEST_CASE("kernels/softmax: a NaN makes its row and the loss NaN, wherever it is", "[kernels]") {
    // One row at a time, and several vectors of rows at once.
    for (const std::size_t rows : {std::size_t{3}, 2 * lockstep::simd::width<float> + 5})
        for (const std::size_t n : {1, 5, 8, 9, 33})
            for (std::size_t at = 0; at < n; ++at)
                for (const float bad : {NAN, -NAN, INFINITY}) {
                    auto x = uniform<float>(rows * n, 1);
                    x[n + at] = bad;
                    const auto labels = labels_for(rows, n);
                    auto dy = unwritten<float>(rows * n);
                    INFO("rows " << rows << " n " << n << " at " << at << " value " << bad);
                    REQUIRE(std::isnan(kernels::softmax_cross_entropy_rows<float>(rows, n, x.data(), labels.data(),
                                                                                  1.0F, dy.data(), {1})));
                    for (std::size_t i = 0; i < rows * n; ++i) REQUIRE(std::isnan(dy[i]) == (i / n == 1));
                }
}

TEST_CASE("kernels/softmax: a label outside of the classes makes its row and the loss NaN", "[kernels]") {
    for (const std::int32_t label : {-1, 4, 1'000'000}) {
        const auto x = uniform<float>(4, 1);
        array<float> dy(4);
        CHECK(std::isnan(kernels::softmax_cross_entropy_rows<float>(1, 4, x.data(), &label, 1.0F, dy.data(), {1})));
        for (const float value : dy) CHECK(std::isnan(value));
    }
}
