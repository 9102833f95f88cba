// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Two trainers of one recipe that differ in one thing, in turns: what that thing costs or gains.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace benchmark {

// The library has no group of several ranks without a watch. Explicit instantiations may name private members.
auto& state_of(lockstep::comm::group& of);
template <auto Member>
struct opened {
    friend auto& state_of(lockstep::comm::group& of) { return of.*Member; }
};
template struct opened<&lockstep::comm::group::state_>;

/// A group whose ranks look for aborts, but keep no watch: nothing is written down, no rank asks or answers.
inline lockstep::comm::group unwatched(const boost::mpi::communicator& world) {
    lockstep::comm::group out;
    auto& held = state_of(out);
    using state = std::remove_reference_t<decltype(*held)>;
    held = std::make_shared<state>(boost::mpi::communicator{world, boost::mpi::comm_duplicate}, nullptr, nullptr);
    return out;
}

/// `what`: `watch`, the first one of the ratio keeps a watch and the other none; `overlap`, it overlaps and the other
/// does not; `same`, they are alike, which shows the noise; or a table such as `doubling:0-max` of plan.all_reduce,
/// which the other one is given in place of the automatic choice. Prints one JSON line; `fastest` is the ratio of the
/// tenth parts of the times, which other programs on the machine move least.
template <class Plan, class Set>
int measure_against(const boost::mpi::communicator& world, const std::string& what, Plan plan, const Set& set,
                    std::size_t steps, std::size_t turns) {
    namespace ls = lockstep;
    Plan other = plan;
    const bool table = what.find(':') != std::string::npos;
    if (table) {
        plan.transport = ls::transport::messages;
        other.transport = ls::transport::messages;
        other.all_reduce = what;
        other.sums = ls::collectives::all_sums;
    } else if (what == "overlap") {
        other.overlap = false;
    } else if (what != "watch" && what != "same") {
        ls::core::fail("--against '" + what + "' is unknown", "see the head of overlap.cpp");
    }
    const ls::comm::group watched{world};
    const ls::comm::group second = what == "watch" ? unwatched(world) : watched;
    ls::trainer first_trainer{watched, plan};
    ls::trainer other_trainer{second, other};
    using network = typename decltype(first_trainer)::network;
    const auto time_of = [&](auto& trainer) {
        world.barrier();
        const double begin = seconds(true);
        trainer.fit(set, ls::steps{steps});
        return (seconds(true) - begin) / static_cast<double>(steps);
    };
    std::vector<double> ratios, first_times, other_times;
    for (std::size_t turn = 0; turn <= turns; ++turn) {
        double a = 0, b = 0;
        if (turn % 2 == 0) a = time_of(first_trainer);
        b = time_of(other_trainer);
        if (turn % 2 != 0) a = time_of(first_trainer);
        if (turn == 0) continue;  // connects the hosts
        first_times.push_back(a);
        other_times.push_back(b);
        ratios.push_back(a / b);
    }
    // What a layer pays for the watch where no rank waits: one look at the clock, and one at MPI in each millisecond.
    constexpr std::size_t looks = 200'000;
    const auto look = [&](const ls::comm::group& at) {
        const double begin = seconds(true);
        for (std::size_t i = 0; i < looks; ++i) at.aborts().glance();
        return 1e9 * (seconds(true) - begin) / static_cast<double>(looks);
    };
    const double glance = look(watched);
    std::size_t glances = 0;
    for (const auto& one : network::facts) glances += one.learns ? 1 : 0;
    const bool same = first_trainer.weights_hash() == other_trainer.weights_hash();
    if (world.rank() == 0)
        std::printf(
            "{\"bench\":\"overlap\",\"against\":\"%s\",\"ranks\":%d,\"transport\":\"%s\",\"buckets\":%zu,\"turns\":%zu,"
            "\"steps\":%zu,"
            "\"ms\":%.4f,\"other_ms\":%.4f,\"ratio\":%.4f,\"quartiles\":[%.4f,%.4f],\"fastest\":%.4f,\"glances\":%zu,"
            "\"glance_ns\":%.1f,\"glances_of_step\":%.6f,\"same_weights\":%s,\"algorithms\":\"%s\",\"other_"
            "algorithms\":\"%s\"}\n",
            what.c_str(), world.size(), first_trainer.transport().c_str(), first_trainer.buckets(), turns, steps,
            1e3 * median(first_times), 1e3 * median(other_times), median(ratios), quantile(ratios, 0.25),
            quantile(ratios, 0.75), quantile(first_times, 0.1) / quantile(other_times, 0.1), glances, glance,
            1e-9 * glance * static_cast<double>(glances) / median(first_times), same ? "true" : "false",
            first_trainer.all_reduce_algorithm().c_str(), other_trainer.all_reduce_algorithm().c_str());
    return same ? 0 : 1;
}

}  // namespace benchmark
