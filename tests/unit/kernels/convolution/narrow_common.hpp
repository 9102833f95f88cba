// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of convolutions with few channels or filters share: shapes of every kind, and the parts of a batch.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/kernels/convolution/convolution.hpp"
#include "unit/kernels/convolution/convolution_common.hpp"

namespace kernel_test {

/// What a rule that counts vectors of floats has to say where these have 4, 8 and 16 elements.
constexpr bool by_width(bool at_4, bool at_8, bool at_16) {
    static_assert(simd::width<float> == 4 || simd::width<float> == 8 || simd::width<float> == 16,
                  "say what is expected for this width");
    return simd::width<float> == 4 ? at_4 : simd::width<float> == 8 ? at_8 : at_16;
}

/// Those of LeNet-5, those around a vector and a tile, and random ones with strides of at most `stride`. All have
/// outputs.
template <class T>
std::vector<std::pair<convolution, std::size_t>> narrow_shapes(std::size_t stride, std::size_t count) {
    constexpr std::size_t w = simd::width<T>;
    std::vector<std::pair<convolution, std::size_t>> out{
        {square(28, 1, 6, 5, 2), 3}, {square(14, 6, 16, 5), 15}, {square(40, 2, 5, 3, 1), 2}};
    for (const std::size_t few : {std::size_t{1}, std::size_t{3}, w - 1, w, w + 1, 2 * w - 1, 2 * w, 2 * w + 1}) {
        out.emplace_back(square(7, few, 3, 3, 1), 2);
        out.emplace_back(square(7, 2, few, 3, 1), 2);
        out.emplace_back(square(few + 2, 2, 3, 3), 2);
    }
    const core::random_stream random{5, core::purpose::user, 9};
    std::size_t drawn = 0;
    const auto draw = [&](std::size_t from, std::size_t to) { return from + random.below(to - from + 1, drawn++); };
    while (count > 0) {
        convolution g;
        g.rows = draw(1, 14);
        g.columns = draw(1, 20);
        g.channels = draw(1, 9);
        g.filters = draw(1, 20);
        g.kernel_rows = draw(1, 5);
        g.kernel_columns = draw(1, 5);
        g.stride_rows = draw(1, stride);
        g.stride_columns = draw(1, stride);
        g.pad_top = draw(0, 3);
        g.pad_bottom = draw(0, 3);
        g.pad_left = draw(0, 3);
        g.pad_right = draw(0, 3);
        const std::size_t batch = draw(1, 9);
        if (g.out_rows() == 0 || g.out_columns() == 0) continue;
        out.emplace_back(g, batch);
        --count;
    }
    return out;
}

/// Sample `sample` of an array of samples.
template <class T>
array<T> sample_of(const array<T>& from, std::size_t sample, std::size_t size) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(sample * size);
    return array<T>(first, first + static_cast<std::ptrdiff_t>(size));
}

}  // namespace kernel_test
