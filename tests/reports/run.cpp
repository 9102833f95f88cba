// SPDX-License-Identifier: BSD-3-Clause
// reports_run FOLDER EPOCHS [name] [again]: trains a small network to that epoch, with every observer that writes
// something to look at, and goes on from the checkpoints in the folder; `again`: then goes back to the newest one of
// them and trains from there, with the same observers. For tests/reports/check_events and check_page.
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/comm/program.hpp"
#include "lockstep/data/digits.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/metrics/top_k.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/report/observers.hpp"
#include "lockstep/report/tensorboard.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"

namespace ls = lockstep;

int main(int argc, char** argv) {
    return ls::program(argc, argv, [&](const boost::mpi::communicator& world) {
        if (argc < 3) ls::core::fail("reports_run has no folder and no number of epochs", "write both");
        const std::string folder = argv[1];
        const ls::data::digits train{.count = 200}, test{.count = 64, .first = 1'000'000};
        ls::trainer trainer{
            world,
            ls::plan{.model = ls::sequential{ls::input<28, 28, 1>, ls::layers::flatten{}, ls::layers::dense<10>{}},
                     .loss = ls::softmax_cross_entropy{},
                     .optimizer = ls::optim::momentum{.beta = 0.5},
                     .schedule = [](std::uint64_t step) { return 0.1 / static_cast<double>(step + 1); },
                     .batch = 32}};
        if (ls::saving::exists_in(trainer.ranks(), folder + "/saved")) trainer.resume(folder + "/saved");
        ls::json_log json{folder + "/run.jsonl"};
        ls::csv_log csv{folder + "/run.csv"};
        ls::tensorboard events{folder + "/events"};
        ls::html_report page{.path = folder + "/run.html", .name = argc > 3 ? argv[3] : ""};
        const auto fit = [&] {
            trainer.fit(train, ls::until_epoch{static_cast<std::size_t>(std::atoi(argv[2]))},
                        ls::validate{test, ls::metrics::top_k{.k = 3}}, json, csv, events, page,
                        ls::checkpoint{folder + "/saved", 4, 1});
        };
        fit();
        if (argc > 4 && std::string_view{argv[4]} == "again") {
            trainer.resume(folder + "/saved");
            fit();
        }
        return 0;
    });
}
