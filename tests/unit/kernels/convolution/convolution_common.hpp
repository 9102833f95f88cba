// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of all kernels of convolutions share: shapes, operands, and results by the reference.

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/kernels/convolution/geometry.hpp"
#include "reference/kernels.hpp"
#include "unit/kernels/common.hpp"

namespace kernel_test {

using kernels::convolution;

constexpr convolution square(std::size_t size, std::size_t channels, std::size_t filters, std::size_t kernel,
                             std::size_t pad = 0, std::size_t stride = 1) {
    return {.rows = size,
            .columns = size,
            .channels = channels,
            .filters = filters,
            .kernel_rows = kernel,
            .kernel_columns = kernel,
            .stride_rows = stride,
            .stride_columns = stride,
            .pad_top = pad,
            .pad_bottom = pad,
            .pad_left = pad,
            .pad_right = pad};
}

inline std::string describe(const convolution& g, std::size_t batch) {
    return core::text("batch ", batch, ", ", g.rows, "x", g.columns, "x", g.channels, " -> ", g.filters, ", kernel ",
                      g.kernel_rows, "x", g.kernel_columns, ", stride ", g.stride_rows, "x", g.stride_columns,
                      ", padding ", g.pad_top, " ", g.pad_bottom, " ", g.pad_left, " ", g.pad_right, ", dilation ",
                      g.dilation_rows, "x", g.dilation_columns, ", groups ", g.groups);
}

template <class T>
struct operands {
    array<T> x, w, bias, dy;
};
template <class T, class Fill>
operands<T> operands_of(const convolution& g, std::size_t batch, Fill&& fill) {
    return {fill(batch * g.in_size(), 1U), fill(g.weight_count(), 2U), fill(g.filters, 3U),
            fill(batch * g.out_size(), 4U)};
}
template <class T>
operands<T> random_operands(const convolution& g, std::size_t batch) {
    return operands_of<T>(g, batch, uniform<T>);
}
template <class T>
operands<T> integer_operands(const convolution& g, std::size_t batch) {
    return operands_of<T>(g, batch, integers<T>);
}

template <class T>
struct results {
    array<T> y, dx, dw, dbias;
};
template <class T>
results<T> unwritten_results(const convolution& g, std::size_t batch) {
    return {unwritten<T>(batch * g.out_size()), unwritten<T>(batch * g.in_size()), unwritten<T>(g.weight_count()),
            unwritten<T>(g.filters)};
}

struct exact {
    std::vector<double> y, dx, dw, dbias;
};
template <class T>
exact wanted(const convolution& g, std::size_t batch, const operands<T>& in, bool with_bias = true) {
    exact out{std::vector<double>(batch * g.out_size()), std::vector<double>(batch * g.in_size()),
              std::vector<double>(g.weight_count()), std::vector<double>(g.filters)};
    namespace reference = kernels::reference;
    reference::convolution_forward<T>(g, batch, in.x.data(), in.w.data(), with_bias ? in.bias.data() : nullptr,
                                      out.y.data());
    reference::convolution_backward_data<T>(g, batch, in.dy.data(), in.w.data(), out.dx.data());
    reference::convolution_backward_weights<T>(g, batch, in.x.data(), in.dy.data(), out.dw.data(), out.dbias.data());
    return out;
}

}  // namespace kernel_test
