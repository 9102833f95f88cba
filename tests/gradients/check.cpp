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
