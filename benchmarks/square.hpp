// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The convolutions that benchmarks measure: alike in both directions of the picture.

#include <cstddef>

#include "lockstep/kernels/convolution/geometry.hpp"

namespace benchmark {

constexpr lockstep::kernels::convolution square(std::size_t size, std::size_t channels, std::size_t filters,
                                                std::size_t kernel, std::size_t pad, std::size_t stride = 1) {
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

}  // namespace benchmark
