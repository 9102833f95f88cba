// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sums of lists over the tree of workers, with maps: what sums of streams are compared with.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/parallel/loop.hpp"

namespace naive {

template <class T>
using entries = std::map<std::size_t, T>;

template <class T>
entries<T> add(const entries<T>& a, const entries<T>& b) {
    entries<T> out = a;
    for (const auto& [index, value] : b)
        if (const auto [at, is_new] = out.insert({index, value}); !is_new) at->second = at->second + value;
    return out;
}

/// The k largest magnitudes, of equal ones those of the lowest indices.
template <class T>
entries<T> largest(const entries<T>& of, std::size_t k) {
    std::vector<std::pair<std::size_t, T>> order(of.begin(), of.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& x, const auto& y) { return std::abs(x.second) > std::abs(y.second); });
    return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(k, order.size()))};
}
template <class T>
entries<T> largest(std::span<const T> of, std::size_t k) {
    entries<T> all;
    for (std::size_t i = 0; i < of.size(); ++i) all[i] = of[i];
    return largest(all, k);
}

/// Over the binary tree of workers: a node of `length`, a power of two, is the sum of its halves, as far as there are
/// workers.
template <class T, class Add>
entries<T> tree(std::span<const entries<T>> workers, std::size_t first, std::size_t length, const Add& sum) {
    if (length == 1) return workers[first];
    const std::size_t half = length / 2;
    const auto left = tree(workers, first, half, sum);
    if (first + half >= workers.size()) return left;
    return sum(left, tree(workers, first + half, half, sum));
}
template <class T, class Add>
entries<T> tree(std::span<const entries<T>> workers, const Add& sum) {
    return tree(workers, 0, std::bit_ceil(workers.size()), sum);
}

/// Bytes of a stream with these entries of the universe [part.first, part.last).
template <class T>
std::size_t stream_bytes(const entries<T>& of, lockstep::parallel::block part) {
    const auto count = static_cast<std::size_t>(std::distance(of.lower_bound(part.first), of.lower_bound(part.last)));
    return 16 + std::min(count * (4 + sizeof(T)), part.size() * sizeof(T));
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace naive
