// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Generated images of handwritten digits, as many as wanted and without a file; a model of Dataset.

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
#include "lockstep/data/canvas.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/data/glyphs.hpp"

namespace lockstep::data {

namespace detail {

/// Random deviations of one image, drawn one after the other from its own words of the stream.
class hand {
public:
    static constexpr std::size_t words = 3 * glyph::capacity + 32;
    static constexpr std::size_t grains = 28 * 28 / 4;
    static constexpr std::size_t words_per_image = 512;

    hand(const core::random_stream& stream, std::uint64_t image, float distortion) noexcept {
        stream.words(image * words_per_image, words_);
        stream.words(image * words_per_image + words, grain_);
        const float care = core::random_stream::to_uniform(words_[next_++]);
        strength_ = distortion * (0.7F + 0.6F * care * care);  // most write neatly, some do not
    }
    [[nodiscard]] std::size_t choose(std::size_t options) noexcept {
        return static_cast<std::size_t>((std::uint64_t{words_[next_++]} * options) >> 32);
    }
    /// Mean 0, within 3 deviations: the sum of three uniform numbers, free of the rounding of any library's log and
    /// cos.
    [[nodiscard]] float deviate(float deviation) noexcept {
        const std::uint32_t w = words_[next_++];
        const auto sum = static_cast<float>((w & 1023) + ((w >> 10) & 1023) + ((w >> 20) & 1023));
        return (sum - 1534.5F) * (2.0F / 1024) * strength_ * deviation;
    }
    /// The paper's grain at a pixel, in [0, 1).
    [[nodiscard]] float grain(std::size_t pixel) const noexcept {
        return static_cast<float>((grain_[pixel / 4] >> (8 * (pixel % 4))) & 255) * (1.0F / 256);
    }

private:
    std::array<std::uint32_t, words> words_;
    std::array<std::uint32_t, grains> grain_;
    std::size_t next_ = 0;
    float strength_ = 0;
};

/// The knots of one glyph, moved at random, as a chain of short lines.
class trace {
public:
    static constexpr std::size_t pieces = 4;  // per pair of knots

    struct dot {
        point at;
        float pressure;
        bool lift;
    };

    trace(std::span<const knot> knots, hand& hand) noexcept;

    [[nodiscard]] std::span<dot> dots() noexcept { return std::span{dots_}.first(count_); }

private:
    using moved_knots = std::array<dot, glyph::capacity>;

    /// Catmull-Rom inside a stroke. At its ends and corners the chord of `span`, the piece of curve between knots span
    /// and span + 1.
    [[nodiscard]] static point tangent(std::span<const knot> knots, const moved_knots& moved, std::size_t i,
                                       std::size_t span) noexcept {
        const bool inner = i > 0 && knots[i - 1].then != pen::up && knots[i].then == pen::smooth;
        const point a = moved[inner ? i - 1 : span].at;
        const point b = moved[inner ? i + 1 : span + 1].at;
        const float scale = inner ? 0.5F : 1.0F;
        return {(b.x - a.x) * scale, (b.y - a.y) * scale};
    }
    [[nodiscard]] static float hermite(float from, float leave, float to, float arrive, float t) noexcept {
        const float chord = to - from;
        return from + t * (leave + t * (3 * chord - 2 * leave - arrive + t * (leave + arrive - 2 * chord)));
    }

    std::array<dot, glyph::capacity * pieces> dots_;
    std::size_t count_ = 0;
};

}  // namespace detail

/// Sample i is digit number first + i of the endless book that `seed` opens: image and label are a pure function of
/// (seed, first + i), with the same bits on every machine. A test set is another range of the same book: `digits{.count
/// = 10'000, .first = 1'000'000}`. Each digit is written in 3 to 5 ways by a shaky hand: knots, slant, rotation, size,
/// place, bend, pen and pressure differ. `distortion` scales all of that, from 0, which is print, to `most_distortion`.
/// A pixel is read as (ink - mean) / deviation, ink from 0 to 1. Cost: about 8 microseconds per image.
struct digits {
    using sample = tensor::shape<28, 28, 1>;
    using label = tensor::classes<10>;
    /// Up to here one of 4,000 images is blank, at 10 one of ten; from 4.5 on ink may be below 0.
    static constexpr float most_distortion = 4;

    std::size_t count = 60'000;
    std::uint64_t seed = 1;
    std::uint64_t first = 0;
    float distortion = 1;
    float mean = 0.1358F;  ///< of 100,000 images at distortion 1
    float deviation = 0.2952F;

    [[nodiscard]] std::size_t size() const noexcept { return count; }
    [[nodiscard]] std::string name() const {
        return core::text("generated digits (seed ", seed, ", from ", first, ")");
    }
    [[nodiscard]] std::string settings() const {
        return core::text("seed=", seed, " first=", first, " distortion=", distortion, " mean=", mean,
                          " deviation=", deviation);
    }
    void check() const {
        check_scaling(*this, mean, deviation);
        if (!(distortion >= 0 && distortion <= most_distortion))
            core::fail(core::text(name(), " has the distortion ", distortion),
                       core::text("give it a distortion from 0, which is print, to ", most_distortion));
    }

    /// Draws one sample, 0 = paper and 1 = ink, and returns its label.
    std::int32_t draw(std::uint64_t row, std::span<float, sample::size> ink) const noexcept;

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        std::array<float, sample::size> ink;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            y[i] = draw(rows[i], ink);
            for (std::size_t p = 0; p < sample::size; ++p)
                x.data[i * sample::size + p] = static_cast<T>((ink[p] - mean) / deviation);
        }
    }

private:
    /// From the box of the glyph, -1 .. 1, to pixels: bend, scale, slant, turn, and put into the middle, or nearly so.
    static void place(detail::trace& trace, detail::hand& hand) noexcept;
};

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION trace::trace(std::span<const knot> knots, hand& hand) noexcept {
    std::array<dot, glyph::capacity> moved;
    point off{};
    for (std::size_t i = 0; i < knots.size(); ++i) {
        if (i > 0 && knots[i - 1].then == pen::up) off = {hand.deviate(0.04F), hand.deviate(0.04F)};
        const float x = static_cast<float>(knots[i].x) * 0.02F - 1 + off.x;
        const float y = static_cast<float>(knots[i].y) * 0.02F - 1 + off.y;
        moved[i] = {
            {x + hand.deviate(0.085F), y + hand.deviate(0.07F)}, 1 + hand.deviate(0.1F), knots[i].then == pen::up};
    }
    for (std::size_t i = 0; i < knots.size(); ++i) {
        if (moved[i].lift) {
            dots_[count_++] = moved[i];
            continue;
        }
        const point from = moved[i].at;
        const point to = moved[i + 1].at;
        const point leave = tangent(knots, moved, i, i);
        const point arrive = tangent(knots, moved, i + 1, i);
        for (std::size_t piece = 0; piece < pieces; ++piece) {
            const float t = static_cast<float>(piece) / pieces;
            dots_[count_++] = {
                {hermite(from.x, leave.x, to.x, arrive.x, t), hermite(from.y, leave.y, to.y, arrive.y, t)},
                moved[i].pressure + t * (moved[i + 1].pressure - moved[i].pressure),
                false};
        }
    }
}

}  // namespace detail

LOCKSTEP_FUNCTION std::int32_t digits::draw(std::uint64_t row, std::span<float, sample::size> ink) const noexcept {
    detail::hand hand{core::random_stream{seed, core::purpose::generator}, first + row, distortion};
    const std::size_t digit = hand.choose(10);
    const auto ways = ways_to_write(digit);
    detail::trace trace{ways[hand.choose(ways.size())].all(), hand};
    place(trace, hand);

    const float radius = std::max(1.4F + hand.deviate(0.32F), 0.6F);
    const float edge = std::max(1.2F + hand.deviate(0.12F), 0.8F);
    const float black = 1.0F - std::abs(hand.deviate(0.05F));
    canvas<28, 28> paper;
    const auto dots = trace.dots();
    for (std::size_t i = 0; i + 1 < dots.size(); ++i)
        if (!dots[i].lift) paper.line(dots[i].at, dots[i + 1].at, radius * dots[i].pressure, edge);
    for (std::size_t pixel = 0; pixel < sample::size; ++pixel)
        ink[pixel] = paper.ink(pixel / 28, pixel % 28, edge) * (black - 0.12F * hand.grain(pixel));
    return static_cast<std::int32_t>(digit);
}

LOCKSTEP_FUNCTION void digits::place(detail::trace& trace, detail::hand& hand) noexcept {
    std::array<float, 6> bend;
    for (float& one : bend) one = hand.deviate(0.11F);
    const float height = 9.2F + hand.deviate(0.7F);
    const float width = height * std::max(0.74F + hand.deviate(0.12F), 0.45F);
    const float slant = 0.12F + hand.deviate(0.2F);
    const float half = hand.deviate(0.07F);  // tangent of half the angle
    const float cosine = (1 - half * half) / (1 + half * half);
    const float sine = 2 * half / (1 + half * half);
    const point aim{13.5F + hand.deviate(1.1F), 13.5F + hand.deviate(1.0F)};

    point low{1e6F, 1e6F}, high{-1e6F, -1e6F};
    for (auto& dot : trace.dots()) {
        const float u =
            dot.at.x + bend[0] * dot.at.y * dot.at.y + bend[1] * dot.at.x * dot.at.y + bend[2] * dot.at.x * dot.at.x;
        const float v =
            dot.at.y + bend[3] * dot.at.y * dot.at.y + bend[4] * dot.at.x * dot.at.y + bend[5] * dot.at.x * dot.at.x;
        const float x = u * width - slant * (v * height);
        const float y = v * height;
        dot.at = {x * cosine - y * sine, x * sine + y * cosine};
        low = {std::min(low.x, dot.at.x), std::min(low.y, dot.at.y)};
        high = {std::max(high.x, dot.at.x), std::max(high.y, dot.at.y)};
    }
    for (auto& dot : trace.dots()) {
        dot.at.x += aim.x - 0.5F * (low.x + high.x);
        dot.at.y += aim.y - 0.5F * (low.y + high.y);
    }
}

#endif

}  // namespace lockstep::data
