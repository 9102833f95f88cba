// SPDX-License-Identifier: BSD-3-Clause
// Programs that fail on purpose, one for each name on the command line: how a whole job ends is seen from outside only.
// `fault <place>:<what>`: a case of faults.hpp.
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "faults.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/data/mnist.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/sync/parameter_server.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;

namespace {

using image = ls::tensor::shape<28, 28, 1>;
using ten = ls::tensor::classes<10>;

/// Samples that are all 1, or what the case asks for on one rank.
struct samples {
    using sample = image;
    using label = ten;
    std::string failing_case;
    int rank = 0;
    const ls::comm::group* coupled_to = nullptr;  // rank 1 waits for it whenever rows are read

    [[nodiscard]] std::size_t size() const { return 64; }
    [[nodiscard]] std::string name() const { return "the test set"; }
    template <class T>
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<T, sample> x, std::span<std::int32_t> y) const {
        std::fill(x.data, x.data + x.size(), T{1});
        for (std::size_t i = 0; i < rows.size(); ++i) y[i] = static_cast<std::int32_t>(rows[i] % 10);
        if (rank != 1) return;
        faults::fault{failing_case, true}.strike();
        if (coupled_to != nullptr) (void)coupled_to->gather_all(1);
        if (failing_case == "nan") x.sample(2)[5] = std::numeric_limits<T>::quiet_NaN();
        if (failing_case == "throw_in_read") throw std::runtime_error{"the disk is on fire"};
        if (failing_case == "label") y[3] = 17;
    }
};

/// An observer that fails on the root.
struct failing_observer {
    std::string failing_case;
    void on_step(const ls::report::step_event& event) const {
        if (failing_case == "throw_in_observer" && event.step == 2) throw std::runtime_error{"the screen is on fire"};
    }
};

/// The last rank is told to end while rank 0 has work of its own after the same step: the next one takes long.
struct late_signal {
    static constexpr bool on_every_rank = true;
    int rank, ranks;
    void on_step(const ls::report::step_event& event) const {
        if (event.step != 3) return;
        if (rank == ranks - 1) std::raise(SIGTERM);
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1500});
    }
};

/// The last rank is told to end after the last step, while observers hear of its epoch.
struct last_signal {
    static constexpr bool on_every_rank = true;
    int rank, ranks;
    void on_epoch(const ls::report::epoch_event& event) const {
        if (event.epoch == 3 && rank == ranks - 1) std::raise(SIGTERM);
    }
};

int fail(const boost::mpi::communicator& world, const std::string& name, const std::string& files) {
    const auto rank = world.rank();
    const bool is_fault = name == "fault";
    const auto colon = files.find(':');
    const faults::fault fault{is_fault ? files.substr(colon + 1) : "", rank == world.size() - 1};
    const std::string place = is_fault ? files.substr(0, colon) : "";
    if (place == "messages") return faults::messages(world, fault);
    if (place == "shared") return faults::shared(world, fault);
    if (place == "room") return faults::room(world, fault.what);
    if (place == "setup") return faults::setup(world, fault);
    if (name == "memory" && rank == 1) std::vector<char>(std::size_t{1} << 47).back() = 1;
    if (name == "signal_at_the_end") {
        // MPI calls it when it ends, after all ranks have agreed on the exit code.
        int key = 0;
        const auto strike = [](MPI_Comm, int, void*, void*) { return std::raise(SIGUSR1); };
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, strike, &key, nullptr);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
        return 0;
    }
    if (name == "second_program") return 0;
    if (name == "throw_outside" && rank == 1) throw std::runtime_error{"the simulation diverged"};
    const auto plan = [&](auto partition, auto sync) {
        return ls::plan{
            .model = ls::sequential{image{}, ls::layers::flatten{}, ls::layers::dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
            .schedule = ls::optim::constant{.rate = name == "diverge" ? 3e38 : 0.1},
            .partition = partition,
            .sync = sync,
            .batch = name == "zero_batch" || (place == "making" && fault.is("batch")) ? 0U
                     : name == "large_batch"                                          ? std::size_t{1} << 62U
                                                                                      : 16U,
            .lanes = name == "lanes" ? 17U : 8U,
            .seed = name == "seed" && rank == 1 ? 43U : 42U,
            .threads = name == "threads" ? 2U : 1U,
            .progress_thread = name == "progress_thread" || place == "thread",
            .prefetch = name == "prefetch",
        };
    };
    constexpr ls::sync::every_step every;
    const ls::partition::hybrid halves{ls::partition::data{}, ls::partition::model<2>{}};
    if (name == "grid") {
        ls::trainer trainer{world, plan(halves, every)};
        return 0;
    }
    if (place == "predict" || place == "hash" || place == "hybrid")
        return faults::training(world, fault, place, plan(halves, every), samples{});
    if (place == "pipeline")
        return faults::training(world, fault, place,
                                plan(ls::partition::hybrid{ls::partition::data{}, ls::partition::pipeline<2>{}}, every),
                                samples{});
    if (place == "server" || place == "learners")
        return faults::training(
            world, fault, place,
            plan(ls::partition::data{}, ls::sync::parameter_server{.ranks_per_learner = place == "learners" ? 2U : 1U}),
            samples{});
    if (is_fault) return faults::training(world, fault, place, plan(ls::partition::data{}, every), samples{});
    if (name == "failure_of_another_group") {  // ranks 0 and 1 train, and rank 1 belongs to a group with rank 2 as well
        const boost::mpi::communicator training = world.split(rank < 2 ? 0 : 1);
        const ls::comm::group coupled{world.split(rank == 0 ? 1 : 0)};
        if (rank < 2) {
            ls::trainer trainer{training, plan(ls::partition::data{}, every)};
            trainer.fit(samples{name, rank, &coupled}, ls::epochs{20});
        } else {
            for (int steps = 0; steps < 3; ++steps) (void)coupled.gather_all(1);
            coupled.announce("the solver died");
            throw std::runtime_error{"the solver died"};
        }
        return 0;
    }
    if (name == "failure_beside_a_part") {  // rank 3 waits for rank 1 in a part, 0 and 2 do in a call of all
        const ls::comm::group all{world}, part{world.split(rank % 2)};
        if (rank == 1) throw std::runtime_error{"the solver died"};
        (void)part.gather_all(1);
        (void)all.gather_all(1);
        return 0;
    }
    if (name == "static_trainer") {  // which lives longer than what the failure of an earlier one has left behind
        static ls::trainer longest{world, plan(ls::partition::data{}, every)};
        try {
            ls::trainer trainer{world, plan(ls::partition::data{}, every)};
            trainer.fit(samples{"throw_in_read", rank}, ls::epochs{1});
        } catch (const std::runtime_error&) {
        }
        longest.fit(samples{"throw_in_read", rank}, ls::epochs{1});
    }
    if (name == "part_signal") {  // of the ranks that train; rank 0 is not one of them, and ends well
        const boost::mpi::communicator training = world.split(rank == 0 ? 1 : 0);
        if (rank == 0) return 0;
        ls::trainer trainer{training, plan(ls::partition::data{}, every)};
        trainer.fit(samples{"last_signal", rank}, ls::epochs{3}, late_signal{rank, world.size()});
    }
    ls::trainer trainer{world, plan(ls::partition::data{}, every)};
    if (name == "kept_silent") {  // the rank that failed keeps it to itself, and is late
        try {
            trainer.fit(samples{"throw_in_read", rank}, ls::epochs{1});
        } catch (const std::runtime_error&) {
            if (rank != 1) throw;
            std::this_thread::sleep_for(std::chrono::seconds{30});
        }
        return 0;
    }
    if (name == "after_the_end") {
        MPI_Finalize();
        try {
            trainer.fit(samples{}, ls::epochs{1});
        } catch (const ls::core::error&) {
            if (rank == 0) throw;
        }
        return 0;
    }
    if (name == "late_signal")
        trainer.fit(samples{name, rank}, ls::epochs{3}, late_signal{rank, world.size()});
    else if (name == "last_signal")
        trainer.fit(samples{name, rank}, ls::epochs{3}, last_signal{rank, world.size()}, ls::checkpoint{files});
    else if (!files.empty())
        trainer.fit(ls::data::mnist{files}, ls::epochs{1});
    else
        trainer.fit(samples{name, rank}, ls::epochs{3}, failing_observer{name});
    return 0;
}

// Not inlined: the compiler would find new and free() in one place.
[[gnu::noinline]] void* find(std::size_t bytes) noexcept {
    return faults::no_memory_left ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) {
    void* const memory = find(bytes);
    if (memory == nullptr) throw std::bad_alloc{};
    return memory;
}
// The others too: that of a sanitizer would not be a match.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return find(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    using namespace boost::mpi::threading;
    std::optional<boost::mpi::environment> environment;
    if (const std::string_view place{argc > 2 ? argv[2] : ""}; place.starts_with("starting:")) {
        environment.emplace(argc, argv, serialized);
        const boost::mpi::communicator world;
        faults::starting({std::string{place.substr(place.find(':') + 1)}, world.rank() == world.size() - 1});
    }
    const auto run = [&] {
        return ls::program(
            argc, argv,
            [&](const boost::mpi::communicator& world) { return fail(world, name, argc > 2 ? argv[2] : ""); },
            name == "threads" || name == "prefetch" ? single
            : name == "progress_thread"             ? funneled
                                                    : serialized);
    };
    const int code = run();
    return name == "second_program" && code == 0 ? run() : code;
}
