// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Static OpenMP blocks: the same split every time, and the only header that uses OpenMP. Without OpenMP a team has one
// member.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/core/floating_point.hpp"

namespace lockstep::parallel {

#if defined(_OPENMP)
inline constexpr bool has_threads = true;
#else
inline constexpr bool has_threads = false;
#endif

/// How many threads a kernel may use. A value that is handed down: the library keeps no global thread count.
struct team {
    int threads = 1;
};

/// A half-open run of indices.
struct block {
    std::size_t first = 0;
    std::size_t last = 0;
    [[nodiscard]] constexpr std::size_t size() const noexcept { return last - first; }
    [[nodiscard]] constexpr bool empty() const noexcept { return first == last; }
    friend constexpr bool operator==(const block&, const block&) = default;
};

/// Part `part` of `parts` of 0 .. n-1, contiguous and equal as far as possible, cut only at multiples of `grain`.
[[nodiscard]] constexpr block split(std::size_t n, std::size_t parts, std::size_t part,
                                    std::size_t grain = 1) noexcept {
    if (parts == 1) return {0, n};
    const std::size_t units = (n + grain - 1) / grain;
    return {std::min(n, units * part / parts * grain), std::min(n, units * (part + 1) / parts * grain)};
}

/// A thread of the library's own that works beside a team: its loops are those of the team, run by itself alone.
inline constinit thread_local bool works_alone = false;

namespace detail {

/// One OpenMP region for the whole program: loop bodies come as pointers, so the compiler sees each of them once.
inline void run_on_threads(team team, void (*body)(void*, std::size_t), void* state) noexcept {
#if defined(_OPENMP)
    if (team.threads > 1 && !works_alone) {
        // A loop, not the bare region: also complete where the runtime grants fewer threads than were asked for.
#pragma omp parallel for num_threads(team.threads) schedule(static, 1)
        for (int thread = 0; thread < team.threads; ++thread) body(state, static_cast<std::size_t>(thread));
        return;
    }
#endif
    for (int thread = 0; thread < team.threads; ++thread) body(state, static_cast<std::size_t>(thread));
}

/// The body of a loop, compiled apart from both of its callers.
template <class F>
[[gnu::noinline]] void call_block(F& f, block mine) noexcept {
    f(mine);
}

}  // namespace detail

/// Runs f(thread) once on each thread of the team. f must not throw.
template <class F>
void on_each_thread(team team, F&& f) noexcept {
    using function = std::remove_reference_t<F>;
    detail::run_on_threads(
        team, [](void* state, std::size_t thread) { (*static_cast<function*>(state))(thread); },
        const_cast<void*>(static_cast<const void*>(&f)));
}

/// Runs f(block) on each thread's part of 0 .. n-1. Threads split outputs, never a sum.
template <class F>
void for_blocks(team team, std::size_t n, std::size_t grain, F&& f) noexcept {
    const auto threads = static_cast<std::size_t>(team.threads);
    if (threads <= 1 || n <= grain) {
        if (n > 0) detail::call_block(f, block{0, n});
        return;
    }
    on_each_thread(team, [&](std::size_t thread) {
        const block mine = split(n, threads, thread, grain);
        if (!mine.empty()) detail::call_block(f, mine);
    });
}

/// to = from, of equal length and disjoint.
template <class T>
void copy(team team, std::span<const T> from, std::span<T> to) noexcept {
    for_blocks(team, from.size(), 4096, [&](block part) noexcept {
        std::copy_n(from.data() + part.first, part.size(), to.data() + part.first);
    });
}

/// Runs f(index) for each of 0 .. n-1, of which every thread takes a run. What f throws passes through: where it may,
/// one thread runs all.
template <class F>
void for_each(team team, std::size_t n, F&& f) noexcept(noexcept(f(n))) {
    const auto run = [&](block mine) noexcept(noexcept(f(n))) {
        for (std::size_t index = mine.first; index < mine.last; ++index) f(index);
    };
    if constexpr (noexcept(f(n)))
        for_blocks(team, n, 1, run);
    else
        run({0, n});
}

}  // namespace lockstep::parallel
