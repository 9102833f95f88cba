// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ATOMO: some singular triples of a matrix, by chance and without bias. Models Compressor. The only header that
// includes Eigen. Programs link lockstep::atomo (CMake) or have Eigen 3 among their headers.

#if !defined(EIGEN_DONT_PARALLELIZE)
#define EIGEN_DONT_PARALLELIZE  // a decomposition is the same for any number of threads
#endif
#include <Eigen/Householder>
#include <Eigen/QR>
#include <Eigen/SVD>
#if defined(EIGEN_HAS_OPENMP)
#error "lockstep: Eigen was included with threads of its own; include lockstep/compress/atomo.hpp before Eigen"
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// Spectral ATOMO (Wang et al., NeurIPS 2018). For a matrix A = sum of s_i u_i v_i^T:
///   p_i = 1 for the c largest s_i, else (atoms - c) s_i / (sum of the s_j after these), with the least c that keeps
///   all p_i <= 1: of all chances with sum `atoms` the ones with the least variance, sum of s_i^2 (1 / p_i - 1)
///   atom i is sent with chance p_i, as (A v_i) / p_i and v_i, so the expectation of what is decoded is A
/// The authors' code cuts p_i off at 1 and spreads nothing, so it sends fewer atoms than it says. Atoms are drawn by
/// systematic sampling with one uniform number (words 0 and 1 of tensor and worker), not each by itself: the chances
/// p_i and, because atoms are orthogonal, the variance are the same, and a message never has more than `atoms` of them.
/// A matrix of lower rank is sent as it is, up to rounding. Shape: A has at most `columns` columns. A matrix with more
/// rows and columns than that is read row by row as one of n / columns rows, as the authors do with kernels of
/// convolutions; one with few rows is transposed.
/// Message: 8 bytes, then m + q numbers for each atom of an m x q matrix, at most `atoms`; all numbers where that is no
/// less. Unbiased up to the rounding of these numbers. Cost: 4 m q^2 FLOPs for the triangle of a QR decomposition, and
/// a Jacobi SVD of q x q numbers, both in double on one thread; some 500 KB on the stack; 2 m q for each atom.
/// Tensors of one extent travel as they are.
struct atomo {
    std::size_t atoms = 3;     ///< expected, and at most
    std::size_t columns = 64;  ///< of what is decomposed, at most: 2 to 64

    static constexpr std::string_view name = "atomo";
    static constexpr compress::traits traits{.dense_vectors = true, .whole_tensors = true};
    static constexpr std::size_t slot_count = 0;
    static constexpr std::size_t most_columns = 64;

    [[nodiscard]] std::string settings() const { return core::text("atoms=", atoms, " columns=", columns); }

    /// Throws core::error unless there are atoms and 2 to 64 columns.
    void check() const {
        if (atoms == 0) core::fail("atomo has atoms = 0, so it would send nothing", "take a number of atoms such as 3");
        if (columns < 2 || columns > most_columns)
            core::fail(core::text("atomo has columns = ", columns, ", outside 2 to ", most_columns),
                       "take a number of columns such as 64");
    }
    /// Throws core::error: an atom with a small chance is sent many times as large as it is, and leaves such a
    /// residual.
    void check_feedback() const {
        core::fail("error_feedback around atomo leaves residuals that are larger than the gradients",
                   "use atomo alone, which is unbiased, or error_feedback around power_sgd");
    }

    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n, std::uint64_t, const origin& from) const {
        const matrix shape = from.shape(n);
        const view of = view_of(shape);
        return header + (sends_all(of, shape.size())
                             ? core::checked_product("bytes of a message", shape.size(), sizeof(T))
                             : atoms * (of.rows + of.columns) * sizeof(T));
    }
    /// Of a vector: that is read as rows of `columns` numbers.
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return max_bytes<T>(n, 0, origin{.rows = n});
    }

    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        const std::size_t n = in.values.size();
        // A decorator may have made room for a vector.
        const bool has_room = max_bytes<T>(n, in.step, in.from) <= in.message.size();
        const matrix shape = has_room ? in.from.shape(n) : matrix{n, 1};
        const view of = view_of(shape);
        if (sends_all(of, n)) {
            put_header(in.message, all_numbers, of);
            if (n > 0) std::memcpy(in.message.data() + header, in.values.data(), in.values.size_bytes());
            return header + in.values.size_bytes();
        }
        double_square right =
            double_square::Zero(static_cast<Eigen::Index>(of.columns), static_cast<Eigen::Index>(of.columns));
        std::array<double, most_columns> singular{}, chances{};
        if (!decompose(in.values, of, right, std::span{singular}.first(of.columns))) {
            put_header(in.message, not_finite, of);
            return header;
        }
        chances_of(std::span<const double>{singular}.first(of.columns), atoms, std::span{chances}.first(of.columns));
        const auto bits = (std::uint64_t{in.random.word(0)} << 21U) ^ (in.random.word(1) >> 11U);
        const double start = static_cast<double>(bits) * 0x1p-53;
        std::byte* at = in.message.data() + header;
        std::uint32_t count = 0;
        double sum = 0;
        for (std::size_t i = 0; i < of.columns && count < atoms; ++i) {
            // Atom i is the one over the next of the points start, start + 1, ..; with a chance of 1 always.
            const double before = std::ceil(sum - start), after = std::ceil((sum += chances[i]) - start);
            if (!(after > before)) continue;
            at = put_atom(in.values, of, right.col(static_cast<Eigen::Index>(i)), chances[i], at);
            ++count;
        }
        put_header(in.message, count, of);
        return static_cast<std::size_t>(at - in.message.data());
    }

    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        std::array<std::uint32_t, 2> words;
        std::memcpy(words.data(), message.data(), header);
        const auto [count, layout] = words;
        if (count == not_finite) return std::fill(sum.begin(), sum.end(), std::numeric_limits<T>::quiet_NaN());
        const std::byte* at = message.data() + header;
        if (count == all_numbers) return none{}.decode_add(std::span{at, sum.size_bytes()}, scale, sum);
        const std::size_t q = layout >> 1U, m = (sum.size() + q - 1) / q;
        const bool is_transposed = (layout & 1U) != 0;
        for (std::uint32_t atom = 0; atom < count; ++atom, at += (m + q) * sizeof(T)) {
            // Runs of neighbours in memory, and the factor of each.
            const std::size_t runs = is_transposed ? q : m, length = is_transposed ? m : q;
            const std::byte* const factors = is_transposed ? at + m * sizeof(T) : at;
            const std::byte* const numbers = is_transposed ? at : at + m * sizeof(T);
            for (std::size_t run = 0; run < runs; ++run) {
                T factor;
                std::memcpy(&factor, factors + run * sizeof(T), sizeof(T));
                const std::size_t first = std::min(sum.size(), run * length);
                const auto part = sum.subspan(first, std::min(length, sum.size() - first));
                none{}.decode_add(std::span{numbers, part.size_bytes()}, scale * factor, part);
            }
        }
    }

    /// Of what is decomposed, in descending order, `columns` of them at most; the rest is 0. NaN where one is not
    /// finite.
    template <class T>
    [[nodiscard]] std::array<double, most_columns> singular_values(std::span<const T> values,
                                                                   const matrix& shape) const noexcept {
        std::array<double, most_columns> out{};
        const view of = view_of(shape);
        double_square right;
        if (!decompose(values, of, right, std::span{out}.first(of.columns)))
            out.fill(std::numeric_limits<double>::quiet_NaN());
        return out;
    }
    /// The chance of each atom, from singular values in descending order.
    static void chances_of(std::span<const double> singular, std::size_t atoms, std::span<double> chances) noexcept {
        std::array<double, most_columns + 1> rest{};  // sums of what follows, from the smallest on
        for (std::size_t i = singular.size(); i-- > 0;) rest[i] = rest[i + 1] + singular[i];
        std::size_t sure = 0;
        while (sure < std::min(atoms, singular.size()) &&
               static_cast<double>(atoms - sure) * singular[sure] >= rest[sure] && rest[sure] > 0)
            ++sure;
        for (std::size_t i = 0; i < singular.size(); ++i)
            chances[i] = i < sure         ? 1
                         : rest[sure] > 0 ? std::min(1.0, static_cast<double>(atoms - sure) * singular[i] / rest[sure])
                                          : 0;
    }

private:
    static constexpr std::size_t header = 2 * sizeof(std::uint32_t);  // how many atoms, and how they lie
    static constexpr std::uint32_t all_numbers = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint32_t not_finite = all_numbers - 1;
    // Of sizes up to a fixed one: they lie on the stack.
    template <int MostRows>
    using doubles = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor, MostRows,
                                  static_cast<int>(most_columns)>;
    using double_square = doubles<static_cast<int>(most_columns)>;
    using double_tall = doubles<static_cast<int>(2 * most_columns)>;

    /// The matrix that is decomposed.
    struct view {
        std::size_t rows = 0;
        std::size_t columns = 0;
        bool is_transposed = false;

        /// Where its element lies; beyond the end of the values it is 0.
        [[nodiscard]] std::size_t index(std::size_t row, std::size_t column) const noexcept {
            return is_transposed ? column * rows + row : row * columns + column;
        }
    };

    [[nodiscard]] view view_of(const matrix& shape) const noexcept {
        if (shape.columns > 1 && shape.columns <= columns) return {shape.rows, shape.columns, false};
        if (shape.rows > 1 && shape.rows <= columns) return {shape.columns, shape.rows, true};
        return {(shape.size() + columns - 1) / columns, columns, false};
    }
    [[nodiscard]] bool sends_all(const view& of, std::size_t n) const noexcept {
        return of.rows + of.columns >= (n + atoms - 1) / atoms;
    }
    static void put_header(std::span<std::byte> message, std::uint32_t count, const view& of) noexcept {
        const std::array<std::uint32_t, 2> words{
            count, static_cast<std::uint32_t>(of.columns << 1U) | (of.is_transposed ? 1U : 0U)};
        std::memcpy(message.data(), words.data(), header);
    }

    /// Right singular vectors and singular values, those in descending order. False: some are not finite.
    /// R of a QR decomposition has them, too. It grows block by block: those rows under the R so far.
    template <class T>
    [[nodiscard]] static bool decompose(std::span<const T> values, const view& of, double_square& right,
                                        std::span<double> singular) noexcept {
        const auto q = static_cast<Eigen::Index>(of.columns);
        double_square triangle = double_square::Zero(q, q);
        double_tall block;
        for (std::size_t first = 0; first < of.rows; first += most_columns) {
            const std::size_t count = std::min(most_columns, of.rows - first);
            block.resize(q + static_cast<Eigen::Index>(count), q);
            block.topRows(q) = triangle;
            for (std::size_t column = 0; column < of.columns; ++column)
                for (std::size_t row = 0; row < count; ++row) {
                    const std::size_t index = of.index(first + row, column);
                    block(q + static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(column)) =
                        index < values.size() ? static_cast<double>(values[index]) : 0;
                }
            reduce(block);
            triangle = block.topRows(q).template triangularView<Eigen::Upper>();
        }
        if (!triangle.allFinite()) return false;
        Eigen::JacobiSVD<double_square, Eigen::NoQRPreconditioner> found(q, q, Eigen::ComputeFullV);
        found.compute(triangle);
        right = found.matrixV();
        for (std::size_t i = 0; i < of.columns; ++i) singular[i] = found.singularValues()(static_cast<Eigen::Index>(i));
        return right.allFinite() && found.singularValues().allFinite();
    }
    /// Householder reflections make a block upper triangular, column by column.
    static void reduce(double_tall& block) noexcept {
        std::array<double, most_columns> work;
        for (Eigen::Index column = 0; column < block.cols(); ++column) {
            const Eigen::Index rows = block.rows() - column, rest = block.cols() - column - 1;
            double tau = 0, beta = 0;
            block.col(column).tail(rows).makeHouseholderInPlace(tau, beta);
            block(column, column) = beta;
            block.bottomRightCorner(rows, rest)
                .applyHouseholderOnTheLeft(block.col(column).tail(rows - 1), tau, work.data());
        }
    }
    /// (A v) / chance and v: the left vector needs no division by a singular value, which may be tiny.
    template <class T, class Column>
    [[nodiscard]] static std::byte* put_atom(std::span<const T> values, const view& of, const Column& v, double chance,
                                             std::byte* to) noexcept {
        const auto put = [&](double value) {
            const auto rounded = static_cast<T>(value);
            std::memcpy(to, &rounded, sizeof(T));
            to += sizeof(T);
        };
        for (std::size_t row = 0; row < of.rows; ++row) {
            double sum = 0;
            for (std::size_t column = 0; column < of.columns; ++column)
                if (const std::size_t index = of.index(row, column); index < values.size())
                    sum = std::fma(static_cast<double>(values[index]), v(static_cast<Eigen::Index>(column)), sum);
            put(sum / chance);
        }
        for (std::size_t column = 0; column < of.columns; ++column) put(v(static_cast<Eigen::Index>(column)));
        return to;
    }
};

static_assert(Compressor<atomo> && Compressor<atomo, double>);

}  // namespace lockstep::compress
