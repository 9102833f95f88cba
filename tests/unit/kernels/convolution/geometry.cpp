// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/geometry.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::kernels;

TEST_CASE("kernels/geometry: outputs along a dimension", "[kernels]") {
    STATIC_REQUIRE(window_count(28, 0, 5, 1) == 24);
    STATIC_REQUIRE(window_count(224, 2, 3, 1) == 224);
    STATIC_REQUIRE(window_count(231, 0, 11, 4) == 56);
    STATIC_REQUIRE(window_count(5, 0, 2, 2) == 2);
    STATIC_REQUIRE(window_count(3, 1, 5, 1) == 0);
}

TEST_CASE("kernels/geometry: sizes and work of a convolution", "[kernels]") {
    constexpr convolution vgg{.rows = 56,
                              .columns = 56,
                              .channels = 256,
                              .filters = 256,
                              .kernel_rows = 3,
                              .kernel_columns = 3,
                              .pad_top = 1,
                              .pad_bottom = 1,
                              .pad_left = 1,
                              .pad_right = 1};
    STATIC_REQUIRE(vgg.out_rows() == 56);
    STATIC_REQUIRE(vgg.out_columns() == 56);
    STATIC_REQUIRE(vgg.weight_count() == 589'824);
    STATIC_REQUIRE(vgg.flops() == 2.0 * 1'849'688'064.0);
    constexpr pooling pool{.rows = 24,
                           .columns = 23,
                           .channels = 4,
                           .kernel_rows = 2,
                           .kernel_columns = 2,
                           .stride_rows = 2,
                           .stride_columns = 2};
    STATIC_REQUIRE(pool.out_size() == 12 * 11 * 4);
}

TEST_CASE("kernels/geometry: dilation spreads the kernel, groups divide its weights", "[kernels]") {
    STATIC_REQUIRE(reach(3, 4) == 9);
    STATIC_REQUIRE(reach(1, 7) == 1);
    constexpr convolution g{.rows = 20,
                            .columns = 21,
                            .channels = 12,
                            .filters = 18,
                            .kernel_rows = 3,
                            .kernel_columns = 3,
                            .stride_columns = 2,
                            .pad_top = 1,
                            .dilation_rows = 4,
                            .dilation_columns = 2,
                            .groups = 6};
    STATIC_REQUIRE(g.out_rows() == 13);
    STATIC_REQUIRE(g.out_columns() == 9);
    STATIC_REQUIRE(g.group_channels() == 2);
    STATIC_REQUIRE(g.group_filters() == 3);
    STATIC_REQUIRE(g.weight_count() == 3 * 3 * 2 * 18);
    STATIC_REQUIRE(g.flops() == 2.0 * 13 * 9 * 324);
    STATIC_REQUIRE(!g.is_depthwise());
    STATIC_REQUIRE(convolution{.channels = 8, .filters = 8, .groups = 8}.is_depthwise());
    STATIC_REQUIRE(!convolution{.channels = 8, .filters = 16, .groups = 8}.is_depthwise());
}
