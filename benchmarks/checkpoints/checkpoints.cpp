// SPDX-License-Identifier: BSD-3-Clause
// What checkpoints cost: how fast a state is written and read beside `dd` with fsync, and steps while it is written.
//   scripts/mpirun -n 2 bench_checkpoints --folder FOLDER [--mib 1024] [--turns 3] [--every 50]
// FOLDER is on the disk that is measured; what is written there is deleted. JSON lines:
//   write   gb_per_s of trainer.save() without its network (bytes of the state over wall time, to the disk), that of
//           `dd bs=16M conv=fsync`, in turns, and the ratio of the medians; of reading back, with all sums
//   steps   ms of a step of a 784-1024-1024-10 network with momentum (7.5 MB of weights, as many of slots), batch 128:
//           without checkpoints, and with one every so many steps that the next step waits for; medians over turns
//   behind  ms of the same step without and while a thread of each rank writes the state of --mib, in turns: only steps
//           that begin and end while all ranks write count; how many did; ms of the copy, which the run waits for

#include <boost/mpi/collectives.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace ls = lockstep;
namespace files = std::filesystem;
using namespace ls::layers;

namespace {

struct options {
    std::string folder;
    std::size_t mib = 1024, turns = 3, every = 50;
};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        std::size_t* const number = name == "--mib"     ? &out.mib
                                    : name == "--turns" ? &out.turns
                                    : name == "--every" ? &out.every
                                                        : nullptr;
        if (name == "--folder") {
            out.folder = value;
        } else if (number != nullptr) {
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
            if (error != std::errc{} || end != value.data() + value.size() || *number == 0)
                ls::core::fail(name + " is '" + value + "'", "give a whole number from 1");
        } else {
            ls::core::fail("'" + name + "' is not known", "give --folder, --mib, --turns or --every");
        }
    }
    if (out.folder.empty()) ls::core::fail("no --folder is given", "name one on the disk that is to be measured");
    return out;
}

/// Wall time on all ranks together.
template <class F>
double timed(const boost::mpi::communicator& world, const F& f) {
    world.barrier();
    const double begin = benchmark::seconds(true);
    f();
    world.barrier();
    return benchmark::seconds(true) - begin;
}

/// One array of --mib, a strip of it on each rank.
struct large_state {
    large_state(const boost::mpi::communicator& world, std::size_t bytes)
        : ranks{world}, count{bytes / sizeof(float)}, numbers(strip(world).size()) {
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
        parts(ls::tensor::state_part<float>{.role = "weights", .first = strip(world).first, .numbers = numbers});
    }
    [[nodiscard]] ls::parallel::block strip(const boost::mpi::communicator& world) const {
        return ls::parallel::split(count, static_cast<std::size_t>(world.size()),
                                   static_cast<std::size_t>(world.rank()));
    }
    [[nodiscard]] ls::saving::state_layout layout() const {
        return {ranks, parts, ls::saving::named_arrays{{{"0.weight", 1, count, 1, 0}}, {}}, 1, 1};
    }

    ls::comm::group ranks;
    std::size_t count;
    std::vector<float> numbers;
    ls::saving::state_parts parts;
};

void measure_writing(const boost::mpi::communicator& world, const options& of) {
    const std::size_t bytes = of.mib << 20U;
    large_state state{world, bytes};
    const ls::comm::group& ranks = state.ranks;
    const ls::saving::state_parts& parts = state.parts;
    const ls::saving::state_layout layout = state.layout();
    const std::string dd = "dd if=/dev/zero of='" + of.folder +
                           "/plain' bs=16M conv=fsync iflag=count_bytes count=" + std::to_string(bytes) +
                           " status=none";
    std::vector<double> ours, plain, reading;
    for (std::size_t turn = 0; turn < of.turns; ++turn) {
        ours.push_back(timed(world, [&] { (void)ls::saving::save(ranks, of.folder + "/run", {}, parts, layout, 1); }));
        reading.push_back(timed(world, [&] {
            const auto from = ls::saving::open(ranks, of.folder + "/run");
            ls::saving::restore(ranks, from, parts, layout);
        }));
        plain.push_back(timed(world, [&] {
            if (world.rank() == 0 && std::system(dd.c_str()) != 0)  // NOLINT(cert-env33-c): it is what is measured
                ls::core::fail("`" + dd + "` failed", "it is coreutils' dd that is compared with");
        }));
        if (world.rank() == 0) files::remove(of.folder + "/plain");
    }
    const auto rate = [&](const std::vector<double>& seconds) {
        return static_cast<double>(bytes) * 1e-9 / benchmark::median(seconds);
    };
    if (world.rank() == 0)
        std::printf(
            "{\"bench\": \"checkpoints\", \"what\": \"write\", \"ranks\": %d, \"mib\": %zu, \"turns\": %zu, "
            "\"gb_per_s\": %.3f, "
            "\"dd_gb_per_s\": %.3f, \"ratio\": %.3f, \"read_gb_per_s\": %.3f}\n",
            world.size(), of.mib, of.turns, rate(ours), rate(plain), rate(ours) / rate(plain), rate(reading));
}

void measure_steps(const boost::mpi::communicator& world, const options& of) {
    constexpr auto net =
        ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<1024>{}, relu{}, dense<1024>{}, relu{}, dense<10>{}};
    ls::trainer trainer{
        world,
        ls::plan{.model = net, .loss = ls::softmax_cross_entropy{}, .optimizer = ls::optim::momentum{}, .batch = 128}};
    const ls::data::digits set{.count = 1280};
    trainer.fit(set, ls::steps{10});
    std::vector<double> none, saved;
    const ls::steps stretch{of.every};
    for (std::size_t turn = 0; turn < of.turns; ++turn) {
        none.push_back(timed(world, [&] { trainer.fit(set, stretch); }));
        // One in the middle: a stretch has room for all of its writing.
        saved.push_back(timed(world, [&] {
            trainer.fit(set, ls::steps{of.every / 2});
            (void)trainer.save(of.folder + "/steps", 1);
            trainer.fit(set, ls::steps{of.every - of.every / 2});
        }));
    }
    // A state that takes many steps to write: a small one is on the disk within one of them.
    large_state state{world, of.mib << 20U};
    const ls::saving::state_layout layout = state.layout();
    constexpr std::size_t piece = 4;
    std::vector<double> without, meanwhile, copying;
    const auto few = [&] { return timed(world, [&] { trainer.fit(set, ls::steps{piece}); }); };
    for (std::size_t turn = 0; turn < of.turns; ++turn) {
        std::unique_ptr<ls::saving::background> under_way;
        copying.push_back(timed(world, [&] {
            under_way = std::make_unique<ls::saving::background>(state.ranks, of.folder + "/behind",
                                                                 ls::saving::manifest{}, state.parts, layout);
        }));
        std::size_t pieces = 0;
        for (;; ++pieces) {
            const double seconds = few();
            if (boost::mpi::all_reduce(world, under_way->is_written(), std::logical_or<>{})) break;
            meanwhile.push_back(seconds);
        }
        (void)under_way->commit(1);
        for (std::size_t i = 0; i < pieces; ++i) without.push_back(few());
    }
    const auto ms = [&](const std::vector<double>& seconds) {
        return 1e3 * benchmark::median(seconds) / static_cast<double>(of.every);
    };
    if (world.rank() == 0)
        std::printf(
            "{\"bench\": \"checkpoints\", \"what\": \"steps\", \"ranks\": %d, \"every\": %zu, \"turns\": %zu, "
            "\"none_ms\": %.3f, "
            "\"saved_ms\": %.3f}\n",
            world.size(), of.every, of.turns, ms(none), ms(saved));
    const auto step = [&](const std::vector<double>& seconds) {
        return 1e3 * benchmark::median(seconds) / static_cast<double>(piece);
    };
    if (world.rank() == 0 && !meanwhile.empty())  // else it was written within the first steps: give a larger --mib
        std::printf(
            "{\"bench\": \"checkpoints\", \"what\": \"behind\", \"ranks\": %d, \"mib\": %zu, \"turns\": %zu, "
            "\"steps\": %zu, \"copy_ms\": %.1f, \"without_ms\": %.3f, \"meanwhile_ms\": %.3f, "
            "\"meanwhile_over_without\": %.3f}\n",
            world.size(), of.mib, of.turns, piece * meanwhile.size(), 1e3 * benchmark::median(copying), step(without),
            step(meanwhile), step(meanwhile) / step(without));
}

}  // namespace

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        options of = read(argc, argv);
        // A folder of its own: it is deleted.
        of.folder += "/lockstep-bench-checkpoints";
        if (world.rank() == 0) {
            if (ls::saving::exists(of.folder))
                ls::core::fail(ls::core::text("\"", of.folder, "\" is there already"),
                               "delete it, or name another folder");
            ls::saving::make_folders(of.folder);
        }
        measure_writing(world, of);
        measure_steps(world, of);
        if (world.rank() == 0) files::remove_all(of.folder);
        return 0;
    });
}
