// SPDX-License-Identifier: BSD-3-Clause
// The check of gradients finds what is wrong, says where, and is not sure where it cannot be.
#include "lockstep/check_gradients.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/layer_norm.hpp"
#include "lockstep/layers/pool.hpp"
#include "lockstep/loss/huber.hpp"

namespace {

namespace ls = lockstep;
using ls::tensor::shape;

enum class mistake {
    none,
    sign_of_x,
    one_in_a_thousand,
    one_entry,
    last_lane_forgotten,
    dx_not_written,
    kink,
    jump,
    constant,
    not_a_number
};

/// One of the 44 numbers of x is less than a step away.
constexpr double crossed = 1.5 / 44 - 1 + 1e-7;

/// y = x^2 a, with a learned factor for each feature.
template <class Shape, mistake Kind>
struct square_layer {
    using input = Shape;
    using output = Shape;
    static constexpr std::string_view name = "square";
    static constexpr std::array parameters{ls::tensor::parameter{.name = "factor", .columns = Shape::size}};
    static constexpr double flops = 2 * Shape::size;

    void forward(const auto& pass) const {
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t i = 0; i < Shape::size; ++i) {
                const auto x = pass.x.sample(row)[i];
                auto& y = pass.y.sample(row)[i];
                y = pass.w[0][i] * x * x;
                if constexpr (Kind == mistake::kink) y += std::max(x - crossed, x * 0);
                if constexpr (Kind == mistake::jump) y += x > crossed;
                if constexpr (Kind == mistake::constant) y = 1;
                if constexpr (Kind == mistake::not_a_number) y = std::sqrt(x - 2);
            }
    }
    void backward(const auto& pass) const {
        using T = std::remove_cvref_t<decltype(pass.w[0][0])>;
        std::size_t lane = 0;
        pass.each_lane([&](ls::parallel::block rows, const auto& gradient) {
            std::fill(gradient[0].begin(), gradient[0].end(), T{0});
            if (Kind == mistake::last_lane_forgotten && ++lane == pass.lanes->count()) return;
            for (std::size_t row = rows.first; row < rows.last; ++row)
                for (std::size_t i = 0; i < Shape::size; ++i)
                    gradient[0][i] += pass.x.sample(row)[i] * pass.x.sample(row)[i] * pass.dy.sample(row)[i];
        });
        if (Kind == mistake::dx_not_written) return;
        for (std::size_t row = 0; row < pass.x.rows; ++row)
            for (std::size_t i = 0; i < Shape::size; ++i) {
                T& dx = pass.dx.sample(row)[i];
                dx = 2 * pass.w[0][i] * pass.x.sample(row)[i] * pass.dy.sample(row)[i];
                if (Kind == mistake::kink && pass.x.sample(row)[i] > crossed) dx += pass.dy.sample(row)[i];
                if (Kind == mistake::sign_of_x) dx = -dx;
                if (Kind == mistake::one_in_a_thousand) dx *= T(1.001);
                if (Kind == mistake::one_entry && row == 3 && i == 1) dx += T(1e-3);
            }
    }
};
template <mistake Kind = mistake::none>
struct square {
    template <class Shape>
    constexpr auto on(Shape) const {
        return square_layer<Shape, Kind>{};
    }
};

template <mistake Kind>
ls::gradient_check check(std::uint64_t seed = 1) {
    return ls::check_gradients(square<Kind>{}, shape<4>{}, {.seed = seed});
}

}  // namespace

TEST_CASE("gradients/check: what is right passes, in double and in float", "[gradients]") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto found = check<mistake::none>(seed);
        INFO(found.text());
        CHECK(found.passes());
        CHECK(found.checked == 11 * 4 + 4);
        CHECK_NOTHROW(found.require());
        CHECK(ls::check_gradients<float>(square{}, shape<4>{}, {.seed = seed}).wrong == 0);
    }
    CHECK(ls::check_gradients<float>(ls::layers::dense<3>{}, shape<5>{}).passes());
    CHECK(ls::check_gradients<float>(ls::layers::tanh{}, shape<5>{}).passes());
    const auto found = check<mistake::none>();
    CHECK(found.name == "square on 4 in double");
    CHECK_THAT(found.text(), Catch::StartsWith("gradients of square on 4 in double: 48 checked, 0 wrong, 0 unsure\n"
                                               "    the worst in x: number "));
    CHECK_THAT(found.text(), Catch::Contains("\n    the worst in factor: number "));
}

TEST_CASE("gradients/check: what is wrong is found, with the entry", "[gradients]") {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        CHECK(check<mistake::sign_of_x>(seed).wrong == 44);
        CHECK(check<mistake::one_in_a_thousand>(seed).wrong > 30);
        const auto one = check<mistake::one_entry>(seed);
        CHECK(one.wrong == 1);
        REQUIRE(one.worst.size() == 2);
        CHECK(one.worst[0].array == "x");
        CHECK(one.worst[0].index == 13);
        CHECK(one.worst[0].error() == Approx(1e-3).epsilon(1e-3));
        CHECK_FALSE(one.passes());
        const auto lane = check<mistake::last_lane_forgotten>(seed);
        CHECK(lane.wrong == 4);
        CHECK(lane.worst[1].array == "factor");
        CHECK(lane.worst[1].is_wrong());
        CHECK_FALSE(lane.worst[0].is_wrong());
        CHECK(check<mistake::dx_not_written>(seed).wrong == 44);
        CHECK_FALSE(check<mistake::not_a_number>(seed).passes());
    }
    CHECK_THROWS_WITH(
        check<mistake::one_entry>().require(),
        Catch::StartsWith("lockstep: gradients of square on 4 in double: 48 checked, 1 wrong, 0 unsure") &&
            Catch::Contains("wrong, the worst in x: number 13, backward "));
}

TEST_CASE("gradients/check: no entry passes for want of a derivative", "[gradients]") {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        // At a kink the two differences agree, and backward, which is right on one side of it, is far from them.
        const auto kink = check<mistake::kink>(seed);
        INFO(kink.text());
        CHECK_FALSE(kink.passes());
        CHECK(kink.wrong == 0);
        CHECK(kink.unsure == 1);
        const auto jump = check<mistake::jump>(seed);
        INFO(jump.text());
        CHECK_FALSE(jump.passes());
        CHECK(jump.unsure == 1);
        const auto none = check<mistake::constant>(seed);
        CHECK_FALSE(none.passes());
    }
    const auto constant = check<mistake::constant>();
    CHECK_THAT(constant.text(), Catch::Contains("wrong, the worst in x"));
}

namespace {

/// What a layer promises and does not keep.
enum class promise { kept, needs_no_x, needs_no_y, in_place, in_place_forward, sums_gradient, both };

/// y_i = x_i^2 + x_(i-1) / 2.
template <class Shape, promise Broken>
struct mixing_layer {
    using input = Shape;
    using output = Shape;
    static constexpr std::string_view name = "mixing";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 3 * Shape::size;
    static constexpr ls::layer_api::traits traits{.needs_x = Broken != promise::needs_no_x,
                                                  .needs_y = Broken != promise::needs_no_y,
                                                  .in_place = true,
                                                  .sums_gradient = true};

    void forward(const auto& pass) const {
        for (std::size_t row = 0; row < pass.x.rows; ++row) {
            const auto* x = pass.x.sample(row).data();
            auto* y = pass.y.sample(row).data();
            const auto one = [&](std::size_t i) { y[i] = x[i] * x[i] + (i > 0 ? x[i - 1] / 2 : 0); };
            if (Broken == promise::in_place_forward)
                for (std::size_t i = 0; i < Shape::size; ++i) one(i);
            else
                for (std::size_t i = Shape::size; i-- > 0;) one(i);
        }
    }
    void backward(const auto& pass) const {
        for (std::size_t row = 0; row < pass.x.rows; ++row) {
            const auto* x = pass.x.sample(row).data();
            const auto* y = pass.y.sample(row).data();
            const auto* dy = pass.dy.sample(row).data();
            auto* dx = pass.dx.sample(row).data();
            const auto dy_of = [&](std::size_t i) {
                return Broken == promise::sums_gradient || (Broken == promise::both && dx == dy) ||
                               pass.more_dy.data == nullptr
                           ? dy[i]
                           : dy[i] + pass.more_dy.sample(row)[i];
            };
            const auto one = [&](std::size_t i) {
                dx[i] = 2 * x[i] * dy_of(i) + (i + 1 < Shape::size ? dy_of(i + 1) / 2 : 0) + 0 * y[i];
            };
            if (Broken == promise::in_place)
                for (std::size_t i = Shape::size; i-- > 0;) one(i);
            else
                for (std::size_t i = 0; i < Shape::size; ++i) one(i);
        }
    }
};
template <promise Broken>
ls::gradient_check check_promise() {
    return ls::check_gradients(mixing_layer<shape<6>, Broken>{});
}

/// Squares, added over rows; or the mean over rows, or labels of the wrong rows.
struct row_loss {
    enum class kind { sum, mean, shifted };
    static constexpr std::string_view name = "row_loss";
    template <class Output>
    using label = Output;
    kind is = kind::sum;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T, class Output>
    double operator()(ls::tensor::batch<const T, Output> y, std::span<const T> target, ls::tensor::batch<T, Output> dy,
                      T scale) const noexcept {
        const T all = is == kind::mean ? T(1) / T(y.rows) : T(1);
        double sum = 0;
        for (std::size_t i = 0; i < y.rows * Output::size; ++i) {
            const T apart = y.data[i] - target[is == kind::shifted ? (i + 1) % target.size() : i];
            sum += static_cast<double>(all * apart * apart);
            if (dy.data != nullptr) dy.data[i] = scale * all * 2 * apart;
        }
        return sum;
    }
};

}  // namespace

TEST_CASE("gradients/check: what a layer promises of its memory is tried", "[gradients]") {
    const auto kept = check_promise<promise::kept>();
    INFO(kept.text());
    CHECK(kept.passes());
    CHECK(check_promise<promise::needs_no_x>().wrong >= 66);
    CHECK(check_promise<promise::needs_no_y>().wrong >= 66);
    const auto in_place = check_promise<promise::in_place>();
    CHECK(in_place.wrong > 0);
    CHECK_THAT(in_place.text(), Catch::Contains("wrong, the worst in x in the memory of dy: number"));
    const auto sums = check_promise<promise::sums_gradient>();
    CHECK(sums.wrong > 0);
    CHECK_THAT(sums.text(), Catch::Contains("wrong, the worst in x where dy has two parts: number"));
    CHECK_THAT(check_promise<promise::in_place_forward>().text(),
               Catch::Contains("wrong, the worst in y in the memory of x: number"));
    CHECK_THAT(check_promise<promise::both>().text(),
               Catch::Contains("wrong, the worst in x in the memory of dy, which has two parts: number"));
}

TEST_CASE("gradients/check: a loss is a sum over rows", "[gradients]") {
    const auto check_loss = [](row_loss::kind is) { return ls::check_gradients(row_loss{is}, shape<3>{}); };
    const auto sum = check_loss(row_loss::kind::sum);
    INFO(sum.text());
    CHECK(sum.passes());
    CHECK(sum.checked == 34);
    CHECK(check_loss(row_loss::kind::mean).wrong == 34);
    CHECK(check_loss(row_loss::kind::shifted).wrong == 12);  // the last of each row, and the sum
    CHECK(ls::check_gradients<float>(row_loss{}, shape<3>{}).wrong == 0);
}

TEST_CASE("gradients/check: kinks are unsure in float, wherever they are", "[gradients]") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const auto found = ls::check_gradients<float>(ls::layers::relu{}, shape<40>{}, {.seed = seed});
        INFO(found.text());
        CHECK(found.wrong == 0);
        CHECK(found.unsure > 0);
        CHECK(found.unsure < found.checked / 10);
        CHECK(ls::check_gradients<float>(ls::layers::max_pool<2>{}, shape<4, 4, 3>{}, {.seed = seed}).wrong == 0);
    }
}

TEST_CASE("gradients/check: options", "[gradients]") {
    const auto few = ls::check_gradients(square{}, shape<40>{}, {.most = 7});
    CHECK(few.passes());
    CHECK(few.checked == 14);
    // What has to show decides what is sure: no step shows a part in 10^15.
    CHECK(ls::check_gradients(square{}, shape<4>{}, {.resolution = 1e-15}).unsure > 0);
    CHECK(ls::check_gradients(square{}, shape<4>{}, {.step = 1e-3}).passes());
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (const ls::gradient_options& bad : {ls::gradient_options{.step = -1}, ls::gradient_options{.step = nan},
                                            ls::gradient_options{.resolution = -1}, ls::gradient_options{.most = 0}})
        CHECK_THROWS_WITH(ls::check_gradients(square{}, shape<4>{}, bad),
                          Catch::Contains("gradients are to be checked with step"));
}

TEST_CASE("gradients/check: settings that a layer or a loss refuses", "[gradients]") {
    CHECK_THROWS_WITH(ls::check_gradients(ls::layers::layer_norm{.epsilon = -0.5}, shape<5>{}),
                      Catch::Contains("layer_norm has epsilon = -0.5"));
    CHECK_THROWS_WITH(ls::check_gradients(ls::loss::huber{.delta = -1}, shape<5>{}),
                      Catch::Contains("huber has delta = -1"));
    CHECK(ls::check_gradients(ls::layers::layer_norm{}, shape<5>{}).passes());
}
