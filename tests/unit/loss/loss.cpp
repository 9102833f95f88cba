// SPDX-License-Identifier: BSD-3-Clause
// Both losses: values against plain formulas in double, derivatives against central differences, rows independent of
// each other.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/simd/batch.hpp"

using namespace lockstep;
using loss::mean_squared_error;
using loss::softmax_cross_entropy;

namespace {

template <class T, class Loss, std::size_t Features>
struct rows_of {
    using output = tensor::shape<Features>;
    using label = typename Loss::template label<output>;
    using element = tensor::label_element<label, T>;

    std::size_t rows;
    std::vector<T> y, dy;
    std::vector<element> target;

    explicit rows_of(std::size_t count)
        : rows{count}, y(count * Features), dy(count * Features, T{77}), target(count * tensor::label_size<label>) {
        const core::random_stream random{5, core::purpose::user};
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(2 * random.normal(i));
        for (std::size_t i = 0; i < target.size(); ++i) {
            if constexpr (tensor::is_classes<label>)
                target[i] = static_cast<element>(random.below(Features, 1'000'000 + i));
            else
                target[i] = static_cast<element>(random.normal(1'000'000 + i));
        }
    }

    double sum_and_gradient(T scale, std::size_t first = 0, std::size_t count = ~std::size_t{0}) {
        count = std::min(count, rows - first);
        constexpr std::size_t each = tensor::label_size<label>;
        return Loss{}(tensor::batch<const T, output>{y.data() + first * Features, count},
                      tensor::targets<label, T>{target.data() + first * each, count * each},
                      tensor::batch<T, output>{dy.data() + first * Features, count}, scale);
    }
    [[nodiscard]] double sum_only() const {
        return Loss{}(tensor::batch<const T, output>{y.data(), rows}, tensor::targets<label, T>{target},
                      tensor::batch<T, output>{}, T{1});
    }
};

/// The loss of one row by its definition, in long double.
template <class Rows>
long double plain(const Rows& rows, std::size_t row) {
    constexpr std::size_t features = Rows::output::size;
    const auto at = [&](std::size_t i) { return static_cast<long double>(rows.y[row * features + i]); };
    if constexpr (tensor::is_classes<typename Rows::label>) {
        long double sum = 0;
        for (std::size_t i = 0; i < features; ++i) sum += std::exp(at(i));
        return std::log(sum) - at(static_cast<std::size_t>(rows.target[row]));
    } else {
        long double sum = 0;
        for (std::size_t i = 0; i < features; ++i) {
            const auto difference = at(i) - static_cast<long double>(rows.target[row * features + i]);
            sum += difference * difference;
        }
        return sum / static_cast<long double>(features);
    }
}

template <class T, class Loss, std::size_t Features>
void value_is_right() {
    for (std::size_t count : {0, 1, 2, 7}) {
        rows_of<T, Loss, Features> rows{count};
        long double expected = 0;
        for (std::size_t row = 0; row < count; ++row) expected += plain(rows, row);
        const auto got = rows.sum_and_gradient(T{1});
        INFO(Loss::name << " of " << count << " rows of " << Features);
        CHECK(std::abs(got - static_cast<double>(expected)) <=
              8 * static_cast<double>(std::numeric_limits<T>::epsilon()) *
                  (static_cast<double>(count) + static_cast<double>(expected)));
        CHECK(rows.sum_only() == got);
    }
}

template <class Loss, std::size_t Features>
void gradient_is_right() {
    constexpr double h = 1e-5;
    constexpr double scale = 0.375;
    rows_of<double, Loss, Features> rows{3};
    rows.sum_and_gradient(scale);
    const auto gradient = rows.dy;
    for (std::size_t i = 0; i < rows.y.size(); ++i) {
        const double middle = rows.y[i];
        rows.y[i] = middle + h;
        const double above = rows.sum_only();
        rows.y[i] = middle - h;
        const double below = rows.sum_only();
        rows.y[i] = middle;
        INFO(Loss::name << " of " << Features << " features, element " << i);
        CHECK(std::abs(gradient[i] - scale * (above - below) / (2 * h)) <= 1e-9);
    }
}

template <class Loss, std::size_t Features>
void float_follows_double() {
    rows_of<double, Loss, Features> wide{4};
    rows_of<float, Loss, Features> narrow{4};
    for (std::size_t i = 0; i < wide.y.size(); ++i) wide.y[i] = static_cast<double>(narrow.y[i]);
    for (std::size_t i = 0; i < wide.target.size(); ++i)
        wide.target[i] = static_cast<typename rows_of<double, Loss, Features>::element>(narrow.target[i]);
    wide.sum_and_gradient(0.25);
    narrow.sum_and_gradient(0.25F);
    for (std::size_t i = 0; i < wide.dy.size(); ++i)
        CHECK(std::abs(static_cast<double>(narrow.dy[i]) - wide.dy[i]) <= 1e-6 * (0.25 + std::abs(wide.dy[i])));
}

template <class T, class Loss, std::size_t Features>
void rows_are_independent() {
    rows_of<T, Loss, Features> whole{7};
    auto parts = whole;
    auto alone = whole;
    whole.sum_and_gradient(T{0.3F});
    parts.sum_and_gradient(T{0.3F}, 0, 3);
    parts.sum_and_gradient(T{0.3F}, 3, 4);
    for (std::size_t row = 7; row-- > 0;) alone.sum_and_gradient(T{0.3F}, row, 1);
    CHECK(parts.dy == whole.dy);
    CHECK(alone.dy == whole.dy);
}

template <class T, class Loss, std::size_t Features>
void not_a_number_shows() {
    for (std::size_t at = 0; at < Features; ++at) {
        rows_of<T, Loss, Features> rows{3};
        rows.y[Features + at] = std::numeric_limits<T>::quiet_NaN();
        CHECK(std::isnan(rows.sum_only()));
        CHECK(std::isnan(rows.sum_and_gradient(T{1})));
        CHECK(std::isnan(rows.dy[Features + at]));
        for (std::size_t i = 0; i < Features; ++i) {
            CHECK(std::isfinite(rows.dy[i]));
            CHECK(std::isfinite(rows.dy[2 * Features + i]));
        }
    }
}

template <class T, class Loss>
void all_sizes() {
    constexpr std::size_t width = simd::width<T>;
    const auto one = []<std::size_t Features>(std::integral_constant<std::size_t, Features>) {
        value_is_right<T, Loss, Features>();
        rows_are_independent<T, Loss, Features>();
        not_a_number_shows<T, Loss, Features>();
        if constexpr (std::is_same_v<T, double>)
            gradient_is_right<Loss, Features>();
        else
            float_follows_double<Loss, Features>();
    };
    one(std::integral_constant<std::size_t, 1>{});
    one(std::integral_constant<std::size_t, 10>{});
    one(std::integral_constant<std::size_t, width - 1>{});
    one(std::integral_constant<std::size_t, width>{});
    one(std::integral_constant<std::size_t, width + 1>{});
    one(std::integral_constant<std::size_t, 53>{});
}

}  // namespace

TEMPLATE_TEST_CASE("loss/mean_squared_error: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, mean_squared_error>();
}

TEMPLATE_TEST_CASE("loss/softmax_cross_entropy: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, softmax_cross_entropy>();
}

TEMPLATE_TEST_CASE("loss/softmax_cross_entropy: large outputs do not overflow", "[loss]", float, double) {
    using T = TestType;
    rows_of<T, softmax_cross_entropy, 3> rows{2};
    rows.y = {T{10000}, T{-10000}, T{0}, T{-10000}, T{-10000}, T{-10000}};
    rows.target = {1, 2};
    CHECK(rows.sum_and_gradient(T{1}) == Approx(20000 + std::log(3.0)));
    CHECK(rows.dy[0] == T{1});
    CHECK(rows.dy[1] == T{-1});
    CHECK(rows.dy[2] == T{0});
    CHECK(static_cast<double>(rows.dy[5]) == Approx(-2.0 / 3));
}

TEMPLATE_TEST_CASE("loss/softmax_cross_entropy: an unknown label is not a number, and a row of it only", "[loss]",
                   float, double) {
    using T = TestType;
    for (std::int32_t label :
         {-1, 3, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}) {
        rows_of<T, softmax_cross_entropy, 3> rows{2};
        rows.target[1] = label;
        CHECK(std::isnan(rows.sum_only()));
        CHECK(std::isnan(rows.sum_and_gradient(T{1})));
        for (std::size_t i = 0; i < 3; ++i) {
            CHECK(std::isfinite(rows.dy[i]));
            CHECK(std::isnan(rows.dy[3 + i]));
        }
    }
}

TEST_CASE("loss: labels that fit the output", "[loss]") {
    static_assert(std::is_same_v<softmax_cross_entropy::label<tensor::shape<10>>, tensor::classes<10>>);
    static_assert(std::is_same_v<softmax_cross_entropy::label<tensor::shape<2, 3, 4>>, tensor::classes<24>>);
    static_assert(std::is_same_v<mean_squared_error::label<tensor::shape<2, 3>>, tensor::shape<2, 3>>);
    static_assert(loss::Loss<mean_squared_error, double, tensor::shape<2, 3, 4>>);
    static_assert(loss::Loss<softmax_cross_entropy, double, tensor::shape<10>>);
    CHECK(softmax_cross_entropy{}.settings().empty());
    CHECK(mean_squared_error{}.settings().empty());
}

TEST_CASE("loss/softmax_cross_entropy: smoothing", "[loss]") {
    using output = tensor::shape<4>;
    const std::vector<double> y{1, -2, 0.5, 3};
    const std::vector<std::int32_t> label{2};
    const auto run = [&](softmax_cross_entropy loss, std::vector<double>* dy) {
        return loss(tensor::batch<const double, output>{y.data(), 1},
                    tensor::targets<tensor::classes<4>, double>{label},
                    tensor::batch<double, output>{dy ? dy->data() : nullptr, 1}, 1.0);
    };
    // The mean, with weight 0.2, of the losses with each class as the label, and with weight 0.8 that of the label.
    double sum = 0;
    for (const double one : y) sum += std::exp(one);
    double want = 0.8 * (std::log(sum) - y[2]);
    for (const double one : y) want += 0.2 / 4 * (std::log(sum) - one);
    std::vector<double> dy(4);
    CHECK(std::abs(run({.smoothing = 0.2}, &dy) - want) <= 1e-15 * 16 * want);
    double total = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(std::abs(dy[i] - (std::exp(y[i]) / sum - 0.05 - (i == 2 ? 0.8 : 0))) <= 1e-15);
        total += dy[i];
    }
    CHECK(std::abs(total) <= 1e-15);
    CHECK(run({.smoothing = 0.2}, nullptr) == run({.smoothing = 0.2}, &dy));
    CHECK(run({}, nullptr) != run({.smoothing = 0.2}, nullptr));

    CHECK(softmax_cross_entropy{}.settings().empty());
    CHECK(softmax_cross_entropy{.smoothing = 0.1}.settings() == "smoothing=0.1");
    CHECK_NOTHROW(softmax_cross_entropy{}.check());
    CHECK_NOTHROW(softmax_cross_entropy{.smoothing = 0.9}.check());
    CHECK_THROWS_WITH(softmax_cross_entropy{.smoothing = 1}.check(),
                      Catch::Contains("lockstep: softmax_cross_entropy has smoothing = 1, outside [0, 1);"));
    CHECK_THROWS_AS(softmax_cross_entropy{.smoothing = -0.1}.check(), core::error);
    CHECK_THROWS_AS(softmax_cross_entropy{.smoothing = NAN}.check(), core::error);
}
