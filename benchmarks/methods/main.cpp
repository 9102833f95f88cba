// SPDX-License-Identifier: BSD-3-Clause
// Steps of training without compression, with each of several methods, and with compress::adaptive, in turns.
//   benchmarks/cluster/run --hosts 2 --rate 100mbit -- bench_methods [--net lenet|vgg|cd_dnn] [--batch 64]
//     [--seconds 2] [--turns 3] [--methods none,topk,..,adaptive] [--transport automatic|messages]
//     [--links 10gbit,100mbit,10gbit [--steps 300]]
// A JSON line for each: step_ms is the median of the last third of the steps, on the slowest rank, the least over
// turns, as what else the machine does adds to it; median_ms the median over turns. A method has about so many seconds
// in a turn, and at least 5 steps; adaptive 150, in which its early decisions are made and looked at, which stderr
// shows. Methods have a worker on each rank and the settings of a table below. by_layer, warm_up and two_sided send
// what the compressors in them send, and so do the optimizers of deep gradient compression and 1-bit Adam: they are no
// methods of their own here.
// --links: each method is trained once, for so many steps at each of these rates of the cluster's links; a line for
// each rate, with the seconds of all its steps and how many passed before they were as fast as the last ones.

#include <algorithm>
#include <map>
#include <string>

#include "lockstep/comm/program.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/qsgd.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/error.hpp"
#include "methods.hpp"

namespace {

using namespace benchmark;
using namespace lockstep::compress;

std::vector<method> all_methods() {
    return {
        {"none", none{}},
        {"fp16", half{}},
        {"bfloat16", bfloat16{}},
        {"quantize8", any{error_feedback{quantize{.bits = 8}}}},
        {"quantize4", any{error_feedback{quantize{.bits = 4}}}},
        {"topk10", any{error_feedback{top_k{.ratio = 0.1}}}},
        {"topk", any{error_feedback{top_k{.ratio = 0.01}}}},
        {"sampledtopk", any{error_feedback{sampled_top_k{.ratio = 0.01}}}},
        {"gaussiantopk", any{error_feedback{gaussian_top_k{.ratio = 0.01}}}},
        {"threshold", any{error_feedback{threshold{.value = 0.001, .most_share = 0.1}}}},
        {"chain", any{error_feedback{chain{top_k{.ratio = 0.01}, quantize{.bits = 4}}}}},
        {"sparsesum", streamed{list{error_feedback{top_k{.ratio = 0.01}}}, quantize{.bits = 4}}},
        {"globaltopk", global_top_k{.ratio = 0.01}},
        {"qsgd", any{qsgd{.levels = 7}}},
        {"onebit", any{error_feedback{one_bit{}}}},
        {"sign", any{error_feedback{scaled_sign{}}}},
        {"signvote", counted{sign_vote{}}},
        {"randomk", any_reduction<algebra::ordered_sum>{error_feedback{random_k{.ratio = 0.01}}}},
        {"randomblock", any_reduction<algebra::ordered_sum>{error_feedback{random_block{.ratio = 0.01}}}},
        {"powersgd", any_reduction<algebra::ordered_sum, algebra::ordered_sum>{error_feedback{power_sgd{.rank = 2}}}},
        {"terngrad", any_reduction<algebra::max, algebra::exact_sum>{terngrad{}}},
        {"adaptive", adaptive{}}};
}

#if defined(BENCHMARK_FEW_NETWORKS)
const std::map<std::string, void (*)(const boost::mpi::communicator&, const options&)> nets{{"lenet", compare_lenet}};
#else
const std::map<std::string, void (*)(const boost::mpi::communicator&, const options&)> nets{
    {"lenet", compare_lenet}, {"vgg", compare_vgg}, {"cd_dnn", compare_cd_dnn}};
#endif

options read(int argc, char** argv) {
    options out{.methods = all_methods()};
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        const auto fail = [&] {
            lockstep::core::fail(
                name + " " + value + " is not known",
                "write --net, --batch, --seconds, --turns, --methods, --transport, --links or --steps");
        };
        std::size_t* const number = name == "--batch"   ? &out.batch
                                    : name == "--turns" ? &out.turns
                                    : name == "--steps" ? &out.steps
                                                        : nullptr;
        if (name == "--net" && nets.contains(value)) {
            out.net = value;
        } else if (name == "--transport" && (value == "automatic" || value == "messages")) {
            out.transport = value;
        } else if (name == "--links") {
            out.links = split(value);
        } else if (name == "--seconds") {
            out.seconds = std::strtod(value.c_str(), nullptr);
        } else if (name == "--methods") {
            out.methods.clear();
            for (const std::string& one : split(value)) {
                const std::vector<method> all = all_methods();
                const auto found = std::ranges::find(all, one, &method::name);
                if (found == all.end()) fail();
                out.methods.push_back(*found);
            }
        } else if (number == nullptr || (*number = std::strtoul(value.c_str(), nullptr, 10)) == 0 ||
                   (number == &out.steps && out.steps < 5)) {
            fail();
        }
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const options given = read(argc, argv);
        nets.at(given.net)(world, given);
        return 0;
    });
}
