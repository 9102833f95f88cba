// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/batch_norm.hpp"

#include "reference/normalisation.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

template <class T, class Shape>
using problem_of = problem<T, layer_api::batch_norm_layer<Shape>>;

template <class T, class Shape>
problem_of<T, Shape> random_problem(const tensor::lane_set& lanes) {
    problem_of<T, Shape> out{.rows = lanes.rows(),
                             .x = uniform<T>(lanes.rows() * Shape::size, 1),
                             .w = uniform<T>(2 * Shape::extents.back(), 2)};
    for (auto& one : out.x) one = 3 * one + 1;
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("layers/batch_norm: a lane is normalised by its own mean and variance", "[layers]", float, double) {
    using S = shape<3, 2, 9>;
    constexpr std::size_t channels = 9, pixels = 6;
    constexpr double eps = std::numeric_limits<TestType>::epsilon();
    for (const auto& lanes : lane_cuts()) {
        auto of = random_problem<TestType, S>(lanes);
        of.lanes = &lanes;
        const auto ran = forward(of);
        for (const auto rows : lanes.blocks()) {
            const std::size_t count = rows.size() * pixels;
            const auto exact =
                kernels::reference::moments_of(channels, 1, count, channels, of.x.data() + rows.first * S::size);
            for (std::size_t i = rows.first * S::size; i < rows.last * S::size; ++i) {
                const std::size_t c = i % channels;
                const double inverse = 1 / std::sqrt(exact.variance[c] + 1e-5);
                const double y =
                    (static_cast<double>(of.x[i]) - exact.mean[c]) * inverse * static_cast<double>(of.w[c]) +
                    static_cast<double>(of.w[channels + c]);
                // Sums of at most 54 numbers up to 2.5, the error of the variance as half of it relative to the
                // variance, which is at least 1/8.
                REQUIRE(std::abs(static_cast<double>(ran.y[i]) - y) <=
                        64 * 2.5 * eps * inverse * (1 + 0.5 * 2.5 * inverse * inverse));
            }
        }
    }
}

TEMPLATE_TEST_CASE("layers/batch_norm: a lane has the same bits alone, in any batch, and on any number of threads",
                   "[layers]", float, double) {
    const auto check = []<class S>(S) {
        for (const auto& lanes : lane_cuts())
            for (const int threads : thread_counts()) {
                auto of = random_problem<TestType, S>(lanes);
                of.lanes = &lanes;
                of.team = {threads};
                const auto dy = uniform<TestType>(of.rows * S::size, 3);
                const auto ran = forward(of, lanes.count());
                const auto got = backward(of, ran, dy, lanes);
                array<TestType> y, dx;
                const auto of_lane = [&](parallel::block rows) {
                    auto mine = of.part(rows.first, rows.size());
                    mine.team = {1};
                    const auto mine_ran = forward(mine);
                    const array<TestType> mine_dy(dy.begin() + static_cast<std::ptrdiff_t>(rows.first * S::size),
                                                  dy.begin() + static_cast<std::ptrdiff_t>(rows.last * S::size));
                    return std::pair{mine_ran, backward(mine, mine_ran, mine_dy, one_lane(rows.size()))};
                };
                for (const auto rows : lanes.blocks()) {
                    const auto [mine_ran, mine] = of_lane(rows);
                    y.insert(y.end(), mine_ran.y.begin(), mine_ran.y.end());
                    dx.insert(dx.end(), mine.dx.begin(), mine.dx.end());
                }
                REQUIRE(same_bits(ran.y, y));
                REQUIRE(same_bits(got.dx, dx));
                REQUIRE(
                    adds_over_tree(got, lanes, [&](parallel::block rows) { return of_lane(rows).second.nodes.at(0); }));
                REQUIRE(ran.observed.size() == lanes.trees().size());
                for (std::size_t node = 0; node < ran.observed.size(); ++node)
                    REQUIRE(same_bits(ran.observed[node],
                                      node_sum(lanes.blocks(lanes.trees()[node]), [&](parallel::block rows) {
                                          return of_lane(rows).first.observed.at(0);
                                      })));
            }
    };
    check(shape<3, 2, 9>{});
    check(shape<5>{});
}

TEMPLATE_TEST_CASE("layers/batch_norm: a lane observes rows x its mean and its unbiased variance", "[layers]", float,
                   double) {
    using S = shape<2, 2, 3>;
    for (const std::size_t rows : {0, 1, 2, 7}) {
        const auto of = random_problem<TestType, S>(one_lane(rows));
        const auto seen = forward(of).observed.at(0);
        REQUIRE(seen.size() == 6);
        const auto exact = kernels::reference::moments_of(3, 1, rows * 4, 3, of.x.data());
        const auto n = static_cast<double>(rows * 4);
        for (std::size_t c = 0; c < 3; ++c) {
            CHECK(std::abs(static_cast<double>(seen[c]) - static_cast<double>(rows) * exact.mean[c]) <=
                  static_cast<double>(rows) * sum_tolerance<TestType>(28, 2.5 / 28));
            CHECK(std::abs(static_cast<double>(seen[3 + c]) -
                           (rows == 0 ? 0 : static_cast<double>(rows) * exact.variance[c] * n / (n - 1))) <=
                  static_cast<double>(rows) * sum_tolerance<TestType>(28, 6.25 / 28));
        }
    }
    // A single number has no unbiased variance.
    const auto single = random_problem<TestType, shape<4>>(one_lane(1));
    const auto seen = forward(single).observed.at(0);
    for (std::size_t c = 0; c < 4; ++c) {
        CHECK(seen[c] == single.x[c]);
        CHECK(seen[4 + c] == 0);
    }
}

TEMPLATE_TEST_CASE("layers/batch_norm: inference takes the running statistics, and absorbing moves them", "[layers]",
                   float, double) {
    using S = shape<2, 1, 3>;
    auto of = random_problem<TestType, S>(one_lane(4));
    of.mode = layer_api::mode::inference;
    of.running = {TestType{0}, TestType{1}, TestType{-2}, TestType{1}, TestType{4}, TestType{0.25}};
    const auto y = forward(of).y;
    for (std::size_t i = 0; i < of.x.size(); ++i) {
        const std::size_t c = i % 3;
        const double inverse = 1 / std::sqrt(static_cast<double>(of.running[3 + c]) + 1e-5);
        const double want = (static_cast<double>(of.x[i]) - static_cast<double>(of.running[c])) * inverse *
                                static_cast<double>(of.w[c]) +
                            static_cast<double>(of.w[3 + c]);
        // Five roundings of numbers up to 4.5 x 2.
        CHECK(std::abs(static_cast<double>(y[i]) - want) <=
              5 * 9 * 0.5 * static_cast<double>(std::numeric_limits<TestType>::epsilon()));
    }
    std::vector<TestType> running{TestType{1}, TestType{2}};
    const std::vector<TestType> observed{TestType{5}, TestType{-2}};
    layers::batch_norm{.momentum = 0.25}.on(shape<1>{}).absorb(std::span{running}, std::span{observed});
    CHECK(running == std::vector<TestType>{TestType{2}, TestType{1}});
}

TEMPLATE_TEST_CASE("layers/batch_norm: with an epilogue it has the bits of the layers after it", "[layers]", float,
                   double) {
    const auto check = []<class S>(S) {
        using relu = layer_of<layers::relu, S>;
        for (const auto& lanes : lane_cuts())
            for (const int threads : thread_counts()) {
                auto of = random_problem<TestType, S>(lanes);
                of.lanes = &lanes;
                of.team = {threads};
                // A shift that gives zeros of either sign and a scale of 0: what relu cuts off at 0.
                of.w[0] = 0;
                of.w[S::extents.back()] = TestType{-0.0};
                const auto addend = uniform<TestType>(of.x.size(), 5), dy = uniform<TestType>(of.x.size(), 3);
                const auto compare =
                    [&]<layer_api::epilogue Epilogue>(std::integral_constant<layer_api::epilogue, Epilogue>) {
                        using fused = layer_api::batch_norm_layer<S, Epilogue>;
                        constexpr bool adds = Epilogue == layer_api::epilogue::add_relu;
                        for (const auto mode : {layer_api::mode::training, layer_api::mode::inference})
                            for (const bool in_place : {false, true}) {
                                of.mode = mode;
                                of.running = array<TestType>(2 * S::extents.back(), TestType{0.5});
                                const auto norm = forward(of, lanes.count());
                                problem<TestType, relu> after{.rows = of.rows, .x = norm.y, .lanes = &lanes};
                                for (std::size_t i = 0; adds && i < addend.size(); ++i)
                                    after.x[i] = addend[i] + norm.y[i];
                                const auto want = forward(after);

                                problem<TestType, fused> with{
                                    .rows = of.rows, .x = of.x, .w = of.w, .layer = {}, .team = of.team};
                                with.mode = mode;
                                with.lanes = &lanes;
                                with.running = of.running;
                                with.in_place = in_place;
                                if (adds) with.addend = addend;
                                const auto got = forward(with, lanes.count());
                                REQUIRE(same_bits(got.y, want.y));
                                REQUIRE(got.saved == norm.saved);
                                REQUIRE(got.observed.size() == norm.observed.size());
                                for (std::size_t node = 0; node < got.observed.size(); ++node)
                                    REQUIRE(same_bits(got.observed[node], norm.observed[node]));
                                if (mode == layer_api::mode::inference) continue;

                                const auto masked = backward(after, want, dy, lanes).dx;
                                for (const bool wants_dx : {true, false}) {
                                    if (in_place && !adds && !wants_dx) continue;
                                    const auto gradients = backward(of, norm, masked, lanes, wants_dx);
                                    const auto back = backward(with, got, dy, lanes, wants_dx);
                                    REQUIRE(same_bits(back.dx, gradients.dx));
                                    if (adds) REQUIRE(same_bits(back.daddend, masked));
                                    for (std::size_t node = 0; node < back.nodes.size(); ++node)
                                        REQUIRE(same_bits(back.nodes[node], gradients.nodes[node]));
                                }
                                if (!adds || dy.empty()) continue;
                                // dy in two parts has the bits of their sum.
                                auto sum = dy;
                                for (std::size_t i = 0; i < dy.size(); ++i) sum[i] = dy[i] + addend[i];
                                const auto whole = backward(with, got, sum, lanes);
                                with.more_dy = addend;
                                const auto parts = backward(with, got, dy, lanes);
                                REQUIRE(same_bits(parts.dx, whole.dx));
                                REQUIRE(same_bits(parts.daddend, whole.daddend));
                                for (std::size_t node = 0; node < parts.nodes.size(); ++node)
                                    REQUIRE(same_bits(parts.nodes[node], whole.nodes[node]));
                            }
                    };
                compare(std::integral_constant<layer_api::epilogue, layer_api::epilogue::relu>{});
                compare(std::integral_constant<layer_api::epilogue, layer_api::epilogue::add_relu>{});
            }
    };
    check(shape<3, 2, 9>{});
    check(shape<2, 2, 37>{});
    check(shape<5>{});
}

TEST_CASE("layers/batch_norm: one number in a lane becomes the shift, and has no gradient", "[layers]") {
    const auto of = random_problem<double, shape<4>>(one_lane(1));
    const auto ran = forward(of);
    const auto got = backward(of, ran, uniform<double>(4, 5), one_lane(1));
    for (std::size_t c = 0; c < 4; ++c) {
        CHECK(ran.y[c] == of.w[4 + c]);
        CHECK(got.dx[c] == 0);
    }
}

TEST_CASE("layers/batch_norm: what it declares and refuses", "[layers]") {
    using layer = layer_of<layers::batch_norm, shape<4, 5, 6>>;
    static_assert(std::is_same_v<layer::input, layer::output>);
    static_assert(layer::parameters.size() == 2 && tensor::total_size(layer::parameters) == 12);
    static_assert(layer::parameters[0].initial == tensor::start::ones &&
                  layer::parameters[1].initial == tensor::start::zeros);
    static_assert(!layer::parameters[0].decays && !layer::parameters[1].decays);
    static_assert(layer_api::has_statistics<layer> && tensor::total_size(layer::statistics) == 12);
    static_assert(layer::statistics[0].initial == tensor::start::zeros &&
                  layer::statistics[1].initial == tensor::start::ones);
    static_assert(!layer::traits.is_elementwise);
    CHECK(layer::name == "batch_norm");
    CHECK(layers::batch_norm{}.settings() == "momentum=0.1 epsilon=1e-05");
    CHECK_NOTHROW(layers::batch_norm{}.check());
    CHECK_NOTHROW(layers::batch_norm{.momentum = 1}.check());
    CHECK_THROWS_WITH(layers::batch_norm{.momentum = 0}.check(),
                      Catch::Contains("lockstep: batch_norm has momentum = 0, outside (0, 1];"));
    CHECK_THROWS_AS(layers::batch_norm{.momentum = NAN}.check(), core::error);
    CHECK_THROWS_WITH(layers::batch_norm{.epsilon = 0}.check(),
                      Catch::Contains("lockstep: batch_norm has epsilon = 0, outside [1e-37, 1e37];"));
    CHECK_NOTHROW(layers::batch_norm{.epsilon = 1e37}.check());
    for (const double bad : {1e39, static_cast<double>(INFINITY), static_cast<double>(NAN)})
        CHECK_THROWS_AS(layers::batch_norm{.epsilon = bad}.check(), core::error);
}
