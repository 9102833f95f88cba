// SPDX-License-Identifier: BSD-3-Clause
// What is measured and with which scratch; times are facts of a machine and are not tested.
#include "lockstep/planner/measure_convolution.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "lockstep/layers/conv.hpp"
#include "lockstep/layers/tuned_conv.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/planner/convolutions.hpp"

using namespace lockstep;
using kernels::algorithm;
using kernels::convolution_pass;
using planner::convolution_layer;

namespace {

constexpr kernels::convolution small{
    .rows = 6, .columns = 5, .channels = 3, .filters = 4, .kernel_rows = 3, .kernel_columns = 3};
constexpr kernels::convolution strided{.rows = 6,
                                       .columns = 5,
                                       .channels = 2,
                                       .filters = 3,
                                       .kernel_rows = 2,
                                       .kernel_columns = 3,
                                       .stride_rows = 2,
                                       .stride_columns = 2};

planner::measuring quickly() {
    planner::measuring out;
    out.samples = 6;
    out.lanes = 4;
    out.repeats = 2;
    out.seconds = 0;
    out.hopeless = 1e9;
    return out;
}

std::set<algorithm> measured(const planner::measured_pass& of) {
    std::set<algorithm> out;
    for (const auto& one : of.algorithms) out.insert(one.which);
    return out;
}

}  // namespace

TEST_CASE("planner/measure_convolution: every pass, the algorithms that apply, all micro-batches", "[planner]") {
    const std::vector<convolution_layer> layers{
        {0, small, false}, {3, strided, true}, {5, small, true}, {8, strided, true}};
    std::vector<std::size_t> told;
    const auto all = planner::measure_convolutions<float>(layers, quickly(), [&](std::size_t layer, std::size_t of) {
        CHECK(of == 4);
        told.push_back(layer);
    });
    CHECK(told == std::vector<std::size_t>{0, 1, 2, 3});
    REQUIRE(all.size() == 2 + 3 + 3 + 3);
    std::set<std::pair<std::size_t, convolution_pass>> seen;
    for (const auto& one : all) {
        seen.insert({one.layer, one.pass});
        const auto& g = layers[one.layer].geometry;
        CHECK(one.by_rule == algorithm::direct);
        CHECK(measured(one) ==
              (g == small ? std::set{algorithm::direct, algorithm::winograd2, algorithm::winograd4, algorithm::im2col}
                          : std::set{algorithm::direct, algorithm::im2col}));
        for (const auto& tried : one.algorithms) {
            std::vector<std::size_t> samples;
            for (const auto& run : tried.runs) {
                samples.push_back(run.samples);
                CHECK(run.seconds > 0);
                if (one.pass == convolution_pass::forward)
                    CHECK(run.scratch ==
                          4 * kernels::convolve_forward_scratch<float>(tried.which, g, run.samples, {1}));
            }
            CHECK(samples == (one.pass == convolution_pass::backward_weights ? std::vector<std::size_t>{6}
                                                                             : std::vector<std::size_t>{6, 1, 2, 4}));
        }
    }
    CHECK(seen.size() == all.size());
    CHECK(seen.count({0, convolution_pass::backward_data}) == 0);
    CHECK(seen.count({2, convolution_pass::backward_data}) == 1);
}

TEST_CASE("planner/measure_convolution: scratch is what a layer takes, by any number of threads", "[planner]") {
    using in = tensor::shape<8, 8, 16>;
    using spec = layers::conv<24, 3, layers::conv_options{.padding = 1}, layers::tuned>;
    for (const int threads : {1, 2, 4}) {
        if (threads > 1 && !parallel::has_threads) continue;
        planner::measuring how = quickly();
        how.samples = 64;
        how.lanes = 8;
        how.team = {threads};
        const std::vector<convolution_layer> one{{0, spec::geometry<in>, true}};
        for (const auto& measured : planner::measure_convolutions<float>(one, how, [](std::size_t, std::size_t) {}))
            for (const auto& tried : measured.algorithms) {
                if (measured.pass != convolution_pass::backward_weights) continue;
                // All that the layer takes is for this pass: direct takes least in the others.
                kernels::convolution_choice choice;
                for (auto& pass : choice.passes) pass.which = algorithm::direct;
                choice[measured.pass].which = tried.which;
                spec chosen;
                chosen.chosen.choice = choice;
                const std::size_t all =
                    sizeof(float) * layer_api::scratch_size<float>(chosen.on(in{}), 64, 8, parallel::team{threads});
                INFO(threads << " threads, " << kernels::name(tried.which));
                CHECK(tried.runs[0].scratch <= all);
                if (tried.which != algorithm::direct) CHECK(tried.runs[0].scratch == all);
            }
    }
}

TEST_CASE("planner/measure_convolution: only what is allowed, and what the rule picks", "[planner]") {
    auto how = quickly();
    how.allowed = {algorithm::winograd6};
    planner::convolution_bench<double> bench{small, how};
    CHECK(measured(bench.measure(convolution_pass::backward_data)) ==
          std::set{algorithm::direct, algorithm::winograd6});
}

TEST_CASE("planner/measure_convolution: the convolutions of a network", "[planner]") {
    using net = std::remove_const_t<decltype(models::resnet<20>)>;
    const auto layers = planner::convolutions<net>();
    REQUIRE(layers.size() == 19);
    CHECK(!layers[0].input_learns);
    CHECK(layers[0].number == 0);
    CHECK(layers[0].geometry.channels == 3);
    CHECK(layers[1].input_learns);
    CHECK(layers[1].number == 3);
    CHECK(layers.back().geometry.filters == 64);
    CHECK(planner::convolutions<net>(true).empty());
    using tuned = std::remove_const_t<decltype(models::resnet<20, layers::tuned>)>;
    CHECK(planner::convolutions<tuned>(true).size() == 19);
    static_assert(planner::has_tuned_layers<tuned> && !planner::has_tuned_layers<net>);
}
