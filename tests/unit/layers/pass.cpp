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

/// Nothing to learn, two statistics.
struct observing {
    using input = shape<1>;
    using output = shape<1>;
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr std::array statistics{tensor::parameter{.name = "a", .columns = 33}, tensor::parameter{.name = "b", .columns = 5}};
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

TEMPLATE_TEST_CASE("layers/pass: each_lane_observed adds what a layer observes of each lane over the tree", "[layers]", float, double) {
    static_assert(layers::has_statistics<observing> && !layers::has_statistics<two_parameters>);
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            constexpr std::size_t n = 38, stride = n + 3;
            auto sums = unwritten<TestType>(lanes.trees().size() * stride);
            auto partials = unwritten<TestType>(n * tensor::tree_depth(lanes.count()));
            layers::forward_pass<TestType, observing> pass;
            pass.use.team = {threads};
            pass.lanes = &lanes;
            pass.observed = sums.data();
            pass.observed_stride = stride;
            pass.observed_partials = partials.data();
            std::size_t rows_seen = 0;
            pass.each_lane_observed([&](parallel::block rows, const auto& s) {
                REQUIRE(s[0].size() == 33);
                REQUIRE(s[1].data() == s[0].data() + 33);
                const auto numbers = two_parameters::of_lane<TestType>(rows);
                std::copy(numbers.begin(), numbers.end(), s[0].begin());
                rows_seen += rows.size();
            });
            CHECK(rows_seen == lanes.rows());
            for (std::size_t node = 0; node < lanes.trees().size(); ++node) {
                const array<TestType> got(sums.begin() + static_cast<std::ptrdiff_t>(node * stride),
                                          sums.begin() + static_cast<std::ptrdiff_t>(node * stride + n));
                CHECK(same_bits(got, node_sum(lanes.blocks(lanes.trees()[node]),
                                              [](parallel::block rows) { return two_parameters::of_lane<TestType>(rows); })));
            }
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
