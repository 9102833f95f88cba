// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/few_channels_backward_data.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/convolution/narrow_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
array<T> scattered(const convolution& g, std::size_t batch, const array<T>& dy, const array<T>& w, int threads) {
    auto dx = unwritten<T>(batch * g.in_size());
    const scratch<T> room(kernels::detail::few_channels_data_rows<T>{g}.scratch(static_cast<std::size_t>(threads)),
                          {threads});
    kernels::detail::few_channels_backward_data<T>(g, batch, dy.data(), w.data(), dx.data(), room.use);
    return dx;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/few_channels_backward_data: whole numbers come out exactly", "[kernels]", float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(3, 100)) {
        const auto dy = integers<TestType>(batch * g.out_size(), 1);
        const auto w = integers<TestType>(g.weight_count(), 2);
        std::vector<double> dx(batch * g.in_size());
        kernels::reference::convolution_backward_data<TestType>(g, batch, dy.data(), w.data(), dx.data());
        INFO(describe(g, batch));
        REQUIRE(equal(scattered(g, batch, dy, w, 1), dx));
    }
}

TEMPLATE_TEST_CASE(
    "kernels/few_channels_backward_data: the rounding error is that of one chain, the bits are those of a sample alone",
    "[kernels]", float, double) {
    for (const auto& [g, batch] : narrow_shapes<TestType>(3, 40)) {
        const auto dy = uniform<TestType>(batch * g.out_size(), 1);
        const auto w = uniform<TestType>(g.weight_count(), 2);
        std::vector<double> dx(batch * g.in_size());
        kernels::reference::convolution_backward_data<TestType>(g, batch, dy.data(), w.data(), dx.data());
        const auto all = scattered(g, batch, dy, w, 1);
        INFO(describe(g, batch));
        REQUIRE(distance(all, dx) <= sum_tolerance<TestType>(g.kernel_rows * g.kernel_columns * g.filters, 0.25));
        for (const int threads : {2, 3}) REQUIRE(same_bits(scattered(g, batch, dy, w, threads), all));
        for (std::size_t sample = 0; sample < batch; ++sample)
            REQUIRE(same_bits(scattered(g, 1, sample_of(dy, sample, g.out_size()), w, 1),
                              sample_of(all, sample, g.in_size())));
    }
}

TEST_CASE(
    "kernels/few_channels_backward_data: taken for few channels that see a wide kernel, and not where vectors of "
    "channels are full",
    "[kernels]") {
    using kernels::detail::prefers_few_channels_data;
    REQUIRE(prefers_few_channels_data<float>(square(14, 6, 16, 5)));
    // The rule counts vectors: narrow ones are full sooner.
    REQUIRE(prefers_few_channels_data<float>(square(32, 3, 16, 3, 1)) == by_width(false, true, true));
    REQUIRE(prefers_few_channels_data<float>(square(14, 8, 16, 5)) == by_width(false, true, true));
    REQUIRE(!prefers_few_channels_data<float>(square(12, 64, 64, 5)));
    REQUIRE(!prefers_few_channels_data<float>(square(32, 64, 64, 3, 1)));
    REQUIRE(!prefers_few_channels_data<float>(square(32, 6, 16, 1)));
}
