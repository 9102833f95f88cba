// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/winograd/winograd_transform.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/winograd/winograd_common.hpp"

using namespace kernel_test;
namespace detail = kernels::detail;

namespace {

/// The matrix of a map, from what it does to unit vectors.
template <class Map, class T>
matrix columns_of() {
    using batch = simd::batch<T>;
    matrix out{Map::to, Map::from};
    for (std::size_t j = 0; j < Map::from; ++j) {
        batch from[Map::from], to[Map::to];
        for (std::size_t i = 0; i < Map::from; ++i) from[i] = batch(i == j ? T{1} : T{0});
        Map::run(from, to);
        for (std::size_t i = 0; i < Map::to; ++i) {
            T lanes[simd::width<T>];
            simd::store(lanes, to[i]);
            for (const T lane : lanes) REQUIRE(lane == lanes[0]);
            out(i, j) = static_cast<double>(lanes[0]);
        }
    }
    return out;
}

/// Entry by entry, up to the rounding of a constant and of a product.
template <class T>
void require_close(const matrix& got, const matrix& want) {
    REQUIRE(got.values.size() == want.values.size());
    for (std::size_t i = 0; i < got.values.size(); ++i) {
        INFO("entry " << i);
        REQUIRE(std::abs(got.values[i] - want.values[i]) <=
                2 * static_cast<double>(std::numeric_limits<T>::epsilon()) * std::abs(want.values[i]));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/winograd_transform: the maps are the matrices of the definition", "[kernels]", float_2,
                   float_4, float_6, double_2, double_4, double_6) {
    using T = typename TestType::type;
    using map = detail::winograd_map<TestType::edge, T>;
    const winograd_matrices w = matrices_of<TestType::edge>();
    require_close<T>(columns_of<typename map::input, T>(), w.input);
    require_close<T>(columns_of<typename map::filter, T>(), w.filter);
    require_close<T>(columns_of<typename map::output, T>(), w.output);
    require_close<T>(columns_of<typename map::output_transposed, T>(), transposed(w.output));
    require_close<T>(columns_of<typename map::filter_transposed, T>(), transposed(w.filter));
}

TEMPLATE_TEST_CASE("kernels/winograd_transform: the matrices give a correlation", "[kernels]", float_2, float_4,
                   float_6) {
    const winograd_matrices w = matrices_of<TestType::edge>();
    for (std::size_t i = 0; i < w.output.rows; ++i)
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t s = 0; s < w.input.columns; ++s) {
                double sum = 0, size = 0;
                for (std::size_t p = 0; p < w.output.columns; ++p) {
                    sum += w.output(i, p) * w.filter(p, t) * w.input(p, s);
                    size += std::abs(w.output(i, p) * w.filter(p, t) * w.input(p, s));
                }
                REQUIRE(std::abs(sum - (s == i + t ? 1.0 : 0.0)) <= 16 * size * std::numeric_limits<double>::epsilon());
            }
}

TEST_CASE("kernels/winograd_transform: two dimensions, one line of channels", "[kernels]") {
    using map = detail::winograd_map<4, double>;
    constexpr std::size_t line = detail::line_size<double, 2>;
    const auto x = integers<double>(6 * 6 * line, 1);
    array<double> got(4 * 4 * line);
    detail::transform_lines<typename map::output, 2>(x.data(), {6 * line, line}, got.data(), {4 * line, line});
    const winograd_matrices w = matrices_of<4>();
    for (std::size_t c = 0; c < line; ++c) {
        matrix from{6, 6};
        for (std::size_t i = 0; i < 36; ++i) from.values[i] = x[i * line + c];
        const matrix want = w.output * from * transposed(w.output);
        const matrix size = absolute(w.output) * absolute(from) * transposed(absolute(w.output));
        for (std::size_t i = 0; i < 16; ++i)
            REQUIRE(std::abs(got[i * line + c] - want.values[i]) <=
                    32 * size.values[i] * std::numeric_limits<double>::epsilon());
    }
}
