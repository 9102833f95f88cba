// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the optimizer tests share: memory with a guard after every array, random numbers, and one update from start to
// finish.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/optim/concept.hpp"
#include "lockstep/simd/batch.hpp"

namespace lockstep::optim::testing {

template <class T>
std::vector<T> normals(std::size_t n, std::uint64_t seed) {
    const core::random_stream random{seed, core::purpose::user};
    std::vector<T> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(random.normal(i));
    return out;
}

/// Weights and slots of one optimizer, and the gradients of a few steps. A number after each array shows a write beyond
/// its end.
template <class T>
struct problem {
    static constexpr T guard = T{12345};

    std::size_t n;
    std::vector<T> weights;
    std::vector<T> state;
    std::size_t slot_count;

    problem(std::size_t size, std::size_t slot_count_)
        : n{size}, weights(normals<T>(size, 1)), slot_count{slot_count_} {
        weights.push_back(guard);
        for (std::size_t slot = 0; slot < slot_count; ++slot) {
            state.insert(state.end(), n, T{0});
            state.push_back(guard);
        }
    }

    [[nodiscard]] std::vector<T> gradient(std::uint64_t step) const { return normals<T>(n, 100 + step); }

    [[nodiscard]] update_pass<T> pass(std::span<const T> gradient_now, double rate, std::uint64_t step,
                                      bool decays = true) {
        return {{weights.data(), n},
                gradient_now,
                tensor::slots<T>{state.data(), slot_count, n, n + 1},
                rate,
                step,
                decays};
    }

    [[nodiscard]] bool guards_hold() const {
        bool hold = weights[n] == guard;
        for (std::size_t slot = 0; slot < slot_count; ++slot) hold = hold && state[slot * (n + 1) + n] == guard;
        return hold;
    }
};

/// `steps` updates of n weights; the callable does one of them.
template <class T, class Optimizer, class Update>
problem<T> run(const Optimizer&, std::size_t n, std::uint64_t steps, Update&& update, bool decays = true) {
    problem<T> out{n, Optimizer::slot_count};
    for (std::uint64_t step = 0; step < steps; ++step) {
        const auto gradient = out.gradient(step);
        update(out.pass(gradient, 0.05 / (1.0 + static_cast<double>(step)), step, decays));
    }
    return out;
}

template <class T, class Optimizer>
problem<T> run(const Optimizer& optimizer, std::size_t n, std::uint64_t steps, bool decays = true) {
    return run<T>(
        optimizer, n, steps, [&](const auto& pass) { optimizer.update(pass); }, decays);
}

/// 0, 1, around the vector width, and primes.
template <class T>
std::vector<std::size_t> sizes() {
    constexpr std::size_t width = simd::width<T>;
    return {0, 1, width - 1, width, width + 1, 2 * width + 1, 31, 257, 521};
}

}  // namespace lockstep::optim::testing
