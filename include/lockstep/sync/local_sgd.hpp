// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Local SGD: each worker trains weights of its own, and every few steps all of them go on from the mean.
// Tested by tests/equivalence/local_sgd.cpp.

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/sync/concept.hpp"
#include "lockstep/sync/local_updates.hpp"

namespace lockstep::sync {

/// w_k(t+1) = w_k(t) - rate(t) g_k(t) for each worker k of plan::workers, where g_k is the mean gradient over its rows
/// of the minibatch. After every `period` steps each w_k becomes the mean of all of them, weighted by the samples that
/// they have taken since the last one (Stich, ICLR 2019, arXiv:1805.09767). Before step `start` steps are synchronous:
/// post-local SGD (Lin, Stich, Patel, Jaggi, ICLR 2020, arXiv:1808.07217).
/// A worker without rows in a short minibatch keeps its weights and slots in that step, which counts for its optimizer
/// as for those of the others. The bits depend on the number of workers, not on that of ranks. Looks at weights
/// (evaluate(), weights_hash(), all_weights(), predict(), observers that are given the trainer) see the mean at that
/// point and change no worker. A look is collective. It sends nothing right after a mean, and again in the same step.
/// Losses, the agreement that no rank has failed and the statistics of layers stay those of each step: the latency of a
/// small collective remains, the bandwidth of the gradients goes. Running means of a normalisation are linear in those
/// of the minibatch: with equal rows they are the means over workers. Cost for each rank: 2 n (p-1)/p numbers every
/// `period` steps, with `average` as many again for each slot, and the same in each synchronous step; not hidden behind
/// layers. Ranks that share a worker add its gradients in each step, by messages. Memory: weights, gradients and slots
/// for each worker of the rank, and once more the weights. The network is walked once for each worker. Errors:
/// core::error for a period of 0, for workers that cannot be dealt, and for a progress thread. Not with a model
/// partition.
/// With a compressor workers send through it how far they have come since all were alike, each with a state of its own
/// (difference_sum): with error feedback Qsparse-local-SGD (Basu, Data, Karakus, Diggavi, NeurIPS 2019,
/// arXiv:1906.02367). Synchronous steps and averaged slots stay exact. Cost then: the messages of one compressed sum
/// every `period` steps. Memory: 2 n numbers, n for each further worker of the rank, and the state of the compressor.
struct local_sgd {
    std::uint64_t period = 8;          ///< steps from mean to mean
    std::uint64_t start = 0;           ///< the first local step
    momenta momentum = momenta::keep;  ///< of each worker

    static constexpr std::string_view name = "local_sgd";
    static constexpr bool has_worker_weights = true;
    static constexpr bool takes_compressor = true;

    [[nodiscard]] std::string settings() const {
        return core::text("period=", period, " start=", start,
                          momentum == momenta::keep ? " momentum=keep" : " momentum=average");
    }
    void check() const {
        if (period == 0)
            core::fail("sync::local_sgd averages weights every 0 steps",
                       "set period to at least 1, or leave sync out for synchronous steps");
    }

    template <class Types>
    using strategy = local_updates<Types>;
};

static_assert(StrategyChoice<local_sgd>);

}  // namespace lockstep::sync
