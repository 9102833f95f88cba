// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A bucket whose only rank has all the lanes.

#include <algorithm>
#include <cstddef>

#include "lockstep/reduce/concept.hpp"

namespace reduce_test {

inline lockstep::reduce::bucket bucket_of(std::size_t n, std::size_t lanes) {
    return {.ranks = lockstep::comm::group{}, .runs = {{0, lanes}}, .lanes = lanes, .n = n, .team = {}};
}

/// The same for `workers` of `each` lanes, and a matrix of n / columns rows cut in segments of so many numbers.
inline lockstep::reduce::bucket bucket_of_workers(std::size_t n, std::size_t workers, std::size_t each,
                                                  std::size_t columns, std::size_t segment) {
    auto out = bucket_of(n, workers * each);
    out.deal = {.workers = workers, .lanes = each, .own = {0, workers}, .messages = {{0, workers}}};
    for (std::size_t first = 0; first < n; first += segment)
        out.deal.pieces.push_back({.first = first,
                                   .count = std::min(segment, n - first),
                                   .offset = first,
                                   .rows = n / columns,
                                   .columns = columns});
    return out;
}

}  // namespace reduce_test
