// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/normalised.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "files.hpp"
#include "lockstep/data/memory.hpp"

namespace lockstep::data {
namespace {

template <std::size_t Channels, class T>
void check_against_double(std::size_t pixels) {
    channel_statistics<Channels> of;
    std::vector<std::uint8_t> bytes(pixels * Channels);
    for (std::size_t c = 0; c < Channels; ++c) {
        of.mean[c] = 0.1F + 0.2F * static_cast<float>(c);
        of.deviation[c] = 0.3F + 0.1F * static_cast<float>(c);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i);
    std::vector<T> found(bytes.size(), T{-99});
    channel_scaling{of, T{255}}(bytes.data(), found.data(), pixels);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const double mean = static_cast<double>(of.mean[i % Channels]),
                     deviation = static_cast<double>(of.deviation[i % Channels]);
        const double scaled = bytes[i] / 255.0 / deviation, expected = scaled - mean / deviation;
        // Three roundings of the product, one of the shift, one of the difference.
        const double bound = static_cast<double>(std::numeric_limits<T>::epsilon()) *
                             (1.5 * scaled + 0.5 * mean / deviation + 0.5 * std::abs(expected));
        wrong += !(std::abs(static_cast<double>(found[i]) - expected) <= 1.01 * bound);
    }
    INFO(Channels << " channels, " << pixels << " pixels");
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("data/normalised: each channel has its own mean and deviation", "[data]", float, double) {
    for (const std::size_t pixels : {0U, 1U, 15U, 16U, 17U, 31U, 97U, 1024U}) {
        check_against_double<1, TestType>(pixels);
        check_against_double<2, TestType>(pixels);
        check_against_double<3, TestType>(pixels);
        check_against_double<5, TestType>(pixels);
    }
}

TEST_CASE("data/normalised: the same bits wherever a pixel stands, and in place", "[data]") {
    const channel_statistics<3> of{.mean = {0.4F, 0.5F, 0.6F}, .deviation = {0.2F, 0.3F, 0.7F}};
    std::vector<std::uint8_t> bytes(3 * 50);
    std::vector<float> all(bytes.size()), alone(bytes.size()), in_place(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(73 * i);
    std::copy(bytes.begin(), bytes.end(), in_place.begin());
    const channel_scaling scale{of, 255.0F};
    scale(bytes.data(), all.data(), 50);
    for (std::size_t pixel = 0; pixel < 50; ++pixel) scale(bytes.data() + 3 * pixel, alone.data() + 3 * pixel, 1);
    scale(in_place.data(), 50);
    CHECK(alone == all);
    CHECK(in_place == all);
}

/// Pictures of two pixels in double alone, in which a number of 0.1 is not that of float.
struct in_double {
    using sample = tensor::shape<1, 2, 1>;
    using label = tensor::classes<2>;
    std::size_t size() const { return 3; }
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<std::int32_t> y) const {
        require_readable(*this, rows, x, y);
        for (double& one : x.all()) one = 0.1;
        std::fill(y.begin(), y.end(), 1);
    }
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<std::int32_t> y,
              const reading& key) const {
        read(rows, x, y);
        for (double& one : x.all()) one += static_cast<double>(key.epoch);
    }
};

TEST_CASE("data/normalised: wraps a data set of double", "[data]") {
    const normalised set{in_double{}, {.mean = {0}, .deviation = {0.5F}}};
    static_assert(VaryingDataset<decltype(set), double> && !Dataset<decltype(set)>);
    std::array<double, 2> x{};
    std::array<std::int32_t, 1> y{};
    set.read<double>(std::array<std::uint64_t, 1>{2}, {x.data(), 1}, y);
    CHECK(x == std::array{0.2, 0.2});
    CHECK(y[0] == 1);
    set.read<double>(std::array<std::uint64_t, 1>{2}, {x.data(), 1}, y, {.seed = 1, .epoch = 2});
    CHECK(x == std::array{4.2, 4.2});
}

TEST_CASE("data/normalised: wraps a data set", "[data]") {
    const std::vector<float> x{1, 10, 2, 20, 3, 30, 4, 40};
    const std::vector<int> y{1, 0};
    const auto inner = in_memory<tensor::shape<1, 2, 2>, tensor::classes<2>>(x, y);
    const normalised set{inner, {.mean = {1, 10}, .deviation = {0.5F, 10}}};
    static_assert(Dataset<decltype(set)> && Dataset<decltype(set), double> && !VaryingDataset<decltype(set)>);
    CHECK(set.size() == 2);
    CHECK(set.name() == inner.name());
    CHECK(set.settings() == "normalised mean=1,10 deviation=0.5,10");
    std::array<float, 8> found{};
    std::array<std::int32_t, 2> labels{};
    set.read<float>(std::array<std::uint64_t, 2>{1, 0}, {found.data(), 2}, labels);
    CHECK(found == std::array<float, 8>{4, 2, 6, 3, 0, 0, 2, 1});
    CHECK(labels == std::array<std::int32_t, 2>{0, 1});
    CHECK(test::error_of([&] {
              normalised{inner, {.mean = {1, 10}, .deviation = {0.5F, 0}}};
          }) ==
          "lockstep: channel 1 has the mean 10 and the deviation 0; give every channel a finite mean and deviation, "
          "which is "
          "above 0: 1 changes nothing");
}

}  // namespace
}  // namespace lockstep::data
