// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the ten digits are written: each in several ways, as knots of smooth curves in the order of the pen.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace lockstep::data {

/// What the pen does at a knot: goes on smoothly, turns sharply, or lifts after it.
enum class pen : std::uint8_t { smooth, corner, up };

/// In percent of the digit's box: x to the right, y downwards.
struct knot {
    std::int8_t x = 0;
    std::int8_t y = 0;
    pen then = pen::smooth;
};

/// One way to write a digit.
struct glyph {
    static constexpr std::size_t capacity = 16;

    std::array<knot, capacity> knots{};
    std::size_t count = 0;

    constexpr glyph(std::initializer_list<knot> list) {
        for (const knot& one : list) knots[count++] = one;
    }
    [[nodiscard]] constexpr std::span<const knot> all() const noexcept { return std::span{knots}.first(count); }
};

namespace detail {

inline constexpr pen corner = pen::corner;
inline constexpr pen up = pen::up;

inline constexpr std::array zeros{
    glyph{{56, 2}, {24, 14}, {6, 50}, {22, 88}, {52, 98}, {82, 84}, {94, 48}, {78, 12}, {52, 3, up}},
    glyph{{66, 6}, {44, 4}, {24, 28}, {20, 66}, {42, 97}, {68, 88}, {80, 52}, {74, 16}, {54, 2}, {38, 12, up}},
    glyph{{40, 3}, {70, 4}, {92, 30}, {92, 68}, {66, 97}, {30, 96}, {8, 66}, {12, 24}, {46, 2, up}},
};
inline constexpr std::array ones{
    glyph{{50, 0}, {50, 50}, {50, 100, up}},
    glyph{{54, 0}, {52, 50}, {44, 100, up}},
    glyph{{62, 0}, {50, 50}, {36, 100, up}},
    glyph{{28, 24}, {44, 14}, {56, 0, corner}, {54, 50}, {52, 100, up}},
    glyph{{26, 22}, {42, 14}, {54, 0, corner}, {52, 50}, {52, 98, up}, {20, 99}, {52, 97}, {86, 98, up}},
};
inline constexpr std::array twos{
    glyph{{10, 24}, {26, 5}, {56, 1}, {80, 17}, {76, 42}, {44, 74}, {8, 97, corner}, {50, 95}, {96, 94, up}},
    glyph{{8, 20}, {30, 3}, {62, 3}, {80, 24}, {66, 56}, {36, 86}, {14, 96}, {8, 84}, {24, 76}, {52, 88}, {94, 95, up}},
    glyph{{12, 28}, {22, 8}, {50, 0}, {80, 12}, {78, 38}, {48, 70}, {14, 92, corner}, {40, 86}, {68, 96}, {96, 88, up}},
    glyph{{16, 12}, {48, 2}, {72, 14}, {66, 44}, {40, 74}, {14, 98, corner}, {52, 98}, {88, 98, up}},
};
inline constexpr std::array threes{
    glyph{{12, 12}, {44, 0}, {76, 13}, {72, 36}, {38, 47, corner}, {74, 55}, {88, 76}, {62, 97}, {10, 90, up}},
    glyph{{12, 4}, {46, 4}, {82, 3, corner}, {62, 24}, {42, 42, corner}, {76, 50}, {88, 74}, {62, 97}, {14, 90, up}},
    glyph{{10, 14},
          {44, 0},
          {78, 16},
          {66, 40},
          {40, 50},
          {36, 43},
          {52, 44},
          {82, 60},
          {86, 82},
          {56, 99},
          {12, 88, up}},
    glyph{{16, 8}, {54, 2}, {78, 20}, {60, 42}, {34, 48, corner}, {68, 54}, {80, 80}, {44, 99}, {6, 94, up}},
};
inline constexpr std::array fours{
    glyph{{16, 4}, {12, 30}, {10, 56, corner}, {50, 55}, {94, 50, up}, {74, 10}, {70, 54}, {66, 100, up}},
    glyph{{66, 0}, {38, 34}, {6, 66, corner}, {50, 65}, {96, 63, up}, {67, 2}, {67, 50}, {66, 100, up}},
    glyph{{20, 4}, {12, 32}, {22, 52}, {50, 54}, {80, 42, up}, {84, 2}, {78, 48}, {70, 100, up}},
    glyph{{64, 2}, {36, 26}, {10, 56, corner}, {52, 58}, {90, 52, up}, {78, 30}, {70, 64}, {64, 100, up}},
};
inline constexpr std::array fives{
    glyph{{90, 2},
          {58, 4},
          {26, 5, corner},
          {22, 24},
          {17, 46, corner},
          {52, 38},
          {84, 56},
          {76, 88},
          {44, 98},
          {8, 90, up}},
    glyph{{28, 6},
          {24, 26},
          {20, 46, corner},
          {58, 40},
          {86, 62},
          {66, 94},
          {36, 98},
          {8, 88, up},
          {27, 6},
          {60, 5},
          {94, 2, up}},
    glyph{{88, 8}, {52, 4}, {26, 18}, {32, 40}, {64, 52}, {80, 74}, {54, 97}, {10, 90, up}},
};
inline constexpr std::array sixes{
    glyph{{72, 2}, {34, 28}, {12, 66}, {30, 96}, {64, 96}, {84, 74}, {62, 53}, {30, 60}, {14, 78, up}},
    glyph{{54, 0}, {26, 38}, {14, 74}, {36, 98}, {70, 90}, {76, 66}, {48, 56}, {18, 76, up}},
    glyph{{84, 12}, {62, 1}, {28, 22}, {12, 60}, {28, 94}, {64, 97}, {86, 76}, {66, 54}, {34, 58}, {16, 74, up}},
};
inline constexpr std::array sevens{
    glyph{{8, 7}, {48, 6}, {88, 4, corner}, {60, 46}, {38, 100, up}},
    glyph{{8, 7}, {48, 6}, {90, 4, corner}, {62, 46}, {42, 100, up}, {28, 52}, {54, 51}, {82, 48, up}},
    glyph{{8, 24}, {10, 7, corner}, {50, 8}, {90, 4, corner}, {66, 46}, {52, 100, up}},
    glyph{{10, 8}, {56, 4}, {86, 10}, {76, 42}, {58, 70}, {50, 100, up}},
};
inline constexpr std::array eights{
    glyph{{80, 14},
          {50, 1},
          {20, 16},
          {36, 42},
          {74, 66},
          {70, 94},
          {34, 97},
          {18, 74},
          {50, 48},
          {80, 26},
          {82, 12, up}},
    glyph{{50, 1},
          {22, 14},
          {26, 38},
          {50, 46},
          {76, 34},
          {76, 12},
          {50, 1, up},
          {50, 47},
          {18, 62},
          {18, 90},
          {50, 99},
          {82, 88},
          {80, 60},
          {50, 47, up}},
    glyph{{70, 6}, {36, 2}, {20, 22}, {48, 46}, {80, 72}, {56, 98}, {22, 84}, {44, 52}, {78, 24}, {62, 3, up}},
};
inline constexpr std::array nines{
    glyph{{80, 16}, {46, 2}, {14, 26}, {34, 51}, {70, 40}, {82, 12, corner}, {78, 56}, {72, 100, up}},
    glyph{{82, 24}, {52, 1}, {16, 22}, {32, 50}, {70, 42}, {84, 18}, {80, 60}, {58, 94}, {22, 94, up}},
    glyph{{76, 12}, {40, 4}, {18, 30}, {44, 48}, {72, 32}, {82, 8, corner}, {64, 56}, {46, 100, up}},
};

}  // namespace detail

/// The ways to write `digit` (0 to 9).
[[nodiscard]] constexpr std::span<const glyph> ways_to_write(std::size_t digit) noexcept {
    const std::array<std::span<const glyph>, 10> all{detail::zeros,  detail::ones,  detail::twos,  detail::threes,
                                                     detail::fours,  detail::fives, detail::sixes, detail::sevens,
                                                     detail::eights, detail::nines};
    return all[digit];
}

}  // namespace lockstep::data
