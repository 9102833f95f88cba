// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/algorithm.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "unit/kernels/convolution/convolution_common.hpp"

using namespace kernel_test;
using kernels::algorithm;
using kernels::convolution;
using kernels::convolution_pass;

namespace {

constexpr auto passes = {convolution_pass::forward, convolution_pass::backward_data,
                         convolution_pass::backward_weights};

/// 3x3 with padding unless something else is asked for.
constexpr convolution padded(std::size_t size, std::size_t channels, std::size_t filters, std::size_t kernel = 3,
                             std::size_t pad = 1, std::size_t stride = 1) {
    return square(size, channels, filters, kernel, pad, stride);
}

/// The three passes through the functions that take the algorithm.
template <class T>
results<T> dispatch(algorithm a, const convolution& g, std::size_t batch, parallel::team team) {
    const auto x = uniform<T>(batch * g.in_size(), 1), w = uniform<T>(g.weight_count(), 2),
               bias = uniform<T>(g.filters, 3), dy = uniform<T>(batch * g.out_size(), 4);
    results<T> out{unwritten<T>(dy.size()), unwritten<T>(x.size()), unwritten<T>(w.size()), unwritten<T>(g.filters)};
    scratch<T> forward(kernels::convolve_forward_scratch<T>(a, g, batch, team), team);
    kernels::convolve_forward<T>(a, g, batch, x.data(), w.data(), bias.data(), out.y.data(), forward.use);
    scratch<T> data(kernels::convolve_backward_data_scratch<T>(a, g, batch, team), team);
    kernels::convolve_backward_data<T>(a, g, batch, dy.data(), w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::convolve_backward_weights_scratch<T>(a, g, batch, team), team);
    kernels::convolve_backward_weights<T>(a, g, batch, x.data(), dy.data(), out.dw.data(), out.dbias.data(),
                                          weights.use);
    return out;
}

template <std::size_t M, class T>
results<T> winograd(const convolution& g, std::size_t batch, parallel::team team) {
    const auto x = uniform<T>(batch * g.in_size(), 1), w = uniform<T>(g.weight_count(), 2),
               bias = uniform<T>(g.filters, 3), dy = uniform<T>(batch * g.out_size(), 4);
    results<T> out{unwritten<T>(dy.size()), unwritten<T>(x.size()), unwritten<T>(w.size()), unwritten<T>(g.filters)};
    scratch<T> forward(kernels::winograd_forward_scratch<M, T>(g, batch, team), team);
    kernels::winograd_forward<M, T>(g, batch, x.data(), w.data(), bias.data(), out.y.data(), forward.use);
    scratch<T> data(kernels::winograd_backward_data_scratch<M, T>(g, batch, team), team);
    kernels::winograd_backward_data<M, T>(g, batch, dy.data(), w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::winograd_backward_weights_scratch<M, T>(g, batch, team), team);
    kernels::winograd_backward_weights<M, T>(g, batch, x.data(), dy.data(), out.dw.data(), out.dbias.data(),
                                             weights.use);
    return out;
}

template <class T>
results<T> direct(const convolution& g, std::size_t batch, parallel::team team) {
    const auto x = uniform<T>(batch * g.in_size(), 1), w = uniform<T>(g.weight_count(), 2),
               bias = uniform<T>(g.filters, 3), dy = uniform<T>(batch * g.out_size(), 4);
    results<T> out{unwritten<T>(dy.size()), unwritten<T>(x.size()), unwritten<T>(w.size()), unwritten<T>(g.filters)};
    scratch<T> forward(kernels::convolution_forward_scratch<T>(g, batch, team), team);
    kernels::convolution_forward<T>(g, batch, x.data(), w.data(), bias.data(), out.y.data(), forward.use);
    scratch<T> data(kernels::convolution_backward_data_scratch<T>(g, batch, team), team);
    kernels::convolution_backward_data<T>(g, batch, dy.data(), w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::convolution_backward_weights_scratch<T>(g, batch, team), team);
    kernels::convolution_backward_weights<T>(g, batch, x.data(), dy.data(), out.dw.data(), out.dbias.data(),
                                             weights.use);
    return out;
}

template <class T>
results<T> im2col(const convolution& g, std::size_t batch, parallel::team team) {
    const auto x = uniform<T>(batch * g.in_size(), 1), w = uniform<T>(g.weight_count(), 2),
               bias = uniform<T>(g.filters, 3), dy = uniform<T>(batch * g.out_size(), 4);
    results<T> out{unwritten<T>(dy.size()), unwritten<T>(x.size()), unwritten<T>(w.size()), unwritten<T>(g.filters)};
    scratch<T> forward(kernels::im2col_forward_scratch<T>(g, batch, team), team);
    kernels::im2col_forward<T>(g, batch, x.data(), w.data(), bias.data(), out.y.data(), forward.use);
    scratch<T> data(kernels::im2col_backward_data_scratch<T>(g, batch, team), team);
    kernels::im2col_backward_data<T>(g, batch, dy.data(), w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::im2col_backward_weights_scratch<T>(g, batch, team), team);
    kernels::im2col_backward_weights<T>(g, batch, x.data(), dy.data(), out.dw.data(), out.dbias.data(), weights.use);
    return out;
}

/// An algorithm for sizes that the compiler knows, as layers call it.
template <class T, algorithm A, convolution G>
results<T> known(std::size_t batch, parallel::team team) {
    constexpr auto forward_narrow = kernels::known_narrow<T>(A, G, convolution_pass::forward);
    constexpr auto data_narrow = kernels::known_narrow<T>(A, G, convolution_pass::backward_data);
    constexpr auto weights_narrow = kernels::known_narrow<T>(A, G, convolution_pass::backward_weights);
    const auto x = uniform<T>(batch * G.in_size(), 1), w = uniform<T>(G.weight_count(), 2),
               bias = uniform<T>(G.filters, 3), dy = uniform<T>(batch * G.out_size(), 4);
    results<T> out{unwritten<T>(dy.size()), unwritten<T>(x.size()), unwritten<T>(w.size()), unwritten<T>(G.filters)};
    scratch<T> forward(kernels::convolve_forward_scratch<A, T, forward_narrow>(G, batch, team), team);
    kernels::convolve_forward<A, T, forward_narrow, kernels::known_ways<T>(A, G, convolution_pass::forward)>(
        G, batch, x.data(), w.data(), bias.data(), out.y.data(), forward.use);
    scratch<T> data(kernels::convolve_backward_data_scratch<A, T, data_narrow>(G, batch, team), team);
    kernels::convolve_backward_data<A, T, data_narrow, kernels::known_ways<T>(A, G, convolution_pass::backward_data)>(
        G, batch, dy.data(), w.data(), out.dx.data(), data.use);
    scratch<T> weights(kernels::convolve_backward_weights_scratch<A, T, weights_narrow>(G, batch, team), team);
    kernels::convolve_backward_weights<A, T, weights_narrow,
                                       kernels::known_ways<T>(A, G, convolution_pass::backward_weights)>(
        G, batch, x.data(), dy.data(), out.dw.data(), out.dbias.data(), weights.use);
    return out;
}

template <class T>
void require_same(const results<T>& left, const results<T>& right) {
    REQUIRE(same_bits(left.y, right.y));
    REQUIRE(same_bits(left.dx, right.dx));
    REQUIRE(same_bits(left.dw, right.dw));
    REQUIRE(same_bits(left.dbias, right.dbias));
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/algorithm: each name calls its kernels", "[kernels]", float, double) {
    for (const convolution& g : {padded(9, 20, 18), padded(4, 5, 33, 3, 0)}) {
        const parallel::team team{2};
        require_same(dispatch<TestType>(algorithm::direct, g, 3, team), direct<TestType>(g, 3, team));
        require_same(dispatch<TestType>(algorithm::winograd2, g, 3, team), winograd<2, TestType>(g, 3, team));
        require_same(dispatch<TestType>(algorithm::winograd4, g, 3, team), winograd<4, TestType>(g, 3, team));
        require_same(dispatch<TestType>(algorithm::winograd6, g, 3, team), winograd<6, TestType>(g, 3, team));
        require_same(dispatch<TestType>(algorithm::im2col, g, 3, team), im2col<TestType>(g, 3, team));
    }
    require_same(dispatch<TestType>(algorithm::direct, padded(9, 4, 3, 5, 2, 2), 2, {1}),
                 direct<TestType>(padded(9, 4, 3, 5, 2, 2), 2, {1}));
}

TEMPLATE_TEST_CASE("kernels/algorithm: kernels picked by the compiler are those that the sizes pick", "[kernels]",
                   float, double) {
    // One that is narrow, the two of LeNet-5, where the length of a vector decides, and one that never is.
    constexpr convolution few = square(40, 3, 3, 5, 2), first = square(28, 1, 6, 5, 2),
                          second = square(14, 6, 16, 5, 0), wide = square(9, 63, 32, 3, 1),
                          lines = square(9, 2, 32, 3, 1);
    // Others, which take all ways of the direct engine between them.
    constexpr convolution columns = square(16, 16, 16, 3, 1), strided = square(8, 64, 64, 3, 1, 2),
                          edges = square(23, 3, 20, 11, 2, 4), kernel = square(9, 3, 16, 3, 0);
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::direct, few, convolution_pass::forward) ==
                   kernels::narrow::yes);
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::direct, first, convolution_pass::backward_data) ==
                   kernels::narrow::yes);
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::direct, wide, convolution_pass::forward) ==
                   kernels::narrow::no);
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::direct, wide, convolution_pass::backward_data) ==
                   kernels::narrow::no);
    // Winograd's lines of channels have one vector if that is enough for the channels or the filters.
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::winograd4, lines, convolution_pass::forward) ==
                   kernels::narrow::yes);
    STATIC_REQUIRE(kernels::known_narrow<TestType>(algorithm::winograd4, wide, convolution_pass::backward_weights) ==
                   kernels::narrow::no);
    for (const std::size_t threads : {1U, 2U}) {
        const parallel::team team{static_cast<int>(threads)};
        require_same(known<TestType, algorithm::direct, few>(3, team), direct<TestType>(few, 3, team));
        require_same(known<TestType, algorithm::direct, first>(3, team), direct<TestType>(first, 3, team));
        require_same(known<TestType, algorithm::direct, second>(3, team), direct<TestType>(second, 3, team));
        require_same(known<TestType, algorithm::direct, wide>(3, team), direct<TestType>(wide, 3, team));
        require_same(known<TestType, algorithm::direct, first>(0, team), direct<TestType>(first, 0, team));
        require_same(known<TestType, algorithm::direct, lines>(3, team), direct<TestType>(lines, 3, team));
        require_same(known<TestType, algorithm::direct, columns>(3, team), direct<TestType>(columns, 3, team));
        require_same(known<TestType, algorithm::direct, strided>(3, team), direct<TestType>(strided, 3, team));
        require_same(known<TestType, algorithm::direct, edges>(3, team), direct<TestType>(edges, 3, team));
        require_same(known<TestType, algorithm::direct, kernel>(3, team), direct<TestType>(kernel, 3, team));
        require_same(known<TestType, algorithm::winograd4, lines>(3, team), winograd<4, TestType>(lines, 3, team));
        require_same(known<TestType, algorithm::winograd4, wide>(3, team), winograd<4, TestType>(wide, 3, team));
    }
}

TEST_CASE("kernels/algorithm: the rule is known to the compiler", "[kernels]") {
    STATIC_REQUIRE(preferred_algorithm(padded(28, 512, 512), convolution_pass::forward) == algorithm::winograd4);
    STATIC_REQUIRE(preferred_algorithm(padded(224, 3, 64), convolution_pass::forward) == algorithm::direct);
}

TEST_CASE("kernels/algorithm: the layers of VGG-A, OverFeat and the CIFAR residual networks", "[kernels]") {
    for (const convolution_pass pass : passes) {
        for (const convolution& g :
             {padded(112, 64, 128), padded(56, 128, 256), padded(56, 256, 256), padded(28, 256, 512),
              padded(28, 512, 512), padded(14, 512, 512), padded(12, 256, 512), padded(12, 512, 1024),
              padded(12, 1024, 1024), padded(32, 16, 16), padded(16, 32, 32), padded(8, 64, 64)})
            CHECK(preferred_algorithm(g, pass) == algorithm::winograd4);
        for (const convolution& g : {padded(224, 3, 64), padded(231, 3, 96, 11, 0, 4), padded(28, 96, 256, 5, 0),
                                     padded(32, 16, 32, 3, 1, 2), padded(32, 3, 16), padded(28, 1, 32, 5, 0)})
            CHECK(preferred_algorithm(g, pass) == algorithm::direct);
    }
}

TEST_CASE("kernels/algorithm: a tile that hangs over costs what it computes", "[kernels]") {
    // One tile of 4 x 4 outputs, or four of 2 x 2 that are all used; and an image where half of the multiplications of
    // the larger tile are lost.
    CHECK(preferred_algorithm(padded(4, 64, 64), convolution_pass::forward) == algorithm::winograd4);
    CHECK(preferred_algorithm(padded(6, 64, 64), convolution_pass::forward) == algorithm::winograd2);
    CHECK(preferred_algorithm(padded(1, 64, 64), convolution_pass::forward) == algorithm::direct);
}

TEST_CASE("kernels/algorithm: what is picked applies", "[kernels]") {
    const core::random_stream random{5, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    std::set<algorithm> seen;
    for (int i = 0; i < 2000; ++i) {
        const convolution g{.rows = draw(1, 40),
                            .columns = draw(1, 40),
                            .channels = draw(1, 100),
                            .filters = draw(1, 100),
                            .kernel_rows = draw(2, 3),
                            .kernel_columns = draw(2, 3),
                            .stride_rows = draw(1, 2),
                            .stride_columns = draw(1, 2),
                            .pad_top = draw(0, 3),
                            .pad_bottom = draw(0, 3),
                            .pad_left = draw(0, 3),
                            .pad_right = draw(0, 3)};
        for (const convolution_pass pass : passes) {
            const algorithm a = preferred_algorithm(g, pass);
            REQUIRE((a == algorithm::direct || kernels::winograd_applies(g)));
            seen.insert(a);
        }
    }
    CHECK(seen.count(algorithm::direct) == 1);
    CHECK(seen.count(algorithm::winograd4) == 1);
}

TEST_CASE("kernels/algorithm: Winograd's is for kernels of 3 x 3 with stride 1", "[kernels]") {
    for (const algorithm a : kernels::algorithms) {
        const bool is_winograd = a != algorithm::direct && a != algorithm::im2col;
        CHECK(kernels::applies(a, padded(9, 4, 4)));
        CHECK(kernels::applies(a, padded(9, 4, 4, 3, 1, 2)) == !is_winograd);
        CHECK(kernels::applies(a, padded(9, 4, 4, 5, 2)) == !is_winograd);
        convolution dilated = padded(9, 4, 4), grouped = padded(9, 4, 4);
        dilated.dilation_rows = 2;
        grouped.groups = 2;
        CHECK(kernels::applies(a, dilated) == (a == algorithm::direct));
        CHECK(kernels::applies(a, grouped) == (a == algorithm::direct));
    }
}

TEST_CASE("kernels/algorithm: names", "[kernels]") {
    CHECK(name(algorithm::direct) == "direct");
    CHECK(name(algorithm::winograd6) == "winograd6");
    CHECK(name(algorithm::im2col) == "im2col");
    CHECK(name(convolution_pass::backward_data) == "backward_data");
    for (std::size_t i = 0; i < kernels::algorithms.size(); ++i)
        CHECK(static_cast<std::size_t>(kernels::algorithms[i]) == i);
    for (std::size_t i = 0; i < kernels::convolution_passes.size(); ++i)
        CHECK(static_cast<std::size_t>(kernels::convolution_passes[i]) == i);
}
