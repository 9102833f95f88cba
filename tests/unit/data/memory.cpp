// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/memory.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#if __has_include(<xtensor/containers/xtensor.hpp>)
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xarray.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#endif

#include "files.hpp"

namespace lockstep::data {
namespace {

using tensor::classes;
using tensor::shape;

static_assert(Dataset<memory<shape<2, 2, 1>, classes<3>>> && Dataset<memory<shape<2>, shape<3>, double>, float>);

// Which elements are refused: tests/build_failures.
static_assert(can_label<signed char, classes<3>> && can_label<unsigned char, classes<3>>);
static_assert(can_label<std::uint64_t, classes<3>> && !can_label<char, classes<3>> && !can_label<wchar_t, classes<3>>);
static_assert(can_label<bool, shape<1>> && !can_label<bool, classes<2>> && !can_label<float, classes<3>>);

TEST_CASE("data/memory: classes", "[data]") {
    std::vector<double> x(12);
    std::iota(x.begin(), x.end(), 0.0);
    const std::vector<std::uint8_t> y{2, 0, 1};
    const auto set = in_memory<shape<2, 2, 1>, classes<3>>(x, y);
    REQUIRE(set.size() == 3);
    CHECK(name_of(set) == "data in memory (3 samples of 2x2x1)");

    std::array<float, 8> out{};
    std::array<std::int32_t, 2> labels{};
    const std::array<std::uint64_t, 2> rows{2, 0};
    set.read<float>(rows, {out.data(), 2}, labels);
    CHECK(out == std::array<float, 8>{8, 9, 10, 11, 0, 1, 2, 3});
    CHECK(labels == std::array<std::int32_t, 2>{1, 2});

    x[8] = 80;  // a view: what the program writes is what is read
    set.read<float>(rows, {out.data(), 2}, labels);
    CHECK(out[0] == 80);
}

TEST_CASE("data/memory: rows of numbers as labels", "[data]") {
    const std::array<float, 4> x{1, 2, 3, 4};
    const std::array<float, 6> y{10, 11, 12, 20, 21, 22};
    const memory<shape<2>, shape<3>> set{x, y};
    std::array<double, 2> out{};
    std::array<double, 3> labels{};
    set.read<double>(std::array<std::uint64_t, 1>{1}, {out.data(), 1}, labels);
    CHECK(out == std::array<double, 2>{3, 4});
    CHECK(labels == std::array<double, 3>{20, 21, 22});
}

TEST_CASE("data/memory: sizes that do not fit together", "[data]") {
    const std::vector<float> x(12);
    const auto error = [&](std::size_t numbers, std::vector<std::int32_t> y) {
        return test::error_of([&] { memory<shape<2, 2, 1>, classes<3>>{std::span{x}.first(numbers), y}; });
    };
    CHECK(error(12, {0, 1, 2}).empty());
    CHECK(error(0, {}).empty());
    CHECK(error(11, {0, 1, 2}) ==
          "lockstep: x has 11 numbers, which is no multiple of the 4 of one 2x2x1 sample; pass whole samples, one "
          "after the other");
    CHECK(
        error(12, {0, 1}) ==
        "lockstep: x has 3 samples of 2x2x1, y has 2 label elements, expected 3; pass 1 label element for each sample");
    CHECK(error(12, {0, 3, 1}) ==
          "lockstep: label 1 in memory is 3, allowed are 0 to 2; labels count from 0: subtract 1 if these count from "
          "1, or "
          "declare more classes");
    CHECK(error(12, {0, 2, -1}) ==
          "lockstep: label 2 in memory is -1, allowed are 0 to 2; correct the label: classes count from 0, and none "
          "stands for a sample to leave out");
    const std::vector<float> y(5);
    CHECK(test::error_of([&] {
              memory<shape<4>, shape<2>>{x, y};
          }) ==
          "lockstep: x has 3 samples of 4, y has 5 label elements, expected 6; pass 2 label elements for each sample");
}

TEST_CASE("data/memory: wide unsigned labels do not wrap into range", "[data]") {
    const std::vector<float> x(4);
    const std::vector<std::uint64_t> y{(std::uint64_t{1} << 32) + 1};
    CHECK(test::error_of([&] { (void)in_memory<shape<4>, classes<3>>(x, y); }) ==
          "lockstep: label 0 in memory is 4294967297, allowed are 0 to 2; declare more classes, or correct the labels");
}

TEST_CASE("data/memory: wide labels that the program writes later do not wrap into range", "[data]") {
    const std::vector<float> x(8);
    std::vector<std::int64_t> y{0, 2};
    const auto set = in_memory<shape<4>, classes<3>>(x, y);
    std::array<float, 8> out{};
    std::array<std::int32_t, 2> labels{};
    const auto read = [&] {
        return test::error_of([&] { set.read<float>(std::array<std::uint64_t, 2>{0, 1}, {out.data(), 2}, labels); });
    };
    CHECK(read().empty());
    CHECK(labels == std::array<std::int32_t, 2>{0, 2});
    for (const std::int64_t wide : {(std::int64_t{1} << 32) + 1, -(std::int64_t{1} << 32) + 1, std::int64_t{1} << 31}) {
        y[1] = wide;
        CHECK(read() == "lockstep: label 1 in memory is " + std::to_string(wide) + ", allowed are 0 to 2; " +
                            (wide < 0
                                 ? "correct the label: classes count from 0, and none stands for a sample to leave out"
                                 : "declare more classes, or correct the labels"));
    }
    y[1] = -7;  // no class, and no other number: who reads it refuses it
    CHECK(read().empty());
    CHECK(labels[1] == -7);
}

TEST_CASE("data/memory: xtensor containers are viewed and their shapes checked", "[data]") {
    xt::xtensor<float, 4> x = xt::zeros<float>({3, 2, 2, 1});
    x(2, 1, 0, 0) = 7;
    const xt::xtensor<int, 1> y{0, 1, 2};
    const auto set = in_memory<shape<2, 2, 1>, classes<3>>(x, y);
    std::array<float, 4> out{};
    std::array<std::int32_t, 1> label{};
    set.read<float>(std::array<std::uint64_t, 1>{2}, {out.data(), 1}, label);
    CHECK(out == std::array<float, 4>{0, 0, 7, 0});
    CHECK(label[0] == 2);

    const xt::xarray<double> images = xt::zeros<double>({3, 2, 2});
    CHECK(in_memory<shape<2, 2, 1>, classes<3>>(images, y).size() == 3);

    const xt::xarray<double> turned = xt::zeros<double>({2, 2, 3});
    CHECK(test::error_of([&] { (void)in_memory<shape<2, 2, 1>, classes<3>>(turned, y); }) ==
          "lockstep: x has the shape 2x2x3, expected nx2x2x1; reshape it, or declare another shape of the samples");
    const xt::xarray<double> longer = xt::zeros<double>({3, 2, 2, 2});
    CHECK(test::error_of([&] { (void)in_memory<shape<2, 2, 1>, classes<3>>(longer, y); }) ==
          "lockstep: x has the shape 3x2x2x2, expected nx2x2x1; reshape it, or declare another shape of the samples");
    const xt::xarray<int> one_hot = xt::zeros<int>({3, 3});
    CHECK(test::error_of([&] { (void)in_memory<shape<2, 2, 1>, classes<3>>(x, one_hot); }) ==
          "lockstep: y has the shape 3x3, expected n; reshape it, or declare another shape of the samples");
    const xt::xtensor<float, 2, xt::layout_type::column_major> columns = xt::zeros<float>({3, 4});
    CHECK(test::error_of([&] { (void)in_memory<shape<4>, classes<3>>(columns, y); }) ==
          "lockstep: x (shape 3x4) is not contiguous in row-major order; copy it into a row-major container first");
}

TEST_CASE("data/memory: a part of an xtensor container is read from where it starts", "[data]") {
    xt::xtensor<float, 2> all = xt::zeros<float>({4, 2});
    for (std::size_t i = 0; i < 4; ++i) all(i, 0) = all(i, 1) = static_cast<float>(i);
    const auto part = xt::view(all, xt::range(1, 4), xt::all());
    const std::vector<int> y{0, 0, 0};
    const auto set = in_memory<shape<2>, classes<1>>(part, y);
    std::array<float, 2> out{};
    std::array<std::int32_t, 1> label{};
    set.read<float>(std::array<std::uint64_t, 1>{0}, {out.data(), 1}, label);
    CHECK(out == std::array<float, 2>{1, 1});
}

}  // namespace
}  // namespace lockstep::data
