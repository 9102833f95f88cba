// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The methods that bench_methods compares, and how it trains a network with each of them.

#include <algorithm>
#include <boost/mpi/collectives.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/compress/adaptive.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/train/trainer.hpp"
#include "measure.hpp"

namespace benchmark {

namespace ls = lockstep;

/// A trainer type for each.
using any_compressor =
    std::variant<ls::compress::none, ls::compress::any, ls::compress::half, ls::compress::adaptive,
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
    std::vector<method> methods;
};

/// The begin of each step.
struct step_clock {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    std::vector<double> at;
    void on_step(const ls::report::step_event&) { at.push_back(seconds(true)); }
};

/// Milliseconds of a step on the slowest rank: the median of the last third of the steps. Adaptive compression makes
/// its early decisions, and looks at them, before.
template <class Net, class Set, class Compressor>
double step_ms(const boost::mpi::communicator& world, const options& given, const Net& net, const Set& set,
               const Compressor& compressor) {
    ls::trainer trainer{world, ls::plan{.model = net,
                                        .loss = ls::loss::softmax_cross_entropy{},
                                        .optimizer = ls::optim::momentum{},
                                        .schedule = ls::optim::constant{.rate = 0.001},
                                        .compressor = compressor,
                                        .batch = given.batch,
                                        .transport = given.transport == "messages" ? ls::transport::messages
                                                                                   : ls::transport::automatic}};
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
        std::printf("{\"net\": \"%s\", \"ranks\": %d, \"batch\": %zu, \"method\": \"%s\", \"step_ms\": %.3f}\n",
                    given.net.c_str(), world.size(), given.batch, given.methods[which].name.c_str(),
                    median(found[which]));
}

void compare_lenet(const boost::mpi::communicator& world, const options& given);
void compare_vgg(const boost::mpi::communicator& world, const options& given);
void compare_cd_dnn(const boost::mpi::communicator& world, const options& given);

}  // namespace benchmark
