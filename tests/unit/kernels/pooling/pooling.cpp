// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/pooling/pooling.hpp"

#include <catch2/catch.hpp>

#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

using namespace kernel_test;
using kernels::pooling;

namespace {

using numbers = std::vector<std::uint8_t>;

struct shape {
    pooling g;
    std::size_t batch;
};

std::vector<shape> shapes() {
    const core::random_stream random{4, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<shape> out{{{.rows = 24,
                             .columns = 24,
                             .channels = 32,
                             .kernel_rows = 2,
                             .kernel_columns = 2,
                             .stride_rows = 2,
                             .stride_columns = 2},
                            2},
                           {{.rows = 13,
                             .columns = 13,
                             .channels = 5,
                             .kernel_rows = 3,
                             .kernel_columns = 3,
                             .stride_rows = 2,
                             .stride_columns = 2},
                            2}};
    // Few channels, windows side by side: several go through registers together.
    for (const std::size_t channels : {1U, 3U, 4U, 6U, 7U, 8U, 9U, 15U, 16U, 17U, 31U, 33U})
        for (const std::size_t columns : {8U, 9U, 18U, 28U}) {
            out.push_back({{.rows = 6,
                            .columns = columns,
                            .channels = channels,
                            .kernel_rows = 2,
                            .kernel_columns = 2,
                            .stride_rows = 2,
                            .stride_columns = 2},
                           2});
            out.push_back({{.rows = 7,
                            .columns = columns,
                            .channels = channels,
                            .kernel_rows = 3,
                            .kernel_columns = 3,
                            .stride_rows = 2,
                            .stride_columns = 2,
                            .pad_top = 1,
                            .pad_left = 1},
                           2});
        }
    // Pixels of many channels, with windows that touch, overlap, leave gaps and reach over the border.
    for (const std::size_t channels : {65U, 129U, 144U})
        for (const std::size_t kernel : {1U, 2U, 3U})
            out.push_back({{.rows = 5,
                            .columns = 7,
                            .channels = channels,
                            .kernel_rows = kernel,
                            .kernel_columns = kernel,
                            .stride_rows = 2,
                            .stride_columns = 2,
                            .pad_left = kernel / 2},
                           2});
    for (int i = 0; i < 80; ++i) {
        pooling g;
        g.rows = draw(1, 12);
        g.columns = draw(1, 12);
        g.channels = draw(1, 20);
        g.kernel_rows = draw(1, 4);
        g.kernel_columns = draw(1, 4);
        g.stride_rows = draw(1, 3);
        g.stride_columns = draw(1, 3);
        g.pad_top = draw(0, g.kernel_rows);
        g.pad_bottom = draw(0, g.kernel_rows);
        g.pad_left = draw(0, g.kernel_columns);
        g.pad_right = draw(0, g.kernel_columns);
        out.push_back({g, draw(0, 3)});
    }
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/pooling: the maximum, its index and its gradient", "[kernels]", float, double) {
    for (const auto& [g, batch] : shapes()) {
        // Few different numbers: windows have ties, and the first of equals wins.
        const auto x = integers<TestType>(batch * g.in_size(), 1);
        const auto dy = integers<TestType>(batch * g.out_size(), 2);
        std::vector<double> y(batch * g.out_size()), dx(batch * g.in_size());
        numbers which(y.size());
        kernels::reference::max_pool_forward<TestType>(g, batch, x.data(), y.data(), which.data());
        kernels::reference::max_pool_backward<TestType>(g, batch, dy.data(), which.data(), dx.data());
        for (const int threads : thread_counts()) {
            auto got = unwritten<TestType>(y.size());
            auto without = got;
            auto gradient = unwritten<TestType>(dx.size());
            numbers index(y.size(), 77);
            kernels::max_pool_forward<TestType>(g, batch, x.data(), got.data(), index.data(), {threads});
            kernels::max_pool_forward<TestType>(g, batch, x.data(), without.data(), nullptr, {threads});
            kernels::max_pool_backward<TestType>(g, batch, dy.data(), index.data(), gradient.data(), {threads});
            REQUIRE(equal(got, y));
            REQUIRE(same_bits(without, got));
            REQUIRE(index == which);
            REQUIRE(equal(gradient, dx));
        }
    }
}

namespace {

/// The gradients for sizes that the compiler knows, as layers call them, have the bits of any sizes.
template <class T, kernels::pooling G>
void require_known(std::size_t batch) {
    const auto dy = uniform<T>(batch * G.out_size(), 2);
    numbers which(dy.size());
    kernels::max_pool_forward<T>(G, batch, uniform<T>(batch * G.in_size(), 1).data(), array<T>(dy.size()).data(),
                                 which.data(), {2});
    auto known = unwritten<T>(batch * G.in_size()), any = known;
    kernels::max_pool_backward<T, kernels::known_walks<T>(G)>(G, batch, dy.data(), which.data(), known.data(), {2});
    kernels::max_pool_backward<T>(G, batch, dy.data(), which.data(), any.data(), {2});
    REQUIRE(same_bits(known, any));
    kernels::mean_pool_backward<T, kernels::known_walks<T>(G)>(G, batch, dy.data(), known.data(), {2});
    kernels::mean_pool_backward<T>(G, batch, dy.data(), any.data(), {2});
    REQUIRE(same_bits(known, any));
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/pooling: gradients for sizes that the compiler knows", "[kernels]", float, double) {
    // Windows side by side with few and with many channels, and some that overlap.
    constexpr auto of = [](std::size_t channels, std::size_t kernel) {
        return kernels::pooling{.rows = 8,
                                .columns = 8,
                                .channels = channels,
                                .kernel_rows = kernel,
                                .kernel_columns = kernel,
                                .stride_rows = 2,
                                .stride_columns = 2};
    };
    require_known<TestType, of(5, 2)>(3);
    require_known<TestType, of(70, 2)>(3);
    require_known<TestType, of(5, 3)>(3);
    require_known<TestType, of(5, 2)>(0);
}

TEMPLATE_TEST_CASE("kernels/pooling: the mean and its gradient, equal bits for every number of threads", "[kernels]",
                   float, double) {
    for (const auto& [g, batch] : shapes()) {
        const auto x = uniform<TestType>(batch * g.in_size(), 1);
        const auto dy = uniform<TestType>(batch * g.out_size(), 2);
        std::vector<double> y(batch * g.out_size()), dx(batch * g.in_size());
        kernels::reference::mean_pool_forward<TestType>(g, batch, x.data(), y.data());
        kernels::reference::mean_pool_backward<TestType>(g, batch, dy.data(), dx.data());
        array<TestType> first_y, first_dx;
        for (const int threads : thread_counts()) {
            auto got = unwritten<TestType>(y.size());
            auto gradient = unwritten<TestType>(dx.size());
            kernels::mean_pool_forward<TestType>(g, batch, x.data(), got.data(), {threads});
            kernels::mean_pool_backward<TestType>(g, batch, dy.data(), gradient.data(), {threads});
            REQUIRE(distance(got, y) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns, 0.5));
            REQUIRE(distance(gradient, dx) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns, 0.5));
            if (threads == 1) {
                first_y = got;
                first_dx = gradient;
            }
            REQUIRE(same_bits(got, first_y));
            REQUIRE(same_bits(gradient, first_dx));
        }
    }
}

TEST_CASE("kernels/pooling: a NaN anywhere in a window comes out", "[kernels]") {
    const pooling g{.rows = 2, .columns = 3, .channels = 9, .kernel_rows = 2, .kernel_columns = 3};
    for (std::size_t tap = 0; tap < 6; ++tap)
        for (std::size_t channel = 0; channel < 9; ++channel) {
            auto x = uniform<float>(g.in_size(), 1);
            x[tap * 9 + channel] = NAN;
            auto y = unwritten<float>(9);
            auto plain = y;
            auto mean = y;
            numbers which(9);
            kernels::max_pool_forward<float>(g, 1, x.data(), y.data(), which.data(), {1});
            kernels::max_pool_forward<float>(g, 1, x.data(), plain.data(), nullptr, {1});
            kernels::mean_pool_forward<float>(g, 1, x.data(), mean.data(), {1});
            CHECK(which[channel] == tap);
            for (std::size_t c = 0; c < 9; ++c) {
                REQUIRE(std::isnan(y[c]) == (c == channel));
                REQUIRE(std::isnan(plain[c]) == (c == channel));
                REQUIRE(std::isnan(mean[c]) == (c == channel));
            }
        }
}

TEST_CASE("kernels/pooling: a window of minus infinities has a winner", "[kernels]") {
    const pooling g{.rows = 2, .columns = 2, .channels = 1, .kernel_rows = 2, .kernel_columns = 2};
    const array<float> x(4, -INFINITY);
    array<float> y(1);
    numbers which(1, 9);
    kernels::max_pool_forward<float>(g, 1, x.data(), y.data(), which.data(), {1});
    CHECK(y[0] == -INFINITY);
    CHECK(which[0] == 0);
}

// Pixels of whole lines, five vectors or two that other gradients take together, and pixels whose lines begin anywhere.
TEMPLATE_TEST_CASE("kernels/pooling: results far larger than the caches have the bits of one sample at a time",
                   "[kernels]", float, double) {
    const pooling plain{.rows = 15, .columns = 17, .channels = 80, .kernel_rows = 2, .kernel_columns = 2};
    pooling odd = plain, overlapping = plain, joined = plain, wide = plain;
    odd.channels = 21;
    overlapping.kernel_rows = overlapping.kernel_columns = 3;
    overlapping.stride_rows = overlapping.stride_columns = joined.stride_rows = joined.stride_columns = 2;
    overlapping.pad_top = overlapping.pad_left = 1;
    joined.rows = joined.columns = 16;
    joined.channels = 32;
    wide.stride_rows = wide.stride_columns = 2;
    for (const pooling& g : {plain, odd, overlapping, joined, wide}) {
        const std::size_t batch = rows_beyond_caches<TestType>(g.stride_rows == 1 ? g.out_size() : g.in_size());
        const auto x = repeated<TestType>(batch * g.in_size(), 1);
        auto dy = repeated<TestType>(batch * g.out_size(), 2);
        for (std::size_t i = 0; i < dy.size(); i += 7) dy[i] = -TestType{0};
        auto y = unwritten<TestType>(dy.size()), mean = y, dx = unwritten<TestType>(x.size()), mean_dx = dx;
        auto one_y = y, one_mean = y, one_dx = dx, one_mean_dx = dx;
        numbers which(dy.size(), 77), one_which = which;
        kernels::max_pool_forward<TestType>(g, batch, x.data(), y.data(), which.data(), {2});
        kernels::max_pool_backward<TestType>(g, batch, dy.data(), which.data(), dx.data(), {2});
        kernels::mean_pool_forward<TestType>(g, batch, x.data(), mean.data(), {2});
        kernels::mean_pool_backward<TestType>(g, batch, dy.data(), mean_dx.data(), {2});
        for (std::size_t sample = 0; sample < batch; ++sample) {
            const std::size_t from = sample * g.in_size(), to = sample * g.out_size();
            kernels::max_pool_forward<TestType>(g, 1, x.data() + from, one_y.data() + to, one_which.data() + to, {1});
            kernels::max_pool_backward<TestType>(g, 1, dy.data() + to, which.data() + to, one_dx.data() + from, {1});
            kernels::mean_pool_forward<TestType>(g, 1, x.data() + from, one_mean.data() + to, {1});
            kernels::mean_pool_backward<TestType>(g, 1, dy.data() + to, one_mean_dx.data() + from, {1});
        }
        CHECK(which == one_which);
        CHECK(same_bits(y, one_y));
        CHECK(same_bits(mean, one_mean));
        CHECK(same_bits(dx, one_dx));
        CHECK(same_bits(mean_dx, one_mean_dx));
    }
}
