// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/container.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>
#if __has_include(<xtensor/views/xview.hpp>)
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xview.hpp>
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
