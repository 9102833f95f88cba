// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/container.hpp"

#include <array>
#include <boost/multi_array.hpp>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>
#if __has_include(<xtensor/views/xview.hpp>)
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xview.hpp>
#endif

#if __has_include(<eigen3/unsupported/Eigen/CXX11/Tensor>)
#include <eigen3/Eigen/Core>
#include <eigen3/unsupported/Eigen/CXX11/Tensor>
#endif

#include "lockstep/tensor/xtensor.hpp"

namespace tensor = lockstep::tensor;

namespace {

constexpr std::array<std::size_t, 3> image{4, 5, 1};

}  // namespace

TEST_CASE("tensor/container: any container of numbers is a span of its own memory", "[tensor]") {
    const std::vector<float> vector(40);
    CHECK(tensor::view_samples(vector, "x", image).data() == vector.data());
    CHECK(tensor::view_samples(vector, "x", image).size() == 40);

    const std::array<int, 6> array{};
    const auto ints = tensor::view_samples(std::span{array}, "labels", std::array<std::size_t, 1>{1});
    static_assert(std::is_same_v<decltype(ints), const std::span<const int>>);
    CHECK(ints.data() == array.data());

    const xt::xtensor<double, 4> four = xt::zeros<double>({2, 4, 5, 1});
    CHECK(tensor::view_samples(four, "x", image).data() == four.data());
    CHECK(tensor::view_samples(four, "x", image).size() == 40);
}

TEST_CASE("tensor/container: what has no numbers in memory is no container", "[tensor]") {
    const xt::xtensor<float, 2> x = xt::zeros<float>({4, 5});
    const auto some_rows = xt::view(x, xt::range(0, 4, 2), xt::all());
    STATIC_REQUIRE(tensor::is_container<std::vector<float>> && tensor::is_container<std::span<const int>>);
    STATIC_REQUIRE(tensor::is_container<xt::xtensor<bool, 1>> && tensor::is_container<decltype(some_rows)>);
    STATIC_REQUIRE(!tensor::is_container<std::vector<bool>> && !tensor::is_container<std::deque<float>>);
    STATIC_REQUIRE(!tensor::is_container<decltype(x / 2.0F)> && !tensor::is_container<float>);
}

TEST_CASE("tensor/container: extents of 1 carry no information", "[tensor]") {
    const auto accepts = [](std::vector<std::size_t> extents, std::vector<std::size_t> sample) {
        const xt::xarray<float> x = xt::zeros<float>(extents);
        try {
            return tensor::view_samples(x, "x", sample).size() == x.size();
        } catch (const lockstep::core::error&) {
            return false;
        }
    };
    CHECK(accepts({2, 4, 5}, {4, 5, 1}));
    CHECK(accepts({2, 4, 5, 1}, {4, 5}));
    CHECK(accepts({2, 1, 4, 1, 5}, {4, 5, 1}));
    CHECK(accepts({1, 4, 5}, {4, 5, 1}));
    CHECK(accepts({0, 4, 5}, {4, 5, 1}));
    CHECK(accepts({7}, {1}));
    CHECK(accepts({7, 1}, {1}));
    CHECK(accepts({7, 3}, {3}));

    CHECK(!accepts({2, 5, 4}, {4, 5, 1}));
    CHECK(!accepts({2, 20}, {4, 5, 1}));
    CHECK(!accepts({4, 5}, {4, 5, 1}));
    CHECK(!accepts({2, 4, 5, 3}, {4, 5, 1}));
    CHECK(!accepts({2, 4, 5}, {4, 5, 3}));
    CHECK(!accepts({7}, {2}));
    CHECK(!accepts({7, 2}, {1}));
    CHECK(!accepts({}, {1}));
}

TEST_CASE("tensor/container: a view of some rows is taken from where it begins", "[tensor]") {
    const xt::xtensor<float, 3> all = xt::reshape_view(xt::arange<float>(60), {3, 4, 5});
    const auto rows = xt::view(all, xt::range(1, 3), xt::all(), xt::all());
    const auto span = tensor::view_samples(rows, "x", image);
    REQUIRE(span.size() == 40);
    CHECK(span.data() == all.data() + 20);
    CHECK(span[39] == 59);
}

TEST_CASE("tensor/container: the message names the argument, the shape found and the shape expected", "[tensor]") {
    const xt::xtensor<float, 3> wrong = xt::zeros<float>({100, 28, 27});
    CHECK_THROWS_WITH(
        tensor::view_samples(wrong, "x", std::array<std::size_t, 3>{28, 28, 1}),
        "lockstep: x has the shape 100x28x27, expected nx28x28x1; reshape it, or declare another shape of the samples");
    CHECK_THROWS_AS(tensor::view_samples(wrong, "x", image), lockstep::core::error);

    const xt::xtensor<float, 3, xt::layout_type::column_major> turned(std::array<std::size_t, 3>{2, 4, 5}, 0.0F);
    CHECK_THROWS_WITH(
        tensor::view_samples(turned, "x", image),
        "lockstep: x (shape 2x4x5) is not contiguous in row-major order; copy it into a row-major container first");

    const xt::xtensor<float, 3> all = xt::zeros<float>({4, 4, 5});
    CHECK_THROWS_WITH(tensor::view_samples(xt::view(all, xt::range(0, 4, 2), xt::all(), xt::all()), "targets", image),
                      Catch::Contains("targets (shape 2x4x5) is not contiguous"));
    CHECK_THROWS_WITH(tensor::view_samples(xt::view(all, xt::all(), xt::all(), xt::range(0, 3)), "x",
                                           std::array<std::size_t, 2>{4, 3}),
                      Catch::Contains("x (shape 4x4x3) is not contiguous"));
}

TEST_CASE("tensor/container: Boost.MultiArray has all its elements, and its order is checked", "[tensor]") {
    using cube = boost::multi_array<float, 3>;
    cube all(boost::extents[3][4][5]);
    CHECK(tensor::view_samples(all, "x", image).data() == all.data());
    CHECK(tensor::view_samples(all, "x", image).size() == 60);
    CHECK_THROWS_WITH(tensor::view_samples(all, "x", std::array<std::size_t, 1>{4}),
                      Catch::Contains("x has the shape 3x4x5, expected nx4;"));
    const cube turned(boost::extents[3][4][5], boost::fortran_storage_order());
    CHECK_THROWS_WITH(tensor::view_samples(turned, "x", image),
                      Catch::Contains("x (shape 3x4x5) is not contiguous in row-major order"));
}

namespace {

/// As Kokkos::View<float**, LayoutLeft or LayoutRight>.
struct view_2d {
    std::vector<float> numbers;
    std::array<std::size_t, 2> extents, strides;
    [[nodiscard]] const float* data() const { return numbers.data(); }
    [[nodiscard]] std::size_t size() const { return numbers.size(); }
    [[nodiscard]] static constexpr unsigned rank() { return 2; }
    [[nodiscard]] std::size_t extent(std::size_t d) const { return extents[d]; }
    [[nodiscard]] std::size_t stride(std::size_t d) const { return strides[d]; }
};

}  // namespace

TEST_CASE("tensor/container: views with extent() and stride() are checked", "[tensor]") {
    const std::array<std::size_t, 1> three{3};
    const view_2d right{std::vector<float>(12), {4, 3}, {3, 1}}, left{std::vector<float>(12), {4, 3}, {1, 4}};
    CHECK(tensor::view_samples(right, "x", three).size() == 12);
    CHECK_THROWS_WITH(tensor::view_samples(left, "x", three), Catch::Contains("not contiguous in row-major order"));
    CHECK_THROWS_WITH(tensor::view_samples(right, "x", std::array<std::size_t, 1>{4}),
                      Catch::Contains("x has the shape 4x3, expected nx4"));
}

#if __has_include(<eigen3/unsupported/Eigen/CXX11/Tensor>)
TEST_CASE("tensor/container: a matrix of Eigen has a row for each sample, in row-major order", "[tensor]") {
    using by_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const std::array<std::size_t, 1> three{3};
    const by_rows rows = by_rows::Random(7, 3);
    CHECK(tensor::view_samples(rows, "x", three).data() == rows.data());
    CHECK(tensor::view_samples(rows, "x", three).size() == 21);
    CHECK(tensor::view_samples(rows.middleRows(2, 4), "x", three).data() == rows.data() + 6);
    CHECK(tensor::view_samples(Eigen::Map<const by_rows>(rows.data(), 7, 3), "x", three).size() == 21);
    CHECK(tensor::view_samples(by_rows(by_rows::Random(2, 20)), "x", image).size() == 40);

    const Eigen::MatrixXf columns = rows, square = Eigen::MatrixXf::Random(3, 3);
    const std::string order =
        " is not contiguous in row-major order; declare it with Eigen::RowMajor, or copy it into such a matrix first";
    CHECK_THROWS_WITH(tensor::view_samples(columns, "x", three), "lockstep: x (shape 7x3)" + order);
    CHECK_THROWS_WITH(tensor::view_samples(square, "x", three), "lockstep: x (shape 3x3)" + order);
    CHECK_THROWS_WITH(tensor::view_samples(Eigen::Ref<const Eigen::MatrixXf>(columns), "x", three),
                      "lockstep: x (shape 7x3)" + order);
    CHECK_THROWS_WITH(tensor::view_samples(rows.leftCols(2), "x", std::array<std::size_t, 1>{2}),
                      "lockstep: x (shape 7x2)" + order);
    CHECK_THROWS_WITH(tensor::view_samples(columns.transpose().eval(), "x", three),
                      "lockstep: x has the shape 3x7, expected nx3; pass a matrix with a row for each sample, in "
                      "row-major order; the transpose() of a column-major one with a column for each is one");
    const Eigen::MatrixXf by_columns = columns.transpose();
    CHECK(tensor::view_samples(by_columns.transpose(), "x", three).data() == by_columns.data());
    CHECK_THROWS_WITH(tensor::view_samples(by_rows(by_rows::Random(1, 6)), "x", three),
                      Catch::Contains("x has the shape 1x6, expected nx3"));
    CHECK(tensor::view_samples(by_rows(0, 0), "x", three).empty());
    CHECK(tensor::view_samples(by_rows(by_rows::Random(1, 3)), "x", three).size() == 3);
}

TEST_CASE("tensor/container: a vector of Eigen is a list of numbers", "[tensor]") {
    const Eigen::VectorXi labels = Eigen::VectorXi::Random(7);
    CHECK(tensor::view_samples(labels, "y", {}).data() == labels.data());
    CHECK(tensor::view_samples(labels, "y", {}).size() == 7);
    CHECK(tensor::view_samples(Eigen::RowVectorXf(Eigen::RowVectorXf::Random(6)), "x", std::array<std::size_t, 1>{3})
              .size() == 6);
    CHECK(tensor::view_samples(Eigen::MatrixXf(Eigen::MatrixXf::Random(7, 1)), "y", std::array<std::size_t, 1>{1})
              .size() == 7);
    const Eigen::MatrixXf columns = Eigen::MatrixXf::Random(7, 3);
    CHECK(tensor::view_samples(columns.col(1), "y", {}).data() == columns.data() + 7);
    CHECK_THROWS_WITH(tensor::view_samples(columns.row(1), "y", {}),
                      Catch::Contains("y (shape 1x3) is not contiguous in row-major order"));
}

TEST_CASE("tensor/container: a tensor of Eigen says its order", "[tensor]") {
    const Eigen::Tensor<float, 3, Eigen::RowMajor> rows(3, 4, 5);
    CHECK(tensor::view_samples(rows, "x", image).size() == 60);
    CHECK_THROWS_WITH(tensor::view_samples(Eigen::Tensor<float, 3>(3, 4, 5), "x", image),
                      Catch::Contains("x (shape 3x4x5) is not contiguous in row-major order"));
    CHECK_THROWS_WITH(tensor::view_samples(rows, "x", std::array<std::size_t, 1>{3}),
                      Catch::Contains("x has the shape 3x4x5, expected nx3"));
    CHECK(tensor::view_samples(Eigen::Tensor<int, 1>(7), "y", {}).size() == 7);
    CHECK(tensor::view_samples(Eigen::Tensor<float, 2>(7, 1), "y", {}).size() == 7);
    const Eigen::TensorFixedSize<float, Eigen::Sizes<7, 3>, Eigen::RowMajor> fixed;
    CHECK(tensor::view_samples(fixed, "x", std::array<std::size_t, 1>{3}).size() == 21);
    CHECK_THROWS_WITH(
        tensor::view_samples(Eigen::TensorFixedSize<float, Eigen::Sizes<7, 3>>{}, "x", std::array<std::size_t, 1>{3}),
        Catch::Contains("x (shape 7x3) is not contiguous"));
}
#endif

namespace {

/// Extents in a list, no strides.
struct listed {
    std::vector<float> numbers;
    std::initializer_list<int> extents;
    [[nodiscard]] const float* data() const { return numbers.data(); }
    [[nodiscard]] std::size_t size() const { return numbers.size(); }
    [[nodiscard]] auto shape() const { return extents; }
};
/// As arrays of pybind11: strides in bytes, which are not read.
struct with_pointers : view_2d {
    [[nodiscard]] const std::size_t* shape() const { return extents.data(); }
    [[nodiscard]] const std::size_t* strides(int = 0) const { return strides_in_bytes.data(); }
    [[nodiscard]] std::size_t rank(int) const = delete;
    std::array<std::size_t, 2> strides_in_bytes{};
};

}  // namespace

TEST_CASE("tensor/container: shapes without strides, or without a count, are taken as before", "[tensor]") {
    static constexpr std::initializer_list<int> extents{4, 3};
    const listed some{std::vector<float>(12), extents};
    CHECK(tensor::view_samples(some, "x", std::array<std::size_t, 1>{3}).size() == 12);
    CHECK_THROWS_WITH(tensor::view_samples(some, "x", std::array<std::size_t, 1>{4}),
                      Catch::Contains("x has the shape 4x3, expected nx4"));
    const with_pointers array{{std::vector<float>(12), {4, 3}, {}}};
    CHECK(tensor::view_samples(array, "x", std::array<std::size_t, 1>{3}).size() == 12);
}
