// SPDX-License-Identifier: BSD-3-Clause
// All-reduce between hosts, in turns: this library's schedules through its executor, and MPI_Allreduce, as a fraction
// of what the links allow, and of what the cost model predicts.
//   benchmarks/cluster/run --hosts 4 --rate 1gbit -- bench_cluster [--mebibytes 64[,1,..]] [--repeats 5] [--piece
//   BYTES] [--only TEXT] [--link]
// --link measures the link itself: a stream from rank 0 to the last rank, and both directions at once, against the rate
// asked for. The rate comes from LOCKSTEP_CLUSTER_RATE, or from --rate 1gbit. One JSON line a case, on rank 0; times
// are those of the slowest rank.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/predict.hpp"
#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/measure_costs.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "measure.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace core = lockstep::core;

namespace {

struct options {
    std::vector<std::string> mebibytes{"64"};
    std::size_t repeats = 5;
    std::size_t piece = 0;
    std::string only;
    std::string rate;
    bool link = false;
};

options read(int argc, char** argv) {
    options out;
    if (const char* rate = std::getenv("LOCKSTEP_CLUSTER_RATE")) out.rate = rate;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--link") {
            out.link = true;
            continue;
        }
        if (i + 1 >= argc)
            core::fail("the argument " + name + " is unknown or has no value", "see the head of all_reduce.cpp");
        const std::string value = argv[++i];
        if (name == "--mebibytes")
            out.mebibytes = benchmark::split(value);
        else if (name == "--repeats")
            out.repeats = std::max<std::size_t>(1, std::stoul(value));
        else if (name == "--piece")
            out.piece = std::stoul(value);
        else if (name == "--only")
            out.only = value;
        else if (name == "--rate")
            out.rate = value;
        else
            throw core::error{"the argument " + name + " is unknown", "see the head of all_reduce.cpp"};
    }
    return out;
}

/// Bits per second of 100mbit, 1gbit; 0 where there is no limit.
double bits_per_second(const std::string& text) {
    char unit = 0;
    double number = 0;
    if (std::sscanf(text.c_str(), "%lf%cbit", &number, &unit) != 2) return 0;
    return number * (unit == 'g' ? 1e9 : unit == 'm' ? 1e6 : unit == 'k' ? 1e3 : 0);
}

/// Seconds of the slowest rank for f, after a barrier.
template <class F>
double slowest(MPI_Comm world, F&& f) {
    MPI_Barrier(world);
    const double begin = benchmark::seconds(true);
    f();
    double took = benchmark::seconds(true) - begin;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, world);
    return took;
}

/// Whether every element is the sum 1 + 2 + .. + p of its rank's numbers.
bool right(const std::vector<float>& data, std::size_t n, std::size_t ranks) {
    const auto expected = [&](std::size_t i) { return static_cast<float>(ranks * (ranks + 1) / 2 * (i % 1000)); };
    for (std::size_t i = 0; i < n; ++i)
        if (data[i] != expected(i)) return false;
    return true;
}

struct contender {
    std::string name;
    std::function<void()> run;
    double predicted = 0;
    std::vector<double> seconds = {};
    bool right = true;
};

void measure_link(const boost::mpi::communicator& world, const options& chosen, double rate) {
    const auto n = static_cast<std::size_t>(std::stod(chosen.mebibytes[0]) * 1048576);
    std::vector<char> out(n, 1);
    std::vector<char> in(n);
    const int last = world.size() - 1;
    for (const bool both : {false, true}) {
        std::vector<double> took;
        for (std::size_t repeat = 0; repeat <= chosen.repeats; ++repeat) {
            const double now = slowest(world, [&] {
                std::vector<MPI_Request> requests;
                const auto count = static_cast<int>(n);
                const int peer = world.rank() == 0 ? last : 0;
                if (world.rank() != 0 && world.rank() != last) return;
                if (world.rank() == last || both)
                    MPI_Irecv(in.data(), count, MPI_BYTE, peer, 0, world, &requests.emplace_back());
                if (world.rank() == 0 || both)
                    MPI_Isend(out.data(), count, MPI_BYTE, peer, 0, world, &requests.emplace_back());
                MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
            });
            if (repeat > 0) took.push_back(now);
        }
        const double seconds = benchmark::median(took);
        const double reached = 8 * static_cast<double>(n) / seconds;
        if (world.rank() == 0)
            std::printf("{\"case\":\"link %s\",\"bytes\":%zu,\"seconds\":%.4f,\"mbit\":%.1f,\"of_rate\":%.3f}\n",
                        both ? "both ways" : "one way", n, seconds, reached * 1e-6, rate > 0 ? reached / rate : 0);
    }
}

int measure(const boost::mpi::communicator& world, const comm::group& all, const collectives::cost_model& model,
            const options& chosen, std::size_t n) {
    const double rate = bits_per_second(chosen.rate);
    const std::size_t rank = all.rank();
    const std::size_t ranks = all.size();
    const auto own = [&](std::size_t i) { return static_cast<float>((rank + 1) * (i % 1000)); };
    std::vector<float> data(n);
    std::vector<float> work(n);
    const auto fill = [&] {
        for (std::size_t i = 0; i < n; ++i) data[i] = own(i);
    };
    std::vector<contender> contenders;
    const auto add = [&](std::string name, std::function<void()> f, double predicted) {
        if (name.find(chosen.only) != std::string::npos)
            contenders.push_back({std::move(name), std::move(f), predicted});
    };
    add(
        "MPI_Allreduce",
        [&] { MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, world); }, 0);
    const auto runs = collectives::deal_lanes(ranks, ranks);
    for (const auto algorithm :
         {collectives::sum_algorithm::ring, collectives::sum_algorithm::tree, collectives::sum_algorithm::doubling,
          collectives::sum_algorithm::halving_doubling, collectives::sum_algorithm::hierarchical}) {
        const bool levels = collectives::ranks_of_hosts(model.on).size() < ranks;
        if (algorithm == collectives::sum_algorithm::hierarchical &&
            !(levels && collectives::keeps_lane_tree(runs, model.on)))
            continue;
        std::vector<collectives::schedule> programs;
        for (std::size_t other = 0; other < ranks; ++other) {
            auto halves = collectives::make_sum(algorithm, other, runs, n, model.on);
            programs.push_back(halves.sum.then(halves.share));
        }
        const auto piece = chosen.piece > 0 ? chosen.piece : comm::flow::usual_piece;
        const auto sum =
            std::make_shared<comm::operation<float>>(all, programs[rank], lockstep::parallel::team{}, piece);
        data.resize(std::max(data.size(), programs[rank].data_size()));
        work.resize(std::max(work.size(), programs[rank].work_size()));
        add(
            std::string{collectives::name_of(algorithm)}, [&, sum] { sum->run(data, work); },
            collectives::predict(programs, sizeof(float), model));
    }
    for (std::size_t repeat = 0; repeat <= chosen.repeats;
         ++repeat)  // the first one connects the hosts and is not counted
        for (auto& one : contenders) {
            fill();
            const double took = slowest(world, one.run);
            one.right = one.right && right(data, n, ranks);
            if (repeat > 0) one.seconds.push_back(took);
        }
    // Ranks of one host share its link: bytes that must cross it, by the bound for the hosts alone.
    const auto places = all.hosts();
    double hosts = 0;
    for (std::size_t other = 0; other < ranks; ++other) hosts += places[other] == other ? 1 : 0;
    const double bound = rate > 0 ? 8 * 2 * static_cast<double>(n * sizeof(float)) * (hosts - 1) / hosts / rate : 0;
    int code = 0;
    for (const auto& one : contenders) {
        const double seconds = benchmark::median(one.seconds);
        bool everywhere = one.right;
        MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_CXX_BOOL, MPI_LAND, world);
        if (!everywhere) code = 1;
        if (rank == 0)
            std::printf(
                "{\"case\":\"%s\",\"ranks\":%zu,\"hosts\":%.0f,\"bytes\":%zu,\"seconds\":%.6f,\"best\":%.6f,\"of_"
                "bound\":%.3f,"
                "\"predicted_s\":%.6f,\"predicted\":%.3f,\"right\":%s}\n",
                one.name.c_str(), ranks, hosts, n * sizeof(float), seconds,
                *std::min_element(one.seconds.begin(), one.seconds.end()), bound / seconds, one.predicted,
                one.predicted / seconds, everywhere ? "true" : "false");
    }
    return code;
}

int run(const boost::mpi::communicator& world, const options& chosen) {
    if (chosen.link) {
        measure_link(world, chosen, bits_per_second(chosen.rate));
        return 0;
    }
    const comm::group all{world};
    const double begin = benchmark::seconds(true);
    const collectives::cost_model model = comm::measure_costs(all);
    const double took = benchmark::seconds(true) - begin;
    if (all.rank() == 0)
        std::printf(
            "{\"case\":\"cost "
            "model\",\"ranks\":%zu,\"seconds\":%.4f,\"model\":\"%s\",\"algorithms\":\"%s\",\"least_bucket\":%zu}\n",
            all.size(), took, collectives::to_text(model).c_str(),
            collectives::choose_algorithms(collectives::deal_lanes(all.size(), all.size()), sizeof(float), model)
                .text()
                .c_str(),
            collectives::least_bucket(collectives::deal_lanes(all.size(), all.size()), sizeof(float), model));
    int code = 0;
    for (const auto& size : chosen.mebibytes)
        code = std::max(code, measure(world, all, model, chosen,
                                      static_cast<std::size_t>(std::stod(size) * 1048576 / sizeof(float))));
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    return comm::program(argc, argv,
                         [&](const boost::mpi::communicator& world) { return run(world, read(argc, argv)); });
}
