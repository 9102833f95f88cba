// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/depthwise.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/convolution_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
bool same_bits(const results<T>& left, const results<T>& right) {
    return same_bits(left.y, right.y) && same_bits(left.dx, right.dx) && same_bits(left.dw, right.dw) &&
           same_bits(left.dbias, right.dbias);
}

template <class T>
results<T> run(const convolution& g, std::size_t batch, const operands<T>& in, int threads, bool with_bias = true) {
    const parallel::team team{threads};
    auto out = unwritten_results<T>(g, batch);
    kernels::depthwise_forward<T>(g, batch, in.x.data(), in.w.data(), with_bias ? in.bias.data() : nullptr,
                                  out.y.data(), team);
    kernels::depthwise_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data(), team);
    kernels::depthwise_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(),
                                           with_bias ? out.dbias.data() : nullptr, team);
    return out;
}

/// By the kernels for any groups.
template <class T>
results<T> run_direct(const convolution& g, std::size_t batch, const operands<T>& in) {
    const parallel::team team{1};
    auto out = unwritten_results<T>(g, batch);
    scratch<T> s(std::max({kernels::convolution_forward_scratch<T>(g, batch, team),
                           kernels::convolution_backward_data_scratch<T>(g, batch, team),
                           kernels::convolution_backward_weights_scratch<T>(g, batch, team)}),
                 team);
    kernels::convolution_forward<T>(g, batch, in.x.data(), in.w.data(), in.bias.data(), out.y.data(), s.use);
    kernels::convolution_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data(), s.use);
    kernels::convolution_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(), out.dbias.data(),
                                             s.use);
    return out;
}

convolution depthwise_square(std::size_t size, std::size_t channels, std::size_t kernel, std::size_t pad,
                             std::size_t stride = 1, std::size_t dilation = 1) {
    return {.rows = size,
            .columns = size,
            .channels = channels,
            .filters = channels,
            .kernel_rows = kernel,
            .kernel_columns = kernel,
            .stride_rows = stride,
            .stride_columns = stride,
            .pad_top = pad,
            .pad_bottom = pad,
            .pad_left = pad,
            .pad_right = pad,
            .dilation_rows = dilation,
            .dilation_columns = dilation,
            .groups = channels};
}

/// Every kernel, stride, dilation and padding, on images that are narrower and wider than a tile.
std::vector<std::pair<convolution, std::size_t>> random_shapes(std::size_t count) {
    const core::random_stream random{3, core::purpose::user, 12};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<std::pair<convolution, std::size_t>> out;
    for (std::size_t i = 0; i < count; ++i) {
        convolution g = depthwise_square(1, i % 4 == 0 ? draw(30, 110) : draw(2, 40), 1, 0);
        g.rows = draw(1, 19);
        g.columns = draw(1, 19);
        g.kernel_rows = draw(1, 7);
        g.kernel_columns = draw(1, 7);
        g.stride_rows = draw(1, 4);
        g.stride_columns = draw(1, 4);
        g.dilation_rows = draw(1, 3);
        g.dilation_columns = draw(1, 4);
        g.pad_top = draw(0, 6);
        g.pad_bottom = draw(0, 6);
        g.pad_left = draw(0, 6);
        g.pad_right = draw(0, 6);
        out.emplace_back(g, draw(0, 3));
    }
    return out;
}

template <class T>
void require_exact(const convolution& g, std::size_t batch, bool with_bias) {
    REQUIRE(g.is_depthwise());
    const auto in = operands_of<T>(g, batch, integers<T>);
    const auto want = wanted(g, batch, in, with_bias);
    const auto got = run(g, batch, in, 1, with_bias);
    INFO(describe(g, batch));
    REQUIRE(equal(got.y, want.y));
    REQUIRE(equal(got.dx, want.dx));
    REQUIRE(equal(got.dw, want.dw));
    if (with_bias) REQUIRE(equal(got.dbias, want.dbias));
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/depthwise: whole numbers come out exactly for shapes of every kind", "[kernels]", float,
                   double) {
    bool with_bias = false;
    std::size_t seen = 0;
    for (const auto& [g, batch] : random_shapes(300)) {
        require_exact<TestType>(g, batch, with_bias = !with_bias);
        seen += batch * g.out_size() > 0;
    }
    REQUIRE(seen > 150);
}

TEMPLATE_TEST_CASE("kernels/depthwise: whole numbers come out exactly on the sizes around vectors and tiles",
                   "[kernels]", float, double) {
    constexpr std::size_t w = simd::width<TestType>;
    for (const std::size_t channels : {std::size_t{2}, w - 1, w, w + 1, 4 * w - 1, 4 * w, 4 * w + 1, 9 * w + 3})
        for (const std::size_t size : std::initializer_list<std::size_t>{1, 3, 4, 5, 7, 8, 9, 13, 14, 15}) {
            require_exact<TestType>(depthwise_square(size, channels, 3, 1), 2, true);
            require_exact<TestType>(depthwise_square(size, channels, 3, 1, 2), 2, false);
            require_exact<TestType>(depthwise_square(size, channels, 5, 2), 1, true);
        }
}

TEMPLATE_TEST_CASE("kernels/depthwise: the bits are those of the convolution for any groups", "[kernels]", float,
                   double) {
    auto shapes = random_shapes(60);
    shapes.emplace_back(depthwise_square(14, 70, 3, 1), 3);
    for (const auto& [g, batch] : shapes) {
        const auto in = operands_of<TestType>(g, batch, uniform<TestType>);
        INFO(describe(g, batch));
        REQUIRE(same_bits(run(g, batch, in, 1), run_direct(g, batch, in)));
    }
}

// Pixels a multiple of 4 KB apart are read from copies of a few channels, of so many rows as find room.
TEMPLATE_TEST_CASE("kernels/depthwise: the bits do not depend on how far pixels lie apart", "[kernels]", float,
                   double) {
    constexpr std::size_t far = 4096 / sizeof(TestType);
    const auto wide = [](std::size_t rows, std::size_t columns, std::size_t kernel, std::size_t pad, std::size_t stride,
                         std::size_t dilation) {
        convolution g = depthwise_square(rows, far, kernel, pad, stride, dilation);
        g.columns = columns;
        return g;
    };
    // Images of one and of several copies, windows over padding alone, phases, and rows for which there is no room.
    for (const convolution& g :
         {wide(7, 7, 3, 1, 1, 1), wide(13, 5, 3, 1, 2, 1), wide(19, 11, 5, 4, 1, 1), wide(8, 6, 3, 4, 2, 2),
          wide(9, 17, 3, 2, 3, 2), wide(3, 70, 3, 1, 1, 1), wide(1, 1, 1, 2, 1, 1), wide(5, 23, 2, 0, 1, 3)}) {
        const std::size_t batch = 2, channels = g.channels;
        const auto in = operands_of<TestType>(g, batch, uniform<TestType>);
        const auto got = run(g, batch, in, 1);
        for (const int threads : {2, 3}) {
            INFO(describe(g, batch) << ", threads " << threads);
            REQUIRE(same_bits(run(g, batch, in, threads), got));
        }
        // One channel less: no such distance, the same chains.
        convolution less = g;
        less.channels = less.filters = less.groups = channels - 1;
        const auto cut = [&](const array<TestType>& from) {
            array<TestType> to;
            for (std::size_t i = 0; i < from.size(); ++i)
                if (i % channels != channels - 1) to.push_back(from[i]);
            return to;
        };
        INFO(describe(g, batch));
        const auto want = run(less, batch, operands<TestType>{cut(in.x), cut(in.w), cut(in.bias), cut(in.dy)}, 1);
        REQUIRE(same_bits(results<TestType>{cut(got.y), cut(got.dx), cut(got.dw), cut(got.dbias)}, want));
    }
}

TEMPLATE_TEST_CASE("kernels/depthwise: the rounding error is that of one chain", "[kernels]", float, double) {
    for (const convolution& g :
         {depthwise_square(15, 40, 3, 1), depthwise_square(15, 33, 5, 2, 2), depthwise_square(15, 33, 3, 2, 1, 2)}) {
        const auto in = operands_of<TestType>(g, 2, uniform<TestType>);
        const auto want = wanted(g, 2, in);
        const auto got = run(g, 2, in, 1);
        INFO(describe(g, 2));
        CHECK(distance(got.y, want.y) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns + 1, 0.5));
        CHECK(distance(got.dx, want.dx) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns, 0.25));
        CHECK(distance(got.dw, want.dw) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.25));
        CHECK(distance(got.dbias, want.dbias) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.5));
    }
}

TEMPLATE_TEST_CASE("kernels/depthwise: equal bits for every number of threads", "[kernels]", float, double) {
    auto shapes = random_shapes(60);
    shapes.emplace_back(depthwise_square(14, 70, 3, 1), 3);
    shapes.emplace_back(depthwise_square(7, 200, 3, 1, 2), 2);
    for (const auto& [g, batch] : shapes) {
        const auto in = operands_of<TestType>(g, batch, uniform<TestType>);
        const auto alone = run(g, batch, in, 1);
        for (const int threads : {2, 3, 5}) {
            INFO(describe(g, batch) << ", threads " << threads);
            REQUIRE(same_bits(run(g, batch, in, threads), alone));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/depthwise: a sample alone has the bits it has among others", "[kernels]", float, double) {
    for (const convolution& g :
         {depthwise_square(9, 37, 3, 1), depthwise_square(14, 16, 5, 2, 2), depthwise_square(5, 3, 3, 2, 1, 2)}) {
        const std::size_t batch = 5;
        const auto in = operands_of<TestType>(g, batch, uniform<TestType>);
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

TEST_CASE("kernels/depthwise: a NaN stays in its channel and in the windows that see it", "[kernels]") {
    const convolution g = depthwise_square(9, 20, 3, 1);
    auto in = operands_of<float>(g, 1, uniform<float>);
    in.x[(4 * 9 + 4) * 20 + 19] = NAN;
    in.dy[(2 * 9 + 6) * 20 + 17] = NAN;
    const auto got = run(g, 1, in, 1);
    for (std::size_t i = 0; i < got.y.size(); ++i) {
        const std::size_t row = i / 20 / 9, column = i / 20 % 9;
        INFO(row << ' ' << column);
        REQUIRE(std::isnan(got.y[i]) == (i % 20 == 19 && row >= 3 && row <= 5 && column >= 3 && column <= 5));
        REQUIRE(std::isnan(got.dx[i]) == (i % 20 == 17 && row >= 1 && row <= 3 && column >= 5 && column <= 7));
    }
    for (std::size_t i = 0; i < got.dw.size(); ++i) REQUIRE(std::isnan(got.dw[i]) == (i % 20 == 17 || i % 20 == 19));
}
