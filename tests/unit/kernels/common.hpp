// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of the kernels share: aligned arrays, numbers to fill them, bit comparison, tolerances.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "double_kernels.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/kernels/resources.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace kernel_test {

using namespace lockstep;

template <class T>
struct line_allocator {
    using value_type = T;
    line_allocator() = default;
    template <class U>
    line_allocator(const line_allocator<U>&) noexcept {}
    T* allocate(std::size_t count) {
        return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{simd::alignment}));
    }
    void deallocate(T* memory, std::size_t) noexcept { ::operator delete (memory, std::align_val_t{simd::alignment}); }
    friend bool operator==(const line_allocator&, const line_allocator&) { return true; }
};

template <class T>
using array = std::vector<T, line_allocator<T>>;

/// Uniform in [-0.5, 0.5).
template <class T>
array<T> uniform(std::size_t count, std::uint32_t series) {
    const core::random_stream random{7, core::purpose::user, series};
    array<T> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(random.uniform(i)) - T{0.5};
    return out;
}

/// The same numbers over and over, with a period that no row has: quick where there are millions.
template <class T>
array<T> repeated(std::size_t count, std::uint32_t series) {
    const auto few = uniform<T>(4099, series);
    array<T> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = few[i % few.size()];
    return out;
}
/// Rows of n numbers that are together just more than what is stored past the caches.
template <class T>
constexpr std::size_t rows_beyond_caches(std::size_t n) {
    return simd::beyond_caches / (n * sizeof(T)) + 3;
}

/// Whole numbers from -3 to 3: products and their sums are exact, so results must be equal whatever the order.
template <class T>
array<T> integers(std::size_t count, std::uint32_t series) {
    const core::random_stream random{8, core::purpose::user, series};
    array<T> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<int>(random.below(7, i)) - 3);
    return out;
}

/// Filled with NaN: what is not written shows.
template <class T>
array<T> unwritten(std::size_t count) {
    return array<T>(count, std::numeric_limits<T>::quiet_NaN());
}

/// Exactly as much scratch as was asked for, full of NaN.
template <class T>
struct scratch {
    array<T> memory;
    kernels::resources<T> use;
    scratch(std::size_t count, parallel::team team) : memory(unwritten<T>(count)), use{team, memory} {}
};

template <class T>
bool same_bits(const array<T>& left, const array<T>& right) {
    return left.size() == right.size() &&
           (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0);
}

template <class T>
bool equal(const array<T>& got, const std::vector<double>& want) {
    if (got.size() != want.size()) return false;
    for (std::size_t i = 0; i < got.size(); ++i)
        if (static_cast<double>(got[i]) != want[i]) return false;
    return true;
}

/// Largest distance; infinite where a number is missing.
template <class T>
double distance(const array<T>& got, const std::vector<double>& want) {
    if (got.size() != want.size()) return INFINITY;
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double difference = std::abs(static_cast<double>(got[i]) - want[i]);
        if (!(difference <= most)) most = std::isnan(difference) ? INFINITY : difference;
    }
    return most;
}

/// Rounding error of a sum of `terms` numbers of magnitude up to `size`:
/// each addition errs by half an epsilon of a partial sum. The partial
/// sums of signed random terms stay below 6 sqrt(terms) size (six standard deviations), and the errors add up like
/// sqrt(terms) as well.
template <class T>
double sum_tolerance(std::size_t terms, double size) {
    return 6 * size * static_cast<double>(terms + 1) * static_cast<double>(std::numeric_limits<T>::epsilon());
}

inline const std::vector<int>& thread_counts() {
    static const std::vector<int> counts{1, 2, 3};
    return counts;
}

}  // namespace kernel_test
