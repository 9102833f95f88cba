// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/few_filters_forward.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/narrow_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
array<T> forward(const convolution& g, std::size_t batch, const array<T>& x, const array<T>& w, const array<T>& bias,
                 int threads) {
    auto y = unwritten<T>(batch * g.out_size());
    const scratch<T> room(kernels::detail::few_filters_tiles<T>{{g}}.scratch(batch, static_cast<std::size_t>(threads)),
                          {threads});
    kernels::detail::few_filters_forward<T>(g, batch, x.data(), w.data(), bias.empty() ? nullptr : bias.data(),
                                            y.data(), room.use);
    return y;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/few_filters_forward: whole numbers come out exactly", "[kernels]", float, double) {
    bool with_bias = false;
    for (const auto& [g, batch] : narrow_shapes<TestType>(1, 100)) {
        with_bias = !with_bias;
        const auto x = integers<TestType>(batch * g.in_size(), 1);
        const auto w = integers<TestType>(g.weight_count(), 2);
        const auto bias = integers<TestType>(with_bias ? g.filters : 0, 3);
        std::vector<double> y(batch * g.out_size());
        kernels::reference::convolution_forward<TestType>(g, batch, x.data(), w.data(),
                                                          with_bias ? bias.data() : nullptr, y.data());
        INFO(describe(g, batch));
        REQUIRE(equal(forward(g, batch, x, w, bias, 1), y));
    }
}

TEMPLATE_TEST_CASE(
    "kernels/few_filters_forward: the rounding error is that of one chain, the bits are those of a sample alone",
    "[kernels]", float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(1, 40)) {
        const auto x = uniform<TestType>(batch * g.in_size(), 1);
        const auto w = uniform<TestType>(g.weight_count(), 2);
        const auto bias = uniform<TestType>(g.filters, 3);
        std::vector<double> y(batch * g.out_size());
        kernels::reference::convolution_forward<TestType>(g, batch, x.data(), w.data(), bias.data(), y.data());
        const auto all = forward(g, batch, x, w, bias, 1);
        INFO(describe(g, batch));
        REQUIRE(distance(all, y) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns * g.channels, 0.25));
        for (const int threads : {2, 3, 5}) REQUIRE(same_bits(forward(g, batch, x, w, bias, threads), all));
        for (std::size_t sample = 0; sample < batch; ++sample)
            REQUIRE(same_bits(forward(g, 1, sample_of(x, sample, g.in_size()), w, bias, 1),
                              sample_of(all, sample, g.out_size())));
    }
}

TEST_CASE(
    "kernels/few_filters_forward: taken for few filters over long lines, and not where vectors of filters are full",
    "[kernels]") {
    using kernels::detail::prefers_few_filters_forward;
    // The rule counts vectors: in narrow ones, six filters leave little empty, and twelve nothing.
    REQUIRE(prefers_few_filters_forward<float>(square(28, 1, 6, 5, 2)) == by_width(false, true, true));
    REQUIRE(prefers_few_filters_forward<float>(square(28, 1, 12, 5, 2)) == by_width(false, false, true));
    REQUIRE(prefers_few_filters_forward<float>(square(32, 3, 6, 5)));
    REQUIRE(!prefers_few_filters_forward<float>(square(28, 1, 32, 5)));
    REQUIRE(!prefers_few_filters_forward<float>(square(14, 6, 16, 5)));
    REQUIRE(!prefers_few_filters_forward<float>(square(28, 1, 6, 5, 2, 2)));
}
