// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3 4
// What has to be equal on all ranks is compared before it can do harm, and after a failure every rank knows what its
// weights are.
#include <algorithm>
#include <array>
#include <boost/serialization/vector.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/layers/batch_norm.hpp"

/// The call of MPI_Testall, counted from now on, in which this process is stopped for a while.
static int stalls_in = 0;
extern "C" int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
    if (stalls_in > 0 && --stalls_in == 0) std::this_thread::sleep_for(std::chrono::milliseconds{2000});
    return PMPI_Testall(count, requests, done, statuses);
}

namespace {

using namespace support;

/// What happens in a backward run on this rank, to the gradient that it hands on.
std::function<void(std::span<float>)> in_backward;

template <ls::tensor::Shape S>
struct passing_layer {
    using input = S;
    using output = S;
    static constexpr std::string_view name = "passing";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;
    void forward(const auto& pass) const { std::copy_n(pass.x.data, pass.x.size(), pass.y.data); }
    void backward(const auto& pass) const {
        if (!pass.wants_dx()) return;
        std::copy_n(pass.dy.data, pass.dy.size(), pass.dx.data);
        if (in_backward) in_backward(std::span{pass.dx.data, pass.dx.size()});
    }
};
struct passing {
    template <ls::tensor::Shape Input>
    constexpr auto on(Input) const {
        return passing_layer<Input>{};
    }
};

constexpr auto small = ls::sequential{
    ls::input<12, 12, 1>,   ls::layers::flatten{}, ls::layers::dense<24>{}, ls::layers::relu{}, passing{},
    ls::layers::dense<10>{}};

struct machine {
    ls::transport transport;
    bool progress_thread;
};
constexpr machine machines[] = {
    {ls::transport::messages, false}, {ls::transport::automatic, false}, {ls::transport::messages, true}};

template <class Schedule = ls::optim::constant, class Compressor = ls::compress::none>
auto recipe(const machine& on = machines[1], const Schedule& schedule = {.rate = 0.01},
            const Compressor& compressor = {}) {
    return ls::plan{.model = small,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = schedule,
                    .compressor = compressor,
                    .batch = 16,
                    .bucket = 1,
                    .progress_thread = on.progress_thread,
                    .transport = on.transport};
}

const samples<> all{64};

/// What f throws, or nothing.
template <class F>
std::string failure_of(F&& f) {
    try {
        f();
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

/// Whether all ranks have been told this.
void check_all_told(const mpi::communicator& world, const std::string& text, const std::string& part) {
    INFO(text);
    const bool told = text.find(part) != std::string::npos;
    CHECK(told);
    const auto everywhere = of_all(world, told ? 1 : 0);
    CHECK(std::count(everywhere.begin(), everywhere.end(), 1) == world.size());
}

bool is_last(const mpi::communicator& world) { return world.rank() == world.size() - 1; }

/// All of them on two ranks, else one: for cases that wait for seconds.
std::vector<machine> some_machines(const mpi::communicator& world) {
    if (world.size() == 2) return {std::begin(machines), std::end(machines)};
    return {machines[static_cast<std::size_t>(world.size()) % std::size(machines)]};
}

}  // namespace

TEST_CASE("training/agreement: a learning rate that is not the same number on all ranks, or none", "[training]") {
    const mpi::communicator world;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto& on : machines)
        for (const double other : {0.001, nan, -0.01})
            for (const bool everywhere : {false, true}) {
                if (everywhere && other == 0.001) continue;
                double now = 0.01;
                ls::trainer trainer{world, recipe(on, [&now](std::uint64_t) { return now; })};
                trainer.fit(all.set(), ls::steps{3});
                const auto before = trainer.local_hash();
                // As an observer does that lowers the rate: it runs on rank 0.
                if (everywhere || world.rank() == 0) now = other;
                if (!everywhere && other == 0.001 && world.size() == 1) continue;
                const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{2}); });
                check_all_told(world, text, ls::core::text("the learning rate of step 4 is ", other));
                if (!everywhere && world.size() > 1) check_all_told(world, text, " on rank 0 and 0.01 on rank 1; ");
                check_all_told(world, text,
                               ls::core::text("\n    the weights on rank ", world.rank(), " are those after step 3"));
                CHECK(trainer.local_hash() == before);
            }
}

TEST_CASE("training/agreement: gradients that are infinite beside a finite loss", "[training]") {
    const mpi::communicator world;
    const auto check = [&](const auto& plan) {
        ls::trainer trainer{world, plan};
        trainer.fit(all.set(), ls::steps{2});
        if (is_last(world))
            in_backward = [](std::span<float> dx) {
                std::fill(dx.begin(), dx.end(), std::numeric_limits<float>::infinity());
            };
        const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{1}); });
        in_backward = nullptr;
        // fit() ends with that check: no rank goes on.
        check_all_told(world, text, "of layer 1 (dense) became infinite or NaN in step 3, whose loss was finite; ");
        const auto weights = trainer.all_weights();
        const bool whole = std::all_of(weights.begin(), weights.end(), [](float one) { return std::isfinite(one); });
        CHECK(trainer.weights_state().steps == 3);
        // Every rank whose weights are not finite says so, also where another one has found it.
        CHECK(trainer.weights_state().is_usable() == whole);
        const bool says = text.find("unusable: some are not finite after step 3") != std::string::npos;
        CHECK(says == !whole);
        const auto finite = of_all(world, whole ? 1 : 0);
        CHECK(std::count(finite.begin(), finite.end(), 0) > 0);
    };
    for (const auto& on : machines) check(recipe(on));
    // A compressor could hide them.
    check(recipe({ls::transport::automatic, false}, ls::optim::constant{.rate = 0.01},
                 ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}}));
}

TEST_CASE("training/agreement: weights that overflow in the update", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(machines[1], ls::optim::constant{.rate = 1e39})};
    const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{1}); });
    check_all_told(world, text, "became infinite or NaN in step 1, whose loss was finite; ");
}

namespace {
/// Weights that depend on the rank.
struct by_rank {
    double shift = 0;
    [[nodiscard]] double value(const ls::tensor::parameter&, const ls::core::random_stream& random,
                               std::uint64_t index) const noexcept {
        return 0.1 * random.normal(index) + shift;
    }
};
/// Visits the samples in another order on each rank, from an epoch on; or visits one that is none.
struct own_order {
    std::uint64_t shift = 0, from = 0, beyond = 0;
    std::uint64_t* calls = nullptr;  // from the third one on
    void order(std::uint64_t n, std::uint64_t epoch, std::uint64_t, std::span<std::uint64_t> out) const {
        const bool is_pure = calls != nullptr ? ++*calls < 3 : epoch < from;
        for (std::uint64_t i = 0; i < n; ++i) out[i] = (i + (is_pure ? 0 : shift)) % n;
        if (beyond > 0 && epoch >= from) out[3] = n + beyond;
    }
};
}  // namespace

TEST_CASE("training/agreement: a rule of initialisation that depends on the rank", "[training]") {
    const mpi::communicator world;
    const auto text = failure_of([&] {
        const ls::trainer trainer{world, ls::plan{.model = small,
                                                  .loss = ls::loss::softmax_cross_entropy{},
                                                  .initialise = by_rank{.shift = is_last(world) ? 0.01 : 0.0},
                                                  .batch = 16}};
    });
    if (world.size() > 1)
        check_all_told(world, text,
                       ls::core::text("lockstep: ranks 0 and ", world.size() - 1, " begin with different weights; "));
    else
        CHECK(text.empty());
}

TEST_CASE("training/agreement: an algorithm for sums of streams that depends on the rank", "[training]") {
    const mpi::communicator world;
    using ls::compress::sparse_algorithm;
    const auto text = failure_of([&] {
        const ls::trainer trainer{
            world, ls::plan{.model = small,
                            .loss = ls::loss::softmax_cross_entropy{},
                            .compressor = ls::compress::sparse_sum{.inner = ls::compress::top_k{.ratio = 0.1},
                                                                   .algorithm = is_last(world)
                                                                                    ? sparse_algorithm::split_all_gather
                                                                                    : sparse_algorithm::automatic},
                            .batch = 16}};
    });
    if (world.size() > 1)
        check_all_told(world, text, "sum of streams is by costs on rank 0 and split_all_gather on rank ");
    else
        CHECK(text.empty());
}

TEST_CASE("training/agreement: a sampler that depends on the rank", "[training]") {
    const mpi::communicator world;
    ls::plan plan{.model = small, .loss = ls::loss::softmax_cross_entropy{}, .sampler = own_order{}, .batch = 16};
    plan.sampler.shift = static_cast<std::uint64_t>(world.rank());
    ls::trainer trainer{world, plan};
    const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{1}); });
    if (world.size() > 1)
        check_all_told(world, text, "the sampler orders 64 samples of epoch 0 otherwise on rank 1 than on rank 0; ");
    else
        CHECK(text.empty());
}

TEST_CASE("training/agreement: a sampler that depends on the rank later", "[training]") {
    const mpi::communicator world;
    for (const bool prefetch : {false, true}) {
        // In one fit(), in one that goes on within an epoch, and where each epoch has a fit() of its own.
        for (const std::size_t steps : {std::size_t{40}, std::size_t{3}, std::size_t{4}}) {
            ls::plan plan{.model = small,
                          .loss = ls::loss::softmax_cross_entropy{},
                          .sampler = own_order{.from = 2},
                          .batch = 16,
                          .prefetch = prefetch};
            plan.sampler.shift = static_cast<std::uint64_t>(world.rank());
            ls::trainer trainer{world, plan};
            const auto text = failure_of([&] {
                for (std::size_t done = 0; done < 40; done += steps) trainer.fit(all.set(), ls::steps{steps});
            });
            if (world.size() > 1)
                check_all_told(world, text,
                               "the sampler orders 64 samples of epoch 2 otherwise on rank 1 than on rank 0; ");
            else
                CHECK(text.empty());
            if (world.size() > 1) CHECK(trainer.report().steps == 8);
        }
    }
}

TEST_CASE("training/agreement: a sampler that depends on the rank where a fit goes on within an epoch", "[training]") {
    const mpi::communicator world;
    std::uint64_t calls = 0;
    ls::plan plan{.model = small,
                  .loss = ls::loss::softmax_cross_entropy{},
                  .sampler = own_order{.shift = static_cast<std::uint64_t>(world.rank()), .calls = &calls},
                  .batch = 16};
    ls::trainer trainer{world, plan};
    trainer.fit(all.set(), ls::steps{2});
    REQUIRE(calls == 2);
    const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{1}); });
    if (world.size() > 1)
        check_all_told(world, text, "the sampler orders 64 samples of epoch 0 otherwise on rank 1 than on rank 0; ");
    else
        CHECK(text.empty());
}

TEST_CASE("training/agreement: a sampler that visits what is not there", "[training]") {
    const mpi::communicator world;
    for (const std::uint64_t from : {0U, 1U}) {
        ls::trainer trainer{world, ls::plan{.model = small,
                                            .loss = ls::loss::softmax_cross_entropy{},
                                            .sampler = own_order{.from = from, .beyond = 5},
                                            .batch = 16}};
        const auto text = failure_of([&] { trainer.fit(all.set(), ls::epochs{3}); });
        CHECK_THAT(text, Catch::Contains(ls::core::text("the sampler's order of epoch ", from,
                                                        " has sample 69 at position 3, and there are 64; ")));
    }
}

TEST_CASE("training/agreement: ranks that hold different data of one size", "[training]") {
    const mpi::communicator world;
    const samples<> own{64, 7 + static_cast<std::uint64_t>(world.rank())};
    for (const bool evaluates : {false, true}) {
        ls::trainer trainer{world, recipe()};
        const auto before = trainer.local_hash();
        const auto text = failure_of(
            [&] { evaluates ? (void)trainer.evaluate(own.set()) : (void)trainer.fit(own.set(), ls::steps{1}); });
        if (world.size() == 1)
            CHECK(text.empty());
        else
            check_all_told(
                world, text,
                "sample 0 of data in memory (64 samples of 12x12x1) is another one on rank 1 than on rank 0; ");
        if (evaluates || world.size() > 1) CHECK(trainer.local_hash() == before);
    }
    // One label of the last sample; one set of a single sample.
    auto other = all;
    if (is_last(world)) other.y[63] = (other.y[63] + 1) % 10;
    ls::trainer trainer{world, recipe()};
    const auto text = failure_of([&] { trainer.fit(other.set(), ls::steps{1}); });
    if (world.size() > 1) check_all_told(world, text, "sample 63 of data in memory");
    ls::trainer second{world, recipe()};
    CHECK(failure_of([&] { (void)second.evaluate(samples<>{1}.set()); }).empty());
}

TEST_CASE("training/agreement: a mean of what layers observe that is not finite is refused alike", "[training]") {
    const mpi::communicator world;
    for (int trial = 0; trial < 10; ++trial)
        for (const auto& on : machines) {
            ls::trainer trainer{world, ls::plan{.model = ls::sequential{ls::input<6>, ls::layers::batch_norm{},
                                                                        ls::layers::dense<10>{}},
                                                .loss = ls::loss::softmax_cross_entropy{},
                                                .schedule = ls::optim::constant{.rate = 0.01},
                                                .batch = 32,
                                                .bucket = 1,
                                                .progress_thread = on.progress_thread,
                                                .transport = on.transport}};
            const std::size_t rank = world.rank(), size = world.size(),
                              rows = 32 * (rank + 1) / size - 32 * rank / size;
            std::vector<float> x(rows * 6);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
            const std::vector<int> y(rows, 1);
            trainer.step(x, y);
            const auto before = trainer.weights_hash();
            // Finite in every lane, and infinite when lanes are added.
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / 6 % 2 == 0 ? 4.4e18F : -4.4e18F;
            const auto text = failure_of([&] { trainer.step(x, y); });
            check_all_told(world, text, "a mean of what layers observe is not finite in step 2; ");
            check_all_told(world, text,
                           ls::core::text("\n    the weights on rank ", world.rank(), " are those after step 1"));
            CHECK(trainer.weights_state().is_usable());
            CHECK(trainer.local_hash() == before);
        }
}

TEST_CASE("training/agreement: an evaluation that is not finite, after which the trainer goes on", "[training]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe()};
    const auto found = trainer.evaluate(all.set());
    const auto sound = trainer.all_weights();
    auto weights = sound;
    std::fill(weights.begin(), weights.end(), 1e30F);
    trainer.load_weights(weights);
    const auto text = failure_of([&] { (void)trainer.evaluate(all.set()); });
    check_all_told(world, text, "the loss is ");
    check_all_told(world, text, " over data in memory (64 samples of 12x12x1); ");
    for (const std::string& other : of_all(world, text)) CHECK(other == text);
    CHECK(trainer.weights_state().text(0).find("those that load_weights() was given after step 0") !=
          std::string::npos);
    trainer.load_weights(sound);
    const auto again = trainer.evaluate(all.set());
    CHECK(again.loss == found.loss);
    CHECK(again.accuracy == found.accuracy);
    trainer.fit(all.set(), ls::steps{1});

    // What it was asked for made no sense, on one rank or on all.
    const samples<> none{0};
    check_all_told(world, failure_of([&] { (void)trainer.evaluate(none.set()); }), "has no samples to evaluate");
    const samples<> fewer{world.rank() == 0 ? std::size_t{64} : std::size_t{32}};
    if (world.size() > 1)
        check_all_told(world, failure_of([&] { (void)trainer.evaluate(fewer.set()); }), "samples to evaluate");
    trainer.fit(all.set(), ls::steps{1});
    CHECK(trainer.report().steps == 2);
}

TEST_CASE("training/agreement: a rank that is late for a step that the others gave up", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    for (const auto& on : some_machines(world)) {
        ls::trainer trainer{world, recipe(on)};
        trainer.fit(all.set(), ls::steps{2});
        const auto before = trainer.local_hash();
        world.barrier();
        trainer.ranks().aborts().set_timeout(std::chrono::milliseconds{300});
        if (is_last(world))
            in_backward = [](std::span<float>) {
                in_backward = nullptr;
                std::this_thread::sleep_for(std::chrono::milliseconds{2000});
            };
        const auto text = failure_of([&] { trainer.fit(all.set(), ls::steps{1}); });
        in_backward = nullptr;
        check_all_told(world, text,
                       ls::core::text("\n    the weights on rank ", world.rank(), " are those after step 2"));
        CHECK(trainer.local_hash() == before);
        world.barrier();  // also when all are done
        CHECK(trainer.local_hash() == before);
        CHECK(trainer.weights_state().is_usable());
    }
}

TEST_CASE("training/agreement: a rank that is late for weights that the others gave up to load", "[training]") {
    const mpi::communicator world;
    if (world.size() == 1) return;
    for (const auto& on : some_machines(world)) {
        ls::trainer trainer{world, recipe(on)};
        const auto before = trainer.local_hash();
        const std::vector<float> zeros(trainer.all_weights().size());
        world.barrier();
        trainer.ranks().aborts().set_timeout(std::chrono::milliseconds{300});
        // Its part of what is compared has gone out.
        if (is_last(world)) stalls_in = 1;
        const auto text = failure_of([&] { trainer.load_weights(zeros); });
        stalls_in = 0;
        check_all_told(world, text,
                       ls::core::text("\n    the weights on rank ", world.rank(), " are those before the first step"));
        CHECK(trainer.local_hash() == before);
    }
}

TEST_CASE("training/agreement: alone, a trainer goes on after a failure as if it had not been", "[training]") {
    const ls::comm::group alone;
    ls::trainer reference{alone, recipe()}, trainer{alone, recipe()};
    ls::trainer compressed{alone, recipe(machines[1], ls::optim::constant{.rate = 0.01},
                                         ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}})};
    trainer.fit(all.set(), ls::steps{3});
    in_backward = [](std::span<float>) { throw std::runtime_error{"out of luck"}; };
    CHECK(failure_of([&] { trainer.fit(all.set(), ls::steps{1}); }) == "out of luck");
    CHECK(failure_of([&] { compressed.fit(all.set(), ls::steps{1}); }) == "out of luck");
    in_backward = nullptr;
    // Long enough for each look that a wait has now and then.
    CHECK(failure_of([&] { trainer.fit(all.set(), ls::steps{200}); }).empty());
    reference.fit(all.set(), ls::steps{203});
    CHECK(trainer.state_hash() == reference.state_hash());
    // What a compressor has kept is that of the broken step: of its trainer, and of no other one.
    CHECK(failure_of([&] { compressed.fit(all.set(), ls::steps{1}); }).find("rank 0: out of luck") == 0);
    CHECK(failure_of([&] { trainer.fit(all.set(), ls::steps{200}); }).empty());
    CHECK(failure_of([&] { ls::trainer{alone, recipe()}.fit(all.set(), ls::steps{1}); }).empty());
}
