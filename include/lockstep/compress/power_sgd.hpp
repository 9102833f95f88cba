// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// PowerSGD, low rank by one step of power iteration: models Reduction.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/parallel/loop.hpp"

namespace lockstep::compress {

/// PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019) is error_feedback{power_sgd{.rank = r}}. For each m x q matrix,
/// with M_w = g_w + e_w of worker w, which error_feedback forms:
///   round 1    P = sum over workers of M_w Q                  m x r, Q from the last step, normal deviates before the
///   first
///              P <- orthonormal columns (modified Gram-Schmidt, twice, in double)
///   round 2    Q = sum over workers of Q_w,  Q_w = M_w^T P    q x r, kept for the next step
///   mean       P Q^T = P P^T (sum of M_w)
///   residual   e_w = M_w - P Q_w^T
/// The factor W: gradients are scaled by 1 / samples of the global minibatch, so M_w are parts of the mean gradient and
/// are added, not averaged. The part of worker w in P Q^T is P Q_w^T: parts add up to the mean, and mean + sum of e_w =
/// sum of M_w. The paper takes e_w = M_w - P Q^T / W (in these units), which adds up to the same, so both have the same
/// means in exact arithmetic. But there what a worker differs from the mean by stays in e_w for ever and grows like a
/// random walk; here it leaves e_w wherever P has a direction for it, so residuals stay small, and so does the rounding
/// of their sum.
/// A column of P that depends on the others, or is zero, becomes a random direction, the same on all ranks: no column
/// of Q stays zero.
/// Q has the size of the gradient, and P that of its square: numbers of a float gradient from 1e-18 to 1e18.
/// Matrices with r (m + q) >= m q, and tensors of one extent, are added as they are.
/// Elements: r m, then r q. Arithmetic of a worker: 4 r m q FLOPs to encode, 2 r m q to decode its own part; of a rank
/// 2 r m q for the mean and 4 r^2 m to orthogonalise. Every sum has an order of its own: sums over columns 16 ways,
/// sums over rows ascending; threads split what is computed. Biased, so it wants error_feedback around it. No state of
/// its own but Q, r (m + q) numbers on each rank.
struct power_sgd {
    std::size_t rank = 1;

    static constexpr std::string_view name = "power_sgd";
    static constexpr compress::traits traits{.dense_vectors = true, .whole_tensors = true};
    static constexpr std::size_t slot_count = 0;
    static constexpr std::array rounds{algebra::ordered_sum, algebra::ordered_sum};

    [[nodiscard]] std::string settings() const { return core::text("rank=", rank); }

    /// Throws core::error for rank 0.
    void check() const {
        if (rank == 0) core::fail("power_sgd has rank = 0", "take the number of columns of P and Q, such as 1, 2 or 4");
    }

    [[nodiscard]] bool is_dense(const matrix& shape) const noexcept {
        const std::size_t extents = shape.rows + shape.columns;
        return rank >= (shape.size() + extents - 1) / extents;
    }
    [[nodiscard]] reduction_sizes<2> sizes(const matrix& shape, std::size_t) const noexcept {
        return {.elements = {rank * shape.rows, rank * shape.columns}, .shared = rank * (shape.rows + shape.columns)};
    }

    template <class T>
    void initialise(const shared_pass<T>& all) const noexcept {
        const std::span<T> q = all.shared.first(rank * all.shape.columns);
        for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<T>(all.random.normal(i));
    }

    /// Columns of P one after the other.
    template <class T>
    void encode(round_number<0>, const worker_pass<T>& in, std::span<T> p) const noexcept {
        const std::size_t rows = in.shape.rows, columns = in.shape.columns;
        parallel::for_blocks(in.team, rows, 16, [&](parallel::block part) {
            for (std::size_t row = part.first; row < part.last; ++row)
                for (std::size_t k = 0; k < rank; ++k)
                    p[k * rows + row] =
                        dot<T>(in.values.subspan(row * columns, columns), in.shared.subspan(k * columns, columns));
        });
    }
    template <class T>
    void combined(round_number<0>, const shared_pass<T>& all, std::span<const T> result) const noexcept {
        const std::span<T> p = all.shared.subspan(rank * all.shape.columns);
        std::copy(result.begin(), result.end(), p.begin());
        orthonormalise(p, all.shape.rows, rank, all.random);
    }
    /// Columns of Q one after the other.
    template <class T>
    void encode(round_number<1>, const worker_pass<T>& in, std::span<T> q) const noexcept {
        const std::size_t rows = in.shape.rows, columns = in.shape.columns;
        const T* const p = in.shared.data() + rank * columns;
        parallel::for_blocks(in.team, columns, 64, [&](parallel::block part) {
            for (std::size_t k = 0; k < rank; ++k)
                std::fill(&q[k * columns] + part.first, &q[k * columns] + part.last, T{0});
            for (std::size_t row = 0; row < rows; ++row) {
                const T* const values = &in.values[row * columns];
                for (std::size_t k = 0; k < rank; ++k) {
                    T* const sum = &q[k * columns];
                    const T factor = p[k * rows + row];
                    for (std::size_t column = part.first; column < part.last; ++column)
                        sum[column] += factor * values[column];
                }
            }
        });
    }
    template <class T>
    void finish(const shared_pass<T>& all, std::span<const T> result, std::span<T> mean) const noexcept {
        std::copy(result.begin(), result.end(), all.shared.begin());
        const auto p = std::span<const T>{all.shared}.subspan(result.size());
        multiply(all.team, all.shape, p, result, [mean](std::size_t first, std::span<const T> product) {
            std::copy(product.begin(), product.end(), mean.begin() + static_cast<std::ptrdiff_t>(first));
        });
    }
    template <class T>
    void decode_own(const worker_pass<T>& in, std::span<const T> q, T scale, std::span<T> sum) const noexcept {
        multiply(in.team, in.shape, in.shared.subspan(q.size()), q,
                 [scale, sum](std::size_t first, std::span<const T> product) {
                     for (std::size_t i = 0; i < product.size(); ++i) sum[first + i] += scale * product[i];
                 });
    }

    /// Makes `count` columns of `rows` numbers orthonormal, up to rounding, in ascending order. A column of which less
    /// is left than rounding makes of it becomes a random direction. A column that is not finite becomes NaN.
    template <class T>
    static void orthonormalise(std::span<T> all, std::size_t rows, std::size_t count,
                               const core::random_stream& random) noexcept {
        constexpr std::size_t tries = 4;
        for (std::size_t k = 0; k < count; ++k) {
            const std::span<T> column = all.subspan(k * rows, rows);
            bool is_unit = make_orthogonal(std::span<const T>{all}, column, k);
            for (std::size_t trial = 0; !is_unit && trial < tries; ++trial) {
                for (std::size_t i = 0; i < rows; ++i)
                    column[i] = static_cast<T>(random.normal((k * tries + trial) * rows + i));
                is_unit = make_orthogonal(std::span<const T>{all}, column, k);
            }
            if (!is_unit) std::fill(column.begin(), column.end(), T{0});  // as many columns as rows
        }
    }

private:
    /// The sum of products in 16 parts, which are then added in pairs: one order for every width of vectors.
    template <class Sum, class T>
    [[nodiscard]] static Sum dot(std::span<const T> a, std::span<const T> b) noexcept {
        constexpr std::size_t ways = 16;
        std::array<Sum, ways> sums{};
        std::size_t i = 0;
        for (; i + ways <= a.size(); i += ways)
            for (std::size_t way = 0; way < ways; ++way)
                sums[way] += static_cast<Sum>(a[i + way]) * static_cast<Sum>(b[i + way]);
        for (; i < a.size(); ++i) sums[i % ways] += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
        for (std::size_t rest = ways / 2; rest > 0; rest /= 2)
            for (std::size_t way = 0; way < rest; ++way) sums[way] += sums[way + rest];
        return sums[0];
    }

    /// Takes the directions of the first `before` columns out of this one and makes its length 1. False where nothing
    /// certain is left.
    template <class T>
    [[nodiscard]] static bool make_orthogonal(std::span<const T> all, std::span<T> column,
                                              std::size_t before) noexcept {
        T largest{0};
        bool is_finite = true;
        for (const T value : column) {
            largest = std::max(largest, std::abs(value));
            is_finite = is_finite && std::isfinite(value);
        }
        if (!is_finite) {
            std::fill(column.begin(), column.end(), std::numeric_limits<T>::quiet_NaN());
            return true;
        }
        if (largest == 0) return false;
        // By a power of two, so that no square overflows or vanishes.
        const int power = -std::ilogb(largest);
        for (T& value : column) value = std::ldexp(value, power);
        const double whole = std::sqrt(dot<double, T>(column, column));
        // Once leaves what rounding makes of a long projection.
        for (int turn = 0; turn < 2; ++turn)
            for (std::size_t other = 0; other < before; ++other) {
                const std::span<const T> unit = all.subspan(other * column.size(), column.size());
                const double length = dot<double, T>(column, unit);
                for (std::size_t i = 0; i < column.size(); ++i)
                    column[i] = static_cast<T>(static_cast<double>(column[i]) - length * static_cast<double>(unit[i]));
            }
        const double left = std::sqrt(dot<double, T>(column, column));
        if (left <= 16 * static_cast<double>(std::numeric_limits<T>::epsilon()) * whole) return false;
        for (T& value : column) value = static_cast<T>(static_cast<double>(value) / left);
        return true;
    }

    /// Calls put(first, numbers) for parts of P Q^T in row-major order; products are added in the order of columns of
    /// P.
    template <class T, class Put>
    void multiply(parallel::team team, const matrix& shape, std::span<const T> p, std::span<const T> q,
                  const Put& put) const noexcept {
        constexpr std::size_t chunk = 256;
        parallel::for_blocks(team, shape.rows, 16, [&](parallel::block part) {
            std::array<T, chunk> product;
            for (std::size_t row = part.first; row < part.last; ++row)
                for (std::size_t first = 0; first < shape.columns; first += chunk) {
                    const std::size_t count = std::min(chunk, shape.columns - first);
                    for (std::size_t k = 0; k < rank; ++k) {
                        const T factor = p[k * shape.rows + row];
                        const T* const other = &q[k * shape.columns + first];
                        if (k == 0)
                            for (std::size_t i = 0; i < count; ++i) product[i] = factor * other[i];
                        else
                            for (std::size_t i = 0; i < count; ++i) product[i] += factor * other[i];
                    }
                    put(row * shape.columns + first, std::span<const T>{product}.first(count));
                }
        });
    }
};

static_assert(Reduction<power_sgd> && Reduction<power_sgd, double>);

}  // namespace lockstep::compress
