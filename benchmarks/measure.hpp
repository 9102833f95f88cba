// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What all benchmarks share: clocks, medians, memory, and the rate at which a team can do fused multiply-adds, the
// limit that every product and convolution is compared with.

#include <sys/mman.h>
#include <time.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/kernels/matrix/tile.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/simd/batch.hpp"

namespace benchmark {

/// Wall-clock seconds, or those that this thread spent on its core: other processes lengthen the first, not the second.
inline double seconds(bool wall) {
    timespec now{};
    clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// That part of all values is smaller.
inline double quantile(std::vector<double> all, double part) {
    std::sort(all.begin(), all.end());
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size()))];
}

/// What a user gave an option: a whole number from 1 to a million.
inline std::size_t whole_number(const std::string& option, const std::string& given) {
    std::size_t found = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), found);
    if (error != std::errc{} || end != given.data() + given.size() || found == 0 || found > 1'000'000)
        lockstep::core::fail(option + " is '" + given + "'", "give a whole number from 1 to 1000000");
    return found;
}

/// The parts of a list that commas separate.
inline std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        if (end > at) out.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

struct release {
    void operator()(void* memory) const noexcept { std::free(memory); }
};

/// An array on huge pages, as a program that trains would have them: zeros for seed 0, else numbers that look random to
/// a branch predictor, made at the speed of memory.
template <class T>
class buffer {
public:
    explicit buffer(std::size_t count, std::uint32_t seed = 0, double low = -0.5, double high = 0.5) : size_{count} {
        constexpr std::size_t page = std::size_t{2} << 20;
        const std::size_t bytes = (count * sizeof(T) / page + 1) * page;
        data_.reset(static_cast<T*>(std::aligned_alloc(page, bytes)));
        if (!data_) throw std::bad_alloc{};
        madvise(data_.get(), bytes, MADV_HUGEPAGE);
        std::uint32_t state = seed;
        for (std::size_t i = 0; i < count; ++i) {
            state = state * 1664525U + 1013904223U;
            data_[i] =
                seed == 0 ? T{0} : static_cast<T>(low + (high - low) * 0x1p-24 * static_cast<double>(state >> 8));
        }
    }
    [[nodiscard]] T* data() const noexcept { return data_.get(); }
    [[nodiscard]] std::span<T> all() const noexcept { return {data_.get(), size_}; }

private:
    std::size_t size_;
    std::unique_ptr<T[], release> data_;
};
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
            lockstep::kernels::detail::unroll<chains>(
                [&](auto i) LOCKSTEP_FLATTEN { sum[i] = lockstep::simd::fma(sum[i], factor, term); });
        batch all = sum[0];
        for (std::size_t i = 1; i < chains; ++i) all = all + sum[i];
        lockstep::simd::store(sink.data() + thread * 64, all);
    });
    const double took = seconds(wall) - begin;
    volatile T keep = sink[0];
    (void)keep;
    return 2.0 * static_cast<double>(chains * links * lockstep::simd::width<T> * static_cast<std::size_t>(threads)) /
           took * 1e-9;
}

/// One of several ways to do the same work, on one core. GFLOP/s of each turn, and as a fraction of the peak.
struct contender {
    std::string name;
    std::function<void()> run;
    std::vector<double> rates{};
    std::vector<double> fractions{};
};

/// `repeats` turns of all of them, each a GFLOP or one call after a measurement of the peak, so that a drift of the
/// clock shows in all. Times are those of this thread on its core: libraries that would take more threads do not.
template <class T>
void take_turns(std::vector<contender>& all, double gflop, int repeats) {
#if defined(_OPENMP)
    omp_set_num_threads(1);
#endif
    const auto calls = static_cast<int>(std::max(1.0, 1.0 / gflop));
    for (contender& each : all) each.run();
    for (int repeat = 0; repeat < repeats; ++repeat)
        for (contender& each : all) {
            const double limit = std::max({fma_peak<T>(1, false), fma_peak<T>(1, false), fma_peak<T>(1, false)});
            const double begin = seconds(false);
            for (int call = 0; call < calls; ++call) each.run();
            each.rates.push_back(gflop * calls / (seconds(false) - begin));
            each.fractions.push_back(each.rates.back() / limit);
        }
}

}  // namespace benchmark
