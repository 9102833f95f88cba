// SPDX-License-Identifier: BSD-3-Clause
// ranks: 4
// A run that is stopped, and goes on on another number of ranks, ends with the bits of one that was not.
#include <boost/mpi/collectives/broadcast.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/shared_folder.hpp"
#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/files/npy.hpp"
#include "lockstep/layers/batch_norm.hpp"
#include "lockstep/loss/mean_squared_error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/momentum.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/partition/hybrid.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/report/html_report.hpp"
#include "lockstep/report/logs.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/local_sgd.hpp"
#include "lockstep/sync/owner_updates.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "reference/python.hpp"

namespace {

using namespace support;
namespace part = ls::partition;
namespace files = std::filesystem;

constexpr std::size_t steps = 23;
const samples<> training{176};  // 5 minibatches of 32 and one of 16

constexpr auto normalised = ls::sequential{ls::input<12, 12, 1>,    ls::layers::conv<4, 3>{},  ls::layers::batch_norm{},
                                           ls::layers::relu{},      ls::layers::max_pool<2>{}, ls::layers::flatten{},
                                           ls::layers::dense<24>{}, ls::layers::relu{},        ls::layers::dense<10>{}};

/// Names in a folder.
std::set<std::string> file_names(const std::string& folder) {
    std::set<std::string> out;
    for (const auto& one : files::directory_iterator{folder}) out.insert(one.path().filename());
    return out;
}

/// What may change from one part of a run to the next.
struct machine {
    std::size_t bucket = 1U << 20U;
    ls::transport transport = ls::transport::automatic;
    bool overlap = true;
};

template <class Optimizer, class Compressor, class Sync, class Partition = part::data>
auto recipe(const machine& on, const Optimizer& optimizer, const Compressor& compressor, const Sync& sync,
            const Partition& partition = {}, std::uint64_t seed = 5) {
    return ls::plan{.model = normalised,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = optimizer,
                    .schedule = ls::optim::warmup_cosine{.peak = 0.02, .warmup = 4, .total = 40},
                    .partition = partition,
                    .compressor = compressor,
                    .sync = sync,
                    .batch = 32,
                    .workers = 4,
                    .seed = seed,
                    .bucket = on.bucket,
                    .overlap = on.overlap,
                    .transport = on.transport};
}

/// The run on two ranks alone; then in three parts, each on another number of ranks.
template <class Make>
void check_run(const Make& recipe_on, const std::vector<std::vector<int>>& worlds, std::size_t workers = 4) {
    const shared_folder folder;
    std::uint64_t expected = 0;
    const auto make = [&](const machine& on) {
        auto out = recipe_on(on);
        out.workers = workers;
        return out;
    };
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer whole{group, make(machine{})};
        whole.fit(training.set(), ls::steps{steps});
        expected = whole.state_hash();
    });
    mpi::broadcast(mpi::communicator{}, expected, 0);
    const std::vector<machine> machines{{1, ls::transport::automatic, true},
                                        {300, ls::transport::messages, false},
                                        {1U << 20U, ls::transport::messages, true}};
    for (std::size_t which = 0; which < worlds.size(); ++which) {
        const std::string here = folder.path + "/" + std::to_string(which);
        for (std::size_t stage = 0; stage < worlds[which].size(); ++stage)
            on_groups({worlds[which][stage]}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, make(machines[(which + stage) % machines.size()])};
                if (stage > 0) trainer.resume(here);
                CHECK(trainer.report().steps == (stage == 0 ? 0U : stage == 1 ? 6U : 16U));
                // At the end of an epoch, in the middle of one, and after the last step.
                const std::size_t until = stage == 0 ? 6 : stage == 1 ? 17 : steps;
                trainer.fit(training.set(), ls::until_step{until},
                            ls::checkpoint{here, stage == 0 ? 3U : 8U, 2, which % 2 == 1});
                if (stage == 2) CHECK(trainer.state_hash() == expected);
            });
    }
}

TEST_CASE("a run goes on after a checkpoint", "[saving]") {
    check_run(
        [](const machine& on) {
            return recipe(on, ls::optim::momentum{.beta = 0.9}, ls::compress::none{}, ls::sync::every_step{});
        },
        {{1, 4, 3}, {3, 1, 2}});
}

TEST_CASE("a delayed run with a compressor for both ways goes on after a checkpoint", "[saving]") {
    const auto make = [](const machine& on) {
        return recipe(on, ls::optim::adam{},
                      ls::compress::two_sided{ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.1}}},
                      ls::sync::delayed{});
    };
    check_run(make, {{4, 2, 1}, {3, 4, 2}});
    check_run(make, {{3, 1, 4}, {4, 3, 2}}, 2);  // ranks share workers
}

TEST_CASE("a run that left its workers to the number of ranks goes on with them on another one", "[saving]") {
    const shared_folder folder;
    const auto make = [](std::size_t workers) {
        auto out = recipe(machine{}, ls::optim::adam{},
                          ls::compress::two_sided{ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.1}}},
                          ls::sync::delayed{});
        out.workers = workers;
        return out;
    };
    std::uint64_t expected = 0;
    on_groups({3}, [&](const mpi::communicator& group) {
        CHECK(ls::workers_in(group, folder.path) == 0);
        ls::trainer trainer{group, make(0)};
        trainer.fit(training.set(), ls::until_step{6});
        (void)trainer.save(folder.path);
        trainer.fit(training.set(), ls::until_step{11});
        expected = trainer.state_hash();
    });
    on_groups({2}, [&](const mpi::communicator& group) {
        const std::size_t workers = ls::workers_in(group, folder.path);
        CHECK(workers == 3);
        ls::trainer trainer{group, make(workers)};
        trainer.resume(folder.path);
        trainer.fit(training.set(), ls::until_step{11});
        CHECK(trainer.state_hash() == expected);
    });
}

TEST_CASE("local SGD goes on after a checkpoint", "[saving]") {
    const auto make = [](const machine& on) {
        return recipe(on, ls::optim::momentum{.beta = 0.9}, ls::compress::none{},
                      ls::sync::local_sgd{.period = 5, .start = 2});
    };
    check_run(make, {{2, 4, 1}, {1, 3, 4}});
    check_run(make, {{4, 3, 1}, {1, 4, 3}}, 2);
}

TEST_CASE("workers that differ at a resume with a later start meet at the first mean", "[saving]") {
    const shared_folder folder;
    const auto plan = [](const ls::sync::local_sgd& sync) {
        auto out = recipe({}, ls::optim::adam{}, ls::compress::none{}, sync);
        out.workers = 4;
        return out;
    };
    struct seen {
        std::vector<std::uint64_t> weights;
        std::vector<double> losses;
        bool operator==(const seen&) const = default;
    };
    // Between two means, and right after one: then weights are equal and slots are not.
    for (const std::size_t saved : {2, 4}) {
        std::vector<seen> all;
        const std::string path = folder.path + "/" + std::to_string(saved);
        {
            ls::trainer trainer{mpi::communicator{}, plan({.period = 4})};
            trainer.fit(training.set(), ls::steps{saved});
            (void)trainer.save(path);
        }
        for (const int size : {4, 2}) {
            seen mine;
            on_groups({size}, [&](const mpi::communicator& group) {
                ls::trainer trainer{group, plan({.period = 4, .start = saved + 3})};
                trainer.resume(path, {"sync"});
                for (int step = 0; step < 8; ++step) {
                    trainer.fit(training.set(), ls::steps{1});
                    mine.weights.push_back(trainer.weights_hash());
                    mine.losses.push_back(trainer.evaluate(training.set()).loss);
                }
                for (const std::uint64_t other : of_all(group, mine.weights.front()))
                    CHECK(other == mine.weights.front());
                if (group.rank() == 0) all.push_back(mine);
            });
        }
        if (mpi::communicator{}.rank() == 0) CHECK(all.front() == all.back());
    }
}

TEST_CASE("PowerSGD in a hybrid partition goes on after a checkpoint", "[saving]") {
    check_run(
        [](const machine& on) {
            return recipe(on, ls::optim::momentum{.beta = 0.9}, ls::compress::power_sgd{.rank = 2},
                          ls::sync::every_step{}, part::hybrid<part::data, part::model<2>>{});
        },
        {{4, 2, 4}});
}

TEST_CASE("PowerSGD after plain steps goes on after a checkpoint", "[saving]") {
    check_run(
        [](const machine& on) {
            return recipe(on, ls::optim::momentum{.beta = 0.9},
                          ls::compress::warm_up{
                              .inner = ls::compress::error_feedback{ls::compress::power_sgd{.rank = 2}}, .start = 5},
                          ls::sync::every_step{});
        },
        {{1, 4, 2}});
}

/// Waits in a step for what another rank does meanwhile.
struct waits {
    void on_step(const ls::report::step_event& event) const {
        if (event.step != 2) return;
        mpi::communicator{}.barrier();
        mpi::communicator{}.barrier();
    }
};

TEST_CASE("a folder has one run at a time", "[saving]") {
    const mpi::communicator world;
    const shared_folder folder;
    const ls::comm::group alone;
    const auto plan = recipe(machine{}, ls::optim::momentum{.beta = 0.9}, ls::compress::none{}, ls::sync::every_step{});
    ls::trainer trainer{alone, plan};
    const auto fit = [&](auto&... more) {
        return trainer.fit(training.set(), ls::steps{4}, ls::checkpoint{folder.path, 1, 2}, more...);
    };
    if (world.rank() == 0) {
        waits here;
        CHECK(fit(here).steps == 4);
    } else {
        world.barrier();
        if (world.rank() == 1) {
            CHECK_THROWS_WITH(fit(), Catch::Contains("another run that is under way has its checkpoints in"));
            CHECK_THROWS_WITH(trainer.save(folder.path), Catch::Contains("another run that is under way"));
            CHECK(trainer.report().steps == 0);
        }
        world.barrier();
    }
    world.barrier();
    if (world.rank() == 1) {
        CHECK_THROWS_WITH(fit(), Catch::Contains("is of a later step than this run, which is at step 0"));
        trainer.resume(folder.path);
        CHECK(fit().steps == 4);
    }
}

TEST_CASE("a folder that one rank does not see is an error before the first step", "[saving]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
        // As an earlier run has left it.
        if (group.rank() == 1) {
            files::create_directories(folder.path + "/elsewhere");
            std::ofstream{folder.path + "/elsewhere/run.lock"};
        }
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{6},
                                      ls::checkpoint{folder.path + (group.rank() == 0 ? "/here" : "/elsewhere"), 6}),
                          Catch::Contains("rank 1 does not see in " + folder.path +
                                          "/elsewhere what rank 0 has made in " + folder.path + "/here; start"));
        CHECK(trainer.report().steps == 0);
        if (group.rank() == 0) CHECK(file_names(folder.path + "/here") == std::set<std::string>{"lock", "run.lock"});
        trainer.fit(training.set(), ls::steps{2}, ls::checkpoint{folder.path + "/here", 2});
        CHECK(trainer.report().steps == 2);
    });
}

/// Goes to another folder in the middle of a run, as programs do that have one for each case.
struct goes_to {
    static constexpr bool on_every_rank = true;
    std::string path;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == 3) files::current_path(path);
    }
};

TEST_CASE("checkpoints stay in their folder, wherever the program goes", "[saving]") {
    const shared_folder folder;
    const files::path home = files::current_path();
    on_groups({2}, [&](const mpi::communicator& group) {
        if (group.rank() == 0) files::create_directories(folder.path + "/app/other");
        group.barrier();
        for (const bool behind : {false, true}) {
            files::current_path(folder.path + "/app");
            const std::string name = behind ? "runs/b" : "runs/a";
            ls::trainer trainer{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
            trainer.fit(training.set(), ls::steps{8}, ls::checkpoint{name, 2, 0, behind}, goes_to{.path = "other"});
            files::current_path(home);
            if (group.rank() == 0) {
                CHECK(file_names(folder.path + "/app/" + name) ==
                      std::set<std::string>{"lock", "run.lock", "step-2", "step-4", "step-6", "step-8"});
                CHECK(file_names(folder.path + "/app/other").empty());
            }
        }
    });
}

TEST_CASE("the log and the page of a part of a run that is over stay as they are", "[saving]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto contents = [&](const std::string& name) {
            std::ostringstream out;
            out << std::ifstream{folder.path + name}.rdbuf();
            return out.str();
        };
        const auto train = [&](std::size_t epochs, bool resumes) {
            ls::trainer trainer{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
            if (resumes) trainer.resume(folder.path + "/saved");
            ls::json_log first{folder.path + "/first.jsonl"}, second{folder.path + "/second.jsonl"};
            ls::html_report page{folder.path + "/first.html"};
            trainer.fit(training.set(), ls::until_epoch{1}, first, page);
            trainer.fit(training.set(), ls::until_epoch{epochs}, second, ls::checkpoint{folder.path + "/saved", 7});
        };
        train(2, false);
        group.barrier();
        const std::string log = contents("/first.jsonl"), page = contents("/first.html");
        const std::string later = contents("/second.jsonl");
        group.barrier();
        train(3, true);
        group.barrier();
        CHECK(log.find("weights_hash") != log.npos);
        CHECK(contents("/first.jsonl") == log);
        CHECK(page.size() > 1000);
        CHECK(contents("/first.html") == page);
        CHECK(contents("/second.jsonl").size() > later.size());
        group.barrier();
    });
}

TEST_CASE("load_weights of a checkpoint compares its sums", "[saving]") {
    const shared_folder folder;
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
        trainer.fit(training.set(), ls::steps{2});
        const auto path = trainer.save(folder.path + "/" + std::to_string(group.size()));
        const auto hash = trainer.weights_hash();
        trainer.fit(training.set(), ls::steps{2});
        trainer.load_weights(path + "/state.safetensors");
        CHECK(trainer.weights_hash() == hash);
        group.barrier();
        // A bit of the last number, which stays a number.
        const auto change = [&] {
            group.barrier();
            if (group.rank() == 0) {
                std::fstream file{path + "/state.safetensors", std::ios::in | std::ios::out | std::ios::binary};
                file.seekg(-4, std::ios::end);
                const int was = file.peek();
                file.seekp(-4, std::ios::end);
                file.put(static_cast<char>(was ^ 1));
            }
            group.barrier();
        };
        change();
        CHECK_THROWS_WITH(trainer.load_weights(path + "/state.safetensors"),
                          Catch::Contains(path + "/state.safetensors is damaged in bytes 0 to"));
        CHECK(trainer.weights_hash() == hash);
        if (group.rank() == 0) files::rename(path + "/state.safetensors", path + "/../state.safetensors");
        group.barrier();
        CHECK_NOTHROW(trainer.load_weights(path + "/../state.safetensors"));  // alone: nothing is known
    });
}

/// Puts a file in the place of a folder, after the fit() has begun.
struct breaks_folder {
    std::string path;
    void on_step(const ls::report::step_event& event) const {
        if (event.step % 4 != 0) return;
        files::remove_all(path);
        std::ofstream{path} << "no folder";
    }
};

TEST_CASE("what cannot be resumed is one error on all ranks, and the trainer goes on", "[saving]") {
    const shared_folder folder;
    on_groups({3}, [&](const mpi::communicator& group) {
        const auto make = [&](std::uint64_t seed) {
            return recipe({}, ls::optim::momentum{.beta = 0.9}, ls::compress::none{}, ls::sync::every_step{},
                          part::data{}, seed);
        };
        ls::trainer trainer{group, make(5)};
        CHECK_THROWS_WITH(trainer.resume(folder.path + "/none"), Catch::Contains("does not exist"));
        CHECK_THROWS_WITH(trainer.resume(folder.path), Catch::Contains("no complete checkpoint"));
        CHECK_THROWS_WITH(trainer.save("/proc/lockstep"), Catch::Contains("/proc/lockstep"));
        CHECK_THROWS_WITH(trainer.save(""), Catch::Contains("no folder"));  // not that of the system
        trainer.fit(training.set(), ls::steps{2});
        const std::string path = trainer.save(folder.path);
        CHECK(path == folder.path + "/step-2");
        // What was written last at a step is what a run goes on from, though earlier ones of the step are deleted.
        for (const std::string version : {"", ".2", ".3", ".4"}) {
            const std::string last = trainer.save(folder.path + "/again", 1);
            CHECK(last == folder.path + "/again/step-2" + version);
            CHECK(files::exists(last));
        }
        const auto hash = trainer.state_hash();

        ls::trainer other{group, make(6)};
        CHECK_THROWS_WITH(other.resume(path), Catch::Contains("seed is 5 there and 6 here"));
        other.resume(path, {"seed"});
        CHECK(other.state_hash() == hash);

        // The middle of an epoch of another data set.
        const samples<> fewer{100};
        ls::trainer wrong{group, make(5)};
        wrong.resume(path);
        CHECK_THROWS_WITH(wrong.fit(fewer.set(), ls::steps{1}), Catch::Contains("64 of 176 samples"));
        // One that has nothing to do asks for no set.
        ls::trainer idle{group, make(5)};
        idle.resume(path);
        CHECK(idle.fit(fewer.set(), ls::until_step{1}).steps == 0);
        CHECK(idle.state_hash() == hash);
        idle.fit(training.set(), ls::steps{1});
        // The last epoch of a run is not over because the set is another one.
        ls::trainer last{group, make(5)};
        last.resume(path);
        CHECK_THROWS_WITH(last.fit(fewer.set(), ls::until_epoch{1}), Catch::Contains("64 of 176 samples"));

        group.barrier();
        if (group.rank() == 0) files::resize_file(path + "/state.safetensors", 1000);
        group.barrier();
        CHECK_THROWS_WITH(trainer.resume(path), Catch::Contains("has 1000 bytes"));
        CHECK(trainer.state_hash() == hash);
        trainer.fit(training.set(), ls::steps{1});

        // A damaged manifest; a checkpoint that cannot be written in a fit.
        const std::string later = trainer.save(folder.path);
        group.barrier();
        if (group.rank() == 0) files::resize_file(later + "/manifest.json", 100);
        group.barrier();
        const auto then = trainer.state_hash();
        CHECK_THROWS_WITH(trainer.resume(later), Catch::Contains("manifest.json"));
        // Before the first step, not at the first checkpoint.
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{4}, ls::checkpoint{"/proc/lockstep", 4}),
                          Catch::Contains("/proc/lockstep"));
        CHECK(trainer.state_hash() == then);
        // One that goes away during the run.
        const std::string going = folder.path + "/going";
        breaks_folder breaks{going};
        CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{4}, breaks, ls::checkpoint{going, 4}),
                          Catch::Contains(going));
        CHECK(trainer.report().steps == 4);
        CHECK(trainer.state_hash() != then);
        trainer.fit(training.set(), ls::steps{1});

        // Arrays of another optimizer, which was allowed by name.
        const std::string whole = trainer.save(folder.path);
        CHECK(ls::saving::exists_in(whole));
        ls::trainer plain{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
        CHECK_THROWS_WITH(plain.resume(whole, {"optimizer"}), Catch::Contains("has 0.conv.weight.optimizer.0 (") &&
                                                                  Catch::Contains("), which this trainer has not;"));
        plain.fit(training.set(), ls::steps{1});
        // And the other way round: the first array that the file lacks.
        const std::string less = plain.save(folder.path + "/less");
        CHECK_THROWS_WITH(trainer.resume(less, {"optimizer"}),
                          Catch::Contains("lacks 0.conv.weight.optimizer.0 (") && Catch::Contains("of this trainer;"));
    });
}

TEST_CASE("a reader in NumPy finds named arrays in a checkpoint, and predicts with them", "[saving]") {
    constexpr std::size_t inputs = 7, outputs = 3, rows = 24;
    const ls::core::random_stream random{4, ls::core::purpose::user};
    std::vector<float> x(rows * inputs), t(rows * outputs);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = static_cast<float>(random.normal(1000 + i));
    const auto set = ls::data::in_memory<ls::tensor::shape<inputs>, ls::tensor::shape<outputs>>(x, t);
    const shared_folder folder;
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        ls::trainer trainer{group, ls::plan{.model = ls::sequential{ls::input<inputs>, ls::layers::dense<5>{},
                                                                    ls::layers::relu{}, ls::layers::dense<outputs>{}},
                                            .loss = ls::loss::mean_squared_error{},
                                            .optimizer = ls::optim::adam{},
                                            .batch = 12,
                                            .lanes = 6}};
        trainer.fit(set, ls::steps{5});
        const std::string here = folder.path + "/" + std::to_string(group.size());
        const std::string path = trainer.save(here);
        const auto y = trainer.predict(x);
        if (group.rank() != 0) return;
        ls::files::write_npy<float>(here + "/x.npy", std::vector{rows, inputs}, x);
        const auto said = ls::test::run_python("checkpoint.py", "'" + path + "' '" + here + "/x.npy'");
        if (!said) {
            WARN("no python3 with NumPy: not compared with another reader");
            return;
        }
        for (const char* of : {"0.dense.weight", "0.dense.bias", "2.dense.weight", "2.dense.bias"})
            for (const char* role : {"", ".optimizer.0", ".optimizer.1"}) {
                const std::string shape = std::string{of} == "0.dense.weight"   ? "7 5"
                                          : std::string{of} == "2.dense.weight" ? "5 3"
                                          : std::string{of} == "0.dense.bias"   ? "5"
                                                                                : "3";
                CHECK(said->find(std::string{"array "} + of + role + " F32 " + shape + "\n") != std::string::npos);
            }
        std::istringstream words{said->substr(said->find("outputs") + 7)};
        for (std::size_t i = 0; i < rows * outputs; ++i) {
            double wanted = 0;
            REQUIRE(words >> wanted);
            CHECK(std::abs(static_cast<double>(y.data()[i]) - wanted) < 1e-5);
        }
    });
}

TEST_CASE("a resume that is refused changes nothing where the state depends on steps", "[saving]") {
    const shared_folder folder;
    on_groups({1, 3}, [&](const mpi::communicator& group) {
        const std::string here = folder.path + "/" + std::to_string(group.size());
        const auto make = [](const auto& optimizer, const auto& sync) {
            return recipe({}, optimizer, ls::compress::none{}, sync);
        };
        ls::trainer synchronous{group, make(ls::optim::sgd{}, ls::sync::every_step{})};
        ls::trainer undisturbed{group, make(ls::optim::sgd{}, ls::sync::delayed{})};
        synchronous.fit(training.set(), ls::steps{2});
        const std::string other = synchronous.save(here + "/synchronous");
        undisturbed.fit(training.set(), ls::steps{3});
        const std::string own = undisturbed.save(here + "/delayed");
        undisturbed.fit(training.set(), ls::steps{1});

        ls::trainer trainer{group, make(ls::optim::sgd{}, ls::sync::delayed{})};
        for (std::size_t step = 0; step < 4; ++step) {
            const auto hash = trainer.state_hash();
            CHECK_THROWS_WITH(trainer.resume(other, {"sync"}),
                              Catch::Matches("lockstep: .* lacks 0.conv.weight.pending_gradient.0 .* of this "
                                             "trainer; resume with [^\n]*"));
            CHECK(trainer.weights_state().is_usable());
            CHECK(trainer.state_hash() == hash);
            trainer.fit(training.set(), ls::steps{1});
        }
        CHECK(trainer.state_hash() == undisturbed.state_hash());
        // The other way round, and with another optimizer.
        CHECK_THROWS_WITH(synchronous.resume(own, {"sync"}), Catch::Contains("pending_gradient"));
        synchronous.fit(training.set(), ls::steps{1});
        ls::trainer adam{group, make(ls::optim::adam{}, ls::sync::delayed{})};
        CHECK_THROWS_WITH(adam.resume(own, {"optimizer"}), Catch::Contains("lacks 0.conv.weight.optimizer.0"));
        adam.fit(training.set(), ls::steps{1});
        // What fits is read, before the first step and after some.
        ls::trainer fresh{group, make(ls::optim::sgd{}, ls::sync::delayed{})};
        fresh.resume(own);
        trainer.resume(own);
        for (ls::trainer<decltype(make(ls::optim::sgd{}, ls::sync::delayed{}))>* one : {&fresh, &trainer}) {
            one->fit(training.set(), ls::steps{1});
            CHECK(one->state_hash() == undisturbed.state_hash());
        }
    });
}

/// Synchronous steps; what they make of a state that was read fails.
template <class Types>
struct failing_updates : ls::sync::owner_updates<Types> {
    using ls::sync::owner_updates<Types>::owner_updates;
    static void restored() { ls::core::fail("the state is of no use", "take another"); }
};
struct fails_when_restored {
    static constexpr std::string_view name = "fails_when_restored";
    [[nodiscard]] static std::string settings() { return {}; }
    template <class Types>
    using strategy = failing_updates<Types>;
};

TEST_CASE("alone, a trainer whose resume has failed half way refuses to go on", "[saving]") {
    const shared_folder folder;
    if (mpi::communicator{}.rank() > 0) return;
    const ls::comm::group alone;
    const auto make = [] { return recipe({}, ls::optim::sgd{}, ls::compress::none{}, fails_when_restored{}); };
    ls::trainer saved{alone, make()};
    ls::trainer other{alone, make()};
    saved.fit(training.set(), ls::steps{3});
    const std::string path = saved.save(folder.path);
    other.fit(training.set(), ls::steps{1});
    const auto says_why = Catch::Matches(".*the state is of no use(.|\n)*make a new trainer.*");
    CHECK_THROWS_WITH(other.resume(path), says_why);
    CHECK_THROWS_WITH(other.fit(training.set(), ls::steps{1}), says_why);
    CHECK_THROWS_WITH(other.save(folder.path), says_why);
    saved.fit(training.set(), ls::steps{1});
}

TEST_CASE("a checkpoint deletes nothing that is not its own", "[saving]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const std::string notes = folder.path + "/writing-notes", other = folder.path + "/writing-0123456789abcdeg",
                          left = folder.path + "/writing-0123456789abcdef", weights = folder.path + "/step-1",
                          kept = folder.path + "/step-3", file = folder.path + "/step-5";
        if (group.rank() == 0) {
            for (const std::string& one : {notes, other, left, weights, kept}) {
                files::create_directory(one);
                std::ofstream{one + "/state.safetensors"} << "mine";
            }
            std::ofstream{kept + "/notes.txt"} << "mine";
            std::ofstream{file} << "mine";
        }
        group.barrier();
        ls::trainer trainer{group, recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{})};
        trainer.fit(training.set(), ls::steps{6}, ls::checkpoint{folder.path, 2, 1});
        group.barrier();
        CHECK(files::exists(notes + "/state.safetensors"));
        CHECK(files::exists(other + "/state.safetensors"));
        CHECK_FALSE(files::exists(left));  // of a run that was killed
        CHECK(files::exists(weights + "/state.safetensors"));
        CHECK(files::exists(kept + "/state.safetensors"));
        CHECK(files::exists(file));
        CHECK_FALSE(files::exists(folder.path + "/step-4"));
        CHECK(files::exists(folder.path + "/step-6"));
    });
}

/// Samples of each step.
struct step_sizes {
    std::vector<std::size_t>& samples;
    void on_step(const ls::report::step_event& event) const { samples.push_back(event.samples); }
};

TEST_CASE("another batch in the middle of an epoch goes to its end, and no further", "[saving]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [&](std::size_t batch) {
            auto plan = recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{});
            plan.batch = batch;
            return plan;
        };
        ls::trainer trainer{group, make(32)};
        trainer.fit(training.set(), ls::steps{3});
        (void)trainer.save(folder.path);
        // 80 samples of 176 are left.
        for (const std::size_t batch : {16, 20, 79, 80, 81, 200}) {
            ls::trainer other{group, make(batch)};
            other.resume(folder.path, {"batch"});
            std::vector<std::size_t> seen;
            step_sizes sizes{seen};
            other.fit(training.set(), ls::until_epoch{1}, sizes);
            CHECK(other.report().steps == 3 + (80 + batch - 1) / batch);
            if (group.rank() == 0) {
                std::size_t all = 0;
                for (const std::size_t one : seen) all += one;
                CHECK(all == 80);
            }
            seen.clear();
            other.fit(training.set(), ls::epochs{1}, sizes);
            if (group.rank() == 0) CHECK(seen.size() == (176 + batch - 1) / batch);
        }
    });
}

TEST_CASE("a set of another size is refused as often as it is tried", "[saving]") {
    const shared_folder folder;
    on_groups({1}, [&](const mpi::communicator& group) {
        const auto make = [] { return recipe({}, ls::optim::sgd{}, ls::compress::none{}, ls::sync::every_step{}); };
        ls::trainer trainer{group, make()};
        trainer.fit(training.set(), ls::steps{3});
        (void)trainer.save(folder.path);
        trainer.fit(training.set(), ls::steps{2});
        ls::trainer other{group, make()};
        other.resume(folder.path);
        const samples<> more{200}, fewer{50};
        for (int turn = 0; turn < 2; ++turn)
            for (const auto* one : {&more, &fewer})
                CHECK_THROWS_WITH(other.fit(one->set(), ls::steps{1}), Catch::Contains("96 of 176 samples"));
        // Alone a trainer goes on after an error.
        other.fit(training.set(), ls::steps{2});
        CHECK(other.state_hash() == trainer.state_hash());
    });
}

/// Fails on rank 0.
struct failing {
    static void on_step(const ls::report::step_event& event) {
        if (event.step == 3) throw std::runtime_error{"the screen is on fire"};
    }
};

TEST_CASE("what a failed run was saving does not outlive it", "[saving]") {
    const shared_folder folder;
    on_groups({2}, [&](const mpi::communicator& group) {
        const auto make = [] {
            return recipe({}, ls::optim::momentum{.beta = 0.9}, ls::compress::none{}, ls::sync::every_step{});
        };
        ls::checkpoint saves{folder.path, 2, 2, true};
        {
            ls::trainer trainer{group, make()};
            CHECK_THROWS_WITH(trainer.fit(training.set(), ls::steps{8}, saves, failing{}),
                              Catch::Contains("the screen is on fire"));
        }
        group.barrier();
        ls::trainer trainer{group, make()};
        trainer.fit(training.set(), ls::steps{4}, saves);
        CHECK(ls::saving::exists_in(folder.path));
        // Rank 0 answers for all.
        const ls::comm::group ranks{group};
        CHECK(ls::saving::exists_in(ranks, group.rank() == 0 ? folder.path : folder.path + "/none"));
        CHECK_FALSE(ls::saving::exists_in(ranks, group.rank() == 0 ? folder.path + "/none" : folder.path));
        group.barrier();
    });
}

}  // namespace
