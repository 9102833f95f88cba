// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 3
// A checkpoint that an earlier version of the library has written (tests/equivalence/stored) is still read, and the
// run goes on as it would have done then. The file stays as it is. Where arithmetic is changed on purpose, the second
// hash is a new one; where the format is changed, a further file is stored beside this one: the test case [.write]
// writes it to LOCKSTEP_STORED.
#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/layers/activation.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/loss/softmax_cross_entropy.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/simd/batch.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/trainer.hpp"

namespace {

namespace ls = lockstep;
namespace mpi = boost::mpi;

/// Weights, statistics, slots, residuals and a pending gradient.
auto recipe() {
    return ls::plan{.model = ls::sequential{ls::input<6>, ls::layers::dense<8>{}, ls::layers::batch_norm{},
                                            ls::layers::relu{}, ls::layers::dense<3>{}},
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::momentum{.beta = 0.9},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.25}},
                    .sync = ls::sync::delayed{},
                    .batch = 32,
                    .lanes = 8,
                    .workers = 4,
                    .seed = 11};
}

struct points {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    points() {
        for (int i = 0; i < 112; ++i) {  // three minibatches of 32 and one of 16
            for (int j = 0; j < 6; ++j) x.push_back(static_cast<float>((i * 37 + j * 61 + i * i * j) % 64 - 32) / 32);
            y.push_back((i * 37 % 64 + i * i % 7) % 3);
        }
    }
    [[nodiscard]] auto set() const { return ls::data::in_memory<ls::tensor::shape<6>, ls::tensor::classes<3>>(x, y); }
};

/// Losses of all steps, and of the first epoch.
struct seen_losses {
    static constexpr bool on_every_rank = true;
    std::vector<double> steps{};
    double epoch = 0;
    void on_step(const ls::report::step_event& event) { steps.push_back(event.loss); }
    void on_epoch(const ls::report::epoch_event& event) {
        if (epoch == 0) epoch = event.loss;
    }
};

TEST_CASE("a checkpoint of version 1 is read", "[saving]") {
    const points training;
    const std::string folder = LOCKSTEP_STORED_CHECKPOINTS "/version-1";
    ls::trainer trainer{mpi::communicator{}, recipe()};
    trainer.resume(folder);
    CHECK(trainer.report().steps == 10);  // in the middle of the third epoch
    CHECK(ls::core::hexadecimal(trainer.state_hash()) == "9aa052207a7a85e7");
    const auto weights = trainer.all_weights();
    std::vector<float> first(6 * 8);
    ls::files::safetensors_file{folder + "/step-10/state.safetensors"}.read<float>(
        "0.dense.weight", std::vector<std::size_t>{6, 8}, first);
    CHECK(std::vector<float>(weights.begin(), weights.begin() + 48) == first);

    // Networks this small differ by a few roundings between instruction sets.
    CHECK(trainer.evaluate(training.set()).loss == Approx(1.0006558533518386).epsilon(1e-5));

    // It does not have the losses of the epoch, so that of the epoch is that of its last two steps.
    seen_losses seen;
    trainer.fit(training.set(), ls::until_step{40}, seen);
    CHECK(seen.epoch == (32 * seen.steps[0] + 16 * seen.steps[1]) / 48);
    if (ls::simd::instruction_set() == "avx512bw")
        CHECK(ls::core::hexadecimal(trainer.state_hash()) == "85af3022a6377131");
}

TEST_CASE("writes the checkpoint", "[.write]") {
    const points training;
    const char* const to = std::getenv("LOCKSTEP_STORED");
    REQUIRE(to != nullptr);
    ls::trainer trainer{mpi::communicator{}, recipe()};
    trainer.fit(training.set(), ls::until_step{10});
    trainer.save(to);
    const auto saved = trainer.state_hash();
    const auto loss = trainer.evaluate(training.set()).loss;
    trainer.fit(training.set(), ls::until_step{40});
    const auto end = trainer.state_hash();
    if (mpi::communicator{}.rank() == 0)
        std::cout << ls::core::text(ls::simd::instruction_set(), " ", ls::core::hexadecimal(saved), " ", loss, " ",
                                    ls::core::hexadecimal(end), "\n");
}

}  // namespace
