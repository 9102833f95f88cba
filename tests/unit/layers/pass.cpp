// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/pass.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;

namespace {

/// Its gradient is a function of the rows of a lane, so that every order of additions has other bits.
struct two_parameters {
    using input = shape<1>;
    using output = shape<1>;
    static constexpr std::string_view name = "two_parameters";
    static constexpr std::array parameters{tensor::parameter{.name = "a", .rows = 3, .columns = 11},
                                           tensor::parameter{.name = "b", .columns = 5}};
    static constexpr double flops = 1;

    void backward(const auto& pass) const {
        pass.each_lane([&](parallel::block rows, const auto& g) {
            REQUIRE(g[0].size() == 33);
            REQUIRE(g[1].size() == 5);
            REQUIRE(g[1].data() == g[0].data() + 33);
            const auto numbers = of_lane<typename std::remove_cvref_t<decltype(pass)>::value_type>(rows);
            std::copy(numbers.begin(), numbers.end(), g[0].begin());
        });
    }
    template <class T>
    static array<T> of_lane(parallel::block rows) {
        return uniform<T>(38, static_cast<std::uint32_t>(100 * rows.first + rows.last));
    }
};

}  // namespace

TEST_CASE("layers/pass: parameters are numbered as the layer declares them", "[layers]") {
    std::vector<float> numbers(38);
    const layers::parameters<float, two_parameters> all{numbers.data()};
    CHECK(all[0].data() == numbers.data());
    CHECK(all[0].size() == 33);
    CHECK(all[1].data() == numbers.data() + 33);
    CHECK(all[1].size() == 5);
}

TEMPLATE_TEST_CASE("layers/pass: each_lane adds what a layer gives for each lane over the tree", "[layers]", float, double) {
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            problem<TestType, two_parameters> of{.rows = lanes.rows(), .x = array<TestType>(lanes.rows())};
            of.team = {threads};
            const forward_result<TestType> ran{array<TestType>(lanes.rows()), {}};
            const auto got = backward(of, ran, array<TestType>(lanes.rows()), lanes, false);
            CHECK(adds_over_tree(got, lanes, [](parallel::block rows) { return two_parameters::of_lane<TestType>(rows); }));
        }
}

TEST_CASE("layers/pass: dx is asked for by giving it memory", "[layers]") {
    layers::backward_pass<float, two_parameters> pass;
    CHECK(!pass.wants_dx());
    float number = 0;
    pass.dx = {&number, 1};
    CHECK(pass.wants_dx());
    CHECK(pass.features.total == 1);
}
