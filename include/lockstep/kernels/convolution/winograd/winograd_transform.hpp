// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transforms of Winograd's minimal filtering F(M x M, 3 x 3), from the points they interpolate at.

#include <array>
#include <cstddef>

#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::kernels::detail {

/// The points of F(M, 3): 0, infinity, and these with both signs. Products of polynomials need M + 2 of them. Points
/// close to 1 and pairs whose product is close to 1 keep the powers small, and with them the rounding errors; whole
/// eighths are exact in binary.
template <std::size_t M>
inline constexpr auto winograd_points = std::array<double, 0>{};
template <>
inline constexpr auto winograd_points<2> = std::array{1.0};
template <>
inline constexpr auto winograd_points<4> = std::array{0.625, 1.5};
template <>
inline constexpr auto winograd_points<6> = std::array{1.0, 0.5, 2.0};

/// The numbers in the transforms. With z = x^2 and points +-p_k: all(z) = prod (z - p_k^2), rest_k = all / (z - p_k^2).
template <std::size_t M>
struct winograd {
    static_assert(M == 2 || M == 4 || M == 6, "output tiles of 2 x 2, 4 x 4 and 6 x 6");
    static constexpr std::size_t taps = 3;
    static constexpr std::size_t tile = M + taps - 1;     ///< edge of an input tile
    static constexpr std::size_t products = tile * tile;  ///< multiplications for M x M outputs; direct: 9 M M
    static constexpr std::size_t pairs = M / 2;
    static constexpr auto point = winograd_points<M>;

    /// Coefficients of z^0, z^1, .. of the product of all (z - p_l^2) but l = without.
    static constexpr std::array<double, pairs + 1> polynomial(std::size_t without) noexcept {
        std::array<double, pairs + 1> c{1.0};
        for (std::size_t l = 0; l < pairs; ++l) {
            if (l == without) continue;
            for (std::size_t j = pairs; j > 0; --j) c[j] = c[j - 1] - point[l] * point[l] * c[j];
            c[0] *= -point[l] * point[l];
        }
        return c;
    }
    static constexpr auto all = polynomial(pairs);
    static constexpr auto rest = [] {
        std::array<std::array<double, pairs + 1>, pairs> c{};
        for (std::size_t k = 0; k < pairs; ++k) c[k] = polynomial(k);
        return c;
    }();
    /// 1 / (2 p^2 rest(p^2)): what a filter's value at +-p_k is multiplied with.
    static constexpr auto scale = [] {
        std::array<double, pairs> c{};
        for (std::size_t k = 0; k < pairs; ++k) {
            const double z = point[k] * point[k];
            double value = 0;
            for (std::size_t j = pairs + 1; j-- > 0;) value = value * z + rest[k][j];
            c[k] = 1 / (2 * z * value);
        }
        return c;
    }();
    static constexpr double power(std::size_t k, std::size_t exponent) noexcept {
        double value = 1;
        for (std::size_t i = 0; i < exponent; ++i) value *= point[k];
        return value;
    }
};

/// A constant times a vector, plus a sum that is there already or not.
template <class T>
struct linear {
    using batch = simd::batch<T>;
    batch sum;
    bool started = false;

    LOCKSTEP_FLATTEN void add(double factor, const batch& value) noexcept {
        if (factor == 1)
            sum = started ? sum + value : value;
        else
            sum =
                started ? simd::fma(batch(static_cast<T>(factor)), value, sum) : batch(static_cast<T>(factor)) * value;
        started = true;
    }
};

/// sum_j c[j] d[first + 2 j], j = Degree .. 0; c[Degree] is 1.
template <std::size_t Degree, class T, std::size_t N, std::size_t Coefficients>
[[nodiscard]] LOCKSTEP_FLATTEN inline simd::batch<T> every_second(const std::array<double, Coefficients>& c,
                                                                  const simd::batch<T> (&d)[N],
                                                                  std::size_t first) noexcept {
    linear<T> out;
    unroll<Degree + 1>([&](auto i) LOCKSTEP_FLATTEN { out.add(c[Degree - i], d[first + 2 * (Degree - i)]); });
    return out.sum;
}

/// out[plus], out[minus] = even + p odd, even - p odd.
template <class T>
LOCKSTEP_FLATTEN inline void fan_out(double p, const simd::batch<T>& even, const simd::batch<T>& odd,
                                     simd::batch<T>& plus, simd::batch<T>& minus) noexcept {
    plus = p == 1 ? even + odd : simd::fma(simd::batch<T>(static_cast<T>(p)), odd, even);
    minus = p == 1 ? even - odd : simd::fma(simd::batch<T>(static_cast<T>(-p)), odd, even);
}

/// The five linear maps along one dimension. Rows of the tile: 0, then +p_k and -p_k for each k, then infinity.
template <std::size_t M, class T>
struct winograd_map {
    using batch = simd::batch<T>;
    using w = winograd<M>;
    static constexpr std::size_t tile = w::tile;
    static constexpr std::size_t pairs = w::pairs;

    /// B^T: pixels to tile.
    struct input {
        static constexpr std::size_t from = tile;
        static constexpr std::size_t to = tile;
        LOCKSTEP_FLATTEN static void run(const batch (&d)[from], batch (&r)[to]) noexcept {
            r[0] = every_second<pairs, T>(w::all, d, 0);
            unroll<pairs>([&](auto k) LOCKSTEP_FLATTEN {
                const batch even = every_second<pairs - 1, T>(w::rest[k], d, 2);
                const batch odd = every_second<pairs - 1, T>(w::rest[k], d, 1);
                fan_out<T>(w::point[k], even, odd, r[1 + 2 * k], r[2 + 2 * k]);
            });
            r[tile - 1] = every_second<pairs, T>(w::all, d, 1);
        }
    };
    /// G: taps to tile.
    struct filter {
        static constexpr std::size_t from = 3;
        static constexpr std::size_t to = tile;
        LOCKSTEP_FLATTEN static void run(const batch (&g)[from], batch (&r)[to]) noexcept {
            linear<T> zero;
            zero.add(1 / w::all[0], g[0]);
            r[0] = zero.sum;
            unroll<pairs>([&](auto k) LOCKSTEP_FLATTEN {
                linear<T> even;
                even.add(w::scale[k], g[0]);
                even.add(w::scale[k] * w::power(k, 2), g[2]);
                fan_out<T>(w::scale[k] * w::point[k], even.sum, g[1], r[1 + 2 * k], r[2 + 2 * k]);
            });
            r[tile - 1] = g[2];
        }
    };
    /// A^T: tile to outputs.
    struct output {
        static constexpr std::size_t from = tile;
        static constexpr std::size_t to = M;
        LOCKSTEP_FLATTEN static void run(const batch (&m)[from], batch (&r)[to]) noexcept {
            batch sum[pairs];
            batch difference[pairs];
            unroll<pairs>([&](auto k) LOCKSTEP_FLATTEN {
                sum[k] = m[1 + 2 * k] + m[2 + 2 * k];
                difference[k] = m[1 + 2 * k] - m[2 + 2 * k];
            });
            unroll<M>([&](auto i) LOCKSTEP_FLATTEN {
                linear<T> out;
                if constexpr (i == 0) out.add(1, m[0]);
                if constexpr (i == M - 1) out.add(1, m[tile - 1]);
                unroll<pairs>([&](auto k)
                                  LOCKSTEP_FLATTEN { out.add(w::power(k, i), i % 2 == 0 ? sum[k] : difference[k]); });
                r[i] = out.sum;
            });
        }
    };
    /// A: gradients of outputs to tile.
    struct output_transposed {
        static constexpr std::size_t from = M;
        static constexpr std::size_t to = tile;
        LOCKSTEP_FLATTEN static void run(const batch (&y)[from], batch (&r)[to]) noexcept {
            r[0] = y[0];
            unroll<pairs>([&](auto k) LOCKSTEP_FLATTEN {
                linear<T> even;
                linear<T> odd;
                unroll<M / 2>([&](auto i) LOCKSTEP_FLATTEN {
                    even.add(w::power(k, 2 * i), y[2 * i]);
                    odd.add(w::power(k, 2 * i), y[2 * i + 1]);
                });
                fan_out<T>(w::point[k], even.sum, odd.sum, r[1 + 2 * k], r[2 + 2 * k]);
            });
            r[tile - 1] = y[M - 1];
        }
    };
    /// G^T: tile to gradients of taps.
    struct filter_transposed {
        static constexpr std::size_t from = tile;
        static constexpr std::size_t to = 3;
        LOCKSTEP_FLATTEN static void run(const batch (&u)[from], batch (&r)[to]) noexcept {
            linear<T> out[3];
            out[0].add(1 / w::all[0], u[0]);
            out[2].add(1, u[tile - 1]);
            unroll<pairs>([&](auto k) LOCKSTEP_FLATTEN {
                const batch sum = u[1 + 2 * k] + u[2 + 2 * k];
                const batch difference = u[1 + 2 * k] - u[2 + 2 * k];
                out[0].add(w::scale[k], sum);
                out[1].add(w::scale[k] * w::point[k], difference);
                out[2].add(w::scale[k] * w::power(k, 2), sum);
            });
            unroll<3>([&](auto i) LOCKSTEP_FLATTEN { r[i] = out[i].sum; });
        }
    };
};

/// Distances in memory between the rows and columns of a two-dimensional array of lines.
struct line_pitch {
    std::size_t row = 0;
    std::size_t column = 0;
};

/// One line of channels: what a panel is wide. Two vectors, or one where there are no more channels or filters.
template <class T, std::size_t Vectors>
inline constexpr std::size_t line_size = Vectors* simd::width<T>;

/// Asks for a line of channels, or for Rows x Columns of them.
template <std::size_t Vectors, bool Writes = false, class T>
LOCKSTEP_FLATTEN inline void fetch_line(const T* at) noexcept {
    constexpr std::size_t step = simd::alignment / sizeof(T);
    for (std::size_t i = 0; i < line_size<T, Vectors>; i += step) __builtin_prefetch(at + i, Writes ? 1 : 0);
}
template <std::size_t Vectors, std::size_t Rows, std::size_t Columns, bool Writes = false, class T>
LOCKSTEP_FLATTEN inline void fetch_lines(const T* at, line_pitch pitch) noexcept {
    for (std::size_t i = 0; i < Rows; ++i)
        for (std::size_t j = 0; j < Columns; ++j) fetch_line<Vectors, Writes>(at + i * pitch.row + j * pitch.column);
}

/// to = Map from Map^T for one line of channels. column(j, v, d) loads vector v of column j to d; put(to, vector, its
/// number in the line) stores.
template <class Map, std::size_t Vectors, class T, class Column, class Put>
LOCKSTEP_FLATTEN inline void transform_columns(Column&& column, T* to, line_pitch out, Put&& put) noexcept {
    using batch = simd::batch<T>;
    constexpr std::size_t width = simd::width<T>;
    batch between[Map::to][Map::from][Vectors];
    // All vectors of a line at once: with images of 2^n channels all lines fall into few sets of the cache, and would
    // be gone before the next.
    for (std::size_t j = 0; j < Map::from; ++j)
        unroll<Vectors>([&](auto v) LOCKSTEP_FLATTEN {
            batch d[Map::from];
            batch r[Map::to];
            column(j, v, d);
            Map::run(d, r);
            unroll<Map::to>([&](auto i) LOCKSTEP_FLATTEN { between[i][j][v] = r[i]; });
        });
    for (std::size_t i = 0; i < Map::to; ++i)
        unroll<Vectors>([&](auto v) LOCKSTEP_FLATTEN {
            batch d[Map::from];
            batch r[Map::to];
            unroll<Map::from>([&](auto j) LOCKSTEP_FLATTEN { d[j] = between[i][j][v]; });
            Map::run(d, r);
            unroll<Map::to>([&](auto j)
                                LOCKSTEP_FLATTEN { put(to + i * out.row + j * out.column + v * width, r[j], v); });
        });
}
template <class Map, std::size_t Vectors, class T, class Put>
inline void transform_lines(const T* from, line_pitch in, T* to, line_pitch out, Put&& put) noexcept {
    const auto column = [&](std::size_t j, std::size_t v, simd::batch<T>(&d)[Map::from]) LOCKSTEP_FLATTEN {
        unroll<Map::from>([&](auto i) LOCKSTEP_FLATTEN {
            d[i] = simd::load(from + i * in.row + j * in.column + v * simd::width<T>);
        });
    };
    transform_columns<Map, Vectors>(column, to, out, put);
}
template <class Map, std::size_t Vectors, class T>
inline void transform_lines(const T* from, line_pitch in, T* to, line_pitch out) noexcept {
    transform_lines<Map, Vectors>(from, in, to, out,
                                  [](T* at, const simd::batch<T>& value, std::size_t)
                                      LOCKSTEP_FLATTEN { simd::store(at, value); });
}

}  // namespace lockstep::kernels::detail
