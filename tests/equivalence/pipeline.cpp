// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// A pipeline of any number of stages has the bits of data parallelism, wherever the network is cut.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/layers/shortcut.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"
#include "lockstep/metrics/list.hpp"
#include "lockstep/metrics/top_k.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/pipeline.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using namespace ls::layers;
namespace part = ls::partition;

// What a cut has to leave whole: branches, what a layer computes for those after it, blocks that run again; and values
// that are views, or have several readers, on both sides of a cut.
constexpr auto deep = ls::sequential{ls::input<12, 12, 1>,
                                     conv<4, 3>{},
                                     batch_norm{},
                                     relu{},
                                     ls::residual{conv<4, 3, conv_options{.padding = 1}>{}, batch_norm{}},
                                     relu{},
                                     ls::add{ls::path{conv<6, 3, conv_options{.stride = 2, .padding = 1}>{}, relu{},
                                                      conv<6, 3, conv_options{.padding = 1}>{}},
                                             shortcut<6, 2>{}},
                                     ls::recompute{conv<4, 3>{}, batch_norm{}, relu{}},
                                     flatten{},
                                     ls::residual{relu{}, dense<36>{}},
                                     ls::layers::dropout{0.25},
                                     dense<24>{},
                                     flatten{},
                                     relu{},
                                     dense<10>{}};
constexpr std::size_t count = 190, batch = 61, steps = 5;  // the fourth minibatch of an epoch has fewer rows than lanes
const samples<> training{count}, test{133, 8};

struct machine {
    std::size_t threads = 1, bucket = 1U << 20U;
    bool overlap = true, progress_thread = false, prefetch = false;
};

template <class Net, class Partition>
auto recipe(const Net& of, const Partition& partition, const machine& on = {}) {
    return ls::plan{.model = of,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::warmup_cosine{.peak = 0.02, .warmup = 3, .total = 20, .floor = 0.001},
                    .partition = partition,
                    .batch = batch,
                    .lanes = 9,
                    .seed = 4,
                    .threads = ls::parallel::has_threads ? on.threads : 1,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.progress_thread,
                    .prefetch = on.prefetch};
}

struct outcome {
    std::uint64_t weights = 0, state = 0;
    std::vector<double> losses{};
    std::vector<float> statistics{}, all{}, predictions{};
    double test_loss = 0, accuracy = 0, second = 0;
    std::vector<std::uint64_t> confusion{};
    friend bool operator==(const outcome&, const outcome&) = default;
};

template <class Trainer>
outcome look_at(Trainer& trainer) {
    outcome out{.weights = trainer.weights_hash(), .state = trainer.state_hash(), .all = trainer.all_weights()};
    const auto statistics = trainer.running_statistics();
    out.statistics.assign(statistics.begin(), statistics.end());
    const auto found =
        trainer.evaluate(test.set(), ls::metrics::list{ls::metrics::top_k{.k = 2}, ls::metrics::confusion_matrix{}});
    out.test_loss = found.loss;
    out.accuracy = *found.accuracy;
    out.second = found["top_k"];
    out.confusion = found.template get<ls::metrics::confusion_matrix>().counts;
    return out;
}

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    outcome out = look_at(trainer);
    out.losses = seen.values;
    return out;
}

/// The loss once more, from a rank that takes its time.
struct slow_loss {
    static constexpr std::string_view name = "slow_loss";
    template <ls::tensor::Shape Output>
    using label = ls::tensor::classes<Output::size>;

    template <class T, ls::tensor::Shape Output>
    double operator()(ls::tensor::batch<const T, Output> y,
                      ls::tensor::targets<label<Output>, T> target) const noexcept {
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        return ls::loss::softmax_cross_entropy{}(y, target, ls::tensor::batch<T, Output>{nullptr, y.rows}, T{1});
    }
};

template <std::size_t Stages>
using stages = part::hybrid<part::data, part::pipeline<Stages>>;

}  // namespace

TEST_CASE("a pipeline has the bits of data parallelism on any number of ranks") {
    const outcome alone = run(ls::comm::group{}, recipe(deep, part::data{}));
    REQUIRE(alone.losses.size() == steps);
    REQUIRE(alone.losses.back() < alone.losses.front());
    const auto cut_into = [](std::size_t most) { return stages<2>{{}, part::pipeline<2>{.micro_batches = most}}; };
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        CHECK(run(group, recipe(deep, stages<2>{})) == alone);
        CHECK(run(group, recipe(deep, cut_into(9), {.threads = 2, .bucket = 1})) == alone);
    });
    on_groups({2}, [&](const auto& group) {
        CHECK(run(group, recipe(deep, cut_into(3), {.bucket = 300, .progress_thread = true})) == alone);
    });
    on_groups({8}, [&](const auto& group) {
        CHECK(run(group, recipe(deep, cut_into(1), {.overlap = false, .prefetch = true})) == alone);
        CHECK(run(group, recipe(deep, stages<4>{}, {.bucket = 1})) == alone);
    });
    on_groups({4}, [&](const auto& group) { CHECK(run(group, recipe(deep, stages<4>{})) == alone); });
}

TEST_CASE("wherever a pipeline is cut, its bits are the same") {
    const outcome alone = run(ls::comm::group{}, recipe(deep, part::data{}));
    using network = ls::model::network<std::remove_const_t<decltype(deep)>, 1>;
    constexpr auto begins = ls::model::begins_stage<std::remove_const_t<decltype(deep)>>;
    std::vector<std::size_t> places;
    for (std::size_t layer = 1; layer < network::size; ++layer)
        if (begins[layer]) places.push_back(layer);
    CHECK(places.size() == ls::model::most_stages<std::remove_const_t<decltype(deep)>> - 1);
    CHECK(places.size() >= 9);
    on_groups({2, 2, 2, 2}, [&](const mpi::communicator& group) {
        // Each pair has every fourth place.
        for (std::size_t i = static_cast<std::size_t>(mpi::communicator{}.rank() / 2); i < places.size(); i += 4) {
            INFO("the second stage begins with layer " << places[i]);
            CHECK(run(group, recipe(deep, stages<2>{{}, part::pipeline<2>{.first_layers = {places[i]}}})) == alone);
        }
    });
}

TEST_CASE("a stage of views does not overwrite what it is sending") {
    // The last stage is slow, and messages of 67 kB wait for it: the second one has the flatten alone, or the relu too.
    constexpr auto wide = ls::sequential{ls::input<12, 12, 1>, conv<8, 3>{}, relu{}, flatten{}, dense<10>{}};
    on_groups({3}, [&](const auto& group) {
        const auto losses_of = [&](std::size_t second) {
            auto plan = recipe(wide, stages<3>{{}, part::pipeline<3>{.first_layers = {second, 3}, .micro_batches = 9}});
            plan.batch = count;
            ls::trainer trainer{group, plan};
            const auto found = trainer.evaluate(training.set(), slow_loss{});
            return std::array{found.loss, found["slow_loss"]};
        };
        const auto [loss, again] = losses_of(2);
        CHECK(loss == again);
        CHECK(std::array{loss, again} == losses_of(1));
    });
}

TEST_CASE("rows that ranks bring go through a pipeline as through one network") {
    // The lanes of a rank have the rows that it brings, with and without stages.
    on_groups({6}, [&](const mpi::communicator& group) {
        const auto steps_of = [&](const auto& partition) {
            ls::trainer trainer{group, recipe(deep, partition)};
            std::vector<double> losses;
            for (std::size_t step = 0; step < 5; ++step) {
                const auto rank = static_cast<std::size_t>(group.rank());
                const std::size_t rows = (rank * 5 + step * 3) % 11;  // none on some
                const auto part = training.rows(step * 20 + rank * 7, rows);
                losses.push_back(trainer.step(part.x, part.y).loss);
            }
            const auto part = test.rows(static_cast<std::size_t>(group.rank()) * 9,
                                        3 + 4 * static_cast<std::size_t>(group.rank() % 3));
            const auto outputs = trainer.predict(part.x);
            outcome out = look_at(trainer);
            out.losses = losses;
            out.predictions.assign(outputs.begin(), outputs.end());
            return out;
        };
        const outcome plain = steps_of(part::data{});
        CHECK(steps_of(stages<2>{}) == plain);
        CHECK(steps_of(stages<3>{}) == plain);
    });
}

TEST_CASE("a run goes on in a pipeline, and out of one") {
    const shared_folder folder;
    const auto at = [&](const char* name) { return folder.path + "/" + name; };
    const outcome alone = run(ls::comm::group{}, recipe(deep, part::data{}));
    const auto begin = [&](const auto& group, const auto& partition, const std::string& to) {
        ls::trainer trainer{group, recipe(deep, partition)};
        trainer.fit(training.set(), ls::steps{3});
        trainer.save(to);
        trainer.save_weights(to + ".safetensors");
    };
    const auto go_on = [&](const auto& group, const auto& partition, const std::string& from) {
        ls::trainer trainer{group, recipe(deep, partition)};
        trainer.resume(from);
        losses seen;
        trainer.fit(training.set(), ls::until_step{steps}, seen);
        outcome out = look_at(trainer);
        out.losses = alone.losses;
        CHECK(seen.values == std::vector<double>(alone.losses.begin() + 3, alone.losses.end()));
        CHECK(out == alone);
        trainer.load_weights(from + ".safetensors");
        return trainer.weights_hash();
    };
    on_groups({4}, [&](const auto& group) { begin(group, stages<2>{}, at("stages")); });
    on_groups({3}, [&](const auto& group) { begin(group, part::data{}, at("data")); });
    std::uint64_t hash = 0;
    on_groups({3}, [&](const auto& group) { hash = go_on(group, part::data{}, at("stages")); });
    on_groups({8}, [&](const auto& group) {
        const std::uint64_t here = go_on(group, stages<4>{}, at("stages"));
        if (hash != 0) CHECK(here == hash);
        CHECK(go_on(group, stages<2>{}, at("data")) == here);
    });
}

TEST_CASE("compressed, delayed, clipped and layer-wise training have their bits in a pipeline") {
    // The same bits on one rank, and in pipelines of two stages.
    const auto same = [](const auto& in, const std::vector<int>& sizes) {
        const outcome alone = run(ls::comm::group{}, in(part::data{}));
        on_groups(sizes, [&](const auto& group) { CHECK(run(group, in(stages<2>{})) == alone); });
        return alone.weights;
    };
    constexpr std::size_t lanes = 12;
    constexpr ls::optim::constant rate{.rate = 0.02};
    constexpr ls::loss::softmax_cross_entropy loss;
    const std::uint64_t compressed = same(
        [&](const auto& partition) {
            return ls::plan{.model = net,
                            .loss = loss,
                            .schedule = rate,
                            .partition = partition,
                            .compressor = ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}},
                            .batch = batch,
                            .lanes = lanes,
                            .workers = 3};
        },
        {2, 6});
    const std::uint64_t delayed = same(
        [&](const auto& partition) {
            return ls::plan{.model = net,
                            .loss = loss,
                            .schedule = rate,
                            .partition = partition,
                            .sync = ls::sync::delayed{},
                            .batch = batch,
                            .lanes = lanes};
        },
        {8});
    // The norms of all stages make one factor, and each tensor has its own.
    const std::uint64_t clipped = same(
        [&](const auto& partition) {
            return ls::plan{.model = net,
                            .loss = loss,
                            .optimizer = ls::optim::lars{},
                            .schedule = rate,
                            .partition = partition,
                            .clip = ls::sync::clip_by_global_norm{.norm = 0.5},
                            .batch = batch,
                            .lanes = lanes,
                            .bucket = 1};
        },
        {2, 6});
    CHECK(compressed != delayed);
    CHECK(delayed != clipped);
}
