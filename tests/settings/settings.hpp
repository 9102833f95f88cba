// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// All settings of the machine for one recipe, on 1, 2, 3, 4, 6 and 8 of eight ranks: what the programs of
// `scripts/matrix settings` share. Each line that begins with `row: ` is a line of its output.

#include <boost/mpi/collectives.hpp>
#include <boost/serialization/vector.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/optim/adam.hpp"

namespace settings {

using namespace support;
using ls::core::text;

/// 69,154 parameters. Buckets of 1 are its four layers with parameters; of 64 Ki the two dense layers, and the others;
/// of 1 Mi all.
inline constexpr auto network =
    ls::sequential{ls::input<12, 12, 1>, ls::layers::conv<4, 3>{},  ls::layers::batch_norm{},
                   ls::layers::relu{},   ls::layers::flatten{},     ls::layers::dense<168>{},
                   ls::layers::relu{},   ls::layers::dropout{0.25}, ls::layers::dense<10>{}};
/// Minibatches of 61, 61, 61 and 7 rows: the last one leaves workers without rows.
inline constexpr std::size_t batch = 61, steps = 7;
inline const samples<> training{190}, test{67, 8};
inline const samples<double> training_in_double{190}, test_in_double{67, 8};

/// What the recipes here differ in.
template <class Compressor = ls::compress::none, class Sync = ls::sync::every_step, class Optimizer = ls::optim::adam,
          class Clip = ls::sync::no_clipping, class Factors = ls::sync::no_factors, class Precision = ls::real<float>,
          class Partition = ls::partition::data>
struct parts {
    Compressor compressor{};
    Sync sync{};
    Optimizer optimizer{};
    Clip clip{};
    Factors factors{};
    Precision precision{};
    Partition partition{};
    std::size_t workers = 8;
    double rate = 0.003;
};
template <class... Types>
[[nodiscard]] auto recipe(const parts<Types...>& of) {
    return ls::plan{.model = network,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = of.optimizer,
                    .schedule = ls::optim::constant{.rate = of.rate},
                    .partition = of.partition,
                    .compressor = of.compressor,
                    .precision = of.precision,
                    .sync = of.sync,
                    .clip = of.clip,
                    .factors = of.factors,
                    .batch = batch,
                    .lanes = of.workers == 3 ? 12U : 8U,
                    .workers = of.workers,
                    .segment = 4096,
                    .seed = 5};
}

/// What changes no bit.
struct machine {
    std::size_t bucket = 1;
    bool overlap = true;
    bool thread = false;
    std::size_t threads = 1;
    ls::transport transport = ls::transport::messages;
};

/// A part of all machines that a plan is refused on.
struct refusal {
    std::function<bool(const machine&, int ranks)> is_for;
    std::string error;
};

[[nodiscard]] inline std::string to_text(const machine& on, int ranks) {
    return text(ranks, ranks == 1 ? " rank" : " ranks", ", bucket ", on.bucket, ", overlap ", on.overlap ? "on" : "off",
                ", progress thread ", on.thread ? "on" : "off", ", threads ", on.threads, ", ",
                ls::reduce::name_of(on.transport));
}

/// Each combination once; a few of them no trainer takes.
[[nodiscard]] inline std::vector<machine> all_machines() {
    std::vector<machine> out;
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory})
        for (const std::size_t bucket : {std::size_t{1}, std::size_t{1} << 16U, std::size_t{1} << 20U})
            for (const bool overlap : {true, false})
                for (const bool thread : {false, true})
                    for (const std::size_t threads : {1, 2})
                        out.push_back({bucket, overlap, thread, threads, transport});
    return out;
}

[[nodiscard]] inline refusal thread_without_overlap() {
    return {[](const machine& on, int) { return on.thread && !on.overlap; },
            "the plan asks for a progress thread, and for no overlap of communication with computation; leave one of "
            "them out"};
}
[[nodiscard]] inline refusal local_sgd_with_a_thread() {
    return {
        [](const machine& on, int) { return on.thread; },
        "the plan asks for a progress thread with sync::local_sgd, most steps of which send nothing between layers; "
        "leave progress_thread out"};
}
[[nodiscard]] inline refusal factors_in_shared_memory() {
    return {[](const machine& on, int) { return on.transport == ls::transport::shared_memory; },
            "the plan asks for shared memory, and for factors, which are messages; leave one of them out"};
}
[[nodiscard]] inline refusal delayed_with_a_thread() {
    return {[](const machine& on, int) { return on.thread; },
            "the plan asks for a progress thread with sync::delayed, which hides its communication without one; leave "
            "progress_thread out"};
}

template <class Plan>
[[nodiscard]] Plan with(Plan plan, const machine& on) {
    plan.bucket = on.bucket;
    plan.overlap = on.overlap;
    plan.progress_thread = on.thread;
    plan.threads = ls::parallel::has_threads ? on.threads : 1;
    plan.transport = on.transport;
    return plan;
}

/// All that a run gives, as four hashes, and one of these. Weights are those of this rank, so replicas are compared,
/// too.
struct outcome {
    std::uint64_t weights = 0, state = 0, losses = 0, evaluation = 0;
    [[nodiscard]] std::uint64_t hash() const {
        const std::uint64_t all[] = {weights, state, losses, evaluation};
        return ls::core::hash(std::as_bytes(std::span{all}));
    }
};

/// Two ranks have a network together.
template <class Plan>
inline constexpr bool is_cut = decltype(Plan::partition)::shards* decltype(Plan::partition)::stages > 1;

/// In two calls of fit(): what is pending, and what workers keep, outlives the first. Throws where a setting is without
/// effect.
template <class Ranks, class Plan>
[[nodiscard]] outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    if constexpr (decltype(plan.factors)::are_used) {
        if (plan.factors.always && ranks.size() > 1 && !(trainer.sends_factors(4) && trainer.sends_factors(7)))
            throw std::runtime_error{"no factors are sent"};
    } else {
        constexpr bool is_cut = decltype(plan.partition)::shards > 1;  // then no bucket is of both kinds of layers
        const std::size_t buckets = plan.bucket == 1 ? 4 : plan.bucket == 1U << 16U || is_cut ? 2 : 1;
        if (decltype(plan.partition)::stages == 1 && trainer.buckets() != buckets)
            throw std::runtime_error{text(trainer.buckets(), " buckets")};
    }
    constexpr bool is_compressed = !std::is_same_v<std::remove_cvref_t<decltype(plan.compressor)>, ls::compress::none>;
    const std::size_t alone = is_compressed ? trainer.grid().workers : 1;  // so many ranks share nothing
    const bool is_shared =
        plan.transport == ls::transport::shared_memory && static_cast<std::size_t>(ranks.size()) > alone;
    if (is_shared != trainer.transport().ends_with(is_compressed ? "shared memory inside of each" : "shared memory"))
        throw std::runtime_error{trainer.transport()};
    using T = typename decltype(trainer)::value_type;
    const auto& rows = [&]() -> const samples<T>& {
        if constexpr (std::is_same_v<T, double>)
            return training_in_double;
        else
            return training;
    }();
    const auto& others = [&]() -> const samples<T>& {
        if constexpr (std::is_same_v<T, double>)
            return test_in_double;
        else
            return test;
    }();
    losses seen;
    trainer.fit(rows.set(), ls::steps{3}, seen);
    const double evaluation = trainer.evaluate(others.set()).loss;
    trainer.fit(rows.set(), ls::steps{steps - 3}, seen);
    outcome out;
    out.weights = trainer.weights_hash();
    out.state = trainer.state_hash();
    out.losses = ls::core::hash(std::as_bytes(std::span{seen.values}));
    out.evaluation = ls::core::hash(std::as_bytes(std::span{&evaluation, 1}));
    if (seen.values.size() != steps) throw std::runtime_error{text(seen.values.size(), " losses")};
    if (!is_cut<Plan> && trainer.local_hash() != out.weights)
        throw std::runtime_error{"weights of this rank are others"};
    return out;
}

/// The first line of what f() throws.
template <class F>
[[nodiscard]] std::string error_of(const F& f) {
    try {
        f();
    } catch (const std::exception& error) {
        const std::string told = error.what();
        return told.substr(0, told.find('\n'));
    }
    return "no error";
}

/// A line of the matrix, written once.
inline void row(const std::string& line) {
    if (mpi::communicator{}.rank() != 0) return;
    std::printf("row: %s\n", line.c_str());
    std::fflush(stdout);
}

/// The runs of this rank.
class runs {
public:
    explicit runs(std::string method) : method_{std::move(method)} {}

    /// A run on a group; `wanted`: what it should give.
    template <class Plan>
    void add(const mpi::communicator& group, const Plan& plan, const machine& on, const outcome& wanted) {
        outcome found;
        const std::string error = error_of([&] { found = run(group, with(plan, on)); });
        const bool is_run = error == "no error";
        // A rank that fails alone is told by all of its group; hashes that differ are those of one rank.
        if (!is_run || found.hash() != wanted.hash())
            std::fprintf(stderr, "%s, %s: rank %d: %s\n", method_.c_str(), to_text(on, group.size()).c_str(),
                         group.rank(), is_run ? difference(found, wanted).c_str() : error.c_str());
        hashes_.push_back(is_run ? found.hash() : 0);
        count_ += group.rank() == 0 ? 1 : 0;
        failures_ += is_run ? 0 : 1;
    }
    /// Hashes of all ranks, runs, and failures. Collective over the world.
    struct sum {
        std::set<std::uint64_t> hashes;
        std::size_t runs = 0, failures = 0;
    };
    [[nodiscard]] sum over_ranks() const {
        const mpi::communicator world;
        sum out;
        for (const auto& of_rank : of_all(world, hashes_)) out.hashes.insert(of_rank.begin(), of_rank.end());
        out.hashes.erase(0);  // of a run that failed
        out.runs = mpi::all_reduce(world, count_, std::plus<std::size_t>{});
        out.failures = mpi::all_reduce(world, failures_, std::plus<std::size_t>{});
        return out;
    }

private:
    [[nodiscard]] static std::string difference(const outcome& a, const outcome& b) {
        return text("another hash:", a.weights == b.weights ? "" : " weights", a.state == b.state ? "" : " state",
                    a.losses == b.losses ? "" : " losses", a.evaluation == b.evaluation ? "" : " evaluation");
    }

    std::string method_;
    std::vector<std::uint64_t> hashes_;
    std::size_t count_ = 0, failures_ = 0;
};

[[nodiscard]] inline std::string hexadecimal(std::uint64_t hash) {
    char out[17];
    std::snprintf(out, sizeof out, "%016" PRIx64, hash);
    return out;
}

/// The recipe on every machine that is not refused has the hash `alone`, that of one rank alone; each refusal is an
/// error on each number of ranks that it is for.
template <class Plan>
void same_everywhere(const std::string& method, const Plan& plan, const std::vector<refusal>& refused,
                     const outcome& alone) {
    const auto begin = std::chrono::steady_clock::now();
    const auto machines = all_machines();
    runs all{method};
    std::vector<std::size_t> seen(refused.size());  // on how many numbers of ranks
    std::size_t other_errors = 0;
    const auto on_group = [&](const mpi::communicator& group) {
        std::vector<bool> is_shown(refused.size());
        for (const machine& on : machines) {
            std::size_t which = 0;
            while (which < refused.size() && !refused[which].is_for(on, group.size())) ++which;
            if (which == refused.size()) {
                all.add(group, plan, on, alone);
            } else if (!is_shown[which]) {
                is_shown[which] = true;
                const std::string told = error_of([&] { ls::trainer{group, with(plan, on)}; });
                // A rank may hear of the refusal of another one before its own.
                if (told.ends_with("lockstep: " + refused[which].error)) {
                    if (group.rank() == 0) ++seen[which];
                } else {
                    ++other_errors;
                    std::fprintf(stderr, "%s, %s: rank %d: not refused as it should be: %s\n", method.c_str(),
                                 to_text(on, group.size()).c_str(), group.rank(), told.c_str());
                }
            }
        }
    };
    on_groups({8}, on_group);
    on_groups({2, 6}, on_group);
    on_groups(is_cut<Plan> ? std::vector{4} : std::vector{1, 3, 4}, on_group);
    const mpi::communicator world;
    const auto found = all.over_ranks();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    row(text(method, ": ", found.runs, " runs, ", found.hashes.size(), found.hashes.size() == 1 ? " hash " : " hashes ",
             hexadecimal(alone.hash()), found.failures == 0 ? "" : ", some end with an error", ", ",
             ls::core::fixed(seconds.count(), 0), " s"));
    static std::set<std::string> told;  // once for each program
    for (std::size_t which = 0; which < refused.size(); ++which) {
        const auto groups = mpi::all_reduce(world, seen[which], std::plus<std::size_t>{});
        if (told.insert(refused[which].error).second)
            row(text(method, ": refused on ", groups, " numbers of ranks: ", refused[which].error));
        CHECK(groups > 0);
    }
    CHECK(found.hashes == std::set<std::uint64_t>{alone.hash()});
    CHECK(found.failures == 0);
    CHECK(mpi::all_reduce(world, other_errors, std::plus<std::size_t>{}) == 0);
}
/// In a model partition of two shards: the hash of two ranks alone.
template <class Plan>
void same_everywhere(const std::string& method, const Plan& plan, const std::vector<refusal>& refused) {
    outcome alone;
    if constexpr (decltype(plan.partition)::shards == 1)
        alone = run(ls::comm::group{}, with(plan, {}));
    else
        on_groups({2, 2, 2, 2}, [&](const mpi::communicator& pair) { alone = run(pair, with(plan, {})); });
    same_everywhere(method, plan, refused, alone);
}

/// What the comparison can see: the recipe and another one, on a few machines, have two hashes.
template <class Plan, class Other>
void differs(const std::string& method, const Plan& plan, const std::string& what, const Other& other) {
    runs all{method};
    const machine first{}, second{.bucket = 1U << 20U, .overlap = false};
    const auto both = [&](const mpi::communicator& group) {
        for (const machine& on : {first, second}) {
            all.add(group, plan, on, run(group, with(plan, on)));
            all.add(group, other, on, run(group, with(other, on)));
        }
    };
    on_groups({2, 6}, both);
    const auto found = all.over_ranks();
    row(text(method, ", and with ", what, ": ", found.runs, " runs, ", found.hashes.size(), " hashes"));
    CHECK(found.hashes.size() == 2);
    CHECK(found.failures == 0);
}

}  // namespace settings
