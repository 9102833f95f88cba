// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/winograd/winograd_weights.hpp"

#include <catch2/catch.hpp>

#include "reference/kernels.hpp"
#include "unit/kernels/convolution/winograd/winograd_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
struct operands {
    array<T> x, dy;
};
template <class T>
operands<T> random_operands(const convolution& g, std::size_t batch) {
    return {uniform<T>(batch * g.in_size(), 1), uniform<T>(batch * g.out_size(), 4)};
}

template <class T>
struct results {
    array<T> dw, dbias;
};

/// Scratch for `most` samples, a call with `batch`.
template <class Kind, kernels::narrow Narrow = kernels::narrow::automatic, class T = typename Kind::type>
results<T> run(const convolution& g, std::size_t batch, const operands<T>& in, int threads, std::size_t most = 0) {
    const parallel::team team{threads};
    results<T> out{unwritten<T>(g.weight_count()), unwritten<T>(g.filters)};
    scratch<T> memory(kernels::winograd_backward_weights_scratch<Kind::edge, T, Narrow>(g, std::max(batch, most), team),
                      team);
    kernels::winograd_backward_weights<Kind::edge, T, Narrow>(g, batch, in.x.data(), in.dy.data(), out.dw.data(),
                                                              out.dbias.data(), memory.use);
    return out;
}

struct exact {
    std::vector<double> dw, dbias;
};
template <class T>
exact wanted(const convolution& g, std::size_t batch, const operands<T>& in) {
    exact out{std::vector<double>(g.weight_count()), std::vector<double>(g.filters)};
    kernels::reference::convolution_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(),
                                                        out.dbias.data());
    return out;
}

std::size_t tile_count(std::size_t edge, const convolution& g, std::size_t batch) {
    return batch * ((g.out_rows() + edge - 1) / edge) * ((g.out_columns() + edge - 1) / edge);
}

template <class Kind>
void require_bound(const convolution& g, std::size_t batch) {
    using T = typename Kind::type;
    const auto in = random_operands<T>(g, batch);
    const auto want = wanted(g, batch, in);
    const auto got = run<Kind>(g, batch, in, 1);
    const std::size_t pixels = batch * g.out_rows() * g.out_columns();
    INFO(describe_winograd(g, batch));
    REQUIRE(within_bound<Kind::edge>(got.dw, want.dw,
                                     magnitudes_of_weights(matrices_of<Kind::edge>(), g, batch, in.x, in.dy),
                                     tile_count(Kind::edge, g, batch), pixels));
    REQUIRE(distance(got.dbias, want.dbias) <= sum_tolerance<T>(pixels, 0.5));
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/winograd_weights: F(2x2) gives whole numbers exactly for shapes of every kind", "[kernels]",
                   float_2, double_2) {
    using T = typename TestType::type;
    for (const auto& [g, batch] : winograd_shapes(120, 70)) {
        const operands<T> in{integers<T>(batch * g.in_size(), 1), integers<T>(batch * g.out_size(), 4)};
        const auto want = wanted(g, batch, in);
        const auto got = run<TestType>(g, batch, in, 1);
        INFO(describe_winograd(g, batch));
        REQUIRE(equal(got.dw, want.dw));
        REQUIRE(equal(got.dbias, want.dbias));
    }
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: errors stay within the bound, for shapes of every kind", "[kernels]",
                   float_4, double_4, float_6, double_6) {
    for (const auto& [g, batch] : winograd_shapes(24, 24)) require_bound<TestType>(g, batch);
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: errors stay within the bound around a vector and a line", "[kernels]",
                   float_4, double_4, float_6, double_6) {
    constexpr std::size_t w = simd::width<typename TestType::type>;
    for (const std::size_t channels : {std::size_t{1}, w - 1, w, w + 1, 2 * w + 1})
        for (const std::size_t filters : {w - 1, 2 * w, 2 * w + 1})
            require_bound<TestType>(three_by_three(5, 7, channels, filters), 1);
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: errors stay within the bound where blocks are cut", "[kernels]", float_4,
                   float_6) {
    require_bound<TestType>(three_by_three(40, 50, 3, 4), 3);       // several chunks of tiles
    require_bound<TestType>(three_by_three(3, 5, 150, 160, 0), 1);  // one chunk, the gradient in blocks
    require_bound<TestType>(three_by_three(52, 52, 97, 90), 1);     // several chunks of a gradient in blocks
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: the error is that of one chain times the amplification", "[kernels]",
                   float_2, float_4, float_6, double_4) {
    using T = typename TestType::type;
    const convolution g = three_by_three(12, 12, 20, 30);
    const auto in = random_operands<T>(g, 8);
    const auto want = wanted(g, 8, in);
    const auto links = static_cast<double>(tile_count(TestType::edge, g, 8));
    CHECK(relative_error(run<TestType>(g, 8, in, 1).dw, want.dw) <=
          amplification(matrices_of<TestType::edge>()) * std::sqrt(links / 2 + 6));
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: equal bits for every number of threads", "[kernels]", float_2, float_4,
                   float_6, double_2, double_4, double_6) {
    using T = typename TestType::type;
    auto shapes = winograd_shapes(20, 70);
    shapes.emplace_back(three_by_three(20, 40, 24, 40), 3);
    shapes.emplace_back(three_by_three(8, 8, 200, 256), 2);
    shapes.emplace_back(three_by_three(52, 52, 97, 90), 1);
    for (const auto& [g, batch] : shapes) {
        const auto in = random_operands<T>(g, batch);
        const auto alone = run<TestType>(g, batch, in, 1);
        for (const int threads : {2, 3, 5}) {
            const auto got = run<TestType>(g, batch, in, threads);
            INFO(describe_winograd(g, batch) << ", threads " << threads);
            REQUIRE(same_bits(got.dw, alone.dw));
            REQUIRE(same_bits(got.dbias, alone.dbias));
        }
    }
}

// A sample without gradient adds zeros to every chain: more samples cut the chunks elsewhere, and must not change a
// bit.
TEMPLATE_TEST_CASE("kernels/winograd_weights: equal bits however tiles are cut into chunks", "[kernels]", float_2,
                   float_4, float_6, double_4) {
    using T = typename TestType::type;
    for (const convolution& g : {three_by_three(30, 33, 18, 20), three_by_three(50, 50, 97, 64)}) {
        const auto one = random_operands<T>(g, 1);
        const auto alone = run<TestType>(g, 1, one, 1);
        auto in = random_operands<T>(g, 4);
        std::fill(in.dy.begin(), in.dy.end(), T{0});
        std::copy(one.x.begin(), one.x.end(), in.x.begin() + static_cast<std::ptrdiff_t>(2 * g.in_size()));
        std::copy(one.dy.begin(), one.dy.end(), in.dy.begin() + static_cast<std::ptrdiff_t>(2 * g.out_size()));
        const auto got = run<TestType>(g, 4, in, 2);
        INFO(describe_winograd(g, 4));
        REQUIRE(same_bits(got.dw, alone.dw));
        REQUIRE(same_bits(got.dbias, alone.dbias));
    }
}

TEMPLATE_TEST_CASE("kernels/winograd_weights: lines of one vector and of two give the same bits", "[kernels]", float_2,
                   float_4, double_4, double_6) {
    using T = typename TestType::type;
    constexpr std::size_t w = simd::width<T>;
    // The last ones: a gradient made in blocks of channels x filters.
    for (const auto& [channels, filters] :
         {std::pair{w - 1, w}, std::pair{w, 2 * w}, std::pair{2 * w + 1, w - 1}, std::pair{3 * w, 3 * w},
          std::pair{26 * w + 3, w}, std::pair{std::size_t{5}, 40 * w}}) {
        const convolution g = three_by_three(9, 11, channels, filters);
        const auto in = random_operands<T>(g, 3);
        const auto one = run<TestType, kernels::narrow::yes>(g, 3, in, 2);
        INFO(describe_winograd(g, 3));
        REQUIRE(same_bits(one.dw, run<TestType, kernels::narrow::no>(g, 3, in, 2).dw));
        REQUIRE(same_bits(one.dw, run<TestType>(g, 3, in, 1).dw));
    }
}

TEST_CASE("kernels/winograd_weights: scratch for many samples serves fewer", "[kernels]") {
    for (const convolution& g : {three_by_three(5, 5, 20, 24), three_by_three(14, 14, 100, 128)})
        for (const int threads : thread_counts()) {
            std::size_t before = 0;
            for (std::size_t batch = 0; batch < 100; ++batch) {
                const std::size_t now = kernels::winograd_backward_weights_scratch<4, float>(g, batch, {threads});
                INFO(describe_winograd(g, batch));
                REQUIRE(now >= before);
                before = now;
            }
            const auto in = random_operands<float>(g, 3);
            REQUIRE(same_bits(run<float_4>(g, 3, in, threads, 12).dw, run<float_4>(g, 3, in, threads).dw));
        }
}

TEST_CASE("kernels/winograd_weights: nothing to see gives zeros", "[kernels]") {
    for (const auto& [g, batch] :
         {std::pair{three_by_three(2, 5, 4, 3, 0), std::size_t{2}}, {three_by_three(5, 5, 4, 3), std::size_t{0}}}) {
        const auto got = run<float_4>(g, batch, random_operands<float>(g, batch), 2);
        CHECK(equal(got.dw, std::vector<double>(g.weight_count())));
        CHECK(equal(got.dbias, std::vector<double>(g.filters)));
    }
}
