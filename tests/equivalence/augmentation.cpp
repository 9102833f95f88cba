// SPDX-License-Identifier: BSD-3-Clause
// ranks: 3
// Augmented pictures are those of (number, seed, epoch): the same bits on any number of ranks, read when they are
// wanted or ahead of it.
#include <atomic>
#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/data/augmented.hpp"
#include "lockstep/data/cutout.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/normalised.hpp"
#include "lockstep/data/pad_crop.hpp"
#include "lockstep/metrics/top_k.hpp"

namespace {

using namespace support;
namespace data = ls::data;

constexpr std::size_t count = 190, batch = 61,
                      steps = 14;  // the fourth minibatch of an epoch has 7 rows; 3 epochs and a half
const samples<> training{count}, other{100, 8};

auto recipe(bool prefetch, std::size_t threads = 1, std::uint64_t seed = 42) {
    return ls::plan{
        .model = net,
        .loss = ls::loss::softmax_cross_entropy{},
        .schedule = ls::optim::constant{.rate = 0.02},
        .batch = batch,
        .seed = seed,
        .threads = threads,
        .prefetch = prefetch,
    };
}
const auto plain = data::normalised{training.set(), {.mean = {0.1F}, .deviation = {0.8F}}};
const auto augmented = data::augmented{plain, data::pad_crop{.padding = 2}, data::flip{}, data::cutout{.size = 3}};

/// Bit by bit what a run gives; a test set in between is read by the other thread's side.
struct outcome {
    std::uint64_t weights = 0;
    std::vector<std::uint64_t> losses;
    friend bool operator==(const outcome&, const outcome&) = default;
};
struct validating {
    static constexpr bool on_every_rank = true;
    std::vector<std::uint64_t>& losses;
    template <class Trainer>
    void on_step(Trainer& trainer, const ls::report::step_event& event) {
        losses.push_back(std::bit_cast<std::uint64_t>(event.loss));
        if (event.step % 3 == 0) losses.push_back(std::bit_cast<std::uint64_t>(trainer.evaluate(augmented).loss));
    }
};
/// Sees whether two threads read at a time.
struct slow_set {
    using inner = std::remove_const_t<decltype(plain)>;
    using sample = inner::sample;
    using label = inner::label;
    std::atomic<int>* readers;
    std::atomic<bool>* overlapped;
    [[nodiscard]] std::size_t size() const { return plain.size(); }
    template <class T>
    void read(std::span<const std::uint64_t> rows, ls::tensor::batch<T, sample> x,
              std::span<ls::tensor::label_element<label, T>> y) const {
        if (readers->fetch_add(1) != 0) *overlapped = true;
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        plain.read(rows, x, y);
        readers->fetch_sub(1);
    }
};
struct evaluating {
    static constexpr bool on_every_rank = true;
    const slow_set& set;
    template <class Trainer>
    void on_step(Trainer& trainer, const ls::report::step_event& event) {
        if (event.step == 1) (void)trainer.evaluate(set);
    }
    template <class Trainer>
    void on_epoch(Trainer& trainer, const ls::report::epoch_event&) {
        (void)trainer.evaluate(set);
    }
    template <class Trainer>
    void on_end(Trainer& trainer, const ls::report::totals&) {
        (void)trainer.evaluate(set);
    }
};
/// As a handler of a signal does.
struct asking {
    static constexpr bool sees_weights = false;
    void on_step(const ls::report::step_event& event) const {
        if (event.step == 6) ls::core::stop_request::ask(SIGUSR1);
    }
};
template <class Ranks, class Set>
outcome run(const Ranks& ranks, const Set& set, bool prefetch, std::size_t threads = 1, std::uint64_t seed = 42) {
    ls::trainer trainer{ranks, recipe(prefetch, threads, seed)};
    outcome out;
    trainer.fit(set, ls::steps{steps}, validating{out.losses});
    out.weights = trainer.weights_hash();
    return out;
}

}  // namespace

TEST_CASE("equivalence/augmentation: equal weights and losses on 1, 2 and 3 ranks, with and without reading ahead",
          "[equivalence]") {
    const outcome serial = run(ls::comm::group{}, augmented, false);
    REQUIRE(serial.losses.size() == steps + steps / 3);
    CHECK(run(ls::comm::group{}, augmented, true) == serial);
    CHECK(run(ls::comm::group{}, augmented, true, ls::parallel::has_threads ? 2 : 1) == serial);
    const auto on_group = [&](const mpi::communicator& group) {
        for (const bool prefetch : {false, true}) {
            const outcome found = run(group, augmented, prefetch);
            INFO(group.size() << " ranks" << (prefetch ? ", ahead" : ""));
            CHECK(found == serial);
        }
    };
    on_groups({1, 2}, on_group);
    on_groups({3}, on_group);

    CHECK(run(ls::comm::group{}, augmented, false, 1, 43) != serial);
    const outcome without = run(ls::comm::group{}, plain, true);
    CHECK(without.weights != serial.weights);
    CHECK(without == run(ls::comm::group{}, plain, false));
}

TEST_CASE("equivalence/augmentation: a fit in pieces is a fit in one, read ahead or not", "[equivalence]") {
    const mpi::communicator world;
    ls::trainer whole{world, recipe(false)};
    whole.fit(augmented, ls::steps{11});
    for (const bool prefetch : {false, true}) {
        ls::trainer trainer{world, recipe(prefetch)};
        trainer.fit(augmented, ls::steps{1});
        trainer.fit(augmented, ls::steps{3});   // up to the end of the epoch
        trainer.fit(augmented, ls::epochs{1});  // from one end to the other
        (void)trainer.evaluate(other.set());
        trainer.fit(augmented, ls::steps{3});
        CHECK(trainer.weights_hash() == whole.weights_hash());
    }
}

TEST_CASE("equivalence/augmentation: what is read ahead is read while nobody else reads", "[equivalence]") {
    std::atomic<int> readers = 0;
    std::atomic<bool> overlapped = false;
    const slow_set set{&readers, &overlapped};
    ls::trainer trainer{ls::comm::group{}, recipe(true)};
    CHECK_THROWS_AS(trainer.fit(set, ls::epochs{2}, ls::validate{set}, evaluating{set}, asking{}), ls::interrupted);
    ls::core::stop_request::ask(0);
    CHECK(trainer.report().steps == 7);
    CHECK_FALSE(overlapped);
}

TEST_CASE("equivalence/augmentation: evaluation sees no augmentation", "[equivalence]") {
    const mpi::communicator world;
    ls::trainer trainer{world, recipe(true)};
    trainer.fit(augmented, ls::steps{5});
    CHECK(std::bit_cast<std::uint64_t>(trainer.evaluate(augmented).loss) ==
          std::bit_cast<std::uint64_t>(trainer.evaluate(plain).loss));
    CHECK(trainer.evaluate(augmented).loss != trainer.evaluate(training.set()).loss);
}

TEST_CASE("equivalence/augmentation: ranks with other augmentations are told so", "[equivalence]") {
    const mpi::communicator world;
    const auto mine = data::augmented{plain, data::flip{.probability = world.rank() == 2 ? 0.25F : 0.5F}};
    const auto failure_of = [&](const auto& call) {
        ls::trainer trainer{world, recipe(false)};
        std::string found;
        try {
            call(trainer);
        } catch (const ls::comm::remote_failure& failure) {
            found = failure.text();  // heard on the way out of the last exchange
        } catch (const ls::core::error& error) {
            found = error.what();
            found = found.substr(0, found.find("\n    the weights on rank "));
        }
        return found;
    };
    const std::string expected = ls::core::text(
        "lockstep: ranks were given different data sets: ", mine.name(),
        " has the settings normalised mean=0.1 deviation=0.8 flip(probability=0.5) on rank 0 and normalised mean=0.1 "
        "deviation=0.8 flip(probability=0.25) on rank 2; give every rank the same data set, with the same settings and "
        "files");
    CHECK(failure_of([&](auto& trainer) { trainer.fit(mine, ls::steps{1}); }) == expected);
    CHECK(failure_of([&](auto& trainer) { (void)trainer.evaluate(mine); }) == expected);
    CHECK(failure_of([&](auto& trainer) { (void)trainer.evaluate(mine, ls::metrics::top_k{.k = 3}); }) == expected);
    // The metrics differ, not the data set; and nothing does.
    const auto other = ls::metrics::top_k{.k = world.rank() == 1 ? 4 : 3};
    CHECK(failure_of([&](auto& trainer) { (void)trainer.evaluate(augmented, other); }) ==
          "lockstep: ranks were given different metrics: top_k(k=3) on rank 0 and top_k(k=4) on rank 1; give every "
          "rank the same metrics");
    CHECK(failure_of([&](auto& trainer) { (void)trainer.evaluate(augmented, ls::metrics::top_k{.k = 3}); }).empty());
}
