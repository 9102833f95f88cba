// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/pooling/pooled_gradients.hpp"

#include <catch2/catch.hpp>

#include "unit/kernels/pooling/pooled_common.hpp"

using namespace kernel_test;

namespace {

template <class T>
struct gradients {
    array<T> dw, dbias, dx;
};

template <class T>
gradients<T> run(const pooled_case& c, std::size_t batch, const array<T>& x, const array<T>& w, const array<T>& dy,
                 const std::vector<std::uint8_t>& which, int threads, bool with_bias = true) {
    gradients<T> out{unwritten<T>(c.g.conv.weight_count()), unwritten<T>(c.g.conv.filters),
                     unwritten<T>(batch * c.g.conv.in_size())};
    const scratch<T> room(kernels::pooled_backward_weights_scratch<T>(c.g, {threads}), {threads});
    kernels::pooled_backward_weights<T>(c.g, batch, x.data(), dy.data(), which.data(), out.dw.data(),
                                        with_bias ? out.dbias.data() : nullptr, room.use);
    const scratch<T> other(kernels::pooled_backward_data_scratch<T>(c.g, {threads}), {threads});
    kernels::pooled_backward_data<T>(c.g, batch, dy.data(), which.data(), w.data(), out.dx.data(), other.use);
    return out;
}

struct wanted_gradients {
    std::vector<double> dw, dbias, dx;
};

/// The winners' gradients among zeros, then the gradients of the convolution.
template <class T>
wanted_gradients reference_of(const pooled_case& c, const array<T>& x, const array<T>& w, const array<T>& dy,
                              const std::vector<std::uint8_t>& which) {
    const convolution& conv = c.g.conv;
    std::vector<double> spread(c.batch * conv.out_size());
    kernels::reference::max_pool_backward<T>(c.g.pool(), c.batch, dy.data(), which.data(), spread.data());
    const array<T> dv(spread.begin(), spread.end());
    wanted_gradients out{std::vector<double>(conv.weight_count()), std::vector<double>(conv.filters),
                         std::vector<double>(c.batch * conv.in_size())};
    kernels::reference::convolution_backward_weights<T>(conv, c.batch, x.data(), dv.data(), out.dw.data(),
                                                        out.dbias.data());
    kernels::reference::convolution_backward_data<T>(conv, c.batch, dv.data(), w.data(), out.dx.data());
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels/pooled_gradients: whole numbers come out exactly", "[kernels]", float, double) {
    for (const auto& c : pooled_cases<TestType>(100)) {
        const auto x = integers<TestType>(c.batch * c.g.conv.in_size(), 1);
        const auto w = integers<TestType>(c.g.conv.weight_count(), 2);
        const auto dy = integers<TestType>(c.batch * c.g.out_size(), 3);
        const auto which = winners(c);
        const auto want = reference_of(c, x, w, dy, which);
        const auto got = run(c, c.batch, x, w, dy, which, 1);
        INFO(describe(c));
        REQUIRE(equal(got.dw, want.dw));
        REQUIRE(equal(got.dbias, want.dbias));
        REQUIRE(equal(got.dx, want.dx));
    }
}

TEMPLATE_TEST_CASE(
    "kernels/pooled_gradients: rounding errors are those of sums, equal bits for all threads and for a sample alone",
    "[kernels]", float, double) {
    for (const auto& c : pooled_cases<TestType>(40)) {
        const convolution& conv = c.g.conv;
        const auto x = uniform<TestType>(c.batch * conv.in_size(), 1);
        const auto w = uniform<TestType>(conv.weight_count(), 2);
        const auto dy = uniform<TestType>(c.batch * c.g.out_size(), 3);
        const auto which = winners(c);
        const auto want = reference_of(c, x, w, dy, which);
        const auto alone = run(c, c.batch, x, w, dy, which, 1);
        INFO(describe(c));
        const std::size_t windows = c.g.out_rows() * c.g.out_columns();
        REQUIRE(distance(alone.dw, want.dw) <= sum_tolerance<TestType>(c.batch * windows, 0.25));
        REQUIRE(distance(alone.dbias, want.dbias) <= sum_tolerance<TestType>(c.batch * windows, 0.5));
        REQUIRE(distance(alone.dx, want.dx) <=
                sum_tolerance<TestType>(conv.kernel_rows * conv.kernel_columns * conv.filters, 0.25));
        for (const int threads : {2, 3, 5}) {
            const auto got = run(c, c.batch, x, w, dy, which, threads);
            REQUIRE(same_bits(got.dw, alone.dw));
            REQUIRE(same_bits(got.dbias, alone.dbias));
            REQUIRE(same_bits(got.dx, alone.dx));
        }
        REQUIRE(same_bits(run(c, c.batch, x, w, dy, which, 1, false).dw, alone.dw));
        for (std::size_t sample = 0; sample < c.batch; ++sample) {
            const auto first = which.begin() + static_cast<std::ptrdiff_t>(sample * c.g.out_size());
            const auto got = run(c, 1, sample_of(x, sample, conv.in_size()), w, sample_of(dy, sample, c.g.out_size()),
                                 {first, first + static_cast<std::ptrdiff_t>(c.g.out_size())}, 1);
            REQUIRE(same_bits(got.dx, sample_of(alone.dx, sample, conv.in_size())));
        }
    }
}

TEMPLATE_TEST_CASE(
    "kernels/pooled_gradients: a sample of zeros at the end changes no bit of the weights, no samples give zeros",
    "[kernels]", float, double) {
    for (const auto& c : pooled_cases<TestType>(20)) {
        auto x = uniform<TestType>(c.batch * c.g.conv.in_size(), 1);
        const auto w = uniform<TestType>(c.g.conv.weight_count(), 2);
        auto dy = uniform<TestType>(c.batch * c.g.out_size(), 3);
        auto which = winners(c);
        const auto without = run(c, c.batch, x, w, dy, which, 1);
        x.resize((c.batch + 1) * c.g.conv.in_size(), TestType{1});
        dy.resize((c.batch + 1) * c.g.out_size(), TestType{0});
        which.resize((c.batch + 1) * c.g.out_size(), 0);
        const auto with = run(c, c.batch + 1, x, w, dy, which, 1);
        INFO(describe(c));
        REQUIRE(same_bits(with.dw, without.dw));
        REQUIRE(same_bits(with.dbias, without.dbias));
        const auto none = run<TestType>(c, 0, {}, w, {}, {}, 2);
        REQUIRE(equal(none.dw, std::vector<double>(c.g.conv.weight_count())));
        REQUIRE(equal(none.dbias, std::vector<double>(c.g.conv.filters)));
    }
}
