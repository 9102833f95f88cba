// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/im2col.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/narrow_common.hpp"

using namespace kernel_test;
using kernels::transpose;

namespace {

template <class T>
results<T> run(const convolution& g, std::size_t batch, const operands<T>& in, int threads, bool with_bias = true) {
    const parallel::team team{threads};
    auto out = unwritten_results<T>(g, batch);
    scratch<T> forward(kernels::im2col_forward_scratch<T>(g, batch, team), team);
    kernels::im2col_forward<T>(g, batch, in.x.data(), in.w.data(), with_bias ? in.bias.data() : nullptr, out.y.data(),
                               forward.use);
    scratch<T> data(kernels::im2col_backward_data_scratch<T>(g, batch, team), team);
    kernels::im2col_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::im2col_backward_weights_scratch<T>(g, batch, team), team);
    kernels::im2col_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(),
                                        with_bias ? out.dbias.data() : nullptr, weights.use);
    return out;
}

template <class T>
void require_same(const results<T>& left, const results<T>& right) {
    REQUIRE(same_bits(left.y, right.y));
    REQUIRE(same_bits(left.dx, right.dx));
    REQUIRE(same_bits(left.dw, right.dw));
    REQUIRE(same_bits(left.dbias, right.dbias));
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
    if (with_bias) REQUIRE(equal(got.dbias, want.dbias));
}

std::vector<std::pair<convolution, std::size_t>> random_shapes(std::size_t count) {
    const core::random_stream random{4, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::vector<std::pair<convolution, std::size_t>> out;
    for (std::size_t i = 0; i < count; ++i) {
        const convolution g{.rows = draw(1, 14),
                            .columns = draw(1, 14),
                            .channels = i % 3 == 0 ? draw(17, 40) : draw(1, 5),
                            .filters = i % 2 == 0 ? draw(17, 40) : draw(1, 9),
                            .kernel_rows = draw(1, 5),
                            .kernel_columns = draw(1, 5),
                            .stride_rows = draw(1, 3),
                            .stride_columns = draw(1, 3),
                            .pad_top = draw(0, 6),
                            .pad_bottom = draw(0, 3),
                            .pad_left = draw(0, 6),
                            .pad_right = draw(0, 3)};
        out.emplace_back(g, draw(0, 3));
    }
    return out;
}

/// More pixels than a block has.
const std::vector<std::pair<convolution, std::size_t>> several_blocks{{square(28, 1, 6, 5, 2), 11},
                                                                      {square(14, 6, 16, 5), 23},
                                                                      {square(12, 20, 9, 3, 1, 2), 29},
                                                                      {square(9, 3, 17, 3), 97}};

}  // namespace

TEMPLATE_TEST_CASE("kernels/im2col: whole numbers come out exactly", "[kernels]", float, double) {
    bool with_bias = false;
    for (const auto& [g, batch] : random_shapes(150)) require_exact<TestType>(g, batch, with_bias = !with_bias);
    constexpr std::size_t w = simd::width<TestType>;
    for (const std::size_t channels : {std::size_t{1}, std::size_t{3}, w - 1, w, w + 1, 2 * w + 1})
        for (const std::size_t filters : {std::size_t{1}, w - 1, w, w + 1, 2 * w + 1})
            require_exact<TestType>(square(7, channels, filters, 3, 1), 2, true);
    for (const auto& [g, batch] : several_blocks) require_exact<TestType>(g, batch, true);
    require_exact<TestType>(square(8, 300, 40, 3, 1), 1, true);
    require_exact<TestType>(square(27, 3, 20, 11, 0, 4), 1, true);
}

TEMPLATE_TEST_CASE("kernels/im2col: each output and each weight is one chain, whatever the blocks", "[kernels]", float,
                   double) {
    using T = TestType;
    for (const auto& [g, batch] : several_blocks) {
        const auto in = random_operands<T>(g, batch);
        const auto got = run(g, batch, in, 1);
        // All patches at once, by the definition.
        const std::size_t links = g.kernel_rows * g.kernel_columns * g.channels,
                          pixels = batch * g.out_rows() * g.out_columns();
        REQUIRE(pixels > kernels::detail::patches<T>{g, batch}.block(pixels));
        array<T> patches(pixels * links);
        kernels::reference::for_taps(g, batch, [&](std::size_t out, std::size_t tap, std::size_t from) {
            for (std::size_t c = 0; c < g.channels; ++c)
                patches[out * links + tap * g.channels + c] = in.x[from * g.channels + c];
        });
        auto y = unwritten<T>(got.y.size()), dw = unwritten<T>(got.dw.size());
        scratch<T> forward(kernels::gemm_scratch<T>(pixels, g.filters, links, {1}), {1});
        kernels::gemm<T>(transpose::no, transpose::no, pixels, g.filters, links, patches.data(), links, in.w.data(),
                         g.filters, y.data(), g.filters, in.bias.data(), forward.use);
        scratch<T> weights(kernels::gemm_scratch<T>(links, g.filters, pixels, {1}), {1});
        kernels::gemm<T>(transpose::yes, transpose::no, links, g.filters, pixels, patches.data(), links, in.dy.data(),
                         g.filters, dw.data(), g.filters, nullptr, weights.use);
        INFO(describe(g, batch));
        CHECK(same_bits(got.y, y));
        CHECK(same_bits(got.dw, dw));
    }
}

// A sum of n products of a and b errs by at most n u sum |a b|, u = half an epsilon; a sum of taps adds one link for
// each of them.
TEMPLATE_TEST_CASE("kernels/im2col: the rounding error is that of its chains", "[kernels]", float, double) {
    for (const convolution& g : {square(9, 30, 20, 3, 1), square(24, 1, 8, 5), square(11, 20, 30, 3, 1, 2)}) {
        const auto in = random_operands<TestType>(g, 2);
        const auto want = wanted(g, 2, in, true);
        const auto got = run(g, 2, in, 1);
        INFO(describe(g, 2));
        const std::size_t taps = g.kernel_rows * g.kernel_columns;
        CHECK(distance(got.y, want.y) <= sum_tolerance<TestType>(taps * g.channels, 0.25));
        CHECK(distance(got.dx, want.dx) <= sum_tolerance<TestType>(taps + g.filters, 0.25 * static_cast<double>(taps)));
        CHECK(distance(got.dw, want.dw) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.25));
        CHECK(distance(got.dbias, want.dbias) <= sum_tolerance<TestType>(2 * g.out_rows() * g.out_columns(), 0.5));
    }
}

TEMPLATE_TEST_CASE("kernels/im2col: equal bits for every number of threads", "[kernels]", float, double) {
    auto shapes = random_shapes(40);
    shapes.insert(shapes.end(), several_blocks.begin(), several_blocks.end());
    for (const auto& [g, batch] : shapes) {
        const auto in = random_operands<TestType>(g, batch);
        const auto alone = run(g, batch, in, 1);
        INFO(describe(g, batch));
        for (const int threads : {2, 3, 5}) require_same(run(g, batch, in, threads), alone);
    }
}

TEMPLATE_TEST_CASE("kernels/im2col: a sample alone has the bits it has among others", "[kernels]", float, double) {
    for (const convolution& g : {square(5, 20, 24, 3, 1), square(28, 1, 6, 5, 2), square(9, 33, 17, 3, 1, 2)}) {
        const std::size_t batch = 13;
        const auto in = random_operands<TestType>(g, batch);
        const auto all = run(g, batch, in, 1);
        for (const std::size_t sample : {0U, 1U, 6U, 12U}) {
            auto mine = in;
            mine.x = sample_of(in.x, sample, g.in_size());
            mine.dy = sample_of(in.dy, sample, g.out_size());
            const auto got = run(g, 1, mine, 1);
            INFO(describe(g, batch) << ", sample " << sample);
            REQUIRE(same_bits(got.y, sample_of(all.y, sample, g.out_size())));
            REQUIRE(same_bits(got.dx, sample_of(all.dx, sample, g.in_size())));
        }
    }
}

TEST_CASE("kernels/im2col: scratch grows with the batch", "[kernels]") {
    for (const convolution& g : {square(5, 20, 24, 3, 1), square(28, 1, 6, 5, 2), square(9, 33, 17, 3, 1, 2)})
        for (const int threads : thread_counts()) {
            std::size_t forward = 0, data = 0, weights = 0;
            for (std::size_t batch = 0; batch < 60; ++batch) {
                const std::size_t now_forward = kernels::im2col_forward_scratch<float>(g, batch, {threads});
                const std::size_t now_data = kernels::im2col_backward_data_scratch<float>(g, batch, {threads});
                const std::size_t now_weights = kernels::im2col_backward_weights_scratch<float>(g, batch, {threads});
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
