// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/pool.hpp"

#include "reference/kernels.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// The geometry once more, as the tests understand max_pool<Window, Stride> and mean_pool<Window, Stride>.
template <std::size_t Window, std::size_t Stride, class Input>
struct geometry {
    using max = layer_of<layers::max_pool<Window, Stride>, Input>;
    using mean = layer_of<layers::mean_pool<Window, Stride>, Input>;
    static constexpr kernels::pooling value{.rows = Input::extents[0],
                                            .columns = Input::extents[1],
                                            .channels = Input::extents[2],
                                            .kernel_rows = Window,
                                            .kernel_columns = Window,
                                            .stride_rows = Stride,
                                            .stride_columns = Stride};
};

using geometries =
    std::tuple<geometry<2, 2, shape<6, 6, 3>>, geometry<2, 2, shape<5, 7, 9>>, geometry<3, 2, shape<7, 9, 2>>,
               geometry<3, 1, shape<5, 4, 17>>, geometry<1, 2, shape<3, 3, 1>>, geometry<16, 16, shape<16, 17, 1>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("layers/pool: the maximum, and the gradient to the first largest", "[layers]", geometries) {
    using layer = typename TestType::max;
    static constexpr kernels::pooling g = TestType::value;
    static_assert(layer::output::size == g.out_size() && layer::input::size == g.in_size());
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : {0, 1, 3, 5}) {
            // Seven different numbers only: windows have ties.
            problem<T, layer> of{.rows = rows, .x = integers<T>(rows * g.in_size(), 1)};
            const auto dy = integers<T>(rows * g.out_size(), 2);
            std::vector<double> y(rows * g.out_size()), dx(rows * g.in_size());
            std::vector<std::uint8_t> which(y.size());
            kernels::reference::max_pool_forward<T>(g, rows, of.x.data(), y.data(), which.data());
            kernels::reference::max_pool_backward<T>(g, rows, dy.data(), which.data(), dx.data());
            const auto ran = forward(of);
            CHECK(equal(ran.y, y));
            CHECK(ran.saved.size() == y.size());
            CHECK(equal(backward(of, ran, dy, one_lane(rows)).dx, dx));

            of.mode = layer_api::mode::inference;
            const auto inferred = forward(of);
            CHECK(same_bits(inferred.y, ran.y));
            CHECK(std::all_of(inferred.saved.begin(), inferred.saved.end(),
                              [](std::byte one) { return one == std::byte{99}; }));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_TEST_CASE("layers/pool: with padding, windows of a maximum may leave the image", "[layers]", float, double) {
    using T = TestType;
    using layer = layer_of<layers::max_pool<3, 2, 1>, shape<8, 7, 5>>;
    static constexpr kernels::pooling g{.rows = 8,
                                        .columns = 7,
                                        .channels = 5,
                                        .kernel_rows = 3,
                                        .kernel_columns = 3,
                                        .stride_rows = 2,
                                        .stride_columns = 2,
                                        .pad_top = 1,
                                        .pad_bottom = 1,
                                        .pad_left = 1,
                                        .pad_right = 1};
    static_assert(std::is_same_v<typename layer::output, shape<4, 4, 5>>);
    static_assert(std::is_same_v<layer_of<layers::max_pool<3, 2, 1>, shape<112, 112, 64>>::output, shape<56, 56, 64>>);
    for (const std::size_t rows : {0, 1, 4}) {
        // Negative numbers: the padding is not there, so that no maximum is 0.
        problem<T, layer> of{.rows = rows, .x = integers<T>(rows * g.in_size(), 1)};
        for (T& one : of.x) one -= 10;
        const auto dy = integers<T>(rows * g.out_size(), 2);
        std::vector<double> y(rows * g.out_size()), dx(rows * g.in_size());
        std::vector<std::uint8_t> which(y.size());
        kernels::reference::max_pool_forward<T>(g, rows, of.x.data(), y.data(), which.data());
        kernels::reference::max_pool_backward<T>(g, rows, dy.data(), which.data(), dx.data());
        const auto ran = forward(of);
        CHECK(equal(ran.y, y));
        CHECK(std::all_of(y.begin(), y.end(), [](double one) { return one < 0; }));
        CHECK(equal(backward(of, ran, dy, one_lane(rows)).dx, dx));
    }
}

TEMPLATE_LIST_TEST_CASE("layers/pool: the mean, and its gradient", "[layers]", geometries) {
    using layer = typename TestType::mean;
    static constexpr kernels::pooling g = TestType::value;
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : {0, 1, 3, 5}) {
            const problem<T, layer> of{.rows = rows, .x = uniform<T>(rows * g.in_size(), 1)};
            const auto dy = uniform<T>(rows * g.out_size(), 2);
            std::vector<double> y(rows * g.out_size()), dx(rows * g.in_size());
            kernels::reference::mean_pool_forward<T>(g, rows, of.x.data(), y.data());
            kernels::reference::mean_pool_backward<T>(g, rows, dy.data(), dx.data());
            const auto ran = forward(of);
            // One window, and the windows over one pixel, have at most this many terms.
            constexpr std::size_t terms = g.kernel_rows * g.kernel_columns;
            CHECK(distance(ran.y, y) <= sum_tolerance<T>(terms, 0.5 / static_cast<double>(terms)));
            CHECK(distance(backward(of, ran, dy, one_lane(rows)).dx, dx) <=
                  sum_tolerance<T>(terms, 0.5 / static_cast<double>(terms)));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_TEST_CASE("layers/pool: the mean of all pixels, and its gradient", "[layers]", float, double) {
    using layer = layer_of<layers::global_mean_pool, shape<3, 5, 19>>;
    static_assert(std::is_same_v<layer::output, shape<19>>);
    constexpr std::size_t pixels = 15, channels = 19;
    for (const std::size_t rows : {0, 1, 4}) {
        const problem<TestType, layer> of{.rows = rows, .x = uniform<TestType>(rows * pixels * channels, 1)};
        const auto dy = uniform<TestType>(rows * channels, 2);
        std::vector<double> y(rows * channels), dx(of.x.size());
        for (std::size_t i = 0; i < of.x.size(); ++i) {
            const std::size_t to = i / (pixels * channels) * channels + i % channels;
            y[to] += static_cast<double>(of.x[i]) / pixels;
            dx[i] = static_cast<double>(dy[to]) / pixels;
        }
        const auto ran = forward(of);
        CHECK(distance(ran.y, y) <= sum_tolerance<TestType>(pixels, 0.5 / pixels));
        CHECK(distance(backward(of, ran, dy, one_lane(rows)).dx, dx) <=
              0.5 / pixels * 2 * static_cast<double>(std::numeric_limits<TestType>::epsilon()));
    }
    CHECK(layer::name == "global_mean_pool");
}

TEST_CASE("layers/pool: what they declare", "[layers]") {
    using side_by_side = layer_of<layers::max_pool<2>, shape<24, 24, 32>>;
    static_assert(std::is_same_v<side_by_side::output, shape<12, 12, 32>>);
    static_assert(side_by_side::flops == 12.0 * 12 * 32 * 4);
    static_assert(side_by_side::parameters.size() == 0);
    using overlapping = layer_of<layers::mean_pool<3, 2>, shape<13, 12, 4>>;
    static_assert(std::is_same_v<overlapping::output, shape<6, 5, 4>>);
    static_assert(layer_api::saved_bytes<overlapping, float> == 0);
    CHECK(side_by_side::name == "max_pool");
    CHECK(overlapping::name == "mean_pool");
}
