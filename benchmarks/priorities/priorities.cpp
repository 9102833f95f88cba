// SPDX-License-Identifier: BSD-3-Clause
// How long an urgent sum takes beside a large one, with an order (comm/send_order.hpp) and without, in turns.
//   benchmarks/cluster/run --hosts 2 --rate 1gbit -- bench_priorities [urgent MiB = 4] [large MiB = 16] [ms between the
//   starts = 30]
//     [us between two polls = 1000] [repeats = 7]
// The urgent one starts that many ms after the large one; at 0 right before it. One JSON line for each of the two on
// rank 0, medians in ms: from the start of the urgent sum and of the large one to their ends, and of an urgent sum
// alone.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lockstep/collectives/all_reduce.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/program.hpp"
#include "measure.hpp"

namespace collectives = lockstep::collectives;
namespace comm = lockstep::comm;

namespace {

/// One of the two, or both, that a rank polls between pauses in which it computes.
struct pair {
    comm::send_order order{};
    comm::operation<float> urgent, large;
    std::vector<float> data[2], work[2];

    pair(const comm::group& ranks, std::size_t few, std::size_t many, bool ordered)
        : urgent{ranks,
                 collectives::tree_all_reduce{ranks.size()}(ranks.rank(), ranks.size(), few),
                 {},
                 comm::flow::usual_piece,
                 among(ordered, 0)},
          large{ranks,
                collectives::tree_all_reduce{ranks.size()}(ranks.rank(), ranks.size(), many),
                {},
                comm::flow::usual_piece,
                among(ordered, 1)} {
        for (std::size_t i = 0; i < 2; ++i) {
            const auto& program = (i == 0 ? urgent : large).program();
            data[i].resize(program.data_size());
            work[i].resize(program.work_size());
        }
    }
    comm::urgency among(bool ordered, std::size_t level) { return {ordered ? &order : nullptr, level}; }
};

struct took {
    double urgent = 0;
    double large = 0;
};
took run(pair& of, double delay, double pause, bool with_large) {
    const auto now = [begin = benchmark::seconds(true)] { return 1e3 * (benchmark::seconds(true) - begin); };
    double begun = -1, urgent = -1, large = with_large ? -1 : 0;
    const auto start = [&] {
        begun = now();
        of.urgent.start(of.data[0], of.work[0]);
    };
    if (delay <= 0) start();
    if (with_large) of.large.start(of.data[1], of.work[1]);
    while (urgent < 0 || large < 0) {
        for (const double until = now() + 1e-3 * pause; now() < until;) {
        }
        if (begun < 0 && now() >= delay) start();
        if (begun >= 0 && urgent < 0 && of.urgent.poll()) urgent = now() - begun;
        if (large < 0 && of.large.poll()) large = now();
    }
    return {urgent, large};
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const auto argument = [&](int i, double usual) { return argc > i ? std::atof(argv[i]) : usual; };
        const auto elements = [&](int i, double usual) {
            return static_cast<std::size_t>(argument(i, usual) * (1 << 20) / sizeof(float));
        };
        const double delay = argument(3, 30), pause = argument(4, 1000), repeats = std::max(1.0, argument(5, 7));
        const comm::group ranks{world};
        pair without{ranks, elements(1, 4), elements(2, 16), false}, with{ranks, elements(1, 4), elements(2, 16), true};
        std::vector<double> urgent[2], large[2], alone;
        for (int turn = 0; turn <= static_cast<int>(repeats); ++turn)
            for (const bool ordered : {false, true}) {
                world.barrier();
                const took both = run(ordered ? with : without, delay, pause, true);
                world.barrier();
                const took one = run(ordered ? with : without, 0, pause, false);
                if (turn == 0) continue;  // connects the hosts
                urgent[ordered].push_back(both.urgent);
                large[ordered].push_back(both.large);
                alone.push_back(one.urgent);
            }
        for (const bool ordered : {false, true})
            if (world.rank() == 0)
                std::printf(
                    "{\"bench\":\"priorities\",\"order\":%s,\"ranks\":%d,\"urgent\":%.1f,\"large\":%.1f,\"alone\":%.1f}"
                    "\n",
                    ordered ? "true" : "false", world.size(), benchmark::median(urgent[ordered]),
                    benchmark::median(large[ordered]), benchmark::median(alone));
        return 0;
    });
}
