// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/pooling/pooled_few_filters.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/kernels/pooling/pooling.hpp"
#include "unit/kernels/pooling/pooled_common.hpp"

using namespace kernel_test;

namespace {

std::size_t pooled_size(const convolution& g) { return g.out_rows() / 2 * (g.out_columns() / 2) * g.filters; }

kernels::pooling halves(const convolution& g) {
    return {.rows = g.out_rows(),
            .columns = g.out_columns(),
            .channels = g.filters,
            .kernel_rows = 2,
            .kernel_columns = 2,
            .stride_rows = 2,
            .stride_columns = 2};
}

template <class T>
outputs<T> run(const convolution& g, std::size_t batch, const array<T>& x, const array<T>& w, const array<T>& bias,
               int threads) {
    outputs<T> out{unwritten<T>(batch * pooled_size(g)), std::vector<std::uint8_t>(batch * pooled_size(g), 99)};
    const scratch<T> room(kernels::detail::pooled_few_filters<T>{{{g}}}.scratch(static_cast<std::size_t>(threads)),
                          {threads});
    kernels::detail::pooled_few_filters_forward<T>(g, batch, x.data(), w.data(), bias.empty() ? nullptr : bias.data(),
                                                   out.y.data(), out.which.data(), room.use);
    return out;
}

/// Those that hold a window.
template <class T>
std::vector<std::pair<convolution, std::size_t>> shapes(std::size_t count) {
    auto all = narrow_shapes<T>(1, count);
    std::erase_if(all, [](const auto& one) { return one.first.out_rows() < 2 || one.first.out_columns() < 2; });
    return all;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/pooled_few_filters: whole numbers come out exactly, and the first of equals wins",
                   "[kernels]", float, double) {
    bool with_bias = false;
    for (const auto& [g, batch] : shapes<TestType>(60)) {
        with_bias = !with_bias;
        const auto x = integers<TestType>(batch * g.in_size(), 1);
        const auto w = integers<TestType>(g.weight_count(), 2);
        const auto bias = integers<TestType>(with_bias ? g.filters : 0, 3);
        std::vector<double> between(batch * g.out_size());
        kernels::reference::convolution_forward<TestType>(g, batch, x.data(), w.data(),
                                                          with_bias ? bias.data() : nullptr, between.data());
        std::vector<double> y(batch * pooled_size(g));
        std::vector<std::uint8_t> which(y.size());
        kernels::reference::max_pool_forward<double>(halves(g), batch, between.data(), y.data(), which.data());
        const auto got = run(g, batch, x, w, bias, 1);
        INFO(describe(g, batch));
        REQUIRE(equal(got.y, y));
        REQUIRE(got.which == which);
    }
}

TEMPLATE_TEST_CASE(
    "kernels/pooled_few_filters: the rounding error is that of one chain, the bits are those of a sample alone",
    "[kernels]", float, double) {
    for (const auto& [g, batch] : shapes<TestType>(30)) {
        const auto x = uniform<TestType>(batch * g.in_size(), 1);
        const auto w = uniform<TestType>(g.weight_count(), 2);
        const auto bias = uniform<TestType>(g.filters, 3);
        std::vector<double> between(batch * g.out_size());
        kernels::reference::convolution_forward<TestType>(g, batch, x.data(), w.data(), bias.data(), between.data());
        std::vector<double> y(batch * pooled_size(g));
        std::vector<std::uint8_t> which(y.size());
        kernels::reference::max_pool_forward<double>(halves(g), batch, between.data(), y.data(), which.data());
        const auto all = run(g, batch, x, w, bias, 1);
        INFO(describe(g, batch));
        // A maximum of numbers that are off by as much at most is off by no more.
        REQUIRE(distance(all.y, y) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns * g.channels, 0.25));
        for (const int threads : {2, 3, 5}) {
            const auto shared = run(g, batch, x, w, bias, threads);
            REQUIRE(same_bits(shared.y, all.y));
            REQUIRE(shared.which == all.which);
        }
        for (std::size_t sample = 0; sample < batch; ++sample) {
            const auto alone = run(g, 1, sample_of(x, sample, g.in_size()), w, bias, 1);
            const auto first = all.which.begin() + static_cast<std::ptrdiff_t>(sample * pooled_size(g));
            REQUIRE(same_bits(alone.y, sample_of(all.y, sample, pooled_size(g))));
            REQUIRE(std::equal(alone.which.begin(), alone.which.end(), first));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/pooled_few_filters: a NaN wins its windows and no others, and winners need not be kept",
                   "[kernels]", float, double) {
    const auto g = square(19, 2, 5, 3);
    auto x = uniform<TestType>(g.in_size(), 1);
    const auto w = uniform<TestType>(g.weight_count(), 2);
    const auto bias = uniform<TestType>(g.filters, 3);
    const auto before = run(g, 1, x, w, bias, 1);
    x[(18 * g.columns + 3) * g.channels + 1] =
        std::numeric_limits<TestType>::quiet_NaN();  // the row that no window sees
    const auto outside = run(g, 1, x, w, bias, 1);
    REQUIRE(same_bits(outside.y, before.y));
    x[(7 * g.columns + 5) * g.channels] = std::numeric_limits<TestType>::quiet_NaN();
    const auto after = run(g, 1, x, w, bias, 1);
    // Outputs 5 to 7 by 3 to 5 see it: windows 2 and 3 by 1 and 2.
    const std::size_t high = g.out_rows() / 2, wide = g.out_columns() / 2;
    for (std::size_t row = 0; row < high; ++row)
        for (std::size_t column = 0; column < wide; ++column)
            for (std::size_t filter = 0; filter < g.filters; ++filter) {
                const std::size_t at = (row * wide + column) * g.filters + filter;
                const bool sees = (row == 2 || row == 3) && (column == 1 || column == 2);
                REQUIRE(std::isnan(after.y[at]) == sees);
                if (!sees) REQUIRE((after.y[at] == before.y[at] && after.which[at] == before.which[at]));
            }
    auto y = unwritten<TestType>(pooled_size(g));
    const scratch<TestType> room(kernels::detail::pooled_few_filters<TestType>{{{g}}}.scratch(1), {1});
    kernels::detail::pooled_few_filters_forward<TestType>(g, 1, x.data(), w.data(), bias.data(), y.data(), nullptr,
                                                          room.use);
    REQUIRE(same_bits(y, after.y));
}
