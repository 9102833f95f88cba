// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/layers/tuned_conv.hpp"

#include "unit/layers/support.hpp"

using namespace layer_test;
using kernels::algorithm;
using kernels::convolution_choice;
using kernels::convolution_pass;

namespace {

using input = shape<7, 6, 5>;
using spec = layers::conv<9, 3, layers::conv_options{.padding = 1}, layers::tuned>;
using layer = layer_of<spec, input>;
template <kernels::algorithm_rule Rule>
using fixed = layer_of<layers::conv<9, 3, layers::conv_options{.padding = 1}, Rule>, input>;

constexpr kernels::algorithm always_im2col(const kernels::convolution&, convolution_pass) noexcept {
    return algorithm::im2col;
}
constexpr kernels::algorithm always_winograd4(const kernels::convolution&, convolution_pass) noexcept {
    return algorithm::winograd4;
}
constexpr kernels::algorithm mixed(const kernels::convolution&, convolution_pass pass) noexcept {
    return pass == convolution_pass::forward         ? algorithm::winograd2
           : pass == convolution_pass::backward_data ? algorithm::direct
                                                     : algorithm::im2col;
}

layer of(const std::optional<convolution_choice>& choice) {
    spec out;
    out.chosen.choice = choice;
    return out.on(input{});
}

template <class T, class L>
problem<T, L> with(const L& which, std::size_t rows, int threads = 1) {
    return {.rows = rows,
            .x = uniform<T>(rows * input::size, 1),
            .w = uniform<T>(problem<T, L>::weights, 2),
            .layer = which,
            .team = {threads}};
}

/// Forward and backward give the same bits.
template <class T, class L>
void same_results(const layer& left, const L& right, const tensor::lane_set& lanes, int threads = 1) {
    const auto one = with<T>(left, lanes.rows(), threads);
    const auto other = with<T>(right, lanes.rows());
    const auto dy = uniform<T>(lanes.rows() * L::output::size, 3);
    const auto ran = forward(one, lanes.count()), other_ran = forward(other, lanes.count());
    CHECK(same_bits(ran.y, other_ran.y));
    const auto got = backward(one, ran, dy, lanes), want = backward(other, other_ran, dy, lanes);
    CHECK(same_bits(got.dx, want.dx));
    REQUIRE(got.nodes.size() == want.nodes.size());
    for (std::size_t node = 0; node < got.nodes.size(); ++node) CHECK(same_bits(got.nodes[node], want.nodes[node]));
}

template <class T, kernels::algorithm_rule Rule>
void same_as_rule() {
    for (const auto& lanes : lane_cuts())
        same_results<T>(of(kernels::choice_of(Rule, layer::geometry)), fixed<Rule>{}, lanes);
}

}  // namespace

TEMPLATE_TEST_CASE("layers/tuned_conv: a choice has the bits of the rule that picks the same", "[layers]", float,
                   double) {
    same_as_rule<TestType, kernels::always_direct>();
    same_as_rule<TestType, always_im2col>();
    same_as_rule<TestType, always_winograd4>();
    same_as_rule<TestType, mixed>();
    for (const auto& lanes : lane_cuts())
        same_results<TestType>(of(std::nullopt), fixed<kernels::preferred_algorithm>{}, lanes);
}

TEMPLATE_TEST_CASE("layers/tuned_conv: micro-batches and threads change no bit", "[layers]", float, double) {
    for (const algorithm a : kernels::algorithms)
        for (const kernels::micro_batches& micro :
             {kernels::micro_batches{{1}, 1}, {{3}, 1}, {{2, 5, 1}, 3}, {{4, 8}, 2}, {{100}, 1}}) {
            convolution_choice whole, divided;
            for (const auto pass : kernels::convolution_passes) whole[pass].which = divided[pass].which = a;
            divided[convolution_pass::forward].micro = divided[convolution_pass::backward_data].micro = micro;
            for (const auto& lanes : lane_cuts())
                for (const int threads : thread_counts())
                    same_results<TestType>(of(divided), of(whole), lanes, threads);
        }
}

TEST_CASE("layers/tuned_conv: scratch is that of the choice, or of the lanes that threads have at once", "[layers]") {
    constexpr parallel::team team{2};
    constexpr std::size_t lanes = 8;
    const auto scratch_of = [&](const convolution_choice& choice, std::size_t rows) {
        return layer_api::scratch_size<float>(of(choice), rows, lanes, team);
    };
    const auto dealt = [&](algorithm a, std::size_t rows) {
        return layer_api::dealt_scratch<float>(
            kernels::convolve_backward_weights_scratch<float>(a, layer::geometry, rows, {1}), lanes, team);
    };
    for (const algorithm a : kernels::algorithms) {
        convolution_choice choice;
        for (const auto pass : kernels::convolution_passes) choice[pass].which = a;
        for (const std::size_t rows : {0U, 1U, 40U})
            CHECK(scratch_of(choice, rows) ==
                  std::max({kernels::convolve_forward_scratch<float>(a, layer::geometry, rows, team),
                            kernels::convolve_backward_data_scratch<float>(a, layer::geometry, rows, team),
                            kernels::convolve_backward_weights_scratch<float>(a, layer::geometry, rows, team),
                            dealt(a, rows)}));
    }
    // Copied patches of a few samples instead of all.
    convolution_choice whole, divided;
    whole[convolution_pass::forward].which = divided[convolution_pass::forward].which = algorithm::im2col;
    divided[convolution_pass::forward].micro = {{2}, 1};
    CHECK(scratch_of(divided, 40) < scratch_of(whole, 40));
}

TEST_CASE("layers/tuned_conv: what it says of itself", "[layers]") {
    static_assert(layer_api::Layer<layer> && layer_api::Layer<layer, double>);
    static_assert(tensor::total_size(layer::parameters) ==
                  tensor::total_size(fixed<kernels::always_direct>::parameters));
    static_assert(
        std::is_same_v<decltype(layers::conv<9, 3, layers::conv_options{.padding = 1}>{}.with_rule<layers::tuned>()),
                       spec>);
    static_assert(std::is_empty_v<layers::conv<9, 3, layers::conv_options{.padding = 1}>> &&
                  std::is_empty_v<fixed<kernels::preferred_algorithm>>);
    spec one;
    CHECK(one.chosen.algorithms() == "default rule\n");
    one.chosen.choice = kernels::choice_of(mixed, layer::geometry);
    (*one.chosen.choice)[convolution_pass::backward_data].micro = {{4}, 1};
    CHECK(one.chosen.algorithms() == "winograd2\ndirect\nim2col\n");
    CHECK(one.on(input{}).remark() == "winograd2 / direct micro 4 / im2col");
    CHECK(of(std::nullopt).remark() == "direct / direct / direct");
    CHECK(fixed<always_winograd4>{}.remark() == "winograd4");
}
