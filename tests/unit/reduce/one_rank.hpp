// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A bucket whose only rank has all the lanes.

#include <cstddef>

#include "lockstep/reduce/concept.hpp"

namespace reduce_test {

inline lockstep::reduce::bucket bucket_of(std::size_t n, std::size_t lanes) {
    return {.ranks = lockstep::comm::group{}, .runs = {{0, lanes}}, .lanes = lanes, .n = n, .team = {}};
}

}  // namespace reduce_test
