// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Factors: ranks exchange rows of x and dy of dense layers, and have the bits of those that exchange gradients.
#include <algorithm>
#include <array>
#include <boost/mpi/collectives.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;

std::function<void()> in_backward;  // on this rank

/// x itself.
template <class Shape>
struct pause_layer {
    using input = Shape;
    using output = Shape;
    static constexpr std::string_view name = "pause";
    static constexpr std::array<ls::tensor::parameter, 0> parameters{};
    static constexpr double flops = 0;

    template <class Pass>
    void forward(const Pass& pass) const {
        std::copy_n(pass.x.data, pass.x.rows * Shape::size, pass.y.data);
    }
    template <class Pass>
    void backward(const Pass& pass) const {
        if (in_backward) in_backward();
        if (pass.wants_dx()) std::copy_n(pass.dy.data, pass.dy.rows * Shape::size, pass.dx.data);
    }
};
struct pause {
    template <class Shape>
    constexpr auto on(Shape) const {
        return pause_layer<Shape>{};
    }
};

constexpr auto mlp = ls::sequential{
    ls::input<12, 12, 1>,    ls::layers::flatten{}, ls::layers::dense<128>{}, ls::layers::relu{}, pause{},
    ls::layers::dense<64>{}, ls::layers::relu{},    ls::layers::dense<10>{}};
const samples<> training{190};
constexpr std::size_t steps = 7;  // minibatches of 61, 61, 61 and 7 rows, which are fewer than lanes

/// What changes no bit.
struct machine {
    std::size_t bucket = 1U << 20U;
    bool overlap = true;
    bool thread = false;
    std::size_t threads = 1;
};
/// Each two of the settings meet in one of them.
constexpr machine machines[] = {{1, true, false, 1},
                                {1, false, false, 2},
                                {1U << 20U, true, true, 2},
                                {1U << 20U, false, false, 1},
                                {1, true, true, 1}};

template <class Model, class Factors = ls::sync::no_factors, class Sync = ls::sync::every_step>
auto recipe(const Model& model, const Factors& factors = {}, const machine& on = {}, std::size_t batch = 61,
            const Sync& sync = {}) {
    return ls::plan{.model = model,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .sync = sync,
                    .factors = factors,
                    .batch = batch,
                    .seed = 5,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread};
}
constexpr ls::sync::factors always{.always = true};

struct outcome {
    std::uint64_t weights = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps - 3}, seen);
    (void)trainer.evaluate(training.set());
    trainer.fit(training.set(), ls::steps{3}, seen);
    CHECK(trainer.weights_hash() == trainer.local_hash());
    return {trainer.weights_hash(), seen.values};
}

/// On 1, 2, 3, 4 and 8 ranks, with all settings of the machine, as one rank without factors.
template <class Model>
void same_everywhere(const Model& model) {
    const outcome alone = run(ls::comm::group{}, recipe(model));
    CHECK(alone.losses.back() < alone.losses.front());
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        for (const machine& on : machines) {
            INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", thread "
                              << on.thread << ", threads " << on.threads);
            CHECK(run(group, recipe(model, always, on)) == alone);
        }
    });
}

}  // namespace

TEST_CASE("equivalence/factors: dense layers have the bits of the step that exchanges gradients", "[equivalence]") {
    same_everywhere(mlp);
}

TEST_CASE("equivalence/factors: beside convolutions and dropout as well", "[equivalence]") { same_everywhere(net); }

TEST_CASE("equivalence/factors: the choice by cost changes no bit, and takes no layer with too many samples",
          "[equivalence]") {
    const outcome alone = run(ls::comm::group{}, recipe(mlp));
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        for (const auto transport : {ls::transport::messages, ls::transport::automatic}) {
            auto plan = recipe(mlp, ls::sync::factors{});
            plan.transport = transport;
            CHECK(run(group, plan) == alone);
            const ls::trainer trainer{group, plan};
            CHECK_FALSE(trainer.sends_factors(6));  // 61 (64 + 10) numbers in place of 650
            if (group.size() == 1 || trainer.transport() == "shared memory") CHECK_FALSE(trainer.sends_factors(1));
        }
    });
}

TEST_CASE("equivalence/factors: any rows that ranks bring to a step, also none", "[equivalence]") {
    on_groups({2, 3}, [&](const mpi::communicator& group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        const auto hash = [&](const auto& plan) {
            ls::trainer trainer{group, plan};
            for (const std::vector<std::size_t>& counts :
                 {std::vector<std::size_t>{20, 0, 1}, {0, 21, 20}, {1, 1, 0}, {5, 20, 8}}) {
                const auto mine = training.rows(40 * rank, counts[rank]);
                trainer.step(mine.x, mine.y);
            }
            return trainer.weights_hash();
        };
        CHECK(hash(recipe(mlp, always)) == hash(recipe(mlp)));
    });
}

TEST_CASE("equivalence/factors: gradients of the step before as well", "[equivalence]") {
    const outcome alone = run(ls::comm::group{}, recipe(mlp, {}, {}, 61, ls::sync::delayed{}));
    on_groups({1, 3, 4}, [&](const mpi::communicator& group) {
        CHECK(run(group, recipe(mlp, always, machines[0], 61, ls::sync::delayed{})) == alone);
        CHECK(run(group, recipe(mlp, always, machines[1], 61, ls::sync::delayed{})) == alone);
    });
}

TEST_CASE("equivalence/factors: bytes are those of rows and of weights, and fewer", "[equivalence]") {
    constexpr std::size_t batch = 30, widths = 144 + 128 + 128 + 64 + 64 + 10,
                          weights = 144 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10;
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        auto plan = recipe(mlp, {}, {}, batch);
        plan.transport = ls::transport::messages;
        plan.all_reduce = "tree:0-max";
        const ls::trainer plain{group, plan};
        ls::trainer by_factors{group, recipe(mlp, always, {}, batch)};
        const auto sum = [&](std::size_t mine) { return mpi::all_reduce(group, mine, std::plus<std::size_t>{}); };
        const auto ranks = static_cast<std::size_t>(group.size());
        // The lanes of a rank, of 8, have 3 or 4 rows each; there is room for the most of any rank. Each rank gets what
        // it does not have.
        const std::size_t room = ranks == 1 ? 30 : ranks == 2 ? 15 : ranks == 3 ? 12 : ranks == 4 ? 8 : 4;
        CHECK(sum(by_factors.averaging_bytes()) == 4 * (ranks - 1) * (ranks * room * widths + weights));
        if (ranks > 1) CHECK(sum(by_factors.averaging_bytes()) < sum(plain.averaging_bytes()));
        for (std::size_t layer = 0; layer < 7; ++layer)
            CHECK(by_factors.sends_factors(layer) == (ranks > 1 && (layer == 1 || layer == 4 || layer == 6)));
        const std::string told = ls::summary(by_factors);
        CHECK(told.find(ranks > 1 ? "always: 3 layers send x and dy of each sample" : "always: 0 layers send") !=
              std::string::npos);
        CHECK((told.find("sends factors\n") != std::string::npos) == (ranks > 1));
    });
}

TEST_CASE("equivalence/factors: a failure in backward ends on all ranks, with the weights of the last step",
          "[equivalence]") {
    on_groups({3, 4}, [&](const mpi::communicator& group) {
        for (const machine& on : {machines[0], machines[4]}) {
            ls::trainer trainer{group, recipe(mlp, always, on)};
            trainer.fit(training.set(), ls::steps{2});
            const auto before = trainer.local_hash();
            // Rows of the layers above are under way by then.
            if (group.rank() == 1) in_backward = [] { throw std::runtime_error{"out of luck on the way back"}; };
            std::string found;
            try {
                trainer.fit(training.set(), ls::steps{2});
            } catch (const std::exception& failure) {
                found = failure.what();
            }
            in_backward = nullptr;
            CHECK(found.find("out of luck on the way back") != std::string::npos);
            CHECK(trainer.local_hash() == before);
        }
    });
}

TEST_CASE("equivalence/factors: what does not go with them is one error", "[equivalence]") {
    on_groups({2}, [&](const mpi::communicator& group) {
        auto plan = recipe(mlp, always);
        plan.transport = ls::transport::shared_memory;
        CHECK_THROWS_WITH(ls::trainer(group, plan),
                          Catch::Contains("lockstep: the plan asks for shared memory, and for factors, which are "
                                          "messages; leave one of them out"));
        auto other = recipe(mlp, ls::sync::factors{.always = group.rank() == 0});
        CHECK_THROWS_WITH(ls::trainer(group, other),
                          Catch::Contains("factors is factors(always) on rank 0 and factors(automatic) on rank 1"));
    });
}
