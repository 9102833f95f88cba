// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// Compression that changes while a run goes on: the same list of choices has the same bits on any number of ranks.
#include <mpi.h>

#include <algorithm>
#include <boost/mpi/collectives/broadcast.hpp>
#include <boost/serialization/string.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/scaled_sign.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/sync/adaptive.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace {

double seconds_per_byte = 0;  // of each message between ranks

}  // namespace

// The one of MPI, over links as slow as that. NOLINTNEXTLINE
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm over,
                         MPI_Request* out) {
    if (seconds_per_byte > 0) {
        int bytes = 0;
        MPI_Type_size(type, &bytes);
        std::this_thread::sleep_for(std::chrono::duration<double>{seconds_per_byte * bytes * count});
    }
    return PMPI_Isend(data, count, type, to, tag, over, out);
}

namespace {

using namespace support;
using ls::compress::adaptive;
using ls::compress::choice_list;

constexpr std::size_t steps = 14;
const samples<> training{190};

/// Layers 0 (40 parameters), 4 (2,424) and 7 (250) change in turns.
const std::string changes =
    "1 4 1\n2 7 2\n3 4 3\n4 0 2\n5 4 5\n5 7 0\n6 4 0\n6 7 4\n7 4 3\n7 7 0\n8 4 1\n9 4 0\n10 4 2\n10 7 3\n11 0 0\n11 7 "
    "4\n"
    "12 4 5\n12 7 2\n13 4 0\n13 7 3\n";

struct machine {
    std::size_t bucket = 1U << 16U;
    bool overlap = true;
    bool thread = false;
    ls::transport transport = ls::transport::messages;
};
constexpr machine machines[] = {{1, true, false, ls::transport::messages},
                                {1U << 20U, false, false, ls::transport::automatic},
                                {1U << 20U, true, true, ls::transport::messages},
                                {1, true, false, ls::transport::automatic},
                                {1U << 16U, true, true, ls::transport::automatic}};

adaptive settings(std::optional<choice_list> replay) {
    return {.candidates = {ls::compress::top_k{.ratio = 0.05}, ls::compress::quantize{.bits = 4, .bucket = 64},
                           ls::compress::power_sgd{.rank = 1}, ls::compress::random_block{.ratio = 0.2},
                           ls::compress::power_sgd{.rank = 2}},
            .least_numbers = 200,
            .replay = std::move(replay)};
}

template <class Compressor>
auto recipe(const Compressor& compressor, std::size_t workers, std::size_t lanes, const machine& on = {}) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = ls::optim::adam{},
                    .schedule = ls::optim::constant{.rate = 0.003},
                    .compressor = compressor,
                    .batch = 61,
                    .lanes = lanes,
                    .workers = workers,
                    .segment = 256,
                    .seed = 5,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .progress_thread = on.thread,
                    .transport = on.transport};
}
using trainer = ls::trainer_of<decltype(recipe(adaptive{}, 0, 0))>;

struct outcome {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;
    std::vector<double> losses;
    bool operator==(const outcome&) const = default;
};

template <class Ranks>
outcome run(const Ranks& ranks, const adaptive& compressor, std::size_t workers, std::size_t lanes,
            const machine& on = {}, std::size_t count = steps) {
    trainer one{ranks, recipe(compressor, workers, lanes, on)};
    losses seen;
    one.fit(training.set(), ls::steps{count}, seen);
    CHECK(one.weights_hash() == one.local_hash());
    return {one.weights_hash(), one.state_hash(), seen.values};
}

}  // namespace

TEST_CASE("equivalence/adaptive: a list of choices has the same bits on 1, 2, 3, 4, 6 and 8 ranks", "[equivalence]") {
    const adaptive chosen = settings(choice_list::parse(changes));
    for (const auto& [workers, lanes] : {std::pair<std::size_t, std::size_t>{8, 8}, {3, 12}}) {
        INFO(workers << " workers, " << lanes << " lanes");
        const outcome alone = run(ls::comm::group{}, chosen, workers, lanes);
        CHECK(alone.losses.back() < alone.losses.front());
        std::size_t turn = workers;
        const auto compare = [&, w = workers, l = lanes](const mpi::communicator& group) {
            const machine& on = machines[(turn + static_cast<std::size_t>(group.size())) % std::size(machines)];
            INFO(group.size() << " ranks, buckets of " << on.bucket << ", overlap " << on.overlap << ", thread "
                              << on.thread << ", transport " << ls::reduce::name_of(on.transport));
            CHECK(run(group, chosen, w, l, on) == alone);
        };
        on_groups({1, 3, 4}, compare);
        ++turn;
        on_groups({2, 6}, compare);
        on_groups({8}, compare);
        ++turn;
        on_groups({4, 3}, compare);
    }
}

TEST_CASE("equivalence/adaptive: without choices all is dense, and lists of other choices have other bits",
          "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        const outcome dense = run(group, settings(choice_list{}), 4, 8);
        CHECK(run(group, settings(choice_list::parse("14 4 1\n")), 4, 8).weights == dense.weights);
        CHECK_FALSE(run(group, settings(choice_list::parse("13 4 1\n")), 4, 8).weights == dense.weights);
        // Of as many workers as a power of two, sums over workers are those over lanes.
        ls::trainer plain{group, recipe(ls::compress::none{}, 4, 8)};
        plain.fit(training.set(), ls::steps{steps});
        CHECK(plain.weights_hash() == dense.weights);
    });
}

TEST_CASE("equivalence/adaptive: the first dense step sends what was left out", "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        trainer one{group, recipe(settings(choice_list::parse("1 4 1\n1 7 2\n5 4 0\n")), 4, 8)};
        const auto left_out = [&](std::size_t tensor) {
            double sum = 0;
            one.visit_state([&](const auto& part) {
                if (part.role == "compressor" && part.tensor == tensor)
                    for (const auto number : part.numbers) sum += std::fabs(static_cast<double>(number));
            });
            return mpi::all_reduce(group, sum, std::plus<double>{});
        };
        // The weights of layers 4 and 7 are tensors 2 and 4.
        CHECK(left_out(2) == 0);
        one.fit(training.set(), ls::steps{5});
        CHECK(left_out(2) > 0);
        CHECK(left_out(4) > 0);
        one.fit(training.set(), ls::steps{1});
        CHECK(left_out(2) == 0);
        CHECK(left_out(4) > 0);
    });
}

TEST_CASE(
    "equivalence/adaptive: a candidate that is chosen from the first step on has the bits of error feedback around it",
    "[equivalence]") {
    const auto compare = [](const auto& group, const auto& one) {
        INFO(one.name);
        ls::trainer plain{group, recipe(ls::compress::error_feedback{one}, 4, 8)};
        losses seen;
        plain.fit(training.set(), ls::steps{steps}, seen);
        // Alone, and beside others that leave vectors dense, or do not.
        for (const auto& candidates : std::vector<std::vector<ls::compress::candidate>>{
                 {one}, {one, ls::compress::top_k{.ratio = 0.1}, ls::compress::scaled_sign{}}}) {
            const adaptive always{
                .candidates = candidates, .least_numbers = 200, .replay = choice_list::parse("0 0 1\n0 4 1\n0 7 1\n")};
            const outcome chosen = run(group, always, 4, 8);
            CHECK(chosen.weights == plain.weights_hash());
            CHECK(chosen.losses == seen.values);
        }
    };
    on_groups({3}, [&](const mpi::communicator& group) {
        compare(group, ls::compress::top_k{.ratio = 0.05});
        compare(group, ls::compress::quantize{.bits = 4, .bucket = 64});
        compare(group, ls::compress::power_sgd{.rank = 1});
        compare(group, ls::compress::random_block{.ratio = 0.2});
    });
}

TEST_CASE("equivalence/adaptive: statistics are those of the candidates, where they are chosen, and change no bit",
          "[equivalence]") {
    const auto same = [](const ls::compress::statistics& a, const ls::compress::statistics& b) {
        for (std::size_t tensor = 0; tensor < a.size(); ++tensor) {
            INFO("tensor " << tensor);
            CHECK(a.of(tensor).messages == b.of(tensor).messages);
            CHECK(a.of(tensor).numbers == b.of(tensor).numbers);
            CHECK(a.of(tensor).bytes == b.of(tensor).bytes);
            CHECK(a.of(tensor).squares == b.of(tensor).squares);
            CHECK(a.of(tensor).lost == b.of(tensor).lost);
        }
    };
    const auto compare = [&](const auto& group, const auto& one) {
        INFO(one.name);
        ls::compress::statistics plain, chosen;
        ls::trainer expected{group, recipe(ls::compress::error_feedback{ls::compress::measured{one, &plain}}, 4, 8)};
        expected.fit(training.set(), ls::steps{steps});
        const outcome found = run(group,
                                  {.candidates = {one},
                                   .least_numbers = 200,
                                   .replay = choice_list::parse("0 0 1\n0 4 1\n0 7 1\n"),
                                   .statistics = &chosen},
                                  4, 8);
        CHECK(found.weights == expected.weights_hash());
        CHECK(plain.total().messages > 0);
        CHECK(plain.total().lost > 0);
        same(chosen, plain);
    };
    on_groups({3}, [&](const mpi::communicator& group) {
        compare(group, ls::compress::top_k{.ratio = 0.05});
        compare(group, ls::compress::power_sgd{.rank = 1});

        ls::compress::statistics seen;
        adaptive changing = settings(choice_list::parse(changes));
        const outcome expected = run(group, changing, 4, 8);
        changing.statistics = &seen;
        CHECK(run(group, changing, 4, 8) == expected);
        CHECK(seen.of(2).messages > 0);

        // Steps 1 to 4 of layer 4: ten segments of its weights for each worker of this rank.
        seen.clear();
        changing.replay = choice_list::parse("1 4 2\n5 4 0\n");
        run(group, changing, 4, 8);
        const auto workers = static_cast<std::size_t>((group.rank() + 1) * 4 / 3 - group.rank() * 4 / 3);
        CHECK(seen.of(2).messages == 4 * 10 * workers);
        CHECK(seen.of(2).numbers == 4 * 2400 * workers);
        CHECK(seen.of(0).messages == 0);
        CHECK(seen.of(4).messages == 0);
    });
}

TEST_CASE("equivalence/adaptive: a reduction takes over what messages have left of vectors", "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        const auto with = [&](const std::string& last) {
            adaptive given{.candidates = {ls::compress::quantize{.bits = 4, .bucket = 64}, ls::compress::power_sgd{}},
                           .least_numbers = 200,
                           .replay = choice_list::parse("1 4 1\n5 4 " + last + "\n")};
            trainer one{group, recipe(given, 4, 8)};
            one.fit(training.set(), ls::steps{5});
            const auto left_out = [&] {
                double sum = 0;
                one.visit_state([&](const auto& part) {
                    if (part.role == "compressor" && part.tensor == 3)
                        for (const auto number : part.numbers) sum += std::fabs(static_cast<double>(number));
                });
                return mpi::all_reduce(group, sum, std::plus<double>{});
            };
            const double before = left_out();
            one.fit(training.set(), ls::steps{1});
            const std::vector<float> all = one.all_weights();
            // The 24 after 40 parameters of layer 0 and 2,400 weights of layer 4.
            return std::tuple{before, left_out(), std::vector<float>(all.begin() + 2440, all.begin() + 2464)};
        };
        // PowerSGD adds vectors as they are, a dense step all tensors: both carry what was left of the bias.
        const auto [before, after, bias] = with("2");
        const auto [before_dense, after_dense, bias_dense] = with("0");
        CHECK(before > 1e-3);
        CHECK(before == before_dense);
        CHECK(after == 0);
        CHECK(after_dense == 0);
        REQUIRE(bias.size() == bias_dense.size());
        for (std::size_t i = 0; i < bias.size(); ++i)
            CHECK(bias[i] == Approx(bias_dense[i]).epsilon(1e-4).margin(1e-6));
    });
}

TEST_CASE("equivalence/adaptive: a run that is stopped goes on with equal bits on another number of ranks",
          "[equivalence]") {
    const shared_folder folder;
    const adaptive chosen = settings(choice_list::parse(changes));
    const outcome eight = run(ls::comm::group{}, chosen, 8, 8), three = run(ls::comm::group{}, chosen, 3, 12);
    for (std::size_t stop = 1; stop < steps; ++stop) {
        // Ranks share workers where there are three.
        const bool has_three = stop % 4 == 3;
        const std::size_t workers = has_three ? 3 : 8, lanes = has_three ? 12 : 8;
        const outcome& whole = has_three ? three : eight;
        INFO("stopped after " << stop << " steps with " << workers << " workers");
        const std::string path = folder.path + "/" + std::to_string(stop);
        const std::vector<int> first = stop % 2 == 0 ? std::vector{4} : std::vector{3};
        const std::vector<int> second = stop % 3 == 0   ? std::vector{1}
                                        : stop % 3 == 1 ? std::vector{8}
                                                        : std::vector{2};
        on_groups(first, [&](const mpi::communicator& group) {
            trainer one{group, recipe(chosen, workers, lanes, machines[stop % std::size(machines)])};
            one.fit(training.set(), ls::steps{stop});
            (void)one.save(path);
        });
        on_groups(second, [&](const mpi::communicator& group) {
            trainer one{group, recipe(chosen, workers, lanes, machines[(stop + 1) % std::size(machines)])};
            one.resume(path);
            one.fit(training.set(), ls::steps{steps - stop});
            CHECK(one.weights_hash() == whole.weights);
            CHECK(one.state_hash() == whole.state);
            CHECK(one.compression_choices() == choice_list::parse(changes));
        });
    }
}

TEST_CASE("equivalence/adaptive: what is chosen by measured times is repeated by its list", "[equivalence]") {
    const shared_folder folder;
    std::string found;
    std::uint64_t weights = 0, state = 0;
    constexpr std::size_t many = 40;
    on_groups({3}, [&](const mpi::communicator& group) {
        trainer one{group, recipe(settings({}), 4, 8)};
        one.fit(training.set(), ls::steps{many});
        CHECK(one.weights_hash() == one.local_hash());
        CHECK(one.compression_decisions().size() >= 2);
        weights = one.weights_hash();
        state = one.state_hash();
        found = one.compression_choices().text();
        for (const std::string& other : one.ranks().gather_all(found)) CHECK(other == found);
    });
    mpi::broadcast(mpi::communicator{}, found, 0);
    mpi::broadcast(mpi::communicator{}, weights, 0);
    mpi::broadcast(mpi::communicator{}, state, 0);
    INFO(found);
    if (found.empty()) WARN("nothing was chosen, so nothing but dense steps is repeated");
    const auto compare = [&](const mpi::communicator& group) {
        trainer one{group, recipe(settings(choice_list::parse(found)), 4, 8)};
        one.fit(training.set(), ls::steps{many});
        CHECK(one.weights_hash() == weights);
        CHECK(one.state_hash() == state);
    };
    on_groups({1, 2, 4}, compare);
}

TEST_CASE("equivalence/adaptive: a worker without samples refuses no candidate", "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        const samples<> few{7};  // for 8 workers
        trainer one{group, recipe(settings({}), 8, 8)};
        seconds_per_byte = 2e-6;
        one.fit(few.set(), ls::steps{30});
        seconds_per_byte = 0;
        std::string all;
        for (const std::string& decision : one.compression_decisions()) all += decision + "\n";
        INFO(all);
        CHECK(one.compression_choices().entries.size() > 0);
    });
}

TEST_CASE("equivalence/adaptive: a run that goes on where nothing travels becomes dense", "[equivalence]") {
    const shared_folder folder;
    on_groups({3}, [&](const mpi::communicator& group) {
        trainer one{group, recipe(settings({}), 4, 8)};
        seconds_per_byte = 2e-6;
        one.fit(training.set(), ls::steps{30});
        seconds_per_byte = 0;
        REQUIRE(one.compression_choices().entries.size() > 0);
        (void)one.save(folder.path);
    });
    const auto go_on = [&](const mpi::communicator& group) {
        constexpr std::uint64_t many = 6;
        const machine together{.transport = ls::transport::automatic};  // ranks of one node, or one rank alone
        trainer one{group, recipe(settings({}), 4, 8, together)};
        one.resume(folder.path);
        std::vector<std::size_t> now(8);  // of its layers
        for (const auto& choice : one.compression_choices().entries) now.at(choice.layer) = choice.candidate;
        REQUIRE(std::count(now.begin(), now.end(), 0) < std::ssize(now));
        one.fit(training.set(), ls::steps{many});
        for (const auto& choice : one.compression_choices().entries) now.at(choice.layer) = choice.candidate;
        CHECK(std::count(now.begin(), now.end(), 0) == std::ssize(now));
        REQUIRE(one.compression_decisions().size() == 1);
        CHECK_THAT(one.compression_decisions()[0], Catch::StartsWith("step 30: no messages between ranks, "));
        double left = 0;
        one.visit_state([&](const auto& part) {
            if (part.role == "compressor")
                for (const auto number : part.numbers) left += std::abs(static_cast<double>(number));
        });
        CHECK(left == 0);
        trainer again{group, recipe(settings(one.compression_choices()), 4, 8, together)};
        again.resume(folder.path, {"compressor"});
        again.fit(training.set(), ls::steps{many});
        CHECK(again.weights_hash() == one.weights_hash());
    };
    on_groups({1, 3}, go_on);
}

TEST_CASE("equivalence/adaptive: in critical phases errors have a lower bound", "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        const auto decisions = [&](double critical_change) {
            adaptive all = settings({});
            all.critical_error = 0;
            all.critical_change = critical_change;
            trainer one{group, recipe(all, 4, 8)};
            one.fit(training.set(), ls::steps{30});
            std::vector<bool> found;
            for (const std::string& text : one.compression_decisions())
                if (text.find(" predicted, ") != std::string::npos)
                    found.push_back(text.find("; critical ") != std::string::npos);
            REQUIRE(found.size() >= 2);
            if (critical_change == 0) CHECK(one.compression_choices().entries.empty());
            return found;
        };
        // Always, and in the first decision alone, where there is no earlier norm.
        for (const bool one : decisions(0)) CHECK(one);
        const std::vector<bool> first = decisions(1e9);
        CHECK(first.front());
        CHECK(std::count(first.begin(), first.end(), true) == 1);
    });
}

TEST_CASE("equivalence/adaptive: a list that does not fit the run is one error", "[equivalence]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto refuses = [&](const std::string& list, const std::string& text) {
            CHECK_THROWS_WITH(trainer(group, recipe(settings(choice_list::parse(list)), 4, 8)), Catch::Contains(text));
        };
        const std::string not_one = ", which is not the first one of a bucket";
        refuses("3 3 1\n", "lockstep: the list of choices has layer 3 in step 3" + not_one);
        refuses("3 1 1\n", "lockstep: the list of choices has layer 1 in step 3" + not_one);
        refuses("3 99 1\n", "lockstep: the list of choices has layer 99 in step 3" + not_one);
        refuses("3 4 6\n", "lockstep: the list of choices has candidate 6 in step 3, and there are 5");
        {
            trainer one{group, recipe(settings(choice_list::parse("1 4 1\n")), 4, 8)};
            one.fit(training.set(), ls::steps{3});
            (void)one.save(folder.path);
        }
        trainer other{group, recipe(settings(choice_list::parse("2 4 1\n")), 4, 8)};
        other.resume(folder.path, {"compressor"});
        CHECK_THROWS_WITH(other.fit(training.set(), ls::steps{1}),
                          Catch::Contains("lockstep: the run has had other compressors before step 3 than the list"));
    });
}

TEST_CASE("equivalence/adaptive: after a checkpoint that was refused the run goes on", "[equivalence]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const adaptive chosen = settings(choice_list::parse("1 4 1\n"));
        ls::trainer dense{group, recipe(ls::compress::none{}, 4, 8)};
        dense.fit(training.set(), ls::steps{2});
        (void)dense.save(folder.path);
        trainer one{group, recipe(chosen, 4, 8)}, undisturbed{group, recipe(chosen, 4, 8)};
        for (const std::size_t count : {0, 1, 3}) {
            for (trainer* of : {&one, &undisturbed}) of->fit(training.set(), ls::steps{count});
            CHECK_THROWS_WITH(one.resume(folder.path, {"compressor", "workers", "segment"}),
                              Catch::Contains(" of this trainer; resume with"));
            CHECK(one.weights_state().is_usable());
        }
        for (trainer* of : {&one, &undisturbed}) of->fit(training.set(), ls::steps{2});
        CHECK(one.state_hash() == undisturbed.state_hash());
    });
}

TEST_CASE("equivalence/adaptive: a checkpoint that has chosen a candidate which is none is one error",
          "[equivalence]") {
    const shared_folder folder;
    on_groups({2, 6}, [&](const mpi::communicator& group) {
        const std::string path = folder.path + "/" + std::to_string(group.size());
        adaptive of = settings(choice_list::parse("1 4 2\n"));
        of.candidates = {ls::compress::top_k{.ratio = 0.05}, ls::compress::quantize{.bits = 4, .bucket = 64}};
        ls::trainer one{group, recipe(of, 4, 8)};
        one.fit(training.set(), ls::steps{3});
        (void)one.save(path);
        of.replay.reset();
        of.candidates.pop_back();
        ls::trainer other{group, recipe(of, 4, 8)};
        CHECK_THROWS_WITH(other.resume(path, {"compressor"}),
                          Catch::Contains("has chosen candidate 2 of adaptive in step 1, the plan has 1"));
    });
}

TEST_CASE("equivalence/adaptive: ranks that would decide differently are one error", "[equivalence]") {
    on_groups({3}, [&](const mpi::communicator& group) {
        const auto refuses = [&](const auto& change) {
            adaptive given = settings(std::nullopt);
            if (group.rank() == 2) change(given);
            CHECK_THROWS_WITH(trainer(group, recipe(given, 4, 8)),
                              Catch::Contains("decisions of the compressor is ") && Catch::Contains("on rank 2"));
        };
        refuses([](adaptive& of) { of.margin = 0.5; });
        refuses([](adaptive& of) { of.period = 7; });
        refuses([](adaptive& of) { of.max_error = 0.5; });
        refuses([](adaptive& of) { of.critical_error = 0.5; });
        refuses([](adaptive& of) { of.critical_change = 0.25; });
    });
}
