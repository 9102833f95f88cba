// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
#include <iostream>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
using namespace ls::layers;

/// Prints the largest loss of each epoch. Any struct with on_step(event) or on_epoch(event) is an observer.
struct largest_loss {
    double largest = 0;
    void on_step(const ls::report::step_event& event) { largest = std::max(largest, event.loss); }
    void on_epoch(const ls::report::epoch_event& event) {
        std::cout << "epoch " << event.epoch << ": largest loss " << largest << "\n";
        largest = 0;
    }
};

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        ls::trainer trainer{world, ls::plan{
            .model = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<32>{}, relu{}, dense<10>{}},
            .loss = ls::softmax_cross_entropy{},
        }};
        const ls::data::digits held_out{.count = 500, .first = 1'000'000};
        trainer.fit(ls::data::digits{.count = 1'600}, ls::epochs{6},
                    ls::validate{held_out},              // before the observers that use its result
                    ls::early_stopping{.patience = 2},
                    ls::progress{std::cout},
                    ls::csv_log{"05_watch.csv"},         // a line for each step
                    ls::json_log{"05_watch.jsonl"},      // an object for the begin, each step, epoch and the end
                    largest_loss{});
        return 0;
    });
}
