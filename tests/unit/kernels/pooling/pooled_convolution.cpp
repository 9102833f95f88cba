// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/pooling/pooled_convolution.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/pooling/pooled_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
outputs<T> run(const pooled_case& c, std::size_t batch, const array<T>& x, const array<T>& w, const array<T>& bias,
               int threads) {
    outputs<T> out{unwritten<T>(batch * c.g.out_size()), std::vector<std::uint8_t>(batch * c.g.out_size(), 99)};
    const scratch<T> room(kernels::pooled_forward_scratch<T>(c.g, batch, {threads}), {threads});
    kernels::pooled_forward<T>(c.g, batch, x.data(), w.data(), bias.empty() ? nullptr : bias.data(), out.y.data(),
                               out.which.data(), room.use);
    return out;
}

/// The convolution, then the maximum.
template <class T>
outputs<T> one_after_the_other(const pooled_case& c, const array<T>& x, const array<T>& w, const array<T>& bias) {
    auto v = unwritten<T>(c.batch * c.g.conv.out_size());
    const scratch<T> room(kernels::convolution_forward_scratch<T>(c.g.conv, c.batch, {1}), {1});
    kernels::convolution_forward<T>(c.g.conv, c.batch, x.data(), w.data(), bias.empty() ? nullptr : bias.data(),
                                    v.data(), room.use);
    outputs<T> out{unwritten<T>(c.batch * c.g.out_size()), std::vector<std::uint8_t>(c.batch * c.g.out_size(), 99)};
    kernels::max_pool_forward<T>(c.g.pool(), c.batch, v.data(), out.y.data(), out.which.data(), {1});
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE(
    "kernels/pooled_convolution: the bits of a convolution and of its maximum, for every number of threads and samples",
    "[kernels]", float, double) {
    for (const auto& c : pooled_cases<TestType>(60)) {
        // Whole numbers have ties.
        for (const bool whole : {true, false}) {
            const auto fill = whole ? integers<TestType> : uniform<TestType>;
            const auto x = fill(c.batch * c.g.conv.in_size(), 1);
            const auto w = fill(c.g.conv.weight_count(), 2);
            const auto bias = fill(whole ? 0 : c.g.conv.filters, 3);
            const auto want = one_after_the_other(c, x, w, bias);
            INFO(describe(c));
            for (const int threads : {1, 2, 3}) {
                const auto got = run(c, c.batch, x, w, bias, threads);
                REQUIRE(same_bits(got.y, want.y));
                REQUIRE(got.which == want.which);
            }
            for (std::size_t sample = 0; sample < c.batch; ++sample)
                REQUIRE(same_bits(run(c, 1, sample_of(x, sample, c.g.conv.in_size()), w, bias, 1).y,
                                  sample_of(want.y, sample, c.g.out_size())));
        }
    }
}

TEMPLATE_TEST_CASE("kernels/pooled_convolution: the winners need not be kept, and a NaN wins", "[kernels]", float,
                   double) {
    for (const auto& c : pooled_cases<TestType>(10)) {
        auto x = uniform<TestType>(c.batch * c.g.conv.in_size(), 1);
        const auto w = uniform<TestType>(c.g.conv.weight_count(), 2);
        const auto want = run(c, c.batch, x, w, {}, 1);
        auto y = unwritten<TestType>(want.y.size());
        const scratch<TestType> room(kernels::pooled_forward_scratch<TestType>(c.g, c.batch, {1}), {1});
        kernels::pooled_forward<TestType>(c.g, c.batch, x.data(), w.data(), nullptr, y.data(), nullptr, room.use);
        INFO(describe(c));
        REQUIRE(same_bits(y, want.y));
        if (c.g.conv.pad_top > 0 || c.g.conv.pad_left > 0)
            continue;  // otherwise the first output sees the first number
        x[0] = std::numeric_limits<TestType>::quiet_NaN();
        const auto with_nan = run(c, c.batch, x, w, {}, 1);
        REQUIRE(std::isnan(with_nan.y[0]));
        REQUIRE(with_nan.which == one_after_the_other(c, x, w, {}).which);
    }
}
