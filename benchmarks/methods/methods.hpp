// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The methods that bench_methods compares, and how it trains a network with each of them.

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/compress/adaptive.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sign_vote.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace benchmark {

namespace ls = lockstep;

/// Any compressor whose messages are indices and values.
struct list : ls::compress::any {
    explicit list(const any& compressor) : any{compressor} {}
    static constexpr bool sends_index_list = true;
};
using streamed = ls::compress::sparse_sum<list, ls::compress::quantize>;
using counted = ls::compress::any_reduction<ls::compress::algebra::exact_sum>;
/// A trainer type for each.
using any_compressor =
    std::variant<ls::compress::none, ls::compress::any, ls::compress::half, ls::compress::bfloat16,
                 ls::compress::adaptive, ls::compress::global_top_k, streamed, counted,
                 ls::compress::any_reduction<ls::compress::algebra::ordered_sum, ls::compress::algebra::ordered_sum>,
                 ls::compress::any_reduction<ls::compress::algebra::ordered_sum>,
                 ls::compress::any_reduction<ls::compress::algebra::max, ls::compress::algebra::exact_sum>>;

struct method {
    std::string name;
    any_compressor compressor;
};

struct options {
    std::string net = "lenet", transport = "automatic";
    std::size_t batch = 64, turns = 3;
    double seconds = 2;  // of each method in a turn, about
    std::vector<std::string> links{};
    std::size_t steps = 300;  // at each rate of the links
    std::vector<method> methods;
};

/// The begin of each step.
struct step_clock {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    std::vector<double> at;
    void on_step(const ls::report::step_event&) { at.push_back(seconds(true)); }
};

/// What all ways to measure train.
template <class Net, class Compressor>
auto plan_of(const options& given, const Net& net, const Compressor& compressor) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::momentum{},
                    .schedule = ls::optim::constant{.rate = 0.001},
                    .compressor = compressor,
                    .batch = given.batch,
                    .transport = given.transport == "messages" ? ls::transport::messages : ls::transport::automatic};
}

/// A line for each rate of the links. Behind, of rank 0: decisions of adaptive compression.
template <class Net, class Set, class Compressor>
void train_over(const boost::mpi::communicator& world, const options& given, const Net& net, const Set& set,
                const std::string& name, const Compressor& compressor) {
    const char* const cluster = std::getenv("LOCKSTEP_CLUSTER_RUN");
    if (cluster == nullptr) ls::core::fail("--links outside of a cluster", "start it with benchmarks/cluster/run");
    ls::trainer trainer{world, plan_of(given, net, compressor)};
    for (const std::string& rate : given.links) {
        int failed = 0;
        if (world.rank() == 0)
            failed = std::system(ls::core::text("'", cluster, "' --rate-becomes '", rate, "'").c_str());
        boost::mpi::broadcast(world, failed, 0);
        if (failed != 0) ls::core::fail("the links do not become " + rate, "see the line above");
        step_clock clock;
        clock.at.reserve(given.steps + 1);
        clock.at.push_back(seconds(true));
        trainer.fit(set, ls::steps{given.steps}, clock);
        std::vector<double> all;
        for (std::size_t i = 1; i < clock.at.size(); ++i) all.push_back(1e3 * (clock.at[i] - clock.at[i - 1]));
        const double last =
            median(std::vector<double>(all.end() - static_cast<std::ptrdiff_t>(all.size() / 3), all.end()));
        // From then on, the median of five steps is at most a fifth longer.
        std::size_t slow = all.size() < 5 ? 0 : all.size() - 4;
        while (slow > 0 &&
               median(std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(slow - 1),
                                          all.begin() + static_cast<std::ptrdiff_t>(slow + 4))) <= 1.2 * last)
            --slow;
        if (world.rank() == 0)
            std::printf(
                "{\"net\": \"%s\", \"ranks\": %d, \"batch\": %zu, \"method\": \"%s\", \"links\": \"%s\", \"steps\": "
                "%zu, \"step_ms\": %.3f, \"seconds\": %.3f, \"slow_steps\": %zu}\n",
                given.net.c_str(), world.size(), given.batch, name.c_str(), rate.c_str(), all.size(), last,
                clock.at.back() - clock.at.front(), slow);
    }
    if constexpr (ls::compress::adapts<Compressor>)
        if (world.rank() == 0)
            for (const std::string& line : trainer.compression_decisions()) std::fprintf(stderr, "%s\n", line.c_str());
}

/// Milliseconds of a step on the slowest rank: the median of the last third of the steps. Adaptive compression makes
/// its early decisions, and looks at them, before.
template <class Net, class Set, class Compressor>
double step_ms(const boost::mpi::communicator& world, const options& given, const Net& net, const Set& set,
               const Compressor& compressor) {
    ls::trainer trainer{world, plan_of(given, net, compressor)};
    constexpr std::size_t first = 4, least = ls::compress::adapts<Compressor> ? 150 : 5, most = 400;
    step_clock clock;
    clock.at.reserve(first + most + 1);
    clock.at.push_back(seconds(true));
    trainer.fit(set, ls::steps{first}, clock);
    std::size_t count = 0;
    if (world.rank() == 0) count = static_cast<std::size_t>(given.seconds / (clock.at[first] - clock.at[first - 1]));
    boost::mpi::broadcast(world, count, 0);
    trainer.fit(set, ls::steps{std::clamp(count, least, most)}, clock);
    std::vector<double> last;
    for (std::size_t i = clock.at.size() - (clock.at.size() - first) / 3; i < clock.at.size(); ++i)
        last.push_back(1e3 * (clock.at[i] - clock.at[i - 1]));
    if constexpr (ls::compress::adapts<Compressor>)
        if (world.rank() == 0)
            for (const std::string& line : trainer.compression_decisions()) std::fprintf(stderr, "%s\n", line.c_str());
    return boost::mpi::all_reduce(world, median(last), boost::mpi::maximum<double>{});
}

/// Prints a line for each method.
template <std::size_t Classes, class Net>
void compare(const boost::mpi::communicator& world, const options& given, const Net& net) {
    using sample = typename Net::input;
    constexpr std::size_t rows = 512;
    std::vector<float> x(rows * sample::size);
    std::vector<std::int32_t> y(rows);
    const ls::core::random_stream draws{1, ls::core::purpose::user};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draws.uniform(i) - 0.5F;
    for (std::size_t i = 0; i < rows; ++i) y[i] = static_cast<std::int32_t>(i % Classes);
    const auto set = ls::data::in_memory<sample, ls::tensor::classes<Classes>>(x, y);
    if (!given.links.empty()) {
        for (const method& one : given.methods)
            std::visit([&](const auto& by) { train_over(world, given, net, set, one.name, by); }, one.compressor);
        return;
    }
    const std::size_t count = given.methods.size();
    std::vector<std::vector<double>> found(count);
    for (std::size_t turn = 0; turn < given.turns; ++turn)
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t which = (k + turn) % count;
            found[which].push_back(std::visit([&](const auto& one) { return step_ms(world, given, net, set, one); },
                                              given.methods[which].compressor));
        }
    if (world.rank() != 0) return;
    for (std::size_t which = 0; which < count; ++which)
        std::printf(
            "{\"net\": \"%s\", \"ranks\": %d, \"batch\": %zu, \"method\": \"%s\", \"step_ms\": %.3f, \"median_ms\": "
            "%.3f}\n",
            given.net.c_str(), world.size(), given.batch, given.methods[which].name.c_str(),
            *std::ranges::min_element(found[which]), median(found[which]));
}

void compare_lenet(const boost::mpi::communicator& world, const options& given);
void compare_vgg(const boost::mpi::communicator& world, const options& given);
void compare_cd_dnn(const boost::mpi::communicator& world, const options& given);

}  // namespace benchmark
