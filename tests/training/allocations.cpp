// SPDX-License-Identifier: BSD-3-Clause
// ranks: 1 2 3
// A step allocates nothing: neither in fit() nor in step(), over messages and through shared memory, with and without a
// compressor.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "equivalence/support.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/infer/predictor.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/partition/model.hpp"
#include "lockstep/sync/delayed.hpp"
#include "lockstep/sync/factors.hpp"
#include "lockstep/sync/local_sgd.hpp"

namespace {

/// Calls of operator new on any thread of this rank, while a test counts. MPI takes its memory from malloc: that is its
/// own affair.
std::atomic<std::size_t> allocations{0};
std::atomic<bool> counting{false};
/// One allocation of so many bytes or more is refused; 0: none.
std::atomic<std::size_t> refused{0};

// Not inlined: the compiler would find new and free() in one place.
[[gnu::noinline]] void* find(std::size_t bytes, std::size_t alignment) noexcept {
    if (counting) ++allocations;
    if (const std::size_t from = refused; from > 0 && bytes >= from) {
        refused = 0;
        return nullptr;
    }
    return alignment > alignof(std::max_align_t)
               ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
               : std::malloc(bytes > 0 ? bytes : 1);
}
void* allocate(std::size_t bytes, std::size_t alignment) {
    void* const out = find(bytes, alignment);
    if (out == nullptr) throw std::bad_alloc{};
    return out;
}

[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
// These too: that of a sanitizer would not be a match for the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return find(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return find(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return find(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return find(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace {

using namespace support;

constexpr std::uint64_t warm_up = 5, counted = 20;

void count_from(std::uint64_t step) {
    if (step == warm_up) allocations = 0;
    counting = step >= warm_up && step < warm_up + counted;
}

/// Counts in the steps of a fit() after the first ones.
struct counter {
    static constexpr bool on_every_rank = true;
    static constexpr bool sees_weights = false;
    void on_step(const ls::report::step_event& event) { count_from(event.step); }
};

template <class Compressor>
constexpr bool is_compressed = !std::is_same_v<Compressor, ls::compress::none>;

/// Through shared memory ranks share the only worker of a compressor.
template <class Compressor, class Optimizer, class Clip, class Factors>
auto recipe(const Compressor& compressor, ls::transport transport, bool thread, const Optimizer& optimizer,
            const Clip& clip, const Factors& factors) {
    return ls::plan{.model = net,
                    .loss = ls::loss::softmax_cross_entropy{},
                    .optimizer = optimizer,
                    .schedule = ls::optim::constant{.rate = 0.01},
                    .compressor = compressor,
                    .clip = clip,
                    .factors = factors,
                    .batch = 16,
                    .workers = is_compressed<Compressor> && transport == ls::transport::shared_memory ? 1U : 0U,
                    .bucket = 1,
                    .progress_thread = thread,
                    .transport = transport};
}

const samples<> all{16 * (warm_up + counted + 2)};  // one epoch: its end is no step

/// What `run` counts on any rank. A rank that has waited for another one for 20 ms asks it where it is, in a message
/// that is allocated: on a busy machine that happens, so the least of several runs counts.
template <class F>
std::size_t least_of(F&& run) {
    std::size_t least = SIZE_MAX;
    for (int attempt = 0; attempt < 6 && least > 0; ++attempt) {
        run();
        least = std::min(least, mpi::all_reduce(mpi::communicator{}, allocations.load(), mpi::maximum<std::size_t>{}));
    }
    return least;
}

template <class Compressor, class Optimizer = ls::optim::momentum, class Clip = ls::sync::no_clipping,
          class Factors = ls::sync::no_factors>
void check(const Compressor& compressor, ls::transport transport, bool thread = false, const Optimizer& optimizer = {},
           const Clip& clip = {}, const Factors& factors = {}) {
    const mpi::communicator world;
    INFO(ls::reduce::name_of(transport) << (thread ? ", progress thread" : ""));
    const auto fit = least_of([&] {
        ls::trainer trainer{world, recipe(compressor, transport, thread, optimizer, clip, factors)};
        trainer.fit(all.set(), ls::steps{warm_up + counted + 1}, counter{});
    });
    CHECK(fit == 0);
    const auto step = least_of([&] {
        ls::trainer trainer{world, recipe(compressor, transport, thread, optimizer, clip, factors)};
        const auto each = static_cast<std::size_t>(16 / (world.size() + 1));
        const auto mine = all.rows(each * static_cast<std::size_t>(world.rank()), each);
        for (std::uint64_t one = 0; one <= warm_up + counted; ++one) {
            count_from(one);
            trainer.step(mine.x, mine.y);
        }
    });
    CHECK(step == 0);
}

template <class Compressor>
void check_all(const Compressor& compressor) {
    check(compressor, ls::transport::messages);
    check(compressor, ls::transport::messages, true);
    check(compressor, mpi::communicator{}.size() > 1 ? ls::transport::shared_memory : ls::transport::automatic);
}

}  // namespace

TEST_CASE("training/allocations: what is allocated is counted", "[training]") {
    count_from(warm_up);
    const std::vector<double> one(3), two(4);
    const std::string text(100, 'x');
    counting = false;
    CHECK(allocations == 3);
}

TEST_CASE("training/allocations: a step allocates nothing", "[training]") { check_all(ls::compress::none{}); }
TEST_CASE("training/allocations: nor where dense layers send factors", "[training]") {
    for (const bool thread : {false, true})
        check(ls::compress::none{}, ls::transport::messages, thread, ls::optim::momentum{}, ls::sync::no_clipping{},
              ls::sync::factors{.always = true});
}
TEST_CASE("training/allocations: nor with a compressor or a reduction", "[training]") {
    check_all(ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}});
    check_all(ls::compress::error_feedback{ls::compress::quantize{.bits = 4}});
    check_all(ls::compress::terngrad{});
    check_all(ls::compress::error_feedback{ls::compress::power_sgd{.rank = 2}});
    // With one worker, through shared memory, no list travels.
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory})
        check(ls::compress::error_feedback{ls::compress::sparse_sum{ls::compress::top_k{.ratio = 0.3},
                                                                    ls::compress::quantize{}}},
              transport, true);
}

TEST_CASE("training/allocations: nor where the optimizer proposes what travels", "[training]") {
    // The warm-up ends within the steps that are counted.
    for (const auto transport : {ls::transport::messages, ls::transport::shared_memory})
        check(ls::compress::error_feedback{ls::compress::quantize{.bits = 4}}, transport, true,
              ls::optim::one_bit_adam{.warm_up = warm_up + counted / 2});
    check(ls::compress::error_feedback{ls::compress::top_k{.ratio = 0.05}}, ls::transport::messages, false,
          ls::optim::deep_gradient{.clip = 1});
}

TEST_CASE("training/allocations: nor with norms of tensors", "[training]") {
    const ls::sync::clip_by_global_norm clip{.norm = 0.1};
    check(ls::compress::none{}, ls::transport::messages, true, ls::optim::lars{}, clip);
    check(ls::compress::none{}, ls::transport::automatic, false, ls::optim::lars{}, clip);
    check(ls::compress::none{}, ls::transport::messages, false, ls::optim::lamb{});
}

/// Several workers on some ranks, several ranks for one worker on others; synchronous steps, local ones and means of
/// weights and slots.
TEST_CASE("training/allocations: nor with workers that have weights of their own", "[training]") {
    for (const std::size_t workers : {2, 4}) {
        const auto fit = least_of([&] {
            ls::trainer trainer{
                mpi::communicator{},
                ls::plan{.model = net,
                         .loss = ls::loss::softmax_cross_entropy{},
                         .sync = ls::sync::local_sgd{.period = 4, .start = 12, .momentum = ls::sync::momenta::average},
                         .batch = 16,
                         .workers = workers}};
            trainer.fit(all.set(), ls::steps{warm_up + counted + 1}, counter{});
        });
        CHECK(fit == 0);
    }
}

TEST_CASE("training/allocations: nor with gradients of the step before", "[training]") {
    const auto fit = least_of([&] {
        ls::trainer trainer{
            mpi::communicator{},
            ls::plan{
                .model = net, .loss = ls::loss::softmax_cross_entropy{}, .sync = ls::sync::delayed{}, .batch = 16}};
        trainer.fit(all.set(), ls::steps{warm_up + counted + 1}, counter{});
    });
    CHECK(fit == 0);
}

TEST_CASE("training/allocations: a predictor allocates what it returns, and of a set one block of samples", "[infer]") {
    const std::vector<float> weights(ls::model::network<decltype(net), 1>::parameters);
    ls::predictor predictor{net, weights, std::vector<float>{}, ls::infer::options{.rows = 16}};
    const auto counted = [&](const auto& of) {
        allocations = 0;
        counting = true;
        const auto out = predictor.predict(of);
        counting = false;
        CHECK(out.size() == all.y.size() * 10);
        return allocations.load();
    };
    CHECK(counted(all.x) == 1);
    CHECK(counted(all.set()) == 4);  // and numbers, inputs and labels of 16 samples
}

TEST_CASE("training/allocations: all ranks hear of one that cannot gather the weights", "[training]") {
    const mpi::communicator world;
    if (world.size() != 2) return;
    for (const bool hashes : {false, true}) {
        ls::trainer trainer{world, ls::plan{.model = net,
                                            .loss = ls::loss::softmax_cross_entropy{},
                                            .partition = ls::partition::model<2>{},
                                            .batch = 16,
                                            .timeout = std::chrono::seconds{20}}};
        world.barrier();
        if (world.rank() == 1) refused = 2'000;
        std::string text;
        try {
            hashes ? (void)trainer.weights_hash() : (void)trainer.all_weights();
        } catch (const std::exception& error) {
            text = error.what();
        }
        // Rank 0 need not wait for the timeout.
        const std::string told = world.rank() == 1 ? "lockstep: no memory" : "rank 1: lockstep: no memory";
        CHECK(text.substr(0, told.size()) == told);
    }
}
