// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Workers that train weights of their own, as a naive reference: one dense layer, a softmax, momentum.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace naive_workers {

using namespace support;

// A short last minibatch of 7 rows, which leaves workers without rows; 9 steps, which neither 2 nor 4 divides.
inline constexpr std::size_t batch = 61, steps = 9, lanes = 8;
inline constexpr double rate = 0.05, inner_beta = 0.5;
inline const samples<double> training{3 * batch + 7};

/// One dense layer and a softmax: what a reference of a few lines computes.
inline constexpr std::size_t inputs = sample::size, classes = 10;
inline constexpr auto linear =
    ls::sequential{ls::input<12, 12, 1>, ls::layers::flatten{}, ls::layers::dense<classes>{}};

template <class Sync, class Compressor = ls::compress::none>
auto recipe(const Sync& sync, std::size_t workers, const Compressor& compressor = {}) {
    return ls::plan{.model = linear,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::momentum{.beta = inner_beta},
                    .schedule = ls::optim::constant{.rate = rate},
                    .compressor = compressor,
                    .sampler = ls::data::ordered{},
                    .precision = ls::real<double>{},
                    .sync = sync,
                    .batch = batch,
                    .lanes = lanes,
                    .workers = workers,
                    .seed = 5};
}

using numbers = std::vector<double>;

/// The mean gradient over the rows first .. last - 1, of weights and then biases.
inline numbers naive_gradient(const numbers& w, std::size_t first, std::size_t last) {
    numbers out(w.size());
    for (std::size_t row = first; row < last; ++row) {
        const double* x = training.x.data() + row * inputs;
        double p[classes], sum = 0;
        for (std::size_t c = 0; c < classes; ++c) {
            p[c] = w[inputs * classes + c];
            for (std::size_t i = 0; i < inputs; ++i) p[c] += x[i] * w[i * classes + c];
            sum += p[c] = std::exp(p[c]);
        }
        for (std::size_t c = 0; c < classes; ++c) {
            const double d = p[c] / sum - (static_cast<std::size_t>(training.y[row]) == c ? 1 : 0);
            for (std::size_t i = 0; i < inputs; ++i) out[i * classes + c] += x[i] * d;
            out[inputs * classes + c] += d;
        }
    }
    for (double& one : out) one /= static_cast<double>(last - first);
    return out;
}

/// W workers; between(w, mean) makes new weights of all of them at the end of a period, from their mean by samples. Or
/// between(w, parts), from what part each has in the mean; empty where local steps begin.
template <class Between>
std::vector<numbers> naive(const numbers& begin, std::size_t period, std::size_t start, std::size_t workers,
                           const Between& between) {
    const std::size_t n = training.y.size();
    std::vector<numbers> w(workers, begin), v(workers, numbers(begin.size()));
    numbers taken(workers);
    for (std::size_t step = 0, at = 0; step < steps; ++step) {
        const std::size_t rows = std::min(batch, n - at);
        for (std::size_t k = 0; k < workers; ++k) {
            std::size_t first = at + rows * (k * lanes / workers) / lanes,
                        last = at + rows * ((k + 1) * lanes / workers) / lanes;
            if (step < start) first = at, last = at + rows;
            if (step >= start) taken[k] += static_cast<double>(last - first);
            if (first == last) continue;
            const numbers g = naive_gradient(w[k], first, last);
            for (std::size_t i = 0; i < g.size(); ++i) w[k][i] -= rate * (v[k][i] = inner_beta * v[k][i] + g[i]);
        }
        at = at + rows == n ? 0 : at + rows;
        if (step + 1 == start) between(w, numbers{});
        if (step < start || (step + 1 - start) % period != 0) continue;
        double all = 0;
        for (const double one : taken) all += one;
        if constexpr (requires { Between::takes_parts; }) {
            for (double& one : taken) one /= all;
            between(w, taken);
        } else {
            numbers mean(begin.size());
            for (std::size_t k = 0; k < workers; ++k)
                for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += w[k][i] * taken[k] / all;
            between(w, mean);
        }
        std::ranges::fill(taken, 0.0);
    }
    return w;
}

/// Which numbers top-k sends of these: the largest `kept` of the weights, and the biases, a vector, whole.
inline std::vector<std::size_t> sent_by_top_k(const numbers& of, std::size_t kept) {
    std::vector<std::size_t> out(inputs * classes);
    std::iota(out.begin(), out.end(), std::size_t{0});
    std::ranges::stable_sort(out, [&](std::size_t a, std::size_t b) { return std::abs(of[a]) > std::abs(of[b]); });
    out.resize(kept);
    for (std::size_t i = inputs * classes; i < of.size(); ++i) out.push_back(i);
    return out;
}

inline double distance(std::span<const double> a, const numbers& b) {
    double most = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
}

struct outcome {
    std::uint64_t weights = 0, state = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};
template <class Plan>
outcome run(const mpi::communicator& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    return {trainer.weights_hash(), trainer.state_hash(), seen.values};
}

/// All these numbers of ranks give the same bits, and so does a run that is stopped after 5 steps on 3 ranks and goes
/// on on 2 or 8. Returns what they give; on rank 0 alone.
template <class Plan>
outcome check_same_bits(const Plan& plan, const std::vector<int>& numbers_of_ranks, const shared_folder& folder) {
    const bool is_first = mpi::communicator{}.rank() == 0;
    INFO(plan.sync.settings() << ", " << plan.workers << " workers");
    std::vector<outcome> all;
    for (const int ranks : numbers_of_ranks) {
        outcome now;
        on_groups({ranks}, [&](const mpi::communicator& group) { now = run(group, plan); });
        if (is_first) all.push_back(now);
    }
    for (const outcome& one : all) CHECK(one == all[0]);
    folder.clear();
    on_groups({3}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, plan};
        trainer.fit(training.set(), ls::steps{5});
        (void)trainer.save(folder.path);
    });
    mpi::communicator{}.barrier();
    for (const int ranks : {2, 8}) {
        std::uint64_t weights = 0, state = 0;
        on_groups({ranks}, [&](const mpi::communicator& group) {
            ls::trainer trainer{group, plan};
            trainer.resume(folder.path);
            trainer.fit(training.set(), ls::until_step{steps});
            weights = trainer.weights_hash();
            state = trainer.state_hash();
        });
        if (is_first) {
            CHECK(weights == all[0].weights);
            CHECK(state == all[0].state);
        }
    }
    return is_first ? all[0] : outcome{};
}

}  // namespace naive_workers
