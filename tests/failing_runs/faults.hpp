// SPDX-License-Identifier: BSD-3-Clause
// Faults of one rank, in a trainer and in collectives of its own: what happens, and where. The last rank is the bad
// one.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/all_gather.hpp"
#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/gzip.hpp"
#include "lockstep/node/shared_reduce.hpp"
#include "lockstep/node/shared_window.hpp"
#include "lockstep/reduce/node_memory.hpp"
#include "lockstep/train/trainer.hpp"
#include "reference/binomial.hpp"

namespace faults {

namespace ls = lockstep;
namespace collectives = ls::collectives;
namespace comm = ls::comm;
namespace node = ls::node;

/// What goes wrong on this rank; nothing on the others.
struct fault {
    std::string what;
    bool bad = false;

    [[nodiscard]] bool is(const char* name) const { return bad && what == name; }
    /// The faults that can happen anywhere.
    void strike() const {
        // The others shall have come to where they wait: mpirun ends them as soon as it hears of this one.
        if (is("kill")) std::this_thread::sleep_for(std::chrono::milliseconds{1000}), std::raise(SIGKILL);
        if (is("stop")) std::raise(SIGSTOP);
        if (is("throw")) throw std::runtime_error{"the machine is on fire"};
        if (is("device")) (void)ls::data::read_file("/dev/zero", 1);  // where the others have a file
        if (is("memory")) throw std::bad_alloc{};
        if (is("slow")) std::this_thread::sleep_for(std::chrono::milliseconds{150});
        // Goes on when the others have given up, even if they came up to a second later to where they wait.
        if (is("stall")) std::this_thread::sleep_for(comm::default_timeout() + std::chrono::seconds{1});
    }
};

inline void print_hash(const boost::mpi::communicator& world, std::uint64_t hash) {
    if (world.rank() == 0) std::printf("weights %s\n", ls::core::hexadecimal(hash).c_str());
}

/// operator new of this program finds none.
inline bool no_memory_left = false;

/// Before ls::program(), with MPI running.
inline void starting(const fault& of) {
    // Ranks come to their first group seconds apart where a machine is busy.
    if (of.is("stall")) std::this_thread::sleep_for(std::chrono::seconds{3});
    if (!of.is("memory")) of.strike();
    if (of.is("timeout") || of.what == "timeouts") ::setenv("LOCKSTEP_TIMEOUT", "soon", 1);
    no_memory_left = of.is("memory");
}

/// Two collectives by turns: three times the one, then the other. Returns what is left in the data.
template <class First, class Second, class Between>
void by_turns(const fault& of, First&& first, Second&& second, Between&& other) {
    for (int turn = 0; turn < 4; ++turn) {
        if (turn == 2) {
            if (of.is("return")) return;
            if (of.is("skip")) continue;
            if (of.is("other") || of.is("count") || of.is("type")) {
                other();
                continue;
            }
            if (of.is("order")) {
                second();
                first();
                continue;
            }
        }
        if (turn > 0) of.strike();
        first();
        second();
    }
}

/// Over messages.
inline int messages(const boost::mpi::communicator& world, const fault& of) {
    const comm::group ranks{world};
    const std::size_t rank = ranks.rank(), size = ranks.size(), n = 4096;
    const collectives::tree_all_reduce sum_of{size};
    std::vector<float> data(sum_of.data_size(rank, size, 2 * n), 1.0F), work(8 * n);
    std::vector<double> doubles(data.size()), more_work(8 * n);
    comm::operation<float> sum{ranks.named("fc2"), sum_of(rank, size, n)};
    // In the place of the second one, on the bad rank, another.
    const bool longer = of.is("count");
    comm::operation<float> send{ranks, collectives::binomial_broadcast(rank, size, longer ? 2 * n : n)};
    comm::operation<double> of_doubles{ranks, collectives::binomial_broadcast(rank, size, n)};
    by_turns(
        of, [&] { sum.run(data, work); }, [&] { send.run(data, work); },
        [&] {
            if (of.is("type"))
                of_doubles.run(doubles, more_work);
            else
                send.run(data, work);
        });
    print_hash(world, ls::core::hash(std::as_bytes(std::span{data}.first(n))));
    return 0;
}

/// Collectives of setup.
inline int setup(const boost::mpi::communicator& world, const fault& of) {
    const comm::group ranks{world};
    const auto gather = [&](std::size_t number) { return ranks.gather_all(number).back(); };
    by_turns(
        of, [&] { (void)gather(1); }, [&] { (void)ranks.gather_all(std::string_view{"text"}); },
        [&] {
            if (of.is("type"))
                (void)ranks.gather_all(1.0F);
            else
                (void)ranks.split(0, 0);
        });
    print_hash(world, gather(ranks.rank()));
    return 0;
}

/// Over shared memory.
inline int shared(const boost::mpi::communicator& world, const fault& of) {
    const comm::group ranks{world};
    const std::size_t n = 4096;
    node::shared_window window{ranks, std::size_t{1} << 20U};
    node::shared_parts& memory = window.memory();
    const auto data = memory.reserve<float>(2 * n);
    for (float& one : memory.mine(data)) one = 1;
    node::shared_operation<float> sum =
        node::shared_all_reduce<float>(memory, ranks.size(), data, of.is("count") ? n / 2 : n);
    std::vector<ls::parallel::block> strips;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        strips.push_back(ls::parallel::split(n, ranks.size(), rank));
    node::shared_operation<float> gather = node::shared_all_gather<float>(memory, strips, data, n);
    by_turns(
        of, [&] { sum.run(); }, [&] { gather.run(); }, [&] { gather.run(); });
    print_hash(world, ls::core::hash(std::as_bytes(memory.mine(data).first(n))));
    return 0;
}

/// Shared memory that a trainer would ask for, written by all ranks, beside as many messages as MPI can have under way.
inline int room(const boost::mpi::communicator& world, const std::string& wanted) {
    const comm::group ranks{world};
    const std::size_t bytes = std::size_t{32} << 20U, rank = ranks.rank(), size = ranks.size();
    ls::tensor::arena arena;
    ls::reduce::node_memory memory{
        ranks, wanted == "automatic" ? ls::transport::automatic : ls::transport::shared_memory, bytes - 4096, arena};
    const auto common = arena.reserve_shared<std::byte>(bytes - 4096);
    arena.allocate();
    std::vector<comm::operation<float>> sums;
    const std::size_t n = std::size_t{1} << 16;
    for (int i = 0; i < 32; ++i)
        sums.emplace_back(ranks, collectives::all_gather(rank, collectives::equal_strips(size, n)));
    std::vector<std::vector<float>> data(sums.size(), std::vector<float>(size * n, 1.0F));
    std::fill(arena[common].begin(), arena[common].end(), std::byte{1});
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].start(data[i], {});
    for (auto& one : sums) one.finish();
    if (rank == 0) std::printf("transport %s\n", memory.text().c_str());
    return 0;
}

/// In a trainer: `place` is the member during which it happens; `hybrid`, `pipeline`, `server`, `learners` and
/// `thread` are fit() in a model partition, in a pipeline, with a parameter server, also with learners of two ranks,
/// and with a progress thread.
template <class Plan, class Samples>
int training(const boost::mpi::communicator& world, const fault& of, const std::string& place, const Plan& plan,
             Samples set) {
    if (place == "making") {
        if (of.is("return")) return 0;
        of.strike();
    }
    ls::trainer trainer{world, plan};
    std::vector<float> x(2 * Samples::sample::size, 1.0F);
    const std::vector<std::int32_t> y{1, 2};
    set.rank = of.bad ? 1 : 0;
    const auto fit = [&] { trainer.fit(set, ls::steps{2}); };
    const auto step = [&] {
        if (of.is("nan") && place == "step") x[5] = std::numeric_limits<float>::quiet_NaN();
        (void)trainer.step(x, y);
    };
    const auto step_for = [&] {
        if (of.is("nan")) x[5] = std::numeric_limits<float>::quiet_NaN();
        (void)trainer.step_for(std::chrono::milliseconds{20}, x, y);
    };
    const auto evaluate = [&] { (void)trainer.evaluate(set); };
    auto weights = trainer.all_weights();
    if (of.is("count") && place == "load") weights.pop_back();
    const auto call = [&] {
        if (place == "step") return step();
        if (place == "step_for") return step_for();
        if (place == "evaluate") return evaluate();
        if (place == "hash") return (void)trainer.weights_hash();
        if (place == "load") return trainer.load_weights(weights);
        if constexpr (decltype(plan.partition)::shards > 1)
            if (place == "predict") return (void)trainer.predict(x);
        fit();
    };
    if (place == "long" || (place == "thread" && (of.what == "kill" || of.what == "stop"))) {
        if (world.rank() == 0) std::printf("training\n"), std::fflush(stdout);
        // At any moment of a step.
        if (of.bad)
            std::thread{[of] { std::this_thread::sleep_for(std::chrono::milliseconds{200}), of.strike(); }}.detach();
        trainer.fit(set, ls::steps{100'000'000});
    }
    fit();
    const bool in_calls = place == "step" || place == "step_for" || place == "predict" || place == "hash" || place == "load";
    set.failing_case = in_calls ? "" : of.what;
    const fault here{in_calls ? of.what : "", of.bad};
    // The bad rank calls something else, or the same in another order.
    const auto others =
        of.is("skip") || of.is("other") || of.is("order") || of.is("return") || (of.is("count") && place != "load");
    if (others) {
        if (of.is("return")) return 0;
        if (of.is("count")) trainer.fit(set, ls::steps{3});
        if (of.is("skip") || of.is("order")) place == "evaluate" ? fit() : evaluate();
        if (of.is("other")) place == "step" ? fit() : step();
        if (of.is("order")) call();
    } else {
        for (int turn = 0; turn < 2; ++turn) {
            here.strike();
            call();
        }
        place == "evaluate" ? fit() : evaluate();
    }
    print_hash(world, trainer.weights_hash());
    return 0;
}

}  // namespace faults
