// SPDX-License-Identifier: BSD-3-Clause
// All-reduce of floats by lockstep's schedules over messages, through shared memory, and by MPI: in turns in one run,
// one JSON line each.

#include <sys/resource.h>

#include <algorithm>
#include <boost/mpi/communicator.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/algorithm_table.hpp"
#include "lockstep/collectives/predict.hpp"
#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/measure_costs.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/node/shared_reduce.hpp"
#include "lockstep/node/shared_window.hpp"
#include "measure.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;
namespace node = lockstep::node;
namespace core = lockstep::core;

namespace {

constexpr const char* usage = R"(Times all-reduces of floats on all ranks: start it with scripts/mpirun -n RANKS.

  --sizes LIST     bytes, with K or M                 [4K,16K,64K,256K,1M,4M,16M,64M,256M]
  --methods LIST   of those below, or all             [all; over several nodes all but shared, bound]
  --reps N         samples of each method at least    [15]
  --min-time S     seconds of samples, about          [0.5]
  --rewrite        every rank writes its data anew before each call, outside the measured time
  --help

methods: tree      the lane tree over messages: the same bits for any number of ranks
         doubling  over messages, whole vectors: the bits of the tree
         hierarchical  inside hosts, between them, inside again: the bits of the tree; only on several hosts
         ring, halving-doubling  over messages; the order of additions depends on the number of ranks
         shared    the lane tree through shared memory, data in the window; strips, copies: by this route
         mpi       MPI_Allreduce          impi   MPI_Iallreduce, MPI_Wait
         bound     the additions of "shared" on memory of the rank alone, without a wait: the bandwidth of caches and memory

One JSON line for each size and method. Seconds are those of the slowest rank; median, min, max of samples taken in turns with the other methods.
algorithm_GB_per_s: bytes / median. bus_GB_per_s: that times 2(p-1)/p. of_bound: time of bound / time of the method. of_best_mpi: the same for the
faster one of mpi and impi. predicted_s: by the cost model, measured at start; predicted: that / median. preempted: involuntary changes of process on this rank during all samples of this size.
)";

struct options {
    std::vector<std::string> sizes{"4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"};
    std::vector<std::string> methods;
    std::size_t reps = 15;
    double min_time = 0.5;
    bool rewrite = false;
    bool help = false;
};

[[noreturn]] void wrong(const std::string& what) { throw core::error{what, "see --help"}; }

double number(const std::string& option, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value > 0) || !std::isfinite(value))
        wrong("the option " + option + " has the value '" + text + "'");
    return value;
}

std::size_t bytes_of(const std::string& text) {
    const bool kilo = !text.empty() && text.back() == 'K';
    const bool mega = !text.empty() && text.back() == 'M';
    const double units = number("--sizes", kilo || mega ? text.substr(0, text.size() - 1) : text);
    const double bytes = units * (kilo ? 1024 : mega ? 1048576 : 1);
    if (bytes != std::floor(bytes) || bytes < 4 || bytes > 4e9 || std::fmod(bytes, 4) != 0)
        wrong("--sizes has '" + text + "', which is no number of floats");
    return static_cast<std::size_t>(bytes);
}

const std::vector<std::string> known{"tree",   "doubling", "hierarchical", "ring", "halving-doubling",
                                     "shared", "strips",   "copies",       "mpi",  "impi",
                                     "bound"};

options read(int argc, char** argv) {
    options out;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        const auto value = [&]() -> std::string {
            if (++i == argc) wrong("the option " + option + " has no value");
            return argv[i];
        };
        if (option == "--help" || option == "-h")
            out.help = true;
        else if (option == "--rewrite")
            out.rewrite = true;
        else if (option == "--sizes")
            out.sizes = benchmark::split(value());
        else if (option == "--methods")
            out.methods = benchmark::split(value());
        else if (option == "--reps")
            out.reps = static_cast<std::size_t>(std::ceil(number(option, value())));
        else if (option == "--min-time")
            out.min_time = number(option, value());
        else
            wrong("unknown option '" + option + "'");
    }
    for (const auto& one : out.sizes) (void)bytes_of(one);
    for (const auto& one : out.methods)
        if (one != "all" && std::find(known.begin(), known.end(), one) == known.end())
            wrong("unknown method '" + one + "'");
    return out;
}

/// An all-reduce that is ready to run over its own data.
struct method {
    std::string name;
    std::span<float> in;   ///< what this rank adds
    std::span<float> out;  ///< where the sum is; empty where there is none to check
    std::function<void()> run;
    std::shared_ptr<void> keeps;
    std::size_t calls = 1;
    std::size_t samples = 0;
    std::vector<double> times = {};
    double predicted = 0;
};

/// One vector and one lane for each rank.
method over_messages(collectives::sum_algorithm algorithm, const comm::group& ranks, std::size_t n,
                     const collectives::cost_model& model) {
    struct state {
        benchmark::buffer<float> data, work;
        comm::operation<float> operation;
    };
    std::vector<collectives::schedule> all;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        auto halves =
            collectives::make_sum(algorithm, rank, collectives::deal_lanes(ranks.size(), ranks.size()), n, model.on);
        all.push_back(halves.sum.then(halves.share));
    }
    const double predicted = collectives::predict(all, sizeof(float), model);
    const collectives::schedule& program = all[ranks.rank()];
    auto held = std::make_shared<state>(state{benchmark::buffer<float>{std::max(n, program.data_size())},
                                              benchmark::buffer<float>{program.work_size()},
                                              comm::operation<float>{ranks, program}});
    return {.name = std::string{collectives::name_of(algorithm)},
            .in = held->data.all().first(n),
            .out = held->data.all().first(n),
            .run = [held = held.get()] { held->operation.run(held->data.all(), held->work.all()); },
            .keeps = held,
            .predicted = predicted};
}

method through_memory(const std::string& name, const comm::group& ranks, std::size_t n, node::shared_route route) {
    struct state {
        state(const comm::group& ranks, std::size_t n, node::shared_route route)
            : window{ranks, node::shared_parts::footprint(n * sizeof(float)) +
                                (route == node::shared_route::copies
                                     ? node::shared_line + 2 * node::shared_parts::footprint(n * sizeof(float))
                                     : node::shared_operation<float>::overhead(1, n))},
              data{window.memory().reserve<float>(n)},
              operation{node::shared_all_reduce<float>(window.memory(), ranks.size(), data, n, {}, route)} {}
        node::shared_window window;
        lockstep::tensor::slice<float> data;
        node::shared_operation<float> operation;
    };
    auto held = std::make_shared<state>(ranks, n, route);
    const auto mine = held->window.memory().mine(held->data);
    return {name, mine, mine, [held = held.get()] { held->operation.run(); }, held};
}

method by_mpi(const std::string& name, MPI_Comm over, std::size_t n, bool blocking) {
    struct state {
        benchmark::buffer<float> in, out;
    };
    auto held = std::make_shared<state>(state{benchmark::buffer<float>{n}, benchmark::buffer<float>{n}});
    const auto run = [held = held.get(), over, n, blocking] {
        if (blocking) {
            MPI_Allreduce(held->in.data(), held->out.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, over);
        } else {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Iallreduce(held->in.data(), held->out.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, over, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    };
    return {name, held->in.all(), held->out.all(), run, held};
}

/// What each rank reads, adds and writes in a shared all-reduce, on memory that no other rank touches.
method bound(const comm::group& ranks, std::size_t n) {
    struct state {
        std::vector<benchmark::buffer<float>> strips;
        std::vector<const float*> from;
        std::vector<float*> to;
        node::one_pass_sum<float> sum;
        std::vector<float> scratch;
    };
    const std::size_t strip = lockstep::parallel::split(n, ranks.size(), 0, collectives::strip_grain).size();
    auto held = std::make_shared<state>(
        state{{}, {}, {}, node::one_pass_sum<float>{collectives::deal_lanes(ranks.size(), ranks.size())}, {}});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) held->strips.emplace_back(strip);
    for (auto& one : held->strips) {
        held->from.push_back(one.data());
        held->to.push_back(one.data());
    }
    held->scratch.resize(held->sum.scratch_size());
    return {"bound",
            {},
            {},
            [held = held.get(), strip] {
                held->sum(held->from, held->to, {0, strip}, held->scratch);
            },
            held};
}

double slowest(MPI_Comm over, double mine) {
    MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, over);
    return mine;
}

double time_of(const method& one, std::size_t calls) {
    const double begin = benchmark::seconds(true);
    for (std::size_t call = 0; call < calls; ++call) one.run();
    return (benchmark::seconds(true) - begin) / static_cast<double>(calls);
}

void check(const method& one, std::size_t rank, std::size_t ranks) {
    if (one.out.empty()) return;
    for (std::size_t i = 0; i < one.in.size(); ++i) one.in[i] = static_cast<float>((i % 1000) * (rank + 1));
    one.run();
    for (std::size_t i = 0; i < one.out.size(); ++i) {
        const auto right = static_cast<float>((i % 1000) * ranks * (ranks + 1) / 2);
        if (one.out[i] != right)
            throw core::error{
                core::text("element ", i, " of the sum by '", one.name, "' is ", one.out[i], ", not ", right),
                "this is an error of the program"};
    }
}

long preemptions() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_nivcsw;
}

void measure(const comm::group& ranks, std::vector<method>& all, std::size_t bytes, const options& how) {
    const MPI_Comm over = ranks.over().communicator();
    std::size_t most = 0;
    for (auto& one : all) {
        check(one, ranks.rank(), ranks.size());
        std::fill(one.in.begin(), one.in.end(), 0.0F);
        one.run();
        MPI_Barrier(over);
        const double once = slowest(over, time_of(one, 1));
        one.calls = how.rewrite ? 1
                                : std::max<std::size_t>(
                                      1, static_cast<std::size_t>(5e-4 / once));  // short calls are timed in groups
        const double wanted = how.min_time / (static_cast<double>(one.calls) * once);
        one.samples = std::max(how.reps, static_cast<std::size_t>(std::min(1000.0, wanted)));
        for (int warm = 0; warm < 3; ++warm) (void)time_of(one, one.calls);
        most = std::max(most, one.samples);
    }
    const long before = preemptions();
    for (std::size_t sample = 0; sample < most; ++sample)
        for (auto& one : all) {
            if (sample >= one.samples) continue;
            if (how.rewrite) std::fill(one.in.begin(), one.in.end(), 0.0F);
            MPI_Barrier(over);
            one.times.push_back(time_of(one, one.calls));
        }
    const long preempted = preemptions() - before;
    double best_mpi = 0;
    double limit = 0;
    for (auto& one : all) {
        MPI_Allreduce(MPI_IN_PLACE, one.times.data(), static_cast<int>(one.times.size()), MPI_DOUBLE, MPI_MAX, over);
        const double median = benchmark::median(one.times);
        if (one.name == "bound") limit = median;
        if (one.name == "mpi" || one.name == "impi") best_mpi = best_mpi == 0 ? median : std::min(best_mpi, median);
    }
    if (ranks.rank() != 0) return;
    for (const auto& one : all) {
        const double median = benchmark::median(one.times);
        const auto p = static_cast<double>(ranks.size());
        const double rate = 1e-9 * static_cast<double>(bytes) / median;
        std::printf(
            "{\"bench\": \"collectives\", \"op\": \"all_reduce\", \"method\": \"%s\", \"ranks\": %zu, \"dtype\": "
            "\"float32\", \"bytes\": "
            "%zu, "
            "\"median_s\": %.4g, \"min_s\": %.4g, \"max_s\": %.4g, \"reps\": %zu, \"calls_per_rep\": %zu, "
            "\"algorithm_GB_per_s\": %.4g, "
            "\"bus_GB_per_s\": %.4g",
            one.name.c_str(), ranks.size(), bytes, median, *std::min_element(one.times.begin(), one.times.end()),
            *std::max_element(one.times.begin(), one.times.end()), one.samples, one.calls, rate,
            rate * 2 * (p - 1) / p);
        if (limit > 0) std::printf(", \"of_bound\": %.3g", limit / median);
        if (best_mpi > 0) std::printf(", \"of_best_mpi\": %.3g", best_mpi / median);
        if (one.predicted > 0)
            std::printf(", \"predicted_s\": %.4g, \"predicted\": %.3g", one.predicted, one.predicted / median);
        std::printf(", \"rewrite\": %s, \"preempted\": %ld}\n", how.rewrite ? "true" : "false", preempted);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return comm::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const options how = read(argc, argv);
        if (how.help) {
            if (world.rank() == 0) std::fputs(usage, stdout);
            return 0;
        }
        const comm::group ranks{world};
        const bool near = node::on_one_node(ranks);
        const collectives::cost_model model = comm::measure_costs(ranks);
        if (ranks.rank() == 0 && ranks.size() > 1)
            std::printf(
                "{\"bench\": \"collectives\", \"ranks\": %zu, \"cost_model\": \"%s\", \"algorithms\": \"%s\"}\n",
                ranks.size(), collectives::to_text(model).c_str(),
                collectives::choose_algorithms(collectives::deal_lanes(ranks.size(), ranks.size()), sizeof(float),
                                               model)
                    .text()
                    .c_str());
        const auto wanted = [&](const std::string& name) {
            const auto named = [&](const char* text) {
                return std::find(how.methods.begin(), how.methods.end(), text) != how.methods.end();
            };
            if (named(name.c_str())) return true;
            if (name == "strips" || name == "copies" || (near && name == "hierarchical")) return false;
            return (how.methods.empty() || named("all")) && (near || (name != "shared" && name != "bound"));
        };
        for (const auto& text : how.sizes) {
            const std::size_t bytes = bytes_of(text);
            const std::size_t n = bytes / sizeof(float);
            std::vector<method> all;
            if (wanted("bound")) all.push_back(bound(ranks, n));
            for (const auto algorithm : {collectives::sum_algorithm::tree, collectives::sum_algorithm::doubling,
                                         collectives::sum_algorithm::hierarchical, collectives::sum_algorithm::ring,
                                         collectives::sum_algorithm::halving_doubling})
                if (wanted(std::string{collectives::name_of(algorithm)}))
                    all.push_back(over_messages(algorithm, ranks, n, model));
            if (wanted("shared")) all.push_back(through_memory("shared", ranks, n, node::shared_route::automatic));
            if (wanted("strips")) all.push_back(through_memory("strips", ranks, n, node::shared_route::strips));
            if (wanted("copies")) all.push_back(through_memory("copies", ranks, n, node::shared_route::copies));
            if (wanted("mpi")) all.push_back(by_mpi("mpi", ranks.over().communicator(), n, true));
            if (wanted("impi")) all.push_back(by_mpi("impi", ranks.over().communicator(), n, false));
            measure(ranks, all, bytes, how);
        }
        return 0;
    });
}
