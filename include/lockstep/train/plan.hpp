// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The recipe of a training run as one value: an aggregate whose members are named at the call site.
// Tested by tests/unit/train/checks.cpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/lane_sum.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/floating_point.hpp"
#include "lockstep/core/member.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/data.hpp"
#include "lockstep/reduce/choose.hpp"
#include "lockstep/reduce/transport.hpp"
#include "lockstep/sync/clip.hpp"
#include "lockstep/sync/every_step.hpp"
#include "lockstep/sync/no_factors.hpp"
#include "lockstep/train/engine/lane_rows.hpp"

namespace lockstep::train {

/// The element type that a network computes in: `.precision = real<double>{}`.
template <class T>
struct real {
    using type = T;  ///< float or double
};

/// Of a plan that names none: a trainer of it does not compile.
struct loss_left_out {};

/// The number of ranks, `threads`, `transport`, `factors`, `all_reduce` (but for ring and halving-doubling), `timeout`,
/// `bucket`, `overlap`, `progress_thread` and `prefetch` change no bit of the weights. A model partition adds features
/// in another order. With a compressor `workers` and `segment` decide as well, with sync::local_sgd `workers`: with
/// workers = 0, one for each rank, runs are equal for equal numbers of ranks.
template <class Model, class Loss = loss_left_out, class Optimizer = optim::momentum, class Schedule = optim::constant,
          class Partition = partition::data, class Compressor = compress::none, class Initialise = model::he,
          class Sampler = data::shuffled, class Precision = real<float>, class Sync = sync::every_step,
          class Clip = sync::no_clipping, class Factors = sync::no_factors>
struct plan {
    Model model;              ///< a sequential
    Loss loss{};              ///< of one sample, averaged over the global minibatch
    Optimizer optimizer{};    ///< one update for each weight and step
    Schedule schedule{};      ///< learning rate at each step; asked for steps up to 10,000 when a trainer is made
    Partition partition{};    ///< which rank has which part of the network
    Compressor compressor{};  ///< of gradients
    Initialise initialise{};  ///< of weights, by seed
    Sampler sampler{};        ///< order of an epoch, by seed and epoch
    Precision precision{};    ///< of all numbers of the network
    Sync sync{};              ///< when ranks exchange what: sync::every_step
    Clip clip{};              ///< of the mean gradient: sync::clip_by_global_norm{.norm = 1}
    Factors
        factors{};  ///< dense layers that send rows of x and dy in place of gradients: sync::no_factors, sync::factors
    std::size_t batch = 64;  ///< samples of the GLOBAL minibatch, whatever the number of ranks
    std::size_t lanes = 8;   ///< the fixed cut of the minibatch: at least as many as ranks
    /// The fixed cut of what is kept for parts of the minibatch (residuals of a compressor, weights of local SGD): what
    /// papers call worker, learner or node. A rank holds several, or several ranks share one. 0: one for each rank at
    /// the start. Without such state they change nothing.
    std::size_t workers = 0;
    std::size_t segment =
        std::size_t{1} << 16U;  ///< numbers of a tensor that a compressor sees at once; 0: whole tensors
    std::uint64_t seed = 1;     ///< of everything random
    std::size_t threads = 1;    ///< on each rank
    /// Parameters that are averaged together, at least; 1 = each layer alone. 0: between hosts the fewest that spend at
    /// most a twentieth of their time on latency, by costs measured at the start; 2^20 on one host, for compressors and
    /// where `all_reduce` is given.
    std::size_t bucket = 0;
    bool overlap = true;  ///< gradients and weights travel while layers are computed; false: between backward and the
                          ///< next forward, to compare
    /// Collectives are moved on by a thread of its own while layers are computed, at MPI_THREAD_SERIALIZED or more;
    /// false: between layers. What is called in them (layers, optimizers, compressors) makes no MPI call then.
    bool progress_thread = false;
    bool prefetch = false;  ///< fit() reads the next minibatch on a thread of its own
    /// shared_memory, messages, or automatic: shared memory where all ranks (with a compressor: the ranks that share a
    /// worker) are on one node and it has room. With sync::local_sgd ranks that share a worker add by messages
    reduce::transport transport = reduce::transport::automatic;
    std::string
        algorithms{};  ///< file of chosen algorithms for the convolutions of tuned(net); empty: the default rule
    /// Algorithm of messages, by bytes of a bucket: "doubling:0-8192;tree:8193-max"; empty: by measured costs. Given,
    /// gradients travel as messages on one node, too.
    std::string all_reduce{};
    /// What all_reduce may name: tree and doubling, or with collectives::all_sums of collectives/sum_algorithms.hpp
    /// also hierarchical, which has their bits, and ring and halving-doubling, whose bits depend on the number of
    /// ranks.
    collectives::sum_family sums = collectives::lane_tree_sums;
    /// The longest wait for other ranks without progress, as in std::chrono::seconds{60}; 0 = for ever. Nothing:
    /// LOCKSTEP_TIMEOUT in seconds, or 60 s.
    std::optional<std::chrono::duration<double>> timeout{};
};

/// The largest numbers of a plan. The product of samples and lanes stays far below 2^64, so that the deal needs no
/// check of its own.
inline constexpr std::size_t most_samples = std::size_t{1} << 40U, most_lanes = std::size_t{1} << 20U,
                             most_threads = 4096;

namespace detail {
/// What is more is a mistake, such as a negative number that was converted.
inline void check_most(std::size_t number, std::string_view what, std::size_t most) {
    if (number > most) core::fail(core::text("the plan has ", number, " ", what), core::text("use at most ", most));
}
}  // namespace detail

/// Whether the costs of messages decide something: which algorithm sums gradients without a compressor, with
/// compress::sparse_sum, or statistics, and the size of buckets. `messages_inside`: ranks that share a worker add by
/// messages, whatever the transport.
template <class T, class Network, class Plan>
[[nodiscard, gnu::cold]] bool measures(const Plan& of, bool messages_inside) {
    constexpr bool sums =
        !reduce::method<T, decltype(of.compressor)>::has_workers || sync::has_worker_weights<decltype(of.sync)>;
    if constexpr (requires { reduce::method<T, decltype(of.compressor)>::needs_costs; }) return true;
    const bool gradients = sums && (messages_inside || of.transport != reduce::transport::shared_memory);
    if constexpr (decltype(of.factors)::are_used)
        if (gradients && !of.factors.always) return true;
    return of.all_reduce.empty() && (gradients || Network::statistics > 0);
}

/// Whether gradients travel as messages on one node, too, because the plan names something that only messages have.
template <class Plan>
[[nodiscard]] bool asks_for_messages(const Plan& of) noexcept {
    if constexpr (decltype(of.factors)::are_used)
        if (of.factors.always) return true;
    return !of.all_reduce.empty();
}

/// Throws core::error for numbers that make no sense, and asks every component that has `check()`.
template <class Plan>
[[gnu::cold]] void check(const Plan& of) {
    if (core::fuses_products())
        core::fail(
            "this program is compiled with fused multiply-adds where none are written, so its weights depend on the "
            "compiler",
            "compile with -ffp-contract=off, which the CMake target lockstep::lockstep has");
    if (of.batch == 0)
        core::fail("the batch has 0 samples", core::text("set batch to at least the number of lanes, ", of.lanes));
    if (of.lanes == 0) core::fail("the plan has 0 lanes", "set lanes to at least the number of ranks");
    detail::check_most(of.batch, "samples in a minibatch", most_samples);
    detail::check_most(of.lanes, "lanes", most_lanes);
    detail::check_most(of.threads, "threads on a rank", most_threads);
    detail::check_most(of.workers, "workers", most_lanes);
    if constexpr (std::is_base_of_v<sync::clip_by_global_norm, decltype(of.clip)>)
        if (constexpr double least = std::numeric_limits<typename decltype(of.precision)::type>::min();
            of.clip.norm > 0 && of.clip.norm < least)
            core::fail(core::text("the plan clips gradients to a global norm of ", of.clip.norm,
                                  ", which its numbers cannot hold"),
                       core::text("take at least ", least));
    if (of.segment % 64 != 0)
        core::fail(core::text("the plan has segments of ", of.segment, " numbers"),
                   "use a multiple of 64, or 0 for whole tensors");
    if (of.lanes > of.batch)
        core::fail(core::text(of.lanes, " lanes for a batch of ", of.batch, of.batch == 1 ? " sample" : " samples"),
                   core::text("use at most ", of.batch, of.batch == 1 ? " lane" : " lanes", ", or a batch of at least ",
                              of.lanes));
    require_lane_rows<decltype(of.model)>(of.batch, of.lanes);
    if (of.threads == 0) core::fail("the plan has 0 threads", "set threads to at least 1");
    if (of.threads > 1 && !parallel::has_threads)
        core::fail(core::text(of.threads, " threads in a program that was compiled without OpenMP"),
                   "compile with -fopenmp, or set threads to 1");
    if (of.threads > 1)
        comm::require_threads(comm::thread_use::beside, core::text("the plan has threads = ", of.threads),
                              "set threads to 1");
    if (of.prefetch)
        comm::require_threads(comm::thread_use::beside, "the plan has prefetch = true", "leave prefetch out");
    if (of.progress_thread && !of.overlap)
        core::fail("the plan asks for a progress thread, and for no overlap of communication with computation",
                   "leave one of them out");
    if (!of.all_reduce.empty()) {
        const auto asked = collectives::algorithm_table::parse(of.all_reduce);
        for (std::size_t i = 0; i < collectives::sum_algorithm_names.size(); ++i)
            if (const auto one = static_cast<collectives::sum_algorithm>(i); asked.has(one) && !of.sums.has(one))
                core::fail(
                    core::text("the all-reduce '", of.all_reduce, "' of the plan sums by ", collectives::name_of(one)),
                    "use tree or doubling, or set sums to collectives::all_sums of "
                    "lockstep/collectives/sum_algorithms.hpp");
    }
    if (!of.all_reduce.empty() && of.transport == reduce::transport::shared_memory)
        core::fail(
            core::text("the plan asks for shared memory, and for the all-reduce '", of.all_reduce, "' of messages"),
            "leave one of them out");
    using number = typename decltype(of.precision)::type;
    if (!of.all_reduce.empty() && reduce::method<number, decltype(of.compressor)>::has_workers)
        core::fail(core::text("the plan names the all-reduce '", of.all_reduce, "' for gradients that are compressed"),
                   "leave all_reduce empty, or use compress::none");
    if constexpr (decltype(of.factors)::are_used) of.factors.check(of.transport, of.all_reduce);
    if (of.timeout) comm::require_timeout(*of.timeout);
    core::check_part(of.loss);
    core::check_part(of.optimizer);
    core::check_part(of.schedule);
    core::check_part(of.compressor);
    core::check_part(of.initialise);
    core::check_part(of.sampler);
    core::check_part(of.partition);
    core::check_part(of.sync);
    core::check_part(of.clip);
    core::for_each_index<decltype(of.model)::size>(
        [&](auto index) { core::check_part(of.model.template node<index>()); });
}

}  // namespace lockstep::train

namespace lockstep {
using reduce::transport;
using train::plan;
using train::real;
}  // namespace lockstep
