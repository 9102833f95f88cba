// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of convolutions with pooling share: shapes with windows, and winners.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/text.hpp"
#include "lockstep/kernels/pooling/pooled_convolution.hpp"
#include "unit/kernels/convolution/narrow_common.hpp"

namespace kernel_test {

struct pooled_case {
    kernels::pooled_convolution g;
    std::size_t batch;
};

/// Maxima, and where in their windows they stood.
template <class T>
struct outputs {
    array<T> y;
    std::vector<std::uint8_t> which;
};

/// Narrow shapes, each with windows of LeNet-5 and with others that its outputs hold.
template <class T>
std::vector<pooled_case> pooled_cases(std::size_t count) {
    std::vector<pooled_case> out;
    const core::random_stream random{6, core::purpose::user, 3};
    std::size_t drawn = 0;
    for (const auto& [g, batch] : narrow_shapes<T>(3, count)) {
        if (g.out_rows() > 1 && g.out_columns() > 1) out.push_back({{g, 2, 2}, batch});
        const std::size_t rows = 1 + random.below(std::min<std::size_t>(g.out_rows(), 4), drawn++);
        const std::size_t columns = 1 + random.below(std::min<std::size_t>(g.out_columns(), 4), drawn++);
        out.push_back({{g, rows, columns}, batch});
    }
    return out;
}

inline std::string describe(const pooled_case& c) {
    return core::text(describe(c.g.conv, c.batch), ", window ", c.g.window_rows, "x", c.g.window_columns);
}

/// Any winners.
inline std::vector<std::uint8_t> winners(const pooled_case& c) {
    const core::random_stream random{7, core::purpose::user, 4};
    std::vector<std::uint8_t> out(c.batch * c.g.out_size());
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<std::uint8_t>(random.below(c.g.window_rows * c.g.window_columns, i));
    return out;
}

}  // namespace kernel_test
