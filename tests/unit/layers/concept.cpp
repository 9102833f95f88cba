// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/concept.hpp"

#include "lockstep/layers/flatten.hpp"
#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// What a user writes: y = 2 x, and nothing optional.
struct doubled {
    template <class S>
    struct layer {
        using input = S;
        using output = S;
        static constexpr std::string_view name = "doubled";
        static constexpr std::array<tensor::parameter, 0> parameters{};
        static constexpr double flops = static_cast<double>(S::size);
        void forward(const auto& pass) const noexcept {
            for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y.data[i] = 2 * pass.x.data[i];
        }
        void backward(const auto& pass) const noexcept {
            for (std::size_t i = 0; i < pass.x.size() && pass.wants_dx(); ++i) pass.dx.data[i] = 2 * pass.dy.data[i];
        }
    };
    template <tensor::Shape Input>
    constexpr auto on(Input) const {
        return layer<Input>{};
    }
};

struct without_backward {
    using input = shape<2>;
    using output = shape<2>;
    static constexpr std::string_view name = "half";
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    void forward(const auto&) const {}
};

}  // namespace

TEST_CASE("layers/concept: what is a layer, and what may stand in a network", "[layers]") {
    STATIC_REQUIRE(layer_api::Layer<doubled::layer<shape<3>>> && layer_api::LayerSpec<doubled, shape<3>>);
    STATIC_REQUIRE(layer_api::Described<without_backward>);
    STATIC_REQUIRE(!layer_api::Layer<int>);
    STATIC_REQUIRE(!layer_api::LayerSpec<int, shape<3>>);
    STATIC_REQUIRE(layer_api::LayerSpec<layers::flatten, shape<2, 2, 2>> &&
                   layer_api::Layer<layer_of<layers::flatten, shape<2, 2, 2>>>);
}

TEST_CASE("layers/concept: what holds for a layer that leaves out the optional members", "[layers]") {
    using plain = doubled::layer<shape<3>>;
    constexpr auto usual = layer_api::traits_of<plain>;
    STATIC_REQUIRE(!usual.is_view && !usual.adds_lanes && !usual.is_elementwise && usual.needs_x && usual.needs_y &&
                   usual.inputs == 1 && usual.gradient_share == 1 && !layer_api::is_shardable<plain>);
    STATIC_REQUIRE(layer_api::as_epilogue<plain> == layer_api::epilogue_part::none);
    STATIC_REQUIRE(layer_api::saved_bytes<plain, float> == 0 &&
                   layer_api::scratch_size<float>(plain{}, 5, 2, {3}) == 0);

    using dense = layer_of<layers::dense<4>, shape<3>>;
    STATIC_REQUIRE(dense::traits.adds_lanes && layer_api::is_shardable<dense> && !dense::traits.is_elementwise &&
                   !dense::traits.is_view);
    // Parts of what derives from a layer would be parts of that layer.
    struct own_dense : dense {};
    STATIC_REQUIRE(!layer_api::is_shardable<own_dense>);
    STATIC_REQUIRE(layer_of<layers::relu, shape<3>>::traits.is_elementwise &&
                   !layer_api::is_shardable<layer_of<layers::relu, shape<3>>>);
    STATIC_REQUIRE(layer_of<layers::flatten, shape<2, 2, 2>>::traits.is_view);
    STATIC_REQUIRE(layer_api::saved_bytes<layer_of<layers::max_pool<2>, shape<4, 4, 3>>, double> == 12);
}

TEMPLATE_LIST_TEST_CASE("layers/concept: every layer is one for float and double", "[layers]", all_layers) {
    using layer = typename TestType::layer;
    STATIC_REQUIRE(layer_api::Layer<layer, float> && layer_api::Layer<layer, double>);
    STATIC_REQUIRE(layer::flops > 0);
    CHECK(!layer::name.empty());
}

TEMPLATE_LIST_TEST_CASE("layers/concept: a row has the same bits alone, in any batch, and on any number of threads",
                        "[layers]", all_layers) {
    using layer = typename TestType::layer;
    constexpr std::size_t rows = 11;
    const auto check = [&]<class T>(T) {
        problem<T, layer> all{.rows = rows,
                              .x = uniform<T>(rows * layer::input::size, 1),
                              .w = uniform<T>(problem<T, layer>::weights, 2)};
        all.first_row = 5;
        const auto dy = uniform<T>(rows * layer::output::size, 3);
        const auto y = forward(all);
        const auto dx = backward(all, y, dy, one_lane(rows));
        const auto same_part = [](const array<T>& part, const array<T>& whole, std::size_t first) {
            return std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first),
                              [](T left, T right) { return std::memcmp(&left, &right, sizeof(T)) == 0; });
        };
        // The rows of a lane share its statistics: tests/unit/layers/batch_norm.cpp has lanes in the place of rows.
        constexpr std::size_t step = layer_api::has_statistics<layer> ? rows : 1;
        for (const std::size_t count : {1 * step, 2 * step, 3 * step, 6 * step})
            for (std::size_t first = 0; first + count <= rows; first += count) {
                const auto some = all.part(first, count);
                const auto some_y = forward(some);
                const auto begin = dy.begin() + static_cast<std::ptrdiff_t>(first * layer::output::size);
                const array<T> some_dy(begin, begin + static_cast<std::ptrdiff_t>(count * layer::output::size));
                INFO(layer::name << ": rows " << first << " to " << first + count);
                REQUIRE(same_part(some_y.y, y.y, first * layer::output::size));
                REQUIRE(
                    same_part(backward(some, some_y, some_dy, one_lane(count)).dx, dx.dx, first * layer::input::size));
            }
        for (const int threads : {2, 3}) {
            auto again = all;
            again.team = {threads};
            const auto again_y = forward(again);
            INFO(layer::name << ": " << threads << " threads");
            REQUIRE(same_bits(again_y.y, y.y));
            REQUIRE(again_y.saved == y.saved);
            const auto again_dx = backward(again, again_y, dy, one_lane(rows));
            REQUIRE(same_bits(again_dx.dx, dx.dx));
            REQUIRE(same_bits(again_dx.nodes.at(0), dx.nodes.at(0)));
        }
    };
    check(0.0F);
    check(0.0);
}

TEMPLATE_LIST_TEST_CASE("layers/concept: weight gradients do not depend on whether dx is wanted; no rows are no work",
                        "[layers]", all_layers) {
    using layer = typename TestType::layer;
    constexpr std::size_t rows = 5;
    const problem<float, layer> all{.rows = rows,
                                    .x = uniform<float>(rows * layer::input::size, 1),
                                    .w = uniform<float>(problem<float, layer>::weights, 2)};
    const auto dy = uniform<float>(rows * layer::output::size, 3);
    const auto y = forward(all);
    const auto with = backward(all, y, dy, one_lane(rows)), without = backward(all, y, dy, one_lane(rows), false);
    CHECK(same_bits(with.nodes.at(0), without.nodes.at(0)));

    const auto none = all.part(0, 0);
    const auto zero = backward(none, forward(none), array<float>{}, one_lane(0));
    CHECK(same_bits(zero.nodes.at(0), array<float>(problem<float, layer>::weights)));
}

TEMPLATE_LIST_TEST_CASE(
    "layers/concept: what a layer says that backward does not read may hold anything; in place is the same", "[layers]",
    all_layers) {
    using layer = typename TestType::layer;
    constexpr std::size_t rows = 5;
    const problem<float, layer> all{.rows = rows,
                                    .x = uniform<float>(rows * layer::input::size, 1),
                                    .w = uniform<float>(problem<float, layer>::weights, 2)};
    const auto dy = uniform<float>(rows * layer::output::size, 3);
    const auto ran = forward(all);
    const auto got = backward(all, ran, dy, one_lane(rows));
    auto without = all;
    auto ran_without = ran;
    if constexpr (!layer_api::traits_of<layer>.needs_x) without.x = unwritten<float>(all.x.size());
    if constexpr (!layer_api::traits_of<layer>.needs_y) ran_without.y = unwritten<float>(ran.y.size());
    const auto again = backward(without, ran_without, dy, one_lane(rows));
    CHECK(same_bits(again.dx, got.dx));
    CHECK(same_bits(again.nodes.at(0), got.nodes.at(0)));
    if constexpr (layer_api::traits_of<layer>.in_place) {
        for (const auto mode : {layer_api::mode::training, layer_api::mode::inference}) {
            without = all;
            without.mode = mode;
            without.running = array<float>(tensor::total_size(layer_api::statistics_of<layer>), 0.25F);
            const auto apart = forward(without);
            without.in_place = true;
            CHECK(same_bits(forward(without).y, apart.y));
        }
        without.mode = layer_api::mode::training;
        CHECK(same_bits(backward(without, ran, dy, one_lane(rows)).dx, got.dx));
    }
}
