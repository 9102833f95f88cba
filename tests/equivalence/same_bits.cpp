// SPDX-License-Identifier: BSD-3-Clause
// ranks: 8
// The signature of the library: the recipe decides the bits, whatever the number of ranks, threads and buckets.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/collectives/sum_algorithms.hpp"
#include "lockstep/optim/weight_decay.hpp"
#include "lockstep/report/timeline.hpp"

namespace {

using namespace support;
namespace optim = ls::optim;

constexpr std::size_t batch = 61, count = 190,
                      steps = 200;  // the fourth minibatch of an epoch has 7 rows: fewer than ranks
const samples<> training{count}, test{133, 8};

struct machine {
    std::size_t threads;
    std::size_t bucket;
    ls::transport transport = ls::transport::messages;
    const char* algorithm = "";
    bool overlap = true;
    bool progress_thread = false;
    ls::collectives::sum_family sums = ls::collectives::lane_tree_sums;
};

/// Two levels on one machine: every two ranks count as a host.
constexpr ls::collectives::sum_family hosts_of_two{
    [](ls::collectives::sum_algorithm algorithm, std::size_t rank, std::span<const ls::parallel::block> runs,
       std::size_t n, std::span<const std::size_t>) {
        std::vector<std::size_t> on(runs.size());
        for (std::size_t r = 0; r < on.size(); ++r) on[r] = r / 2;
        return ls::collectives::make_sum(algorithm, rank, runs, n, on);
    },
    &ls::collectives::choose_algorithms, ls::collectives::sum_algorithm::hierarchical};
constexpr std::size_t whole_network = 1U << 20U;

auto recipe(std::size_t lanes, const machine& on, std::uint64_t seed = 42) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .optimizer = optim::weight_decay{.rate = 1e-3, .inner = optim::momentum{.beta = 0.9, .nesterov = true}},
        .schedule = optim::warmup_cosine{.peak = 0.02, .warmup = 20, .total = 180, .floor = 0.001},
        .batch = batch,
        .lanes = lanes,
        .seed = seed,
        .threads = ls::parallel::has_threads ? on.threads : 1,
        .bucket = on.bucket,
        .overlap = on.overlap,
        .progress_thread = on.progress_thread,
        .transport = on.transport,
        .all_reduce = on.algorithm,
        .sums = on.sums,
    };
}

/// Bit by bit what a run gives.
struct outcome {
    std::uint64_t weights = 0;
    std::uint64_t state = 0;  // all that outlives a step
    std::vector<double> losses;
    double test_loss = 0;
    double accuracy = 0;
    friend bool operator==(const outcome& a, const outcome& b) {
        return a.weights == b.weights && a.state == b.state &&
               std::equal(a.losses.begin(), a.losses.end(), b.losses.begin(), b.losses.end(), equal_bits) &&
               equal_bits(a.test_loss, b.test_loss) && equal_bits(a.accuracy, b.accuracy);
    }
    static bool equal_bits(double a, double b) {
        return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    }
};

template <class Ranks>
outcome run(const Ranks& ranks, std::size_t lanes, machine on, std::size_t until = steps) {
    // This doubling is for aligned lanes.
    if (!on.sums.has(ls::collectives::sum_algorithm::hierarchical) &&
        !ls::collectives::is_halving(ls::collectives::deal_lanes(static_cast<std::size_t>(ranks.size()), lanes)))
        on.algorithm = "";
    ls::trainer trainer{ranks, recipe(lanes, on)};
    losses seen;
    trainer.fit(training.set(), ls::steps{until}, seen);
    const auto tested = trainer.evaluate(test.set());
    return {trainer.weights_hash(), trainer.state_hash(), seen.values, tested.loss, tested.accuracy.value()};
}

std::string to_text(const machine& on) {
    return ls::core::text(on.threads, " threads, buckets of ", on.bucket, ", ", ls::reduce::name_of(on.transport), " ",
                          on.algorithm, on.overlap ? "" : ", without overlap",
                          on.progress_thread ? ", progress thread" : "");
}

/// Every algorithm of sums that keeps the lane tree, bucket, overlap, progress and transport.
std::vector<machine> all_machines() {
    std::vector<machine> out;
    for (const char* algorithm : {"", "tree:0-max", "doubling:0-max", "doubling:0-2000;tree:2001-max", "shared",
                                  "hierarchical:0-max", "doubling:0-2000;hierarchical:2001-max"})
        for (const std::size_t bucket : {std::size_t{1}, std::size_t{1000}, std::size_t{0}, whole_network})
            for (const bool overlap : {false, true})
                for (const bool thread : {false, true}) {
                    if (thread && !overlap) continue;
                    const bool shared = algorithm == std::string{"shared"};
                    const bool hosts = std::string_view{algorithm}.find("hierarchical") != std::string_view::npos;
                    out.push_back({1 + out.size() % 2, bucket,
                                   shared ? ls::transport::shared_memory : ls::transport::messages,
                                   shared ? "" : algorithm, overlap, thread,
                                   hosts ? hosts_of_two : ls::collectives::lane_tree_sums});
                }
    return out;
}

}  // namespace

TEST_CASE("equivalence/same_bits: any algorithm, bucket, overlap, progress and transport, on 1 to 8 ranks",
          "[equivalence]") {
    constexpr std::size_t few = 9;
    const auto machines = all_machines();
    REQUIRE(machines.size() == 84);
    const outcome serial = run(ls::comm::group{}, 8, {1, whole_network}, few);
    REQUIRE(serial.losses.size() == few);
    // Each one on two of these, of which one at least has several ranks that doubling is for.
    const std::vector<std::vector<int>> numbers{{8}, {1, 7}, {2, 6}, {3, 5}, {4, 4}};
    for (std::size_t layout = 0; layout < numbers.size(); ++layout)
        on_groups(numbers[layout], [&](const mpi::communicator& group) {
            for (std::size_t i = 0; i < machines.size(); ++i) {
                if (i % numbers.size() != layout && (i + 1) % numbers.size() != layout) continue;
                const outcome here = run(group, 8, machines[i], few);
                INFO(group.size() << " ranks, " << to_text(machines[i]));
                CHECK(here == serial);
            }
        });
}

TEST_CASE(
    "equivalence/same_bits: equal weights and losses on 1, 2, 3, 4 and 8 ranks, on 1 and 2 threads, for all buckets, "
    "through messages and shared memory",
    "[equivalence]") {
    for (const std::size_t lanes : {8U, 11U}) {
        const outcome serial = run(ls::comm::group{}, lanes, {1, whole_network});
        REQUIRE(serial.losses.size() == steps);
        CHECK(serial.accuracy > 0.5);  // it has learnt something: the comparison is not one of untouched weights
        CHECK(run(ls::comm::group{}, lanes, {2, 0}) == serial);
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            constexpr auto messages = ls::transport::messages, shared = ls::transport::shared_memory;
            std::vector<machine> tried{
                {1, whole_network}, {1, 1, shared}, {2, 1000, messages, "", false}, {2, 1, messages, "", true, true}};
            if (lanes == 8)
                tried.insert(tried.end(), {{2, 1000, shared, "", false},
                                           {1, 1, messages, "doubling:0-2000;tree:2001-max"},
                                           {1, 0, messages, "doubling:0-max"}});
            for (const machine& on : tried) {
                const outcome here = run(group, lanes, on);
                INFO(group.size() << " ranks, " << lanes << " lanes, " << to_text(on));
                CHECK(here.weights == serial.weights);
                CHECK(here == serial);
            }
        });
    }
}

namespace {

/// Looks at the weights on rank 0 alone, while they arrive during the next forward of the others.
template <class Trainer>
struct hashes {
    Trainer& trainer;
    std::vector<std::uint64_t> seen{};
    void on_step(const ls::report::step_event&) { seen.push_back(trainer.weights_hash()); }
};

}  // namespace

TEST_CASE(
    "equivalence/same_bits: an observer of weights that are on their way sees those of the last step; a timeline "
    "changes nothing",
    "[equivalence]") {
    const auto run = [](const auto& ranks, const std::string& file, bool thread) {
        machine on{1, 1};
        on.progress_thread = thread;
        ls::trainer trainer{ranks, recipe(8, on)};
        CHECK(trainer.recipe().overlap);
        hashes<decltype(trainer)> look{trainer};
        trainer.fit(training.set(), ls::steps{12}, look, ls::timeline{file, 5});
        CHECK(trainer.weights_hash() == trainer.local_hash());
        const auto spent = trainer.report().seconds;
        CHECK(spent.because.sum() == Approx(spent.communication_exposed));
        return look.seen;
    };
    const auto serial = run(ls::comm::group{}, "", false);
    REQUIRE(serial.size() == 12);
    CHECK(serial[10] != serial[11]);
    on_1_2_3_4_8([&](const mpi::communicator& group) {
        int name = ::getpid();  // of rank 0
        mpi::broadcast(group, name, 0);
        const std::string file =
            (std::filesystem::temp_directory_path() / ls::core::text("lockstep-same-bits-", name, ".json")).string();
        const bool thread = group.size() == 2 || group.size() == 3 || group.size() == 8;
        const auto here = run(group, file, thread);
        CHECK((group.rank() == 0 ? here : serial) == serial);
        if (group.rank() == 0) {
            std::ifstream stream{file};
            const std::string text{std::istreambuf_iterator<char>{stream}, {}};
            const auto count = [&](const std::string& part) {
                std::size_t found = 0;
                for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
                return found;
            };
            const auto ranks = static_cast<std::size_t>(group.size());
            CHECK(count("process_name") == ranks);
            CHECK(count(R"("name":"forward conv 0")") == 5 * ranks);
            CHECK(count(R"("name":"sum conv 0")") == 5 * ranks);
            CHECK(count(R"("name":"sum dense 7")") == 5 * ranks);
        }
        group.barrier();
        std::filesystem::remove(file);
    });
}

TEST_CASE("equivalence/same_bits: another number of lanes, another seed or one step more is another run",
          "[equivalence]") {
    const auto hash = [](std::size_t lanes, std::uint64_t seed, std::size_t until) {
        ls::trainer trainer{ls::comm::group{}, recipe(lanes, {1, whole_network}, seed)};
        trainer.fit(training.set(), ls::steps{until});
        return trainer.weights_hash();
    };
    const auto reference = hash(8, 42, 20);
    CHECK(hash(8, 42, 20) == reference);
    CHECK(hash(11, 42, 20) != reference);
    CHECK(hash(8, 43, 20) != reference);
    CHECK(hash(8, 42, 21) != reference);
}

TEST_CASE("equivalence/same_bits: step() on the rows that fit() deals is fit()", "[equivalence]") {
    for (const std::size_t lanes : {8U, 11U}) {
        const outcome serial = run(ls::comm::group{}, lanes, {1, whole_network});
        on_1_2_3_4_8([&](const mpi::communicator& group) {
            ls::trainer trainer{group, recipe(lanes, {1, whole_network})};
            const auto ranks = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
            std::vector<std::uint64_t> order(count);
            std::vector<double> seen;
            std::size_t at = 0;
            for (std::uint64_t step = 0, epoch = 0; step < steps; ++step) {
                if (at == 0) ls::data::shuffled{}.order(count, epoch++, 42, order);
                const std::size_t rows = std::min(batch, count - at);
                const auto own = ls::parallel::split(lanes, ranks, rank);
                const std::size_t first = ls::parallel::split(rows, lanes, own.first).first;
                const std::size_t last = ls::parallel::split(rows, lanes, own.last - 1).last;
                const auto part =
                    training.rows(std::span<const std::uint64_t>{order}.subspan(at + first, last - first));
                const auto event = trainer.step(part.x, part.y);
                CHECK(event.samples == rows);
                seen.push_back(event.loss);
                at = at + rows == count ? 0 : at + rows;
            }
            INFO(ranks << " ranks, " << lanes << " lanes");
            CHECK(trainer.weights_hash() == serial.weights);
            CHECK(
                std::equal(seen.begin(), seen.end(), serial.losses.begin(), serial.losses.end(), outcome::equal_bits));
        });
    }
}
