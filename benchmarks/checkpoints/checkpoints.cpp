// SPDX-License-Identifier: BSD-3-Clause
// What checkpoints cost: how fast a state is written and read beside plain writes of as many bytes by one process, and
// steps while checkpoints are written.
//   scripts/mpirun -n 2 bench_checkpoints --folder FOLDER [--mib 1024] [--turns 3] [--every 50]
// FOLDER is on the disk that is measured; what is written there is deleted. JSON lines:
//   write   gb_per_s of trainer.save() without its network (bytes of the state over wall time, to the disk), that of
//           plain writes of 16 MiB and a flush, in turns, and the ratio of the medians; of reading back, with all sums
//   steps   ms of a step of a 784-1024-1024-10 network with momentum (7.5 MB of weights, as many of slots), batch 128:
//           without checkpoints, with one every so many steps, and the same behind the run; medians over turns

#include <boost/mpi/collectives.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
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

void measure_writing(const boost::mpi::communicator& world, const options& of) {
    const std::size_t bytes = of.mib << 20U, count = bytes / sizeof(float);
    const auto own =
        ls::parallel::split(count, static_cast<std::size_t>(world.size()), static_cast<std::size_t>(world.rank()));
    std::vector<float> numbers(own.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    ls::saving::state_parts parts;
    parts(ls::tensor::state_part<float>{.role = "weights", .first = own.first, .numbers = numbers});
    const ls::saving::named_arrays names{{{"0.weight", 1, count, 1, 0}}, {}};
    const ls::comm::group ranks{world};
    const ls::saving::state_layout layout{ranks, parts, names, 1, 1};
    std::vector<std::byte> piece(std::size_t{16} << 20U, std::byte{1});
    std::vector<double> ours, plain, reading;
    for (std::size_t turn = 0; turn < of.turns; ++turn) {
        ours.push_back(timed(world, [&] { (void)ls::saving::save(ranks, of.folder + "/run", {}, parts, layout, 1); }));
        reading.push_back(timed(world, [&] {
            const auto from = ls::saving::open(ranks, of.folder + "/run");
            ls::saving::restore(ranks, from, parts, layout);
        }));
        plain.push_back(timed(world, [&] {
            if (world.rank() != 0) return;
            const std::string path = of.folder + "/plain";
            ls::saving::placed_file to{path, ls::saving::placed_file::use::make};
            for (std::size_t at = 0; at < bytes; at += piece.size())
                to.write(at, std::span{piece}.first(std::min(piece.size(), bytes - at)));
            to.flush();
            to.close();
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
            "\"plain_gb_per_s\": %.3f, \"ratio\": %.3f, \"read_gb_per_s\": %.3f}\n",
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
    std::vector<double> none, saved, behind;
    const ls::steps stretch{of.every};
    for (std::size_t turn = 0; turn < of.turns; ++turn) {
        none.push_back(timed(world, [&] { trainer.fit(set, stretch); }));
        // One in the middle: a stretch has room for all of its writing.
        saved.push_back(timed(world, [&] {
            trainer.fit(set, ls::steps{of.every / 2});
            (void)trainer.save(of.folder + "/steps", 1);
            trainer.fit(set, ls::steps{of.every - of.every / 2});
        }));
        behind.push_back(timed(world, [&] {
            const auto under_way = trainer.save_behind(of.folder + "/steps");
            trainer.fit(set, stretch);
            (void)under_way->commit(1);
        }));
    }
    const auto ms = [&](const std::vector<double>& seconds) {
        return 1e3 * benchmark::median(seconds) / static_cast<double>(of.every);
    };
    if (world.rank() == 0)
        std::printf(
            "{\"bench\": \"checkpoints\", \"what\": \"steps\", \"ranks\": %d, \"every\": %zu, \"turns\": %zu, "
            "\"none_ms\": %.3f, "
            "\"saved_ms\": %.3f, \"behind_ms\": %.3f, \"behind_over_none\": %.3f}\n",
            world.size(), of.every, of.turns, ms(none), ms(saved), ms(behind), ms(behind) / ms(none));
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
