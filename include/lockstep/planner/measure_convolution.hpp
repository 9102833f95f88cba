// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Times of the algorithms of a convolution on this machine, for a choice among them.

#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/kernels/convolution/algorithm.hpp"
#include "lockstep/layers/lane_summation.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/planner/choose_algorithms.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::planner {

/// What is measured, and how long. Winograd with tiles of 6 x 6 errs more than the others: ask for it by name.
struct measuring {
    std::size_t samples = 64;  ///< of a minibatch on one rank
    std::size_t lanes = 8;     ///< of them on one rank: a weight gradient is that of each lane
    parallel::team team{1};
    std::vector<kernels::algorithm> allowed{kernels::algorithm::direct, kernels::algorithm::winograd2,
                                            kernels::algorithm::winograd4, kernels::algorithm::im2col};
    int repeats = 5;         ///< in turns; the least time counts: what else runs on the machine only lengthens
    double seconds = 0.005;  ///< of each repeat, at least
    double hopeless = 1.5;   ///< what takes so many times the least is measured once, and not in micro-batches
};

/// Runs one convolution on numbers that stay where they are. Memory: x, y and their gradients of a minibatch, weights,
/// the most scratch.
template <class T>
class convolution_bench {
public:
    convolution_bench(const kernels::convolution& g, const measuring& how) : g_{g}, how_{how} {
        for (std::size_t i = 0; i < sizes().size(); ++i) slices_[i] = arena_.reserve<T>(sizes()[i]);
        std::size_t scratch = 0;
        for (const auto pass : kernels::convolution_passes)
            for (const auto which : kernels::algorithms)
                if (applies(which, g_)) scratch = std::max(scratch, elements_of_scratch(which, pass, how_.samples));
        scratch_ = arena_.reserve<T>(scratch);
        arena_.allocate();
        const core::random_stream random{1, core::purpose::user};
        for (const auto& slice : slices_)
            for (T& number : arena_[slice])
                number =
                    static_cast<T>(random.uniform(static_cast<std::size_t>(&number - arena_[slice].data()))) - T{0.5};
    }

    /// The times of all algorithms that are allowed and apply, and of the one that the default rule picks.
    [[nodiscard]] measured_pass measure(kernels::convolution_pass pass) {
        measured_pass out{.pass = pass, .by_rule = kernels::preferred_algorithm(g_, pass), .algorithms = {}};
        for (const auto which : kernels::algorithms)
            if (applies(which, g_) && (which == out.by_rule || std::find(how_.allowed.begin(), how_.allowed.end(),
                                                                         which) != how_.allowed.end()))
                out.algorithms.push_back({which, {{how_.samples, 0, bytes_of_scratch(which, pass, how_.samples)}}});
        time(out, 1);
        double least = std::numeric_limits<double>::infinity();
        for (const auto& one : out.algorithms) least = std::min(least, one.runs[0].seconds);
        const std::size_t most = pass == kernels::convolution_pass::backward_weights ? 0 : how_.samples;
        for (auto& one : out.algorithms)
            for (std::size_t run = 1; run < most && one.runs[0].seconds <= how_.hopeless * least; run *= 2)
                one.runs.push_back({run, 0, bytes_of_scratch(one.which, pass, run)});
        time(out, how_.repeats);
        return out;
    }

private:
    [[nodiscard]] std::size_t threads() const noexcept { return static_cast<std::size_t>(how_.team.threads); }
    /// As layer_api::conv_layer: threads may take a lane of a small weight gradient each.
    [[nodiscard]] bool deals_lanes() const noexcept { return g_.weight_count() <= layer_api::most_dealt_weights; }
    [[nodiscard]] std::array<std::size_t, 7> sizes() const {
        return {how_.samples * g_.in_size(), how_.samples * g_.out_size(),  how_.samples * g_.in_size(),
                g_.weight_count(),           threads() * g_.weight_count(), g_.filters,
                threads() * g_.filters};
    }
    [[nodiscard]] std::size_t elements_of_scratch(kernels::algorithm which, kernels::convolution_pass pass,
                                                  std::size_t run) const {
        if (pass == kernels::convolution_pass::forward)
            return kernels::convolve_forward_scratch<T>(which, g_, run, how_.team);
        if (pass == kernels::convolution_pass::backward_data)
            return kernels::convolve_backward_data_scratch<T>(which, g_, run, how_.team);
        const auto share = [&](parallel::team team) {
            return kernels::convolve_backward_weights_scratch<T>(which, g_, run, team);
        };
        return std::max(share(how_.team),
                        deals_lanes() ? layer_api::dealt_scratch<T>(share({1}), how_.lanes, how_.team) : 0);
    }
    [[nodiscard]] std::size_t bytes_of_scratch(kernels::algorithm which, kernels::convolution_pass pass,
                                               std::size_t run) const {
        return elements_of_scratch(which, pass, run) * sizeof(T);
    }

    /// All candidates in turns: a drift of the clock shows in all of them.
    void time(measured_pass& out, int repeats) {
        double least = std::numeric_limits<double>::infinity();  // for a sample
        for (int repeat = 0; repeat < repeats; ++repeat)
            for (auto& one : out.algorithms)
                for (kernel_run& here : one.runs) {
                    const auto samples = static_cast<double>(std::max<std::size_t>(1, here.samples));
                    if (here.seconds > how_.hopeless * least * samples) continue;
                    const double took = once(one.which, out.pass, here.samples);
                    here.seconds = here.seconds == 0 ? took : std::min(here.seconds, took);
                    least = std::min(least, here.seconds / samples);
                }
    }
    /// Seconds of one run of so many samples: the mean over those that fit the minibatch, one after the other as in a
    /// layer.
    [[nodiscard]] double once(kernels::algorithm which, kernels::convolution_pass pass, std::size_t samples) {
        const std::size_t runs = std::max<std::size_t>(1, how_.samples / std::max<std::size_t>(1, samples));
        std::size_t rounds = 0;
        const double begin = now();
        double passed = 0;
        do {
            const kernels::resources<T> all{how_.team, arena_[scratch_]};
            const auto lanes = [&](parallel::block of, std::size_t thread, const kernels::resources<T>& use) {
                for (std::size_t lane = of.first; lane < of.last; ++lane)
                    run(which, pass, parallel::split(how_.samples, how_.lanes, lane), use, thread);
            };
            if (pass == kernels::convolution_pass::backward_weights && deals_lanes() &&
                layer_api::threads_take_lanes(how_.lanes, how_.team))
                parallel::on_each_thread(how_.team, [&](std::size_t thread) {
                    lanes(parallel::split(how_.lanes, threads(), thread), thread, layer_api::dealt_part(all, thread));
                });
            else if (pass == kernels::convolution_pass::backward_weights)
                lanes({0, how_.lanes}, 0, all);
            else
                for (std::size_t at = 0; at < runs; ++at) run(which, pass, {at * samples, (at + 1) * samples}, all);
            ++rounds;
            passed = now() - begin;
        } while (passed < how_.seconds);
        return passed / static_cast<double>(rounds * runs);
    }
    /// Seconds; with one thread those that it spent on its core, which other processes do not lengthen.
    [[nodiscard]] double now() const noexcept {
        timespec out{};
        clock_gettime(how_.team.threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &out);
        return static_cast<double>(out.tv_sec) + 1e-9 * static_cast<double>(out.tv_nsec);
    }
    void run(kernels::algorithm which, kernels::convolution_pass pass, parallel::block samples,
             const kernels::resources<T>& use, std::size_t thread = 0) noexcept {
        const auto at = [&](std::size_t i) { return arena_[slices_[i]].data(); };
        T* const x = at(0) + samples.first * g_.in_size();
        T* const y = at(1) + samples.first * g_.out_size();
        T* const dx = at(2) + samples.first * g_.in_size();
        if (pass == kernels::convolution_pass::forward)
            kernels::convolve_forward<T>(which, g_, samples.size(), x, at(3), at(5), y, use);
        else if (pass == kernels::convolution_pass::backward_data)
            kernels::convolve_backward_data<T>(which, g_, samples.size(), y, at(3), dx, use);
        else
            kernels::convolve_backward_weights<T>(which, g_, samples.size(), x, y, at(4) + thread * g_.weight_count(),
                                                  at(6) + thread * g_.filters, use);
    }

    kernels::convolution g_;
    measuring how_;
    tensor::arena arena_;
    std::array<tensor::slice<T>, 7> slices_{};  // x, y, dx, w, dw, bias, dbias
    tensor::slice<T> scratch_{};
};

/// Every pass of every convolution, each geometry once. `told(layer, of)` is called before each layer.
template <class T, class Told>
[[nodiscard]] std::vector<measured_pass> measure_convolutions(std::span<const convolution_layer> layers,
                                                              const measuring& how, Told&& told) {
    std::vector<measured_pass> out;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        told(i, layers.size());
        std::size_t same = 0;
        while (layers[same].geometry != layers[i].geometry || layers[same].input_learns != layers[i].input_learns)
            ++same;
        if (same < i) {
            for (std::size_t at = 0, end = out.size(); at < end; ++at)
                if (out[at].layer == same) {
                    out.push_back(measured_pass{out[at]});
                    out.back().layer = i;
                }
            continue;
        }
        convolution_bench<T> bench{layers[i].geometry, how};
        for (const auto pass : kernels::convolution_passes)
            if (layers[i].has(pass)) {
                out.push_back(bench.measure(pass));
                out.back().layer = i;
            }
    }
    return out;
}

}  // namespace lockstep::planner
