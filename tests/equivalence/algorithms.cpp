// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// A file of chosen algorithms is part of the recipe: the same bits on any number of ranks and threads, and those of the
// rule that picks the same.
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/model/tuned.hpp"
#include "lockstep/planner/convolutions.hpp"
#include "lockstep/train/summary.hpp"

namespace {

using namespace support;
using ls::kernels::algorithm;
using ls::kernels::convolution_pass;

constexpr std::size_t batch = 29, count = 70, steps = 6;
const samples<> training{count};

template <ls::kernels::algorithm_rule Rule>
constexpr auto fixed = ls::sequential{
    ls::input<12, 12, 1>,
    ls::layers::conv<5, 3, ls::layers::conv_options{.padding = 1}, Rule>{},
    ls::layers::relu{},
    ls::residual{ls::layers::conv<5, 3, ls::layers::conv_options{.padding = 1, .bias = ls::layers::bias::none}, Rule>{},
                 ls::layers::relu{}},
    ls::layers::conv<6, 5, ls::layers::conv_options{.stride = 2}, Rule>{},
    ls::layers::flatten{},
    ls::layers::dense<10>{}};
constexpr auto tuned = ls::tuned(fixed<ls::kernels::preferred_algorithm>);

/// A file in a folder of its own for each process.
struct file {
    static inline int made = 0;
    std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                   ("lockstep-algorithms-" + std::to_string(getpid()) + "-" + std::to_string(made++));
    std::string path = (folder / "chosen.txt").string();

    explicit file(const std::string& text) {
        std::filesystem::create_directories(folder);
        std::ofstream{path} << text;
    }
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file() {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }
};

/// The file of one algorithm for all convolutions to which it applies, and of micro-batches.
std::string file_of(algorithm a, algorithm otherwise, std::uint32_t micro = 0) {
    const auto layers = ls::planner::convolutions<std::remove_const_t<decltype(tuned)>>(true);
    std::vector<ls::kernels::convolution_choice> choices(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i)
        for (const auto pass : ls::kernels::convolution_passes) {
            auto& to = choices[i][pass];
            to.which = applies(a, layers[i].geometry) ? a : otherwise;
            if (micro > 0 && pass != convolution_pass::backward_weights) to.micro = {{micro, 2 * micro}, 2};
        }
    return ls::planner::write_algorithms(layers, choices);
}

constexpr algorithm winograd2_or_im2col(const ls::kernels::convolution& g, convolution_pass) noexcept {
    return applies(algorithm::winograd2, g) ? algorithm::winograd2 : algorithm::im2col;
}

template <class Net>
auto recipe(const Net& net, const std::string& algorithms = {}, std::size_t threads = 1) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .schedule = ls::optim::constant{.rate = 0.02},
                    .batch = batch,
                    .lanes = 8,
                    .threads = ls::parallel::has_threads ? threads : 1,
                    .algorithms = algorithms};
}

struct outcome {
    std::uint64_t hash = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks, class Plan>
outcome run(const Ranks& ranks, const Plan& plan) {
    ls::trainer trainer{ranks, plan};
    losses seen;
    trainer.fit(training.set(), ls::steps{steps}, seen);
    return {trainer.weights_hash(), seen.values};
}

template <class Ranks, class Plan>
std::string failure(const Ranks& ranks, const Plan& plan) {
    try {
        const ls::trainer trainer{ranks, plan};
    } catch (const std::exception& problem) {
        return problem.what();
    }
    return "no failure";
}

}  // namespace

TEST_CASE("equivalence/algorithms: equal bits on 1, 2 and 4 ranks, on 1 and 2 threads, for any micro-batches",
          "[equivalence]") {
    const file chosen{file_of(algorithm::winograd2, algorithm::im2col, 3)},
        whole{file_of(algorithm::winograd2, algorithm::im2col)};
    const auto serial = run(ls::comm::group{}, recipe(tuned, chosen.path));
    REQUIRE(serial.losses.size() == steps);
    CHECK(run(ls::comm::group{}, recipe(tuned, chosen.path, 2)) == serial);
    CHECK(run(ls::comm::group{}, recipe(tuned, whole.path)) == serial);
    for (const auto& sizes : std::vector<std::vector<int>>{{1, 3}, {2, 2}, {4}})
        on_groups(sizes, [&](const mpi::communicator& group) {
            for (const std::size_t threads : {1U, 2U}) {
                INFO(group.size() << " ranks, " << threads << " threads");
                CHECK(run(group, recipe(tuned, chosen.path, threads)) == serial);
            }
        });
}

TEST_CASE("equivalence/algorithms: a file has the bits of the rule that picks the same", "[equivalence]") {
    const ls::comm::group alone;
    const auto direct = run(alone, recipe(fixed<ls::kernels::always_direct>));
    const auto preferred = run(alone, recipe(fixed<ls::kernels::preferred_algorithm>));
    const auto mixed = run(alone, recipe(fixed<winograd2_or_im2col>));
    CHECK(direct.hash != mixed.hash);
    {
        const file chosen{file_of(algorithm::direct, algorithm::direct)};
        CHECK(run(alone, recipe(tuned, chosen.path)) == direct);
    }
    {
        const file chosen{file_of(algorithm::winograd2, algorithm::im2col)};
        CHECK(run(alone, recipe(tuned, chosen.path)) == mixed);
    }
    {
        const file chosen{file_of(algorithm::winograd2, algorithm::im2col, 2)};
        CHECK(run(alone, recipe(tuned, chosen.path)) == mixed);
    }
    CHECK(run(alone, recipe(tuned)) == preferred);
}

TEST_CASE("equivalence/algorithms: ranks that were given different files are told so", "[equivalence]") {
    const mpi::communicator world;
    const bool last = world.rank() + 1 == world.size();
    // The same choice in another form, or in other micro-batches, is the same recipe: no bit depends on them.
    const file chosen{file_of(algorithm::direct, algorithm::direct, last ? 2 : 0) + (last ? "# a comment\n" : "")};
    const bool is_accepted = failure(world, recipe(tuned, chosen.path)) == "no failure";
    CHECK(is_accepted);
    const file other{file_of(last ? algorithm::winograd4 : algorithm::direct, algorithm::direct)};
    const auto text = failure(world, recipe(tuned, other.path));
    // A rank that is still waiting hears of it from another one.
    CHECK(text.find("lockstep: ranks were given different plans: choice of algorithms is ") != std::string::npos);
    const std::string end = " on rank 3; give every rank the same plan";
    CHECK(text.substr(text.size() - std::min(text.size(), end.size())) == end);
}

TEST_CASE("equivalence/algorithms: a file that one rank cannot read, or that does not fit, stops all",
          "[equivalence]") {
    const mpi::communicator world;
    const file chosen{file_of(algorithm::direct, algorithm::direct)};
    const bool last = world.rank() + 1 == world.size();
    const auto unread = failure(world, recipe(tuned, last ? "/no/such/file" : chosen.path));
    CHECK(unread.find("lockstep: the file of algorithms /no/such/file cannot be read: No such file or directory; ") !=
          std::string::npos);
    const auto unasked = failure(world, recipe(fixed<ls::kernels::always_direct>, "a.txt"));
    CHECK(
        unasked.find(
            "lockstep: the plan names a file of algorithms, a.txt, but no layer takes them from a file; write .model = "
            "ls::tuned(net) with a net that has layers conv, or leave plan.algorithms empty") != std::string::npos);
}

TEST_CASE("equivalence/algorithms: the printed plan names the file and the algorithms, and counts their scratch",
          "[equivalence]") {
    const ls::comm::group alone;
    const auto scratch_of = [&](const std::string& text) {
        const file chosen{text};
        ls::trainer trainer{alone, recipe(tuned, chosen.path)};
        const std::string plan = ls::summary(trainer);
        CHECK(plan.find("algorithms    " + chosen.path + "\n") != std::string::npos);
        CHECK(plan.find("MFLOP  im2col") != std::string::npos);
        return trainer.memory().scratch;
    };
    const auto layers = ls::planner::convolutions<std::remove_const_t<decltype(tuned)>>(true);
    REQUIRE(layers.size() == 3);
    std::size_t most = 0;
    for (const auto& layer : layers)
        most = std::max({most, ls::kernels::im2col_forward_scratch<float>(layer.geometry, batch, {1}),
                         ls::kernels::im2col_backward_data_scratch<float>(layer.geometry, batch, {1}),
                         ls::kernels::im2col_backward_weights_scratch<float>(layer.geometry, batch, {1})});
    CHECK(scratch_of(file_of(algorithm::im2col, algorithm::direct)) == most * sizeof(float));
}
