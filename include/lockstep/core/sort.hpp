// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sorting where time does not matter, at the start: compiles in a fraction of the time that std::sort takes.

#include <algorithm>

namespace lockstep::core {

/// Heapsort of a random-access range by `before`, in place; equal elements come in any order. Cost: n log n.
template <class Range, class Before>
[[gnu::cold]] void sort(Range& all, const Before& before) {
    std::make_heap(all.begin(), all.end(), before);
    std::sort_heap(all.begin(), all.end(), before);
}

}  // namespace lockstep::core
