// SPDX-License-Identifier: BSD-3-Clause
// What a compressor does to the accuracy of ResNet-20 on CIFAR-10.
//   scripts/mpirun -n 2 bench_accuracy --data cifar-10-batches-bin [--method NAME[:SETTING]] [--epochs 8] [--seed 1]
//     [--batch 128] [--workers 8] [--lr 0.2] [--momentum 0.9] [--weight-decay 0.0005]
//     [--train-samples 50000] [--test-samples 10000]
// NAME as in examples/train --compress, but for adaptive. The recipe is that of examples/cifar10, with a lane for each
// worker. A JSON line: test accuracies of all epochs in percent, bytes that rank 0 has sent, the hash of the weights.

#include <cstdlib>
#include <string>

#include "kinds.hpp"
#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "run.hpp"

namespace {

using lockstep::core::fail;

benchmark::options read(int argc, char** argv) {
    benchmark::options out;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        char* end = nullptr;
        const double number = std::strtod(value.c_str(), &end);
        const bool is_number = !value.empty() && *end == '\0' && number >= 0;
        std::size_t* const count = name == "--epochs"          ? &out.epochs
                                   : name == "--batch"         ? &out.batch
                                   : name == "--workers"       ? &out.workers
                                   : name == "--train-samples" ? &out.train_samples
                                   : name == "--test-samples"  ? &out.test_samples
                                                               : nullptr;
        double* const real = name == "--lr"             ? &out.rate
                             : name == "--momentum"     ? &out.momentum
                             : name == "--weight-decay" ? &out.weight_decay
                                                        : nullptr;
        if (count != nullptr && is_number && number >= 1)
            *count = static_cast<std::size_t>(number);
        else if (real != nullptr && is_number)
            *real = number;
        else if (name == "--seed" && is_number)
            out.seed = static_cast<std::uint64_t>(number);
        else if (name == "--data" && !value.empty())
            out.data = value;
        else if (name == "--method" && !value.empty())
            out.method = value;
        else
            fail(name + " " + value + " is not known", "see the top of benchmarks/accuracy/main.cpp");
    }
    if (out.data.empty()) fail("no data", "give --data, the folder with the binary version of CIFAR-10");
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const benchmark::options of = read(argc, argv);
        const auto chosen = example::choose_compressor(of.method, nullptr);
        for (const auto run :
             {benchmark::run_trees, benchmark::run_messages, benchmark::run_sums, benchmark::run_optimizers})
            if (const auto done = run(world, of, chosen)) return *done;
        fail("--method " + of.method + " is not for this program", "choose another one, such as topk:0.01");
    });
}
