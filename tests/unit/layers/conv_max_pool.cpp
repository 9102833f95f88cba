// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/conv_max_pool.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// The layer, and the two that it stands for.
template <std::size_t Filters, std::size_t Kernel, std::size_t Stride, std::size_t Padding, std::size_t Window,
          class Input>
struct twins {
    using layer = layer_of<
        layers::conv_max_pool<Filters, Kernel,
                              layers::conv_max_pool_options{.stride = Stride, .padding = Padding, .window = Window}>,
        Input>;
    using conv = layer_of<layers::conv<Filters, Kernel, layers::conv_options{.stride = Stride, .padding = Padding},
                                       kernels::always_direct>,
                          Input>;
    using pool = layer_of<layers::max_pool<Window>, typename conv::output>;
};

using geometries = std::tuple<twins<4, 3, 1, 0, 2, shape<6, 7, 3>>, twins<6, 5, 1, 2, 2, shape<9, 8, 1>>,
                              twins<16, 5, 1, 0, 2, shape<8, 8, 6>>, twins<9, 3, 2, 1, 3, shape<13, 14, 3>>,
                              twins<3, 1, 1, 0, 1, shape<4, 3, 2>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("layers/conv_max_pool: what conv and max_pool compute one after the other", "[layers]",
                        geometries) {
    using layer = typename TestType::layer;
    using conv = typename TestType::conv;
    using pool = typename TestType::pool;
    static_assert(std::is_same_v<typename layer::output, typename pool::output>);
    const auto check = [&]<class T>(T) {
        constexpr std::size_t weights = tensor::total_size(layer::parameters);
        for (const auto& lanes : lane_cuts())
            for (const int threads : thread_counts()) {
                const std::size_t rows = lanes.rows();
                problem<T, layer> of{
                    .rows = rows, .x = integers<T>(rows * layer::input::size, 1), .w = integers<T>(weights, 2)};
                problem<T, conv> first{.rows = rows, .x = of.x, .w = of.w};
                of.team = {threads};
                const auto dy = integers<T>(rows * layer::output::size, 3);
                const auto between = forward(first);
                const problem<T, pool> second{.rows = rows, .x = between.y};
                const auto want = forward(second);
                const auto got = forward(of);
                CHECK(same_bits(got.y, want.y));
                const auto gradients = backward(second, want, dy, lanes);
                const auto wanted = backward(first, between, gradients.dx, lanes);
                const auto ran = backward(of, got, dy, lanes);
                // Whole numbers: the order of additions does not show.
                for (std::size_t i = 0; i < ran.dx.size(); ++i) CHECK(ran.dx[i] == wanted.dx[i]);
                REQUIRE(ran.nodes.size() == wanted.nodes.size());
                for (std::size_t node = 0; node < ran.nodes.size(); ++node)
                    CHECK(ran.nodes[node] == wanted.nodes[node]);

                of.mode = layer_api::mode::inference;
                const auto inferred = forward(of);
                CHECK(same_bits(inferred.y, got.y));
                CHECK(std::all_of(inferred.saved.begin(), inferred.saved.end(),
                                  [](std::byte one) { return one == std::byte{99}; }));
            }
    };
    check(0.0F);
    check(0.0);
}
