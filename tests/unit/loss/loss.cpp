// SPDX-License-Identifier: BSD-3-Clause
// All losses: values against plain formulas in double, derivatives against central differences, rows independent of
// each other.

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/loss/binary_cross_entropy.hpp"
#include "lockstep/loss/huber.hpp"
#include "lockstep/loss/mean_absolute_error.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/loss/weighted_softmax_cross_entropy.hpp"
#include "lockstep/simd/batch.hpp"

using namespace lockstep;
using loss::binary_cross_entropy;
using loss::huber;
using loss::mean_absolute_error;
using loss::mean_squared_error;
using loss::softmax_cross_entropy;
using loss::weighted_softmax_cross_entropy;

namespace {

/// Both branches are common where y and t are some units apart.
struct narrow_huber : huber {
    narrow_huber() : huber{.delta = 0.75} {}
};

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
            if constexpr (std::is_same_v<Loss, binary_cross_entropy>)  // every value in [0, 1], the ends among them
                target[i] = i % 3 == 0 ? element(i % 2) : std::abs(target[i]) / (1 + std::abs(target[i]));
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
template <class Loss, class Rows>
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
            const auto t = static_cast<long double>(rows.target[row * features + i]), difference = at(i) - t;
            if constexpr (std::is_same_v<Loss, mean_absolute_error>)
                sum += std::abs(difference);
            else if constexpr (std::is_same_v<Loss, narrow_huber>)
                sum += std::abs(difference) <= 0.75L ? difference * difference / 2
                                                     : 0.75L * (std::abs(difference) - 0.375L);
            else if constexpr (std::is_same_v<Loss, binary_cross_entropy>)
                sum -= t * std::log(1 / (1 + std::exp(-at(i)))) + (1 - t) * std::log(1 / (1 + std::exp(at(i))));
            else
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
        for (std::size_t row = 0; row < count; ++row) expected += plain<Loss>(rows, row);
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

TEMPLATE_TEST_CASE("loss/huber: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, narrow_huber>();
}

TEMPLATE_TEST_CASE("loss/mean_absolute_error: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, mean_absolute_error>();
}

TEMPLATE_TEST_CASE("loss/binary_cross_entropy: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, binary_cross_entropy>();
}

TEMPLATE_TEST_CASE("loss/softmax_cross_entropy: values, derivatives, rows", "[loss]", float, double) {
    all_sizes<TestType, softmax_cross_entropy>();
}

TEMPLATE_TEST_CASE("loss/softmax_cross_entropy: large outputs do not overflow", "[loss]", float, double) {
    using T = TestType;
    rows_of<T, softmax_cross_entropy, 3> rows{2};
    rows.y = {T{10000}, T{-10000}, T{0}, T{-10000}, T{-10000}, T{-10000}};
    rows.target = {1, 2};
    CHECK(rows.sum_and_gradient(T{1}) ==
          Approx(20000 + std::log(3.0)).epsilon(std::is_same_v<T, float> ? 1e-7 : 1e-15));
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

TEMPLATE_TEST_CASE("loss/huber: the two branches meet, and a large delta is half of the mean squared error", "[loss]",
                   float, double) {
    using T = TestType;
    rows_of<T, huber, 53> rows{5};
    rows_of<T, mean_squared_error, 53> squares{5};
    const auto run = [&](double delta) {
        return huber{.delta = delta}(tensor::batch<const T, tensor::shape<53>>{rows.y.data(), 5}, rows.target,
                                     tensor::batch<T, tensor::shape<53>>{rows.dy.data(), 5}, T{1});
    };
    CHECK(run(1e6) == Approx(squares.sum_and_gradient(T{0.5F}) / 2).epsilon(1e-12));
    for (std::size_t i = 0; i < rows.dy.size(); ++i)
        REQUIRE(static_cast<double>(rows.dy[i]) ==
                Approx(static_cast<double>(squares.dy[i])).epsilon(4 * std::numeric_limits<T>::epsilon()));
    rows.y.assign(rows.y.size(), T{2});
    rows.target.assign(rows.y.size(), T{0.5F});
    CHECK(run(1.5) == 5 * 1.125);
    CHECK(run(1) == 5.0);
    CHECK(rows.dy[0] == T{1} / 53);
    CHECK(huber{.delta = 0.1}.settings() == "delta=0.1");
    CHECK_NOTHROW(huber{}.check());
    CHECK_THROWS_WITH(huber{.delta = 0}.check(),
                      Catch::StartsWith("lockstep: huber has delta = 0, below 1e-37 or not finite;"));
    CHECK_THROWS_AS(huber{.delta = HUGE_VAL}.check(), core::error);
    CHECK_THROWS_AS(huber{.delta = NAN}.check(), core::error);
}

TEST_CASE("loss/mean_absolute_error: no derivative where the target is met", "[loss]") {
    rows_of<float, mean_absolute_error, 3> rows{1};
    rows.y = {1, 2, 3};
    rows.target = {1, 3, 2};
    CHECK(rows.sum_and_gradient(3.0F) == Approx(2.0 / 3));
    CHECK(rows.dy == std::vector<float>{0, -1, 1});
}

TEMPLATE_TEST_CASE("loss/binary_cross_entropy: large logits, small losses, and targets that are none", "[loss]", float,
                   double) {
    using T = TestType;
    rows_of<T, binary_cross_entropy, 1> rows{1};
    const auto run = [&](double y, double t) {
        rows.y[0] = static_cast<T>(y);
        rows.target[0] = static_cast<T>(t);
        return rows.sum_and_gradient(T{1});
    };
    CHECK(run(10000, 0) == 10000);
    CHECK(rows.dy[0] == T{1});
    CHECK(run(-10000, 1) == 10000);
    CHECK(rows.dy[0] == T{-1});
    CHECK(run(10000, 1) == 0);
    CHECK(rows.dy[0] == T{0});
    // What is left of a sure and right answer keeps its digits.
    for (const double y : {20.0, 40.0, 300.0}) {
        CHECK(run(y, 1) == Approx(std::log1p(std::exp(-y))).epsilon(1e-15));
        CHECK(run(-y, 0) == Approx(std::log1p(std::exp(-y))).epsilon(1e-15));
        CHECK(static_cast<double>(rows.dy[0]) ==
              Approx(static_cast<double>(static_cast<T>(std::exp(-y) / (1 + std::exp(-y)))))
                  .epsilon(2 * std::numeric_limits<T>::epsilon()));
    }
    for (const double t : {-0.01, 1.01, std::nan("")}) {
        CHECK(std::isnan(run(0.5, t)));
        CHECK(std::isnan(rows.dy[0]));
    }
}

namespace {

/// Weighted rows by the unweighted loss of each row alone, or with another number of them.
template <class T, std::size_t Classes>
void weights_multiply_rows(double smoothing) {
    using output = tensor::shape<Classes>;
    rows_of<T, softmax_cross_entropy, Classes> plain_rows{9};
    weighted_softmax_cross_entropy<Classes> loss{.weights = {}, .smoothing = smoothing};
    for (std::size_t i = 0; i < Classes; ++i) loss.weights[i] = static_cast<double>(i % 4) / 2;  // one is 0
    const auto run = [&](std::size_t first, std::size_t count, std::vector<T>& dy) {
        return loss(tensor::batch<const T, output>{plain_rows.y.data() + first * Classes, count},
                    tensor::targets<tensor::classes<Classes>, T>{plain_rows.target}.subspan(first, count),
                    tensor::batch<T, output>{dy.data() + first * Classes, count}, T{0.3F});
    };
    std::vector<T> dy(9 * Classes, T{77}), alone(9 * Classes);
    const double sum = run(0, 9, dy);
    double expected = 0;
    for (std::size_t row = 0; row < 9; ++row) {
        // By the definition, in long double: -w_c sum_i target_i log(softmax_i).
        const T* y = plain_rows.y.data() + row * Classes;
        const auto label = static_cast<std::size_t>(plain_rows.target[row]);
        long double total = 0;
        for (std::size_t i = 0; i < Classes; ++i) total += std::exp(static_cast<long double>(y[i]));
        for (std::size_t i = 0; i < Classes; ++i) {
            const long double softmax = std::exp(static_cast<long double>(y[i])) / total,
                              target = (i == label ? 1 - smoothing : 0) + smoothing / Classes;
            expected -= static_cast<double>(loss.weights[label] * target * std::log(softmax));
            const auto wanted = static_cast<double>(0.3F * loss.weights[label] * (softmax - target));
            CHECK(std::abs(static_cast<double>(dy[row * Classes + i]) - wanted) <=
                  4 * static_cast<double>(std::numeric_limits<T>::epsilon()));
        }
        (void)run(row, 1, alone);
    }
    CHECK(std::abs(sum - expected) <= 32 * static_cast<double>(std::numeric_limits<T>::epsilon()) * (9 + expected));
    CHECK(alone == dy);
}

}  // namespace

TEMPLATE_TEST_CASE("loss/weighted_softmax_cross_entropy: values, derivatives, rows", "[loss]", float, double) {
    for (const double smoothing : {0.0, 0.2}) {
        weights_multiply_rows<TestType, 2>(smoothing);
        weights_multiply_rows<TestType, 10>(smoothing);
        weights_multiply_rows<TestType, 53>(smoothing);
    }
}

TEST_CASE("loss/weighted_softmax_cross_entropy: an unknown label is not a number; what makes no sense is refused",
          "[loss]") {
    const weighted_softmax_cross_entropy loss{.weights = std::array{1.0, 0.0, 2.5}};
    const std::vector<float> y{1, 2, 3, 1, 2, 3};
    for (const std::int32_t label : {-1, 3}) {
        std::vector<float> dy(6);
        CHECK(std::isnan(loss(tensor::batch<const float, tensor::shape<3>>{y.data(), 2},
                              tensor::targets<tensor::classes<3>, float>{std::vector<std::int32_t>{0, label}},
                              tensor::batch<float, tensor::shape<3>>{dy.data(), 2}, 1.0F)));
        CHECK(std::isfinite(dy[0]));
        CHECK(std::isnan(dy[3]));
    }
    CHECK(loss.settings() == "weights=1,0,2.5 smoothing=0");
    CHECK_NOTHROW(loss.check());
    CHECK_THROWS_WITH((weighted_softmax_cross_entropy{.weights = std::array{1.0, -1.0}}.check()),
                      Catch::StartsWith("lockstep: weighted_softmax_cross_entropy has weights[1] = -1, negative"));
    CHECK_THROWS_WITH((weighted_softmax_cross_entropy{.weights = std::array{0.0, 0.0}}.check()),
                      Catch::Contains("has 2 weights, and all of them are 0;"));
    CHECK_THROWS_AS((weighted_softmax_cross_entropy{.weights = std::array{1.0, std::nan("")}}.check()), core::error);
    CHECK_THROWS_AS((weighted_softmax_cross_entropy{.weights = std::array{1.0, 1.0}, .smoothing = 1}.check()),
                    core::error);
    static_assert(loss::exact_outputs<decltype(loss)> == 3 && loss::exact_outputs<huber> == 0);
}

TEST_CASE("loss/weighted_softmax_cross_entropy: the number of classes follows from the weights", "[loss]") {
    const weighted_softmax_cross_entropy braces{.weights = {1.0, 0.0, 2.5}};
    const weighted_softmax_cross_entropy smooth{.weights = {1, 2}, .smoothing = 0.125};
    const weighted_softmax_cross_entropy array{.weights = std::array{1.0, 4.0}, .smoothing = 0.25};
    const weighted_softmax_cross_entropy copy{array};
    static_assert(std::is_same_v<decltype(braces), const weighted_softmax_cross_entropy<3>>);
    static_assert(std::is_same_v<decltype(copy), const weighted_softmax_cross_entropy<2>>);
    CHECK(braces.settings() == "weights=1,0,2.5 smoothing=0");
    CHECK(smooth.settings() == "weights=1,2 smoothing=0.125");
    CHECK(array.settings() == "weights=1,4 smoothing=0.25");
    CHECK(copy.settings() == array.settings());
}
