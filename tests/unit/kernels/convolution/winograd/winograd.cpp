// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/winograd/winograd.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <type_traits>
#include <vector>

#include "reference/kernels.hpp"
#include "unit/kernels/convolution/winograd/winograd_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
struct operands {
    array<T> x, w, bias, dy;
    template <class Fill>
    operands(const convolution& g, std::size_t batch, Fill&& fill)
        : x(fill(batch * g.in_size(), 1U)),
          w(fill(g.weight_count(), 2U)),
          bias(fill(g.filters, 3U)),
          dy(fill(batch * g.out_size(), 4U)) {}
    operands(const convolution& g, std::size_t batch)
        : operands(g, batch, [](std::size_t count, std::uint32_t series) { return uniform<T>(count, series); }) {}
};

template <class T>
struct results {
    array<T> y, dx;
};

template <class Kind, kernels::narrow Narrow = kernels::narrow::automatic, class T = typename Kind::type>
results<T> run(const convolution& g, std::size_t batch, const operands<T>& in, int threads, bool with_bias = true) {
    const parallel::team team{threads};
    results<T> out{unwritten<T>(batch * g.out_size()), unwritten<T>(batch * g.in_size())};
    scratch<T> forward(kernels::winograd_forward_scratch<Kind::edge, T, Narrow>(g, batch, team), team);
    kernels::winograd_forward<Kind::edge, T, Narrow>(g, batch, in.x.data(), in.w.data(),
                                                     with_bias ? in.bias.data() : nullptr, out.y.data(), forward.use);
    scratch<T> data(kernels::winograd_backward_data_scratch<Kind::edge, T, Narrow>(g, batch, team), team);
    kernels::winograd_backward_data<Kind::edge, T, Narrow>(g, batch, in.dy.data(), in.w.data(), out.dx.data(),
                                                           data.use);
    return out;
}

struct exact {
    std::vector<double> y, dx;
};

template <class T>
exact wanted(const convolution& g, std::size_t batch, const operands<T>& in, bool with_bias = true) {
    exact out{std::vector<double>(batch * g.out_size()), std::vector<double>(batch * g.in_size())};
    kernels::reference::convolution_forward<T>(g, batch, in.x.data(), in.w.data(), with_bias ? in.bias.data() : nullptr,
                                               out.y.data());
    kernels::reference::convolution_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data());
    return out;
}

template <class Kind>
void require_bound(const convolution& g, std::size_t batch) {
    using T = typename Kind::type;
    const operands<T> in(g, batch);
    const auto want = wanted(g, batch, in);
    const auto got = run<Kind>(g, batch, in, 1);
    const winograd_matrices w = matrices_of<Kind::edge>();
    const auto weight = [&](std::size_t tap, std::size_t c, std::size_t f) {
        return static_cast<double>(in.w[(tap * g.channels + c) * g.filters + f]);
    };
    const auto signed_size = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
    auto size =
        magnitudes(w, batch, in.x, g.rows, g.columns, g.channels, -signed_size(g.pad_top), -signed_size(g.pad_left),
                   g.out_rows(), g.out_columns(), g.filters,
                   [&](std::size_t i, std::size_t j, std::size_t c, std::size_t f) { return weight(i * 3 + j, c, f); });
    for (std::size_t i = 0; i < size.size(); ++i) size[i] += std::abs(static_cast<double>(in.bias[i % g.filters]));
    INFO(describe_winograd(g, batch));
    REQUIRE(within_bound<Kind::edge>(got.y, want.y, size, g.channels, 9 * g.channels));
    const auto back = magnitudes(
        w, batch, in.dy, g.out_rows(), g.out_columns(), g.filters, signed_size(g.pad_top) - 2,
        signed_size(g.pad_left) - 2, g.rows, g.columns, g.channels,
        [&](std::size_t i, std::size_t j, std::size_t f, std::size_t c) { return weight(8 - i * 3 - j, c, f); });
    REQUIRE(within_bound<Kind::edge>(got.dx, want.dx, back, g.filters, 9 * g.filters));
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/winograd: F(2x2) gives whole numbers exactly for shapes of every kind", "[kernels]",
                   float_2, double_2) {
    using T = typename TestType::type;
    bool with_bias = false;
    for (const auto& [g, batch] : winograd_shapes(120, 70)) {
        const operands<T> in(g, batch,
                             [](std::size_t count, std::uint32_t series) { return integers<T>(count, series); });
        with_bias = !with_bias;
        const auto want = wanted(g, batch, in, with_bias);
        const auto got = run<TestType>(g, batch, in, 1, with_bias);
        INFO(describe_winograd(g, batch));
        REQUIRE(equal(got.y, want.y));
        REQUIRE(equal(got.dx, want.dx));
    }
}

TEMPLATE_TEST_CASE("kernels/winograd: errors stay within the bound, for shapes of every kind", "[kernels]", float_4,
                   double_4, float_6, double_6) {
    for (const auto& [g, batch] : winograd_shapes(24, 24)) require_bound<TestType>(g, batch);
}

TEMPLATE_TEST_CASE("kernels/winograd: errors stay within the bound around a vector and a line", "[kernels]", float_4,
                   double_4, float_6, double_6) {
    constexpr std::size_t w = simd::width<typename TestType::type>;
    for (const std::size_t channels : {std::size_t{1}, w - 1, w, w + 1, 2 * w + 1})
        for (const std::size_t filters : {w - 1, 2 * w, 2 * w + 1})
            require_bound<TestType>(three_by_three(5, 7, channels, filters), 1);
}

TEMPLATE_TEST_CASE("kernels/winograd: errors stay within the bound where blocks are cut", "[kernels]", float_4,
                   float_6) {
    require_bound<TestType>(three_by_three(6, 6, 300, 8), 1);       // deeper than one cut of the filters
    require_bound<TestType>(three_by_three(3, 5, 150, 160, 0), 1);  // filters transformed a few at a time
}

// In units of u = eps/2: the n-th rounding of a chain of random terms errs by less than u sqrt(n) times a term, the
// result is sqrt(n) terms. So the chain errs by less than sqrt(n/2) of its result, and the transforms with their six or
// so roundings are counted as further links.
TEMPLATE_TEST_CASE("kernels/winograd: the error is that of one chain times the amplification", "[kernels]", float_2,
                   float_4, float_6, double_4) {
    using T = typename TestType::type;
    const convolution g = three_by_three(12, 12, 60, 20);
    const operands<T> in(g, 2);
    const auto want = wanted(g, 2, in, false);
    const auto got = run<TestType>(g, 2, in, 1, false);
    const double factor = amplification(matrices_of<TestType::edge>());
    CHECK(relative_error(got.y, want.y) <= factor * std::sqrt(60.0 / 2 + 6));
    CHECK(relative_error(got.dx, want.dx) <= factor * std::sqrt(20.0 / 2 + 6));
}

TEST_CASE("kernels/winograd: the amplification is what the documentation says", "[kernels]") {
    CHECK(amplification(matrices_of<2>()) == Approx(1.667).epsilon(1e-3));
    CHECK(amplification(matrices_of<4>()) == Approx(4.780).epsilon(1e-3));
    CHECK(amplification(matrices_of<6>()) == Approx(20.63).epsilon(1e-3));
}

TEMPLATE_TEST_CASE("kernels/winograd: equal bits for every number of threads", "[kernels]", float_2, float_4, float_6,
                   double_2, double_4, double_6) {
    using T = typename TestType::type;
    auto shapes = winograd_shapes(20, 70);
    shapes.emplace_back(three_by_three(20, 40, 24, 40), 3);
    shapes.emplace_back(three_by_three(8, 8, 128, 256),
                        2);  // filters transformed a few at a time; with many threads all of them
    for (const auto& [g, batch] : shapes) {
        const operands<T> in(g, batch);
        const auto alone = run<TestType>(g, batch, in, 1);
        for (const int threads : {2, 3, 5}) {
            const auto got = run<TestType>(g, batch, in, threads);
            INFO(describe_winograd(g, batch) << ", threads " << threads);
            REQUIRE(same_bits(got.y, alone.y));
            REQUIRE(same_bits(got.dx, alone.dx));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/winograd: a sample alone has the bits it has among others", "[kernels]", float_2, float_4,
                   float_6, double_2, double_4, double_6) {
    using T = typename TestType::type;
    // The last one: filters are kept over several blocks of tiles for all samples together, and made a few at a time
    // for one.
    const auto shapes = {std::pair{three_by_three(5, 5, 20, 24), std::size_t{7}},
                         {three_by_three(23, 9, 3, 20), std::size_t{7}},
                         {three_by_three(13, 8, 33, 17, 2), std::size_t{7}},
                         {three_by_three(40, 40, 132, 100, 0), std::size_t{10}}};
    for (const auto& [g, batch] : shapes) {
        const operands<T> in(g, batch);
        const auto all = run<TestType>(g, batch, in, 2);
        for (std::size_t sample = 0; sample < batch; ++sample) {
            auto mine = in;
            mine.x = part(in.x, g.in_size(), sample);
            mine.dy = part(in.dy, g.out_size(), sample);
            const auto got = run<TestType>(g, 1, mine, 1);
            INFO(describe_winograd(g, batch) << ", sample " << sample);
            REQUIRE(same_bits(got.y, part(all.y, g.out_size(), sample)));
            REQUIRE(same_bits(got.dx, part(all.dx, g.in_size(), sample)));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/winograd: results that go past the caches have the bits of a sample alone", "[kernels]",
                   float_4, double_2) {
    using T = typename TestType::type;
    const convolution g = three_by_three(65, 62, 32, 64);
    const std::size_t batch = rows_beyond_caches<T>(g.in_size());  // more outputs than inputs
    const operands<T> in(g, batch);
    const auto all = run<TestType>(g, batch, in, 2);
    for (const std::size_t sample : {std::size_t{0}, batch - 1}) {
        auto mine = in;
        mine.x = part(in.x, g.in_size(), sample);
        mine.dy = part(in.dy, g.out_size(), sample);
        const auto got = run<TestType>(g, 1, mine, 1);
        REQUIRE(same_bits(got.y, part(all.y, g.out_size(), sample)));
        REQUIRE(same_bits(got.dx, part(all.dx, g.in_size(), sample)));
    }
}

TEMPLATE_TEST_CASE("kernels/winograd: lines of one vector and of two give the same bits", "[kernels]", float_2, float_4,
                   double_4, double_6) {
    using T = typename TestType::type;
    constexpr std::size_t w = simd::width<T>;
    for (const std::size_t channels : {std::size_t{1}, w - 1, w, w + 1, 3 * w, 4 * w + 1})
        for (const std::size_t filters : {w - 1, w, 2 * w, 5 * w}) {
            const convolution g = three_by_three(9, 11, channels, filters);
            const operands<T> in(g, 3);
            const auto sizes_decide = run<TestType>(g, 3, in, 1);
            const auto one = run<TestType, kernels::narrow::yes>(g, 3, in, 2);
            const auto two = run<TestType, kernels::narrow::no>(g, 3, in, 2);
            INFO(describe_winograd(g, 3));
            REQUIRE(same_bits(one.y, two.y));
            REQUIRE(same_bits(one.dx, two.dx));
            REQUIRE(same_bits(one.y, sizes_decide.y));
            REQUIRE(same_bits(one.dx, sizes_decide.dx));
        }
}

TEMPLATE_TEST_CASE("kernels/winograd: padding has the bits of zeros that are there", "[kernels]", float_2, float_4,
                   double_4, double_6) {
    using T = typename TestType::type;
    constexpr std::size_t w = simd::width<T>;
    for (const std::size_t channels : {w, 2 * w, 2 * w + 1})
        for (const std::size_t rows : {std::size_t{1}, std::size_t{4}, std::size_t{8}, std::size_t{11}}) {
            convolution g = three_by_three(rows, 9, channels, 2 * w);
            g.pad_top = 2;
            g.pad_right = 3;
            convolution without = g;
            without.rows = rows + g.pad_top + g.pad_bottom;
            without.columns = g.columns + g.pad_left + g.pad_right;
            without.pad_top = without.pad_bottom = without.pad_left = without.pad_right = 0;
            const operands<T> in(g, 2);
            operands<T> framed(without, 2);
            std::fill(framed.x.begin(), framed.x.end(), T{0});
            for (std::size_t sample = 0; sample < 2; ++sample)
                for (std::size_t row = 0; row < rows; ++row)
                    std::copy_n(
                        in.x.data() + (sample * rows + row) * g.columns * channels, g.columns * channels,
                        framed.x.data() +
                            ((sample * without.rows + row + g.pad_top) * without.columns + g.pad_left) * channels);
            INFO(describe_winograd(g, 2));
            REQUIRE(same_bits(run<TestType>(g, 2, in, 1).y, run<TestType>(without, 2, framed, 1).y));
        }
}

TEST_CASE(
    "kernels/winograd: a NaN reaches every output whose window sees it, and none outside of the tiles that read it",
    "[kernels]") {
    const convolution g = three_by_three(13, 13, 20, 18);
    operands<float> in(g, 2);
    in.x[((13 + 4) * 13 + 6) * 20 + 19] = NAN;  // sample 1, row 4, column 6
    const auto got = run<float_4>(g, 2, in, 1);
    // Tiles of 4 x 4 outputs read rows and columns -1 .. 4, 3 .. 8, 7 .. 12, 11 .. 16.
    for (std::size_t i = 0; i < got.y.size(); ++i) {
        const std::size_t sample = i / 18 / 169, row = i / 18 / 13 % 13, column = i / 18 % 13;
        INFO(sample << ' ' << row << ' ' << column);
        const bool sees = sample == 1 && row >= 3 && row <= 5 && column >= 5 && column <= 7;
        const bool near = sample == 1 && row <= 7 && column >= 4 && column <= 7;
        if (sees) REQUIRE(std::isnan(got.y[i]));
        if (!near) REQUIRE(!std::isnan(got.y[i]));
    }
}

TEST_CASE("kernels/winograd: scratch grows with the batch", "[kernels]") {
    for (const convolution& g : {three_by_three(5, 5, 20, 24), three_by_three(30, 30, 3, 20),
                                 three_by_three(28, 28, 256, 128), three_by_three(14, 14, 512, 512)})
        for (const int threads : thread_counts()) {
            std::size_t forward = 0, data = 0;
            for (std::size_t batch = 0; batch < 100; ++batch) {
                const std::size_t now_forward = kernels::winograd_forward_scratch<4, float>(g, batch, {threads});
                const std::size_t now_data = kernels::winograd_backward_data_scratch<4, float>(g, batch, {threads});
                INFO(describe_winograd(g, batch));
                REQUIRE(now_forward >= forward);
                REQUIRE(now_data >= data);
                forward = now_forward;
                data = now_data;
            }
        }
}

TEST_CASE("kernels/winograd: for kernels of 3 x 3 with stride 1", "[kernels]") {
    convolution g = three_by_three(9, 9, 2, 3, 0);
    STATIC_REQUIRE(kernels::winograd_applies({.rows = 5, .columns = 4, .kernel_rows = 3, .kernel_columns = 3}));
    CHECK(kernels::winograd_applies(g));
    g.stride_rows = 2;
    CHECK(!kernels::winograd_applies(g));
    g.stride_rows = 1;
    g.kernel_columns = 2;
    CHECK(!kernels::winograd_applies(g));
}

TEST_CASE(
    "kernels/winograd: what products are for and what the next block reads is asked for beside them, in the order of "
    "memory",
    "[kernels]") {
    using correlation = kernels::detail::winograd_correlation<float, 4, 1>;
    using stretch = kernels::detail::far_walk<float>::stretch;
    constexpr std::size_t line = simd::alignment / sizeof(float), batch = 3;
    for (const std::size_t pad : {0, 1, 2})
        for (const auto& [rows, columns, channels, filters] : std::vector<std::array<std::size_t, 4>>{
                 {8, 8, 16, 16}, {9, 13, 5, 16}, {32, 5, 16, 7}, {3, 50, 3, 1}, {3, 3, 16, 7}})
            for (const std::size_t size : {1, 7, 16}) {
                const convolution g = three_by_three(rows, columns, channels, filters, pad);
                INFO(describe_winograd(g, batch) << ", blocks of " << size);
                const auto s = kernels::detail::forward_sliding(g);
                const kernels::detail::tiling tiles{4, s, batch};
                const std::vector<float> x(batch * g.in_size());
                std::vector<float> y(batch * g.out_size());
                const correlation of{s,
                                     filters,
                                     tiles,
                                     {x.data(), rows, columns, channels},
                                     nullptr,
                                     false,
                                     {y.data(), g.out_rows(), g.out_columns(), filters},
                                     nullptr};
                std::size_t asked_x = 0, asked_y = 0;
                for (std::size_t first = 0; first < tiles.count(); first += size) {
                    const auto until = [&](std::size_t tile) { return std::min(tile, tiles.count()); };
                    const parallel::block block{first, until(first + size)}, next{block.last, until(block.last + size)};
                    const auto walk = of.ahead_of(block, next);
                    // Nothing outside of the images; nothing twice but a part of a line, nothing left out but that and
                    // what comes first.
                    const auto follow = [&](const stretch& part, const auto& image, std::size_t& asked) {
                        const auto from = static_cast<std::size_t>(part.at - image.data());
                        REQUIRE(from + part.left * line <= image.size());
                        if (first > 0) REQUIRE((from >= asked && from - asked < line));
                        asked = from + part.left * line;
                    };
                    follow(walk.next, x, asked_x);
                    follow(walk.now, y, asked_y);
                    const auto end = [](std::size_t sample, std::size_t row, std::size_t column, std::size_t high,
                                        std::size_t wide, std::size_t depth) {
                        return ((sample * high + std::min(row, high) - 1) * wide + std::min(column, wide)) * depth;
                    };
                    tiles.for_each(block, [&](std::size_t, const auto& at) {
                        CHECK(end(at.sample, at.row + 4, at.column + 4, g.out_rows(), g.out_columns(), filters) <
                              asked_y + line);
                    });
                    tiles.for_each(next, [&](std::size_t, const auto& at) {
                        CHECK(end(at.sample, at.row + 6 - pad, at.column + 6 - pad, rows, columns, channels) <
                              asked_x + line);
                    });
                    std::size_t turns = 0;
                    for (auto left = walk; left.now.left + left.next.left > 0; ++turns) left.take_turn();
                    REQUIRE(turns <= 36 * kernels::detail::quotient_up(block.size(), correlation::tile_rows) *
                                             kernels::detail::quotient_up(filters, correlation::line) *
                                             (channels / correlation::line * correlation::line) / 4 +
                                         2);
                }
            }
}
