// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The rate at which one team can do fused multiply-adds: the limit that every product and convolution is compared with.

#include <time.h>

#include <cstddef>
#include <vector>

#include "lockstep/kernels/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace benchmark {

/// Wall-clock seconds, or those that this thread spent on its core: other processes lengthen the first, not the second.
inline double seconds(bool wall) {
    timespec now{};
    clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// GFLOP/s of twelve independent chains in registers on each thread; takes a few milliseconds.
template <class T>
double fma_peak(int threads, bool wall) {
    constexpr std::size_t chains = 12;
    constexpr std::size_t links = 400'000;
    std::vector<T> sink(static_cast<std::size_t>(threads) * 64);
    const double begin = seconds(wall);
    lockstep::parallel::on_each_thread({threads}, [&](std::size_t thread) {
        using batch = lockstep::simd::batch<T>;
        batch sum[chains];
        for (std::size_t i = 0; i < chains; ++i) sum[i] = batch(static_cast<T>(i));
        const batch factor(static_cast<T>(0.999));
        const batch term(static_cast<T>(0.001));
        for (std::size_t link = 0; link < links; ++link)
            lockstep::kernels::detail::unroll<chains>([&](auto i) LOCKSTEP_FLATTEN { sum[i] = lockstep::simd::fma(sum[i], factor, term); });
        batch all = sum[0];
        for (std::size_t i = 1; i < chains; ++i) all = all + sum[i];
        lockstep::simd::store(sink.data() + thread * 64, all);
    });
    const double took = seconds(wall) - begin;
    volatile T keep = sink[0];
    (void)keep;
    return 2.0 * static_cast<double>(chains * links * lockstep::simd::width<T> * static_cast<std::size_t>(threads)) / took * 1e-9;
}

}  // namespace benchmark
