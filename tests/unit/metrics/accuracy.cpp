// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/metrics/accuracy.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

using namespace lockstep;

namespace {

template <class T, std::size_t Count>
std::size_t count(const std::vector<T>& y, const std::vector<std::int32_t>& labels) {
    return metrics::accuracy{}(tensor::batch<const T, tensor::shape<Count>>{y.data(), labels.size()},
                               tensor::targets<tensor::classes<Count>, T>{labels});
}

}  // namespace

TEMPLATE_TEST_CASE("metrics/accuracy: the first of the largest outputs counts", "[metrics]", float, double) {
    using T = TestType;
    CHECK(count<T, 3>({}, {}) == 0);
    CHECK(count<T, 3>({1, 2, 3, 3, 2, 1, 1, 5, 2}, {2, 0, 1}) == 3);
    CHECK(count<T, 3>({1, 2, 3, 3, 2, 1, 1, 5, 2}, {2, 1, 1}) == 2);
    CHECK(count<T, 3>({4, 4, 4}, {0}) == 1);
    CHECK(count<T, 3>({4, 4, 4}, {1}) == 0);
    CHECK(count<T, 3>({-7, -1, -1}, {1}) == 1);
    CHECK(count<T, 1>({-7, 3}, {0, 0}) == 2);
}

TEMPLATE_TEST_CASE("metrics/accuracy: a row with a NaN is never correct", "[metrics]", float, double) {
    using T = TestType;
    const T nan = std::numeric_limits<T>::quiet_NaN();
    const T infinity = std::numeric_limits<T>::infinity();
    for (std::int32_t label = 0; label < 3; ++label) {
        CHECK(count<T, 3>({nan, 1, 2}, {label}) == 0);
        CHECK(count<T, 3>({2, nan, 1}, {label}) == 0);
        CHECK(count<T, 3>({1, 2, nan}, {label}) == 0);
    }
    CHECK(count<T, 3>({nan, nan, nan, 1, 2, 3}, {0, 2}) == 1);
    CHECK(count<T, 3>({1, infinity, 2}, {1}) == 1);
    CHECK(count<T, 3>({-infinity, -infinity, -infinity}, {0}) == 1);
}

TEST_CASE("metrics/accuracy: a label outside the classes is never correct", "[metrics]") {
    CHECK(count<float, 3>({3, 2, 1, 3, 2, 1}, {-1, 3}) == 0);
}
