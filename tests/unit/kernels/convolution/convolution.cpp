// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/convolution.hpp"

#include <catch2/catch.hpp>
#include <tuple>

#include "unit/kernels/convolution/convolution_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
results<T> run(const convolution& g, std::size_t batch, const operands<T>& in, int threads, bool with_bias = true) {
    const parallel::team team{threads};
    auto out = unwritten_results<T>(g, batch);
    scratch<T> forward(kernels::convolution_forward_scratch<T>(g, batch, team), team);
    kernels::convolution_forward<T>(g, batch, in.x.data(), in.w.data(), with_bias ? in.bias.data() : nullptr,
                                    out.y.data(), forward.use);
    scratch<T> data(kernels::convolution_backward_data_scratch<T>(g, batch, team), team);
    kernels::convolution_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::convolution_backward_weights_scratch<T>(g, batch, team), team);
    kernels::convolution_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(), out.dbias.data(),
                                             weights.use);
    return out;
}

template <class T>
void require_exact(const convolution& g, std::size_t batch, bool with_bias) {
    const auto in = integer_operands<T>(g, batch);
    const auto want = wanted(g, batch, in, with_bias);
    const auto got = run(g, batch, in, 1, with_bias);
    INFO(describe(g, batch));
    REQUIRE(equal(got.y, want.y));
    REQUIRE(equal(got.dx, want.dx));
    REQUIRE(equal(got.dw, want.dw));
    REQUIRE(equal(got.dbias, want.dbias));
}

// Shapes of every kind: no padding and more than the kernel, strides above the kernel, windows larger than the image,
// and all this at once.
std::vector<std::pair<convolution, std::size_t>> random_shapes(std::size_t count) {
    const core::random_stream random{3, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<std::pair<convolution, std::size_t>> out;
    for (std::size_t i = 0; i < count; ++i) {
        convolution g;
        g.rows = draw(1, 14);
        g.columns = draw(1, 14);
        g.channels = i % 3 == 0 ? draw(30, 70) : draw(1, 5);
        g.filters = i % 2 == 0 ? draw(30, 70) : draw(1, 9);
        g.kernel_rows = draw(1, 5);
        g.kernel_columns = draw(1, 5);
        g.stride_rows = draw(1, 3);
        g.stride_columns = draw(1, 3);
        g.pad_top = draw(0, 3);
        g.pad_bottom = draw(0, 3);
        g.pad_left = draw(0, 3);
        g.pad_right = draw(0, 3);
        out.emplace_back(g, draw(0, 3));
    }
    return out;
}

// The same with dilations and groups: strides that divide the dilation, are divided by it, share a factor with it and
// do not.
std::vector<std::pair<convolution, std::size_t>> random_general_shapes(std::size_t count) {
    const core::random_stream random{3, core::purpose::user, 10};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<std::pair<convolution, std::size_t>> out;
    for (std::size_t i = 0; i < count; ++i) {
        convolution g;
        g.groups = i % 4 == 0 ? 1 : draw(2, 5);
        g.rows = draw(1, 17);
        g.columns = draw(1, 17);
        g.channels = g.groups * (i % 5 == 0 ? draw(10, 40) : draw(1, 5));
        g.filters = g.groups * (i % 3 == 0 ? draw(10, 40) : draw(1, 5));
        g.kernel_rows = draw(1, 5);
        g.kernel_columns = draw(1, 5);
        g.stride_rows = draw(1, 4);
        g.stride_columns = draw(1, 4);
        g.dilation_rows = draw(1, 4);
        g.dilation_columns = draw(1, 6);
        g.pad_top = draw(0, 6);
        g.pad_bottom = draw(0, 6);
        g.pad_left = draw(0, 6);
        g.pad_right = draw(0, 6);
        out.emplace_back(g, draw(0, 3));
    }
    return out;
}

convolution dilated(convolution g, std::size_t rows, std::size_t columns) {
    g.dilation_rows = rows;
    g.dilation_columns = columns;
    return g;
}
convolution grouped(convolution g, std::size_t groups) {
    g.groups = groups;
    return g;
}

// Filters or channels that one vector holds, under kernels of three columns.
template <class T>
std::vector<std::pair<convolution, std::size_t>> one_vector_shapes() {
    constexpr std::size_t w = simd::width<T>;
    std::vector<std::pair<convolution, std::size_t>> out;
    for (const std::size_t other : {w, 3 * w})
        for (const std::size_t rows : {std::size_t{8}, std::size_t{24}, std::size_t{13}})
            for (const std::size_t pad : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
                convolution g = square(17, other, w, 3, pad);
                g.rows = rows + 2 - 2 * pad;
                out.emplace_back(g, 3);
                std::swap(g.channels, g.filters);
                g.kernel_rows = 2;
                out.emplace_back(g, 2);
            }
    out.emplace_back(square(32, w, w, 3, 1), 3);
    out.emplace_back(dilated(square(16, w, w, 3, 1), 2, 1), 2);
    out.emplace_back(grouped(square(16, 2 * w, 2 * w, 3, 1), 2), 2);
    return out;
}

// First layers: few channels under whole vectors of filters, whose rows fill tiles or leave some of them empty, and
// under fewer filters.
template <class T>
std::vector<std::pair<convolution, std::size_t>> first_layer_shapes() {
    constexpr std::size_t w = simd::width<T>;
    std::vector<std::pair<convolution, std::size_t>> out;
    for (const std::size_t channels : {1U, 2U, 3U, 4U})
        for (const std::size_t filters : {w, 2 * w, 5 * w}) {
            out.emplace_back(square(channels * 9 + 2, channels, filters, 3, 1), 3);
            out.emplace_back(square(31, channels, filters, 5, 2, 2), 2);
        }
    out.emplace_back(square(37, 3, w, 3, 2), 2);
    out.emplace_back(square(20, w, 3, 3, 1), 2);  // the data gradient sees as few
    out.emplace_back(square(25, 2 * w, 2, 3, 1, 3), 2);
    out.emplace_back(square(64, 3, w, 7, 3, 2), 1);
    out.emplace_back(square(61, 3, 3 * w, 5, 0, 4), 1);
    out.emplace_back(dilated(square(24, 3, 2 * w, 3, 2), 2, 2), 2);
    out.emplace_back(dilated(square(40, 2, w, 3, 3, 2), 1, 3), 2);
    out.emplace_back(convolution{.rows = 9,
                                 .columns = 70,
                                 .channels = 3,
                                 .filters = w,
                                 .kernel_rows = 2,
                                 .kernel_columns = 5,
                                 .pad_right = 7},
                     2);
    // Kernels that one tile of weights holds, and columns of them in pairs.
    for (const std::size_t filters : {std::size_t{4}, w / 2, w / 2 + 1, w - 1, w}) {
        out.emplace_back(square(28, 1, filters, 5, 2), 3);
        out.emplace_back(square(9, 1, filters, 5, 0), 2);
        out.emplace_back(square(17, 3, filters, 3, 1), 3);
        out.emplace_back(square(17, 3, filters, 3, 1, 2), 3);
        out.emplace_back(dilated(square(19, 3, filters, 3, 1), 2, 1), 2);
        for (const auto& [rows, columns, channels] :
             {std::tuple{3U, 9U, 1U}, std::tuple{3U, 1U, 9U}, std::tuple{5U, 1U, 5U}}) {
            convolution g = square(13, channels, filters, 1, 0);
            g.kernel_rows = rows;
            g.kernel_columns = columns;
            g.pad_left = g.pad_bottom = 1;
            out.emplace_back(g, 3);
        }
    }
    return out;
}

// Stride 2 with whole vectors of channels and filters: images and kernels of even and odd sizes.
template <class T>
std::vector<std::pair<convolution, std::size_t>> stride_two_shapes() {
    constexpr std::size_t w = simd::width<T>;
    std::vector<std::pair<convolution, std::size_t>> out;
    for (const std::size_t size : {8U, 9U, 23U})
        for (const std::size_t kernel : {2U, 3U, 4U, 5U})
            for (const std::size_t pad : {0U, 1U, 2U}) out.emplace_back(square(size, w, 2 * w, kernel, pad, 2), 2);
    out.emplace_back(square(32, w, 2 * w, 3, 1, 2), 3);
    out.emplace_back(square(16, 2 * w, 3 * w + 5, 3, 1, 2), 3);
    out.emplace_back(square(2, 3 * w, 7, 3, 1, 2), 5);
    out.emplace_back(square(24, kernels::detail::panel_depth<T> / 3 + 11, w, 3, 1, 2),
                     2);  // a kernel row is longer than a panel
    convolution g = square(33, 2 * w, 2 * w, 3, 0, 2);
    g.pad_bottom = g.pad_right = 1;
    g.kernel_rows = 2;
    out.emplace_back(g, 2);
    g.rows = 2;
    out.emplace_back(g, 2);
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/convolution: whole numbers come out exactly for dilated and grouped shapes of every kind",
                   "[kernels]", float, double) {
    bool with_bias = false;
    std::size_t seen = 0;
    for (const auto& [g, batch] : random_general_shapes(400)) {
        require_exact<TestType>(g, batch, with_bias = !with_bias);
        seen += batch * g.out_size() > 0;
    }
    REQUIRE(seen > 200);
    require_exact<TestType>(dilated(square(20, 40, 24, 3, 2), 2, 2), 2, true);
    require_exact<TestType>(dilated(square(20, 300, 24, 3, 2), 2, 2), 1,
                            true);  // a kernel position longer than a cache block
    require_exact<TestType>(dilated(square(21, 24, 300, 3, 0), 3, 1), 1, true);
    require_exact<TestType>(dilated(square(33, 40, 24, 3, 4, 2), 4, 4), 1, true);
    require_exact<TestType>(grouped(square(13, 96, 64, 5, 2), 2), 2, true);
    require_exact<TestType>(grouped(square(9, 600, 40, 3, 1), 2), 1, true);
    require_exact<TestType>(grouped(square(9, 40, 600, 3, 0), 2), 1, true);
    require_exact<TestType>(grouped(square(9, 33, 33, 3, 1), 33), 2, true);
    require_exact<TestType>(grouped(square(9, 32, 32, 1, 0), 4), 3, true);
}

TEMPLATE_TEST_CASE("kernels/convolution: whole numbers come out exactly for shapes of every kind", "[kernels]", float,
                   double) {
    bool with_bias = false;
    for (const auto& [g, batch] : random_shapes(150)) require_exact<TestType>(g, batch, with_bias = !with_bias);
}

TEMPLATE_TEST_CASE("kernels/convolution: whole numbers come out exactly on the sizes around a vector and a tile",
                   "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    for (const std::size_t channels : {std::size_t{1}, std::size_t{3}, w - 1, w, w + 1, 2 * w, 2 * w + 1})
        for (const std::size_t filters : {std::size_t{1}, w - 1, w, w + 1, 2 * w, 2 * w + 1}) {
            require_exact<TestType>(square(7, channels, filters, 3, 1), 2, true);
            require_exact<TestType>(square(7, channels, filters, 3, 1, 2), 2, true);
        }
}

TEMPLATE_TEST_CASE("kernels/convolution: whole numbers come out exactly on shapes of real networks", "[kernels]", float,
                   double) {
    require_exact<TestType>(square(28, 1, 32, 5), 3, true);
    require_exact<TestType>(square(12, 32, 64, 5), 2, true);
    require_exact<TestType>(square(40, 3, 64, 3, 1), 1, true);
    require_exact<TestType>(square(8, 300, 40, 3, 1), 1, true);  // a kernel row longer than a cache block
    require_exact<TestType>(square(9, 40, 300, 3, 1), 1, true);
    require_exact<TestType>(square(43, 3, 20, 11, 0, 4), 1, true);
    require_exact<TestType>(square(8, 48, 96, 1, 0, 2), 2, true);  // a shortcut: most of x is not read
    for (const auto& shapes :
         {one_vector_shapes<TestType>(), first_layer_shapes<TestType>(), stride_two_shapes<TestType>()})
        for (const auto& [g, batch] : shapes) require_exact<TestType>(g, batch, true);
    require_exact<TestType>(
        {.rows = 3, .columns = 500, .channels = 2, .filters = 5, .kernel_rows = 2, .kernel_columns = 7}, 1, false);
}

TEMPLATE_TEST_CASE("kernels/convolution: the rounding error is that of one chain", "[kernels]", float, double) {
    for (const convolution& g : {square(9, 70, 40, 3, 1), square(24, 1, 8, 5), square(11, 20, 30, 3, 1, 2),
                                 square(13, 32, 16, 3, 1, 2), square(24, 1, 6, 5), square(24, 3, 32, 3, 1),
                                 dilated(square(12, 20, 30, 3, 2, 2), 2, 3), grouped(square(9, 60, 40, 3, 1), 2)}) {
        const auto in = random_operands<TestType>(g, 2);
        const auto want = wanted(g, 2, in);
        const auto got = run(g, 2, in, 1);
        INFO(describe(g, 2));
        CHECK(distance(got.y, want.y) <=
              sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns * g.group_channels(), 0.25));
        CHECK(distance(got.dx, want.dx) <=
              sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns * g.group_filters(), 0.25));
        CHECK(distance(got.dw, want.dw) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.25));
        CHECK(distance(got.dbias, want.dbias) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.5));
    }
}

TEMPLATE_TEST_CASE("kernels/convolution: equal bits for every number of threads", "[kernels]", float, double) {
    auto shapes = random_shapes(40);
    for (const auto& shape : random_general_shapes(80)) shapes.push_back(shape);
    for (const auto& more :
         {one_vector_shapes<TestType>(), first_layer_shapes<TestType>(), stride_two_shapes<TestType>()})
        shapes.insert(shapes.end(), more.begin(), more.end());
    shapes.emplace_back(dilated(square(20, 40, 24, 3, 2), 2, 2), 2);
    shapes.emplace_back(grouped(square(20, 40, 24, 3, 1), 2), 3);
    shapes.emplace_back(square(28, 1, 32, 5), 3);
    shapes.emplace_back(square(28, 1, 6, 5, 2), 3);
    shapes.emplace_back(square(14, 6, 16, 5), 5);
    shapes.emplace_back(square(20, 40, 24, 3, 1), 2);
    shapes.emplace_back(square(4, 40, 24, 3, 1), 9);
    for (const auto& [g, batch] : shapes) {
        const auto in = random_operands<TestType>(g, batch);
        const auto alone = run(g, batch, in, 1);
        for (const int threads : {2, 3, 5}) {
            const auto got = run(g, batch, in, threads);
            INFO(describe(g, batch) << ", threads " << threads);
            REQUIRE(same_bits(got.y, alone.y));
            REQUIRE(same_bits(got.dx, alone.dx));
            REQUIRE(same_bits(got.dw, alone.dw));
            REQUIRE(same_bits(got.dbias, alone.dbias));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/convolution: a sample alone has the bits it has among others", "[kernels]", float, double) {
    for (const convolution& g :
         {square(5, 20, 24, 3, 1), square(23, 3, 20, 3, 1), square(28, 1, 32, 5), square(9, 33, 17, 3, 1, 2),
          dilated(square(11, 33, 17, 3, 2, 2), 2, 2), grouped(square(5, 20, 24, 3, 1), 4), square(28, 1, 6, 5, 2),
          square(14, 6, 16, 5), square(16, simd::width<TestType>, simd::width<TestType>, 3, 1),
          square(32, 3, simd::width<TestType>, 3, 1), square(32, simd::width<TestType>, 32, 3, 1, 2)}) {
        const std::size_t batch = 7;
        const auto in = random_operands<TestType>(g, batch);
        const auto all = run(g, batch, in, 1);
        for (std::size_t sample = 0; sample < batch; ++sample) {
            const auto part = [sample](const array<TestType>& from, std::size_t size) {
                const auto first = from.begin() + static_cast<std::ptrdiff_t>(sample * size);
                return array<TestType>(first, first + static_cast<std::ptrdiff_t>(size));
            };
            auto mine = in;
            mine.x = part(in.x, g.in_size());
            mine.dy = part(in.dy, g.out_size());
            const auto got = run(g, 1, mine, 1);
            INFO(describe(g, batch) << ", sample " << sample);
            REQUIRE(same_bits(got.y, part(all.y, g.out_size())));
            REQUIRE(same_bits(got.dx, part(all.dx, g.in_size())));
        }
    }
}

TEST_CASE("kernels/convolution: a NaN reaches every output whose window sees it, and no other", "[kernels]") {
    const convolution g = square(9, 40, 18, 3, 1);  // channels enough to be summed by pixels on every instruction set
    auto in = random_operands<float>(g, 1);
    in.x[(4 * 9 + 4) * 40 + 39] = NAN;
    in.dy[(2 * 9 + 6) * 18 + 17] = NAN;
    const auto got = run(g, 1, in, 1);
    for (std::size_t i = 0; i < got.y.size(); ++i) {
        const std::size_t row = i / 18 / 9, column = i / 18 % 9;
        INFO(row << ' ' << column);
        REQUIRE(std::isnan(got.y[i]) == (row >= 3 && row <= 5 && column >= 3 && column <= 5));
    }
    for (std::size_t i = 0; i < got.dx.size(); ++i) {
        const std::size_t row = i / 40 / 9, column = i / 40 % 9;
        INFO(row << ' ' << column);
        REQUIRE(std::isnan(got.dx[i]) == (row >= 1 && row <= 3 && column >= 5 && column <= 7));
    }
    for (std::size_t i = 0; i < got.dw.size(); ++i)
        REQUIRE(std::isnan(got.dw[i]) == (i % 18 == 17 || i / 18 % 40 == 39));
    for (std::size_t i = 0; i < got.dbias.size(); ++i) REQUIRE(std::isnan(got.dbias[i]) == (i == 17));
}

TEST_CASE("kernels/convolution: scratch grows with the batch", "[kernels]") {
    for (const convolution& g : {square(5, 20, 24, 3, 1), square(30, 3, 20, 3, 1), square(9, 33, 17, 3, 1, 2),
                                 dilated(square(11, 33, 17, 3, 2, 2), 2, 2), grouped(square(5, 20, 24, 3, 1), 4),
                                 square(28, 1, 6, 5, 2), square(14, 6, 16, 5)})
        for (const int threads : thread_counts()) {
            std::size_t forward = 0, data = 0, weights = 0;
            for (std::size_t batch = 0; batch < 60; ++batch) {
                const std::size_t now_forward = kernels::convolution_forward_scratch<float>(g, batch, {threads});
                const std::size_t now_data = kernels::convolution_backward_data_scratch<float>(g, batch, {threads});
                const std::size_t now_weights =
                    kernels::convolution_backward_weights_scratch<float>(g, batch, {threads});
                INFO(describe(g, batch));
                REQUIRE(now_forward >= forward);
                REQUIRE(now_data >= data);
                REQUIRE(now_weights >= weights);
                forward = now_forward;
                data = now_data;
                weights = now_weights;
            }
        }
}
