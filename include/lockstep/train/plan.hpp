// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The recipe of a training run as one value: an aggregate whose members are named at the call site.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/compress/none.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pack.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/model/initialise.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/partition/data.hpp"

namespace lockstep::train {

/// The element type that a network computes in: `.precision = real<double>{}`.
template <class T>
struct real {
    using type = T;
};

/// The number of ranks, `threads` and `prefetch` change no bit of the weights, nor does `bucket` without a compressor. A model partition adds
/// features in another order. A compressor that gathers messages keeps state for each rank and bucket: runs are then equal for equal numbers of
/// both.
template <class Model, class Loss, class Optimizer = optim::momentum, class Schedule = optim::constant, class Partition = partition::data,
          class Compressor = compress::none, class Initialise = model::he, class Sampler = data::shuffled, class Precision = real<float>>
struct plan {
    Model model;
    Loss loss;
    Optimizer optimizer{};
    Schedule schedule{};  ///< learning rate at each step
    Partition partition{};
    Compressor compressor{};
    Initialise initialise{};
    Sampler sampler{};
    Precision precision{};
    std::size_t batch = 64;  ///< samples of the GLOBAL minibatch, whatever the number of ranks
    std::size_t lanes = 8;   ///< the fixed cut of the minibatch: at least as many as ranks
    std::uint64_t seed = 1;
    std::size_t threads = 1;         ///< on each rank
    std::size_t bucket = 1U << 20U;  ///< parameters that are averaged together, at least; 0 = each layer alone
    bool prefetch = false;           ///< fit() reads the next minibatch on a thread of its own
    std::string algorithms{};        ///< file of chosen algorithms for the convolutions of tuned(net); empty: the default rule
};

namespace detail {
template <class Part>
void check_part(const Part& part) {
    if constexpr (requires { part.check(); }) part.check();
}
}  // namespace detail

/// Throws core::error for numbers that make no sense, and asks every component that has `check()`.
template <class Plan>
void check(const Plan& of) {
    core::require(
        of.batch > 0, [] { return std::string{"the batch has 0 samples"}; },
        [&] { return core::text("set batch to at least the number of lanes, ", of.lanes); });
    core::require(
        of.lanes > 0, [] { return std::string{"the plan has 0 lanes"}; },
        [] { return std::string{"set lanes to at least the number of ranks"}; });
    core::require(
        of.lanes <= of.batch,
        [&] { return core::text(of.lanes, " lanes for a batch of ", of.batch, of.batch == 1 ? " sample" : " samples"); },
        [&] { return core::text("use at most ", of.batch, " lanes, or a batch of at least ", of.lanes); });
    core::require(
        of.threads > 0, [] { return std::string{"the plan has 0 threads"}; }, [] { return std::string{"set threads to at least 1"}; });
    core::require(
        of.threads == 1 || parallel::has_threads,
        [&] { return core::text(of.threads, " threads in a program that was compiled without OpenMP"); },
        [] { return std::string{"compile with -fopenmp, or set threads to 1"}; });
    detail::check_part(of.loss);
    detail::check_part(of.optimizer);
    detail::check_part(of.schedule);
    detail::check_part(of.compressor);
    core::for_each_index<decltype(of.model)::size>([&](auto index) { detail::check_part(of.model.template node<index>()); });
}

}  // namespace lockstep::train

namespace lockstep {
using train::plan;
using train::real;
}  // namespace lockstep
