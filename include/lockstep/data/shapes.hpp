// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Generated colour images of ten shapes, as many as wanted and without a file; a model of Dataset.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"

namespace lockstep::data {

/// Sample i is shape number first + i of the endless sheet that `seed` opens: a pure function of (seed, first + i),
/// with the same bits on every machine. A stand-in for CIFAR-10, of the same size: 32x32x3, ten classes (disc, ring,
/// square, frame, triangle, plus, saltire, bars across, bars upright, four dots) of any two colours, somewhere in the
/// picture, in any size, a little turned, under uneven light and `noise`. Neither colours nor single pixels tell the
/// class, and a flipped picture keeps it. A pixel is read as (light - mean) / deviation. Cost: about 30 microseconds
/// per image.
struct shapes {
    using sample = tensor::shape<32, 32, 3>;
    using label = tensor::classes<10>;

    std::size_t count = 50'000;
    std::uint64_t seed = 1;
    std::uint64_t first = 0;
    float noise = 0.15F;
    float mean = 0.4989F;  ///< of 10,000 images
    float deviation = 0.2313F;

    [[nodiscard]] std::size_t size() const noexcept { return count; }
    [[nodiscard]] std::string name() const {
        return core::text("generated shapes (seed ", seed, ", from ", first, ")");
    }
    [[nodiscard]] std::string settings() const {
        return core::text("seed=", seed, " first=", first, " noise=", noise, " mean=", mean, " deviation=", deviation);
    }
    void check() const {
        check_scaling(*this, mean, deviation);
        if (!(noise >= 0 && std::isfinite(noise)))
            core::fail(core::text(name(), " has the noise ", noise),
                       "give it a finite noise of 0 or more: light goes from 0 to 1");
    }

    /// Draws one sample, from 0 to 1, and returns its label.
    std::int32_t draw(std::uint64_t row, std::span<float, sample::size> light) const noexcept;

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        std::array<float, sample::size> light;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            y[i] = draw(rows[i], light);
            for (std::size_t p = 0; p < sample::size; ++p)
                x.data[i * sample::size + p] = static_cast<T>((light[p] - mean) / deviation);
        }
    }

private:
    static constexpr std::size_t drawn = 16, words = drawn + sample::size / 4;

    /// The distance of (u, v) from a shape in the square -1 .. 1, negative inside; nearly so, where that takes a root.
    [[nodiscard]] static float outside(std::int32_t kind, float u, float v) noexcept {
        const float a = std::abs(u), b = std::abs(v), box = std::max(a, b);
        const auto plus = [](float p, float q) {
            return std::min(std::max(p - 0.28F, q - 0.95F), std::max(q - 0.28F, p - 0.95F));
        };
        const auto bars = [&](float p) {
            return std::max(box - 0.85F, std::min(p - 0.18F, std::abs(p - 0.65F) - 0.18F));
        };
        switch (kind) {
            case 0:
                return (u * u + v * v - 0.9F) * 0.53F;
            case 1:
                return std::abs(u * u + v * v - 0.6F) * 0.65F - 0.18F;
            case 2:
                return box - 0.8F;
            case 3:
                return std::abs(box - 0.7F) - 0.16F;
            case 4:
                return std::max(v - 0.75F, (a - 0.55F * (v + 0.9F)) * 0.88F);
            case 5:
                return plus(a, b);
            case 6:
                return plus(std::abs(u + v) * 0.7071F, std::abs(u - v) * 0.7071F);
            case 7:
                return bars(b);
            case 8:
                return bars(a);
            default:
                return ((a - 0.5F) * (a - 0.5F) + (b - 0.5F) * (b - 0.5F) - 0.13F) * 1.4F;
        }
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::int32_t shapes::draw(std::uint64_t row, std::span<float, sample::size> light) const noexcept {
    const core::random_stream stream{seed, core::purpose::generator, 1};
    std::array<std::uint32_t, words> word;
    stream.words((first + row) * words, word);
    std::size_t next = 0;
    const auto uniform = [&](float low, float high) {
        return low + (high - low) * core::random_stream::to_uniform(word[next++]);
    };

    const auto kind = static_cast<std::int32_t>((std::uint64_t{word[next++]} * 10) >> 32);
    const float radius = uniform(7, 13), wide = radius * uniform(0.85F, 1.15F);
    const float x0 = 15.5F + (15.5F - wide) * uniform(-1, 1), y0 = 15.5F + (15.5F - radius) * uniform(-1, 1);
    const float half = uniform(-0.1F, 0.1F);  // tangent of half the angle: no sine of any library
    const float cosine = (1 - half * half) / (1 + half * half), sine = 2 * half / (1 + half * half);
    const float right = uniform(-0.012F, 0.012F), down = uniform(-0.012F, 0.012F);
    std::array<float, 3> paper, ink;
    for (std::size_t c = 0; c < 3; ++c) {
        paper[c] = uniform(0.1F, 0.9F);
        ink[c] = paper[c] + (paper[c] < 0.5F ? 1.0F : -1.0F) * uniform(0.2F, 0.5F);
    }
    for (std::size_t r = 0; r < 32; ++r)
        for (std::size_t c = 0; c < 32; ++c) {
            const float x = static_cast<float>(c) - x0, y = static_cast<float>(r) - y0;
            const float u = (x * cosine - y * sine) / wide, v = (x * sine + y * cosine) / radius;
            const float cover = std::clamp(0.5F - outside(kind, u, v) * radius, 0.0F, 1.0F);
            const float lit = 1 + right * (static_cast<float>(c) - 15.5F) + down * (static_cast<float>(r) - 15.5F);
            for (std::size_t k = 0; k < 3; ++k) {
                const std::size_t at = (r * 32 + c) * 3 + k;
                const float grain =
                    static_cast<float>((word[drawn + at / 4] >> (8 * (at % 4))) & 255) * (1.0F / 255) - 0.5F;
                light[at] = std::clamp((paper[k] + cover * (ink[k] - paper[k])) * lit + noise * grain, 0.0F, 1.0F);
            }
        }
    return kind;
}

#endif

}  // namespace lockstep::data
