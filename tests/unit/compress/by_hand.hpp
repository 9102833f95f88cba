// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a reduction over several workers in plain loops: no reducer, no ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/compress/reduction.hpp"

namespace lockstep::compress::testing {

/// number(i) of reference_reductions.py.
template <class T>
T reference_number(std::size_t i) {
    const T x = static_cast<T>((37 * i + 11) % 101) / 64 - T{50} / 64;
    return i % 19 == 3 ? 8 * x : x;
}

template <class T, Reduction<T> R>
struct by_hand {
    R reduction;
    matrix shape;
    std::size_t workers;
    std::uint64_t seed;
    std::size_t tensor;
    parallel::team team;
    reduction_sizes<R::rounds.size()> sizes = reduction.sizes(shape, workers);
    std::vector<T> state = std::vector<T>(workers * slots_of(reduction) * shape.size());
    std::vector<T> shared = std::vector<T>(sizes.shared);
    std::vector<T> kept = std::vector<T>(workers * sizes.kept, T{-1});
    std::vector<element_of<R, T, R::rounds.size() - 1>> last{};  ///< what each worker has encoded for the last round

    by_hand(const R& which, const matrix& of, std::size_t count, parallel::team threads = {},
            std::uint64_t word_seed = 42, std::size_t number = 5)
        : reduction{which}, shape{of}, workers{count}, seed{word_seed}, tensor{number}, team{threads} {
        if constexpr (requires { reduction.initialise(all(0)); }) reduction.initialise(all(0xFFFFFFFFU));
    }

    [[nodiscard]] shared_pass<T> all(std::uint32_t step) {
        return {.shape = shape,
                .workers = workers,
                .shared = shared,
                .random = {seed, core::purpose::reduction, static_cast<std::uint32_t>(tensor), step},
                .team = team,
                .step = step,
                .from = {.tensor = tensor, .rows = shape.rows, .columns = shape.columns}};
    }
    /// `values`: those of all workers.
    [[nodiscard]] worker_pass<T> of(std::size_t worker, std::span<const T> values, std::uint32_t step) {
        const std::size_t n = shape.size();
        return {.shape = shape,
                .workers = workers,
                .worker = worker,
                .values = values.subspan(worker * n, n),
                .state = tensor::slots<T>{state.data() + worker * slots_of(reduction) * n, slots_of(reduction), n, n},
                .kept = std::span{kept}.subspan(worker * sizes.kept, sizes.kept),
                .shared = shared,
                .random = {seed, core::purpose::rounding, static_cast<std::uint32_t>(tensor * workers + worker), step},
                .team = team,
                .common = all(step).random,
                .step = step,
                .from = all(step).from};
    }

    std::vector<T> operator()(std::span<const T> values, std::uint32_t step) {
        std::vector<T> mean(shape.size(), T{77});
        [&]<std::size_t... K>(std::index_sequence<K...>) { (round(round_number<K>{}, values, step, mean), ...); }
        (std::make_index_sequence<R::rounds.size()>{});
        return mean;
    }

private:
    template <std::size_t K>
    void round(round_number<K> number, std::span<const T> values, std::uint32_t step, std::span<T> mean) {
        using element = element_of<R, T, K>;
        std::vector<element> out(sizes.elements[K]), result(sizes.elements[K]);
        if constexpr (K + 1 == R::rounds.size()) last.clear();
        for (std::size_t worker = 0; worker < workers; ++worker) {
            std::fill(out.begin(), out.end(), static_cast<element>(T{123}));
            reduction.encode(number, of(worker, values, step), std::span<element>{out});
            for (std::size_t i = 0; i < out.size(); ++i)
                if constexpr (R::rounds[K] == algebra::max)
                    result[i] = std::max(result[i], out[i]);
                else
                    result[i] = static_cast<element>(result[i] + out[i]);
            if constexpr (K + 1 == R::rounds.size()) last.insert(last.end(), out.begin(), out.end());
        }
        if constexpr (K + 1 < R::rounds.size())
            reduction.combined(number, all(step), std::span<const element>{result});
        else
            reduction.finish(all(step), std::span<const element>{result}, mean);
    }
};

}  // namespace lockstep::compress::testing
