// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A small grey image on which thick lines are drawn with smooth edges, by distance: the paper of the generated digits.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "lockstep/simd/batch.hpp"

namespace lockstep::data {

struct point {
    float x = 0;
    float y = 0;
};

/// Pixel (row, column) has its centre at x = column, y = row. Only +, -, *, /, min, max and square roots are used, each
/// rounded as IEEE 754 says, so an image has the same bits on every instruction set.
template <std::size_t Rows, std::size_t Columns>
class canvas {
    using vector = simd::batch<float>;
    static constexpr std::size_t stride = (Columns + 15) / 16 * 16;
    static_assert(16 % simd::width<float> == 0);

public:
    canvas() noexcept { depth_.fill(-blank); }

    /// A line from a to b with round ends; `edge` pixels is what the ink takes to fade out.
    /// Cost: one square root per vector of pixels in the bounding box.
    void line(point a, point b, float radius, float edge) noexcept {
        const float reach = radius + 0.5F * edge;
        const float dx = b.x - a.x;
        const float dy = b.y - a.y;
        const float length = dx * dx + dy * dy;
        const float inverse = length > 0 ? 1 / length : 0.0F;
        const std::size_t top = clip(std::min(a.y, b.y) - reach, Rows);
        const std::size_t bottom = clip(std::max(a.y, b.y) + reach + 1, Rows);
        const std::size_t left = clip(std::min(a.x, b.x) - reach, Columns) / vector::size * vector::size;
        const std::size_t right = clip(std::max(a.x, b.x) + reach + 1, Columns);
        const vector zero(0.0F), one(1.0F), thickness(radius), vx(dx), vy(dy);
        for (std::size_t row = top; row < bottom; ++row) {
            const float y = static_cast<float>(row) - a.y;
            const vector wy(y), along_y(y * dy);
            for (std::size_t column = left; column < right; column += vector::size) {
                float* at = depth_.data() + row * stride + column;
                const vector wx = simd::load(ramp.data() + column) - vector(a.x);
                const vector t = min(max((wx * vx + along_y) * vector(inverse), zero), one);
                const vector ex = wx - t * vx;
                const vector ey = wy - t * vy;
                simd::store(at, max(simd::load(at), thickness - sqrt(ex * ex + ey * ey)));
            }
        }
    }

    /// How black a pixel is, from 0 to 1.
    [[nodiscard]] float ink(std::size_t row, std::size_t column, float edge) const noexcept {
        return std::clamp(depth_[row * stride + column] / edge + 0.5F, 0.0F, 1.0F);
    }

private:
    static constexpr float blank = 1e6F;
    static constexpr std::array<float, stride> ramp = [] {
        std::array<float, stride> out{};
        for (std::size_t i = 0; i < stride; ++i) out[i] = static_cast<float>(i);
        return out;
    }();

    /// 0 for what is no number, too.
    [[nodiscard]] static std::size_t clip(float at, std::size_t extent) noexcept {
        return at > 0 ? static_cast<std::size_t>(std::min(at, static_cast<float>(extent))) : 0;
    }

    /// Distance to the border of the nearest line, positive inside it.
    alignas(simd::alignment) std::array<float, Rows * stride> depth_;
};

}  // namespace lockstep::data
