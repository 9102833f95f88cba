// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks: --steps 4 --train-samples 256 --test-samples 64 --batch 32
// Trains ResNet-20 on CIFAR-10, or on generated shapes where there are no files. `mpirun -n 2 cifar10 --help` lists the
// options.
#include <cstdint>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "../whole_number.hpp"
#include "options.hpp"

namespace {

void describe(CLI::App& app, example::options& of) {
    app.description(
        "Trains ResNet-20 on pictures of 32x32 pixels in ten classes, on all ranks of mpirun together.\n"
        "The batch is the global one: more ranks give the same weights, bit for bit, sooner.\n\n"
        "  mpirun -n 2 cifar10 --data cifar-10-batches-bin      15 epochs on photographs\n"
        "  mpirun -n 2 cifar10 --epochs 2                       generated shapes, nothing to download\n"
        "  mpirun -n 2 cifar10 --direct                         without Winograd's algorithm");
    const auto any_number = example::any_number(), positive = example::positive_number();
    app.add_option("--data", of.data,
                   "'shapes' (generated, nothing to download) or the folder with the binary version of CIFAR-10")
        ->capture_default_str();
    CLI::Option* const epochs = app.add_option("--epochs", of.epochs, "passes over the training samples")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--steps", of.steps, "stop after so many steps instead of epochs")
        ->transform(example::whole_number(1))
        ->excludes(epochs);
    app.add_option("--batch", of.batch, "samples of the GLOBAL minibatch")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--lanes", of.lanes, "cut of the minibatch, each normalised by itself; at least as many as ranks")
        ->transform(example::whole_number(1))
        ->capture_default_str();
    app.add_option("--lr", of.rate, "peak of the one-cycle learning rate")->check(positive)->capture_default_str();
    app.add_option("--rise", of.rise,
                   "part of the steps in which the rate rises to its peak; then it falls to 0 in a straight line")
        ->check(any_number)->capture_default_str();
    app.add_option("--momentum", of.momentum, "of Nesterov's method")
        ->check(any_number)->capture_default_str();
    app.add_option("--weight-decay", of.weight_decay,
                   "L2 penalty on weights, not on biases and normalisations")
        ->check(any_number)->capture_default_str();
    app.add_option("--smoothing", of.smoothing,
                   "part of each label that is spread over all classes")
        ->check(any_number)->capture_default_str();
    app.add_option("--shift", of.shift,
                   "pixels by which pictures are moved at most while training; half of them are mirrored")
        ->transform(example::whole_number(0))
        ->capture_default_str();
    app.add_option("--seed", of.seed, "of everything random")
        ->transform(example::whole_number(0, UINT64_MAX))->capture_default_str();
    app.add_option("--threads", of.threads, "OpenMP threads on each rank")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--train-samples", of.train_samples, "pictures to train on and to hold out: the first ones")
        ->transform(example::whole_number(1))->capture_default_str();
    CLI::Option* const test_samples =
        app.add_option("--test-samples", of.test_samples, "pictures to test on: the first ones")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option(
           "--held-out", of.held_out,
           "to choose a recipe: leave the test set alone, test on so many of the training samples, the last ones")
        ->transform(example::whole_number(0))
        ->excludes(test_samples)
        ->capture_default_str();
    app.add_option(
        "--checkpoint", of.checkpoint,
        "folder for checkpoints, from which any number of ranks can go on with the same bits; the newest two stay");
    app.add_option("--checkpoint-every", of.checkpoint_every, "steps from one checkpoint to the next")
        ->transform(example::whole_number(1))->capture_default_str();
    app.add_option("--resume", of.resume,
                   "go on from the newest checkpoint in this folder, to the same --epochs or --steps in all; "
                   "the folder of --checkpoint may be without one: a first start");
    app.add_option("--save-weights", of.save_weights, "safetensors file for the weights at the end");
    app.add_option("--csv", of.csv, "file for a line of numbers after each step");
    app.add_option("--log", of.log,
                   "file for JSON lines: begin, steps, epochs, end; `lockstep-compare` puts such files side by side");
    app.add_option("--html", of.html,
                   "file for a page of the run, written after epochs and at the end: curves, time, memory, the recipe");
    app.add_option("--tensorboard", of.tensorboard,
                   "folder for event files, a folder for each run; look at them with `tensorboard --logdir FOLDER`");
    app.add_option("--report", of.report, "file for the final report as JSON");
    for (const char* path : {"--data", "--checkpoint", "--resume", "--save-weights", "--csv", "--log", "--html",
                             "--tensorboard", "--report"})
        app.get_option(path)->check(example::a_name());
    app.add_flag("--direct", of.direct, "convolutions without Winograd's algorithm");
    app.add_flag("--plan", of.plan_only, "print the plan and stop");
    app.add_flag("--quiet", of.quiet, "print nothing unless something fails");
}

}  // namespace

int main(int argc, char** argv) {
    return lockstep::program(argc, argv, [&](const boost::mpi::communicator& world) {
        example::options of;
        CLI::App app;
        describe(app, of);
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& asked_for_help) {
            return world.rank() == 0 ? app.exit(asked_for_help) : 0;
        } catch (const CLI::ParseError& mistake) {
            throw lockstep::core::error{mistake.what(), "see cifar10 --help"};
        }
        if (app.count("--checkpoint-every") > 0 && of.checkpoint.empty())
            throw lockstep::core::error{"--checkpoint-every was given without a folder for checkpoints",
                                        "name one with --checkpoint"};
        if (of.plan_only && of.quiet)
            throw lockstep::core::error{"--plan with --quiet would show nothing", "leave one of them out"};
        return of.direct ? example::run_direct(world, of) : example::run_winograd(world, of);
    });
}
