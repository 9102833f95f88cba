// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/one_bit.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "reference_quantisers.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/one_bit: sums and residuals are those of the formulas", "[compress]") {
    constexpr std::size_t n = reference::rows * reference::columns;
    const auto& expected = reference::one_bit;
    const origin tensor{.rows = reference::rows, .columns = reference::columns};
    std::vector<channel<double, error_feedback<one_bit>>> workers(reference::voters, {{}, n, tensor});
    for (std::size_t step = 0; step < expected.sums.size(); ++step) {
        std::vector<double> sum(n), values(n);
        for (std::size_t worker = 0; worker < workers.size(); ++worker) {
            for (std::size_t i = 0; i < n; ++i)
                values[i] = reference_number<double>((step * workers.size() + worker) * n + i);
            const auto decoded = workers[worker].decode(workers[worker].encode(values));
            for (std::size_t i = 0; i < n; ++i) sum[i] += decoded[i];
        }
        for (std::size_t i = 0; i < n; ++i)
            CHECK(sum[i] == Approx(expected.sums[step][i]).epsilon(1e-12).margin(1e-12));
    }
    for (std::size_t i = 0; i < n; ++i)
        CHECK(workers[1].slots[i] == Approx(expected.residual[i]).epsilon(1e-12).margin(1e-12));
}

TEMPLATE_TEST_CASE("compress/one_bit: n / 8 bytes and two means for each column", "[compress]", float, double) {
    using T = TestType;
    for (const std::size_t columns : {1, 2, 7, 8, 16, 17, 33, 64, 100})
        for (const std::size_t rows : {1, 2, 3, 40, 301}) {
            const std::size_t n = rows * columns;
            const origin tensor{.rows = rows, .columns = columns};
            const std::size_t means = tensor.is_vector() ? 1 : columns, height = n / means;
            channel<T, one_bit> one{{}, n, tensor};
            const auto values = normals<T>(n, 7, 2);
            const auto message = one.encode(values);
            REQUIRE(message.size() == (n + 7) / 8 + 2 * sizeof(T) * means);
            REQUIRE(one.most == message.size());
            REQUIRE(one.guard_holds());
            const auto decoded = one.decode(message);
            for (std::size_t j = 0; j < means; ++j) {
                long double sums[2] = {0, 0}, sizes[2] = {0, 0};
                for (std::size_t i = j; i < n; i += means) {
                    sums[values[i] < 0] += static_cast<long double>(values[i]);
                    sizes[values[i] < 0] += 1;
                }
                for (std::size_t i = j; i < n; i += means) {
                    const bool negative = values[i] < 0;
                    // Each of `height` additions of numbers with one sign rounds once.
                    REQUIRE(decoded[i] ==
                            Approx(static_cast<double>(sums[negative] / sizes[negative]))
                                .epsilon((static_cast<double>(height) + 2) * std::numeric_limits<T>::epsilon()));
                }
            }
            channel<T, one_bit> whole{{.by_column = false}, n, tensor};
            REQUIRE(whole.encode(values).size() == (n + 7) / 8 + 2 * sizeof(T));
        }
    // Of many rows: sums in T alone would be off by parts in a thousand.
    for (const std::size_t columns : {2, 64}) {
        const std::size_t n = 40'000 * columns;
        channel<T, one_bit> many{{}, n, {.rows = 40'000, .columns = columns}};
        for (const T value : many.decode(many.encode(std::vector<T>(n, T{0.1F}))))
            REQUIRE(value == Approx(0.1F).epsilon(1e-5));
    }
    channel<T, one_bit> none{{}, 0};
    CHECK(none.encode(std::vector<T>{}).size() == 0);
    CHECK(none.decode({}).empty());
}

TEMPLATE_TEST_CASE("compress/one_bit: what is left out is orthogonal to what is sent", "[compress]", float, double) {
    using T = TestType;
    for (const origin tensor : {origin{.rows = 50, .columns = 20}, origin{.rows = 1, .columns = 1000}})
        for (const int spread : {0, 4}) {
            const auto values = normals<T>(1000, 3, spread);
            channel<T, one_bit> one{{}, 1000, tensor};
            const auto decoded = one.decode(one.encode(values));
            const long double whole = square(values), sent = square(decoded);
            CHECK(static_cast<double>(square_of_rest(values, decoded)) ==
                  Approx(static_cast<double>(whole - sent)).margin(static_cast<double>(whole) * 1e-5));
            CHECK(sent > whole / 1000);
        }
}

TEMPLATE_TEST_CASE("compress/one_bit: the residual is p - sent, and what was left out is sent in the end", "[compress]",
                   float, double) {
    using T = TestType;
    constexpr std::size_t n = 200;
    channel<T, error_feedback<one_bit>> one{{}, n, {.rows = 20, .columns = 10}};
    const auto values = normals<T>(n, 7);
    std::vector<double> sent(n);
    constexpr std::uint32_t steps = 3000;
    for (std::uint32_t step = 0; step < steps; ++step) {
        std::vector<T> p(n);
        for (std::size_t i = 0; i < n; ++i) p[i] = values[i] + one.slots[i];
        const auto decoded = one.decode(one.encode(values));
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(one.slots[i] == p[i] - decoded[i]);
            sent[i] += static_cast<double>(decoded[i]) / steps;
        }
    }
    for (std::size_t i = 0; i < n; ++i) CHECK(sent[i] == Approx(static_cast<double>(values[i])).margin(0.05));
}

TEMPLATE_TEST_CASE("compress/one_bit: zeros, columns of one sign, and what is not finite", "[compress]", float,
                   double) {
    using T = TestType;
    const origin tensor{.rows = 30, .columns = 20};
    channel<T, one_bit> one{{}, 600, tensor};
    CHECK(one.decode(one.encode(std::vector<T>(600))) == std::vector<T>(600));
    CHECK(one.decode(one.encode(std::vector<T>(600, T{-2}))) == std::vector<T>(600, T{-2}));
    for (const T bad :
         {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()})
        for (const std::size_t at : {0, 319, 599}) {
            auto values = normals<T>(600, 5);
            values[at] = bad;
            const auto decoded = one.decode(one.encode(values));
            CHECK(!std::isfinite(decoded[at]));
            for (std::size_t i = 0; i < 600; ++i)
                if (i % 20 != at % 20) REQUIRE(std::isfinite(decoded[i]));
            channel<T, one_bit> whole{{.by_column = false}, 600, tensor};
            CHECK(!std::isfinite(whole.decode(whole.encode(values))[at]));
        }
    CHECK(one_bit{}.settings() == "by_column=true");
    CHECK(sees_whole_tensors(error_feedback{one_bit{}}));
    CHECK(!sees_whole_tensors(one_bit{.by_column = false}));
}
