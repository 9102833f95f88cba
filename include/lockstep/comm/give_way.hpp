// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a rank that waits for others does between two looks: it leaves its core to who needs it.

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::comm {

/// How long a rank sleeps before it looks again. `waited`: since something has come. Below 50 ms it does not sleep,
/// then for a hundredth of that time, at most 1 ms.
[[nodiscard]] constexpr std::chrono::steady_clock::duration sleep_after(
    std::chrono::steady_clock::duration waited) noexcept {
    using namespace std::chrono_literals;
    return waited < 50ms ? 0ms : std::min<std::chrono::steady_clock::duration>(waited / 100, 1ms);
}

/// Sleeps for sleep_after(waited), or offers the core to others. A yield is not enough for long: others may need the
/// core, and a rank that yields takes its share of it again and again.
inline void give_way(std::chrono::steady_clock::duration waited) {
    const auto sleep = sleep_after(waited);
    if (sleep == sleep.zero())
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(sleep);
}

}  // namespace lockstep::comm
