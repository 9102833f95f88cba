// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/pass.hpp"

#include <atomic>

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

/// The same, lane by lane on threads of their own where there are enough. Tells for each lane who computed it.
struct dealing : two_parameters {
    static constexpr layer_api::traits traits{.deals_lanes = true};
    struct turn {
        int calls = 0;
        int threads = 0;
        const void* memory = nullptr;
        std::size_t size = 0;
    };
    std::vector<turn>* turns = nullptr;

    template <class T>
    [[nodiscard]] static constexpr std::size_t scratch(std::size_t, std::size_t lanes, parallel::team team) {
        return std::max<std::size_t>(37, layer_api::dealt_scratch<T>(37, lanes, team));
    }
    void backward(const auto& pass) const {
        pass.deal_lanes([&](parallel::block rows, const auto& g, const auto& use) {
            using T = typename std::remove_cvref_t<decltype(pass)>::value_type;
            const auto numbers = of_lane<T>(rows);
            std::copy(numbers.begin(), numbers.end(), g[0].begin());
            // Lanes without rows share their place with others.
            for (std::size_t lane = 0; lane < pass.lanes->count(); ++lane)
                if (!rows.empty() && pass.lanes->blocks()[lane] == rows)
                    (*turns)[lane] = {(*turns)[lane].calls + 1, use.team.threads, use.scratch.data(),
                                      use.scratch.size()};
        });
    }
};

/// Nothing to learn, two statistics.
template <bool Deals>
struct observing {
    static constexpr layer_api::traits traits{.deals_lanes = Deals};
    using input = shape<1>;
    using output = shape<1>;
    static constexpr std::array<tensor::parameter, 0> parameters{};
    static constexpr std::array statistics{tensor::parameter{.name = "a", .columns = 33},
                                           tensor::parameter{.name = "b", .columns = 5}};
};

}  // namespace

TEST_CASE("layers/pass: parameters are numbered as the layer declares them", "[layers]") {
    std::vector<float> numbers(38);
    const layer_api::parameters<float, two_parameters> all{numbers.data()};
    CHECK(all[0].data() == numbers.data());
    CHECK(all[0].size() == 33);
    CHECK(all[1].data() == numbers.data() + 33);
    CHECK(all[1].size() == 5);
}

TEMPLATE_TEST_CASE("layers/pass: each_lane adds what a layer gives for each lane over the tree", "[layers]", float,
                   double) {
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            problem<TestType, two_parameters> of{.rows = lanes.rows(), .x = array<TestType>(lanes.rows())};
            of.team = {threads};
            const forward_result<TestType> ran{array<TestType>(lanes.rows()), {}};
            const auto got = backward(of, ran, array<TestType>(lanes.rows()), lanes, false);
            CHECK(adds_over_tree(got, lanes,
                                 [](parallel::block rows) { return two_parameters::of_lane<TestType>(rows); }));
        }
}

TEMPLATE_TEST_CASE("layers/pass: deal_lanes adds what a layer gives for each lane over the tree", "[layers]", float,
                   double) {
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            problem<TestType, dealing> of{.rows = lanes.rows(), .x = array<TestType>(lanes.rows())};
            std::vector<dealing::turn> turns(lanes.count());
            of.layer.turns = &turns;
            of.team = {threads};
            const forward_result<TestType> ran{array<TestType>(lanes.rows()), {}};
            const auto got = backward(of, ran, array<TestType>(lanes.rows()), lanes, false);
            CHECK(adds_over_tree(got, lanes, [](parallel::block rows) { return dealing::of_lane<TestType>(rows); }));
            // Each lane once; on one thread, with scratch that no other thread has, where threads take lanes.
            const bool dealt = layer_api::threads_take_lanes(lanes.count(), of.team);
            for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
                if (lanes.blocks()[lane].empty()) continue;
                CHECK(turns[lane].calls == 1);
                CHECK(turns[lane].threads == (dealt ? 1 : threads));
                CHECK(turns[lane].size >= 37);
                for (std::size_t other = 0; dealt && other < lane; ++other) {
                    if (lanes.blocks()[other].empty()) continue;
                    const auto thread_of = [&](std::size_t which) {
                        std::size_t at = 0;
                        while (parallel::split(lanes.count(), static_cast<std::size_t>(threads), at).last <= which)
                            ++at;
                        return at;
                    };
                    CHECK((turns[lane].memory == turns[other].memory) == (thread_of(lane) == thread_of(other)));
                }
            }
        }
}

TEST_CASE("layers/pass: threads take lanes where all get about as many", "[layers]") {
    CHECK(!layer_api::threads_take_lanes(8, {1}));
    for (const int threads : {2, 3, 4, 5, 8}) CHECK(layer_api::threads_take_lanes(8, {threads}));
    for (const int threads : {6, 7, 9, 16}) CHECK(!layer_api::threads_take_lanes(8, {threads}));
    CHECK(!layer_api::threads_take_lanes(1, {2}));
    CHECK(layer_api::kept_lanes(8, {1}) == tensor::tree_depth(8));
    for (int threads = 2; threads < 20; ++threads)
        for (std::size_t lanes = 0; lanes < 40; ++lanes) {
            CHECK(layer_api::kept_lanes(lanes, {threads}) >= tensor::tree_depth(lanes));
            // Room for those that are dealt, also where a run has fewer.
            for (std::size_t fewer = 0; fewer <= lanes; ++fewer)
                if (layer_api::threads_take_lanes(fewer, {threads}))
                    CHECK(layer_api::kept_lanes(lanes, {threads}) >= fewer);
        }
}

TEMPLATE_TEST_CASE_SIG(
    "layers/pass: each_lane_observed and deal_lanes_observed add what a layer observes of each lane over the tree",
    "[layers]", ((class TestType, bool Deals), TestType, Deals), (float, false), (double, false), (float, true),
    (double, true)) {
    static_assert(layer_api::has_statistics<observing<Deals>> && !layer_api::has_statistics<two_parameters>);
    for (const auto& lanes : lane_cuts())
        for (const int threads : thread_counts()) {
            constexpr std::size_t n = 38, stride = n + 3;
            auto sums = unwritten<TestType>(lanes.trees().size() * stride);
            auto partials =
                unwritten<TestType>(n * layer_api::partial_sums<observing<Deals>>(lanes.count(), {threads}));
            layer_api::forward_pass<TestType, observing<Deals>> pass;
            pass.use.team = {threads};
            pass.lanes = &lanes;
            pass.observed = sums.data();
            pass.observed_stride = stride;
            pass.observed_partials = partials.data();
            std::atomic<std::size_t> rows_seen = 0;
            std::atomic<bool> lie_together = true;
            const auto observe = [&](parallel::block rows, const auto& s) {
                if (s[0].size() != 33 || s[1].data() != s[0].data() + 33) lie_together = false;
                const auto numbers = two_parameters::of_lane<TestType>(rows);
                std::copy(numbers.begin(), numbers.end(), s[0].begin());
                rows_seen += rows.size();
            };
            if constexpr (Deals)
                pass.deal_lanes_observed([&](parallel::block rows, const auto& s, const auto&) { observe(rows, s); });
            else
                pass.each_lane_observed(observe);
            CHECK(lie_together);
            CHECK(rows_seen == lanes.rows());
            for (std::size_t node = 0; node < lanes.trees().size(); ++node) {
                const array<TestType> got(sums.begin() + static_cast<std::ptrdiff_t>(node * stride),
                                          sums.begin() + static_cast<std::ptrdiff_t>(node * stride + n));
                CHECK(same_bits(got, node_sum(lanes.blocks(lanes.trees()[node]), [](parallel::block rows) {
                                    return two_parameters::of_lane<TestType>(rows);
                                })));
            }
        }
}

TEST_CASE("layers/pass: dx is asked for by giving it memory", "[layers]") {
    layer_api::backward_pass<float, two_parameters> pass;
    CHECK(!pass.wants_dx());
    float number = 0;
    pass.dx = {&number, 1};
    CHECK(pass.wants_dx());
    CHECK(pass.features.total == 1);
}
