// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/few_filters_backward_weights.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/narrow_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
struct gradients {
    array<T> dw, dbias;
};

template <class T>
gradients<T> run(const convolution& g, std::size_t batch, const array<T>& x, const array<T>& dy, int threads,
                 bool with_bias = true) {
    gradients<T> out{unwritten<T>(g.weight_count()), unwritten<T>(g.filters)};
    const scratch<T> room(
        kernels::detail::few_filters_weights<T>{{g}}.scratch(batch, static_cast<std::size_t>(threads)), {threads});
    kernels::detail::few_filters_backward_weights<T>(g, batch, x.data(), dy.data(), out.dw.data(),
                                                     with_bias ? out.dbias.data() : nullptr, room.use);
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/few_filters_backward_weights: whole numbers come out exactly", "[kernels]", float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(1, 100)) {
        const auto x = integers<TestType>(batch * g.in_size(), 1);
        const auto dy = integers<TestType>(batch * g.out_size(), 2);
        std::vector<double> dw(g.weight_count()), dbias(g.filters);
        kernels::reference::convolution_backward_weights<TestType>(g, batch, x.data(), dy.data(), dw.data(),
                                                                   dbias.data());
        const auto got = run(g, batch, x, dy, 1);
        INFO(describe(g, batch));
        REQUIRE(equal(got.dw, dw));
        REQUIRE(equal(got.dbias, dbias));
    }
}

TEMPLATE_TEST_CASE(
    "kernels/few_filters_backward_weights: the rounding error is that of a sum, equal bits for every number of threads",
    "[kernels]", float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(1, 40)) {
        const auto x = uniform<TestType>(batch * g.in_size(), 1);
        const auto dy = uniform<TestType>(batch * g.out_size(), 2);
        std::vector<double> dw(g.weight_count()), dbias(g.filters);
        kernels::reference::convolution_backward_weights<TestType>(g, batch, x.data(), dy.data(), dw.data(),
                                                                   dbias.data());
        const auto alone = run(g, batch, x, dy, 1);
        const std::size_t terms = batch * g.out_rows() * g.out_columns();
        INFO(describe(g, batch));
        REQUIRE(distance(alone.dw, dw) <= sum_tolerance<TestType>(terms, 0.25));
        REQUIRE(distance(alone.dbias, dbias) <= sum_tolerance<TestType>(terms, 0.5));
        for (const int threads : {2, 3, 5}) {
            const auto got = run(g, batch, x, dy, threads);
            REQUIRE(same_bits(got.dw, alone.dw));
            REQUIRE(same_bits(got.dbias, alone.dbias));
        }
        REQUIRE(same_bits(run(g, batch, x, dy, 1, false).dw, alone.dw));
    }
}

TEMPLATE_TEST_CASE("kernels/few_filters_backward_weights: a sample of zeros at the end changes no bit", "[kernels]",
                   float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(1, 20)) {
        auto x = uniform<TestType>(batch * g.in_size(), 1);
        auto dy = uniform<TestType>(batch * g.out_size(), 2);
        const auto without = run(g, batch, x, dy, 1);
        x.resize((batch + 1) * g.in_size(), TestType{1});
        dy.resize((batch + 1) * g.out_size(), TestType{0});
        const auto with = run(g, batch + 1, x, dy, 1);
        INFO(describe(g, batch));
        REQUIRE(same_bits(with.dw, without.dw));
        REQUIRE(same_bits(with.dbias, without.dbias));
    }
}
