// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/dense.hpp"

#include "reference/kernels.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;
using kernels::transpose;

namespace {

using sizes = std::tuple<placed<layers::dense<1>, shape<1>>, placed<layers::dense<5>, shape<7>>,
                         placed<layers::dense<64>, shape<37>>, placed<layers::dense<33>, shape<130>>>;

template <class T, class L>
problem<T, L> with_integers(std::size_t rows) {
    return {.rows = rows, .x = integers<T>(rows * L::input::size, 1), .w = integers<T>(problem<T, L>::weights, 2)};
}
template <class T, class L>
problem<T, L> with_fractions(std::size_t rows) {
    return {.rows = rows, .x = uniform<T>(rows * L::input::size, 1), .w = uniform<T>(problem<T, L>::weights, 2)};
}

template <class T, class L>
std::vector<double> product(const problem<T, L>& of) {
    constexpr std::size_t in = L::input::size, out = L::output::size;
    std::vector<double> y(of.rows * out);
    kernels::reference::gemm<T>(transpose::no, transpose::no, of.rows, out, in, of.x.data(), in, of.w.data(), out,
                                y.data(), out, of.w.data() + in * out);
    return y;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("layers/dense: y = x W + b", "[layers]", sizes) {
    using layer = typename TestType::layer;
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : {0, 1, 3, 7, 29}) {
            const auto whole = with_integers<T, layer>(rows);
            CHECK(equal(forward(whole).y, product(whole)));
            const auto real = with_fractions<T, layer>(rows);
            // Products of numbers below 1/2, and a bias.
            CHECK(distance(forward(real).y, product(real)) <= sum_tolerance<T>(layer::input::size + 1, 0.5));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_LIST_TEST_CASE("layers/dense: dW = x^T dy, db = sum dy, dx = dy W^T", "[layers]", sizes) {
    using layer = typename TestType::layer;
    constexpr std::size_t in = layer::input::size, out = layer::output::size;
    const auto check = [&]<class T>(T) {
        for (const std::size_t rows : {1, 3, 7, 29}) {
            const auto whole = with_integers<T, layer>(rows);
            const auto dy = integers<T>(rows * out, 3);
            std::vector<double> dw(in * out + out), dx(rows * in);
            kernels::reference::gemm<T>(transpose::yes, transpose::no, in, out, rows, whole.x.data(), in, dy.data(),
                                        out, dw.data(), out, nullptr);
            kernels::reference::column_sums<T>(rows, out, dy.data(), out, dw.data() + in * out);
            kernels::reference::gemm<T>(transpose::no, transpose::yes, rows, in, out, dy.data(), out, whole.w.data(),
                                        out, dx.data(), in, nullptr);
            const auto got = backward(whole, forward(whole), dy, one_lane(rows));
            CHECK(equal(got.nodes.at(0), dw));
            CHECK(equal(got.dx, dx));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_LIST_TEST_CASE("layers/dense: the gradient is that of each lane, added over the tree", "[layers]", sizes) {
    using layer = typename TestType::layer;
    constexpr std::size_t in = layer::input::size, out = layer::output::size;
    const auto check = [&]<class T>(T) {
        for (const auto& lanes : lane_cuts())
            for (const int threads : thread_counts()) {
                auto of = with_fractions<T, layer>(lanes.rows());
                of.team = {threads};
                const auto dy = uniform<T>(lanes.rows() * out, 3);
                const auto lane = [&](parallel::block rows) {
                    auto gradient = unwritten<T>(in * out + out);
                    scratch<T> s(kernels::gemm_scratch<T>(in, out, rows.size(), {1}), {1});
                    kernels::gemm<T>(transpose::yes, transpose::no, in, out, rows.size(), of.x.data() + rows.first * in,
                                     in, dy.data() + rows.first * out, out, gradient.data(), out, nullptr, s.use);
                    kernels::column_sums<T>(rows.size(), out, dy.data() + rows.first * out, out,
                                            gradient.data() + in * out);
                    return gradient;
                };
                CHECK(adds_over_tree(backward(of, forward(of, lanes.count()), dy, lanes), lanes, lane));
            }
    };
    check(0.0F);
    check(0.0);
}

TEST_CASE("layers/dense: a shard is some columns of the whole, bit by bit", "[layers]") {
    constexpr std::size_t in = 37, out = 60, shards = 3, width = out / shards, rows = 9;
    using whole = layer_of<layers::dense<out>, shape<in>>;
    using part = decltype(whole{}.shard<shards>());
    static_assert(part::output::size == width && part::parameters[0].fan_out == out &&
                  part::parameters[1].size() == width);
    static_assert(std::is_same_v<decltype(part{}.shard<1>()), whole>);
    const auto all = with_fractions<float, whole>(rows);
    const auto y = forward(all).y;
    const auto dy = uniform<float>(rows * out, 3);
    const auto gradient = backward(all, {y, {}}, dy, one_lane(rows)).nodes.at(0);
    for (std::size_t shard = 0; shard < shards; ++shard) {
        problem<float, part> mine{.rows = rows, .x = all.x, .w = array<float>(problem<float, part>::weights)};
        array<float> my_dy(rows * width);
        const auto column = [&](std::size_t row, std::size_t j) { return row * out + shard * width + j; };
        for (std::size_t row = 0; row <= in; ++row)  // the bias is one row more
            for (std::size_t j = 0; j < width; ++j) mine.w[row * width + j] = all.w[column(row, j)];
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t j = 0; j < width; ++j) my_dy[row * width + j] = dy[column(row, j)];
        const auto ran = forward(mine);
        const auto got = backward(mine, ran, my_dy, one_lane(rows)).nodes.at(0);
        std::size_t different = 0;
        for (std::size_t j = 0; j < width; ++j) {
            for (std::size_t row = 0; row < rows; ++row) different += ran.y[row * width + j] != y[column(row, j)];
            for (std::size_t row = 0; row <= in; ++row) different += got[row * width + j] != gradient[column(row, j)];
        }
        CHECK(different == 0);
    }
}

TEST_CASE("layers/dense: what it declares", "[layers]") {
    using layer = layer_of<layers::dense<512>, shape<1024>>;
    static_assert(tensor::total_size(layer::parameters) == 1024 * 512 + 512);
    static_assert(layer::flops == 2.0 * 1024 * 512);
    static_assert(layer::parameters[0].fan_in == 1024 && layer::parameters[0].fan_out == 512 &&
                  layer::parameters[0].columns == 512);
    static_assert(layer::parameters[0].initial == tensor::start::random && layer::parameters[0].decays);
    static_assert(layer::parameters[1].initial == tensor::start::zeros && !layer::parameters[1].decays);
    CHECK(layer::name == "dense");
}
