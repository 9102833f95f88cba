// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/proposals.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/deep_gradient.hpp"
#include "lockstep/optim/one_bit_adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/reduce/choose.hpp"
#include "proposals_reference.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;
namespace reference = proposals_reference;
using ls::compress::error_feedback;
using ls::compress::top_k;
using ls::optim::deep_gradient;
using ls::optim::one_bit_adam;

namespace {

constexpr std::size_t workers = 2, bias = 2, matrix = 12, n = bias + matrix, steps = 7;

/// As in proposals_reference.py.
double gradient(std::uint64_t worker, std::uint64_t i, std::uint64_t step) {
    constexpr std::uint64_t modulus = std::uint64_t{1} << 31U;
    std::uint64_t x = (7919 * (worker + 1) + 104729 * i + 1299709 * step) % modulus;
    for (int turn = 0; turn < 3; ++turn) x = (1103515245 * x + 12345) % modulus;
    return static_cast<double>(x) / (1U << 30U) - 1;
}

/// A bias and a matrix of 3 x 4, that in segments of so many numbers.
ls::reduce::bucket bucket(std::size_t segment = matrix) {
    auto out = reduce_test::bucket_of(n, workers);
    out.deal = {.workers = workers, .lanes = 1, .own = {0, workers}, .messages = {{0, workers}}};
    out.deal.pieces.push_back({.first = 0, .count = bias, .tensor = 4, .rows = 1, .columns = bias});
    for (std::size_t first = 0; first < matrix; first += segment)
        out.deal.pieces.push_back(
            {.first = bias + first, .count = segment, .tensor = 5, .offset = first, .rows = 3, .columns = 4});
    return out;
}

template <class T, class Compressor>
using inner = typename ls::reduce::method<T, Compressor>::reducer;

/// A reducer with slots of its optimizer, which a trainer would have.
template <class T, class Optimizer, class Compressor>
struct run {
    Optimizer optimizer;
    ls::tensor::arena arena;
    ls::reduce::proposals<T, inner<T, Compressor>, Optimizer, Compressor> reducer;
    std::vector<T> slots = std::vector<T>(Optimizer::slot_count * n), weights = std::vector<T>(n), gradients{};

    run(const Optimizer& of, const Compressor& compressor, std::size_t segment = matrix)
        : optimizer{of}, reducer{bucket(segment), compressor, arena} {
        arena.allocate();
        reducer.bind(arena);
        reducer.propose_with(optimizer, all_slots());
        for (std::size_t i = 0; i < n; ++i) weights[i] = static_cast<T>(0.25 * static_cast<double>(i) - 1);
    }
    ls::tensor::slots<T> all_slots() { return {slots.data(), Optimizer::slot_count, n, n}; }

    /// `of(worker, i)`: of its own samples, a half of all.
    template <class F>
    void step(std::uint64_t step, const F& of) {
        gradients.assign(workers * n, T{0});
        for (std::size_t worker = 0; worker < workers; ++worker)
            for (std::size_t i = 0; i < n; ++i)
                gradients[worker * n + i] = static_cast<T>(of(worker, i)) / static_cast<T>(workers);
        reducer.start(gradients, step);
        while (!reducer.poll()) {
        }
        reducer.finish();
        reducer.finish();  // as often as anybody likes
        reducer.update(weights, [&](ls::parallel::block part, std::span<const T> sum) noexcept {
            optimizer.update(ls::optim::update_pass<T>{.weights = std::span{weights}.subspan(part.first, part.size()),
                                                       .gradient = sum,
                                                       .slots = all_slots().part(part.first, part.size()),
                                                       .rate = 0.01,
                                                       .step = step});
        });
    }
    /// What it keeps as `role` for a worker, the numbers that it shows as such.
    std::vector<T> state(std::string_view role, std::size_t worker) const {
        std::vector<T> out(n, std::numeric_limits<T>::quiet_NaN());
        reducer.visit_state(
            [&](const ls::tensor::state_part<T>& part) {
                if (part.role != role || part.worker != worker || part.slot != 0) return;
                CHECK(part.speaks);
                const std::size_t first = (part.tensor == 5 ? bias : 0) + part.segment;
                std::copy(part.numbers.begin(), part.numbers.end(), out.begin() + static_cast<std::ptrdiff_t>(first));
            },
            0);
        return out;
    }
};

/// Equal up to some roundings of numbers of this size.
template <class Found>
void check(const Found& found, const double* expected, std::size_t first = 0) {
    for (std::size_t i = first; i < n; ++i) {
        INFO("number " << i);
        CHECK(std::abs(found[i] - expected[i]) <= 1e-14);
    }
}

template <std::size_t Rows>
void check_deep_gradient(const deep_gradient& optimizer, std::size_t count, const double (&means)[Rows][n],
                         const double (&momentum)[workers][n], const double (&residual)[workers][n]) {
    INFO(optimizer.settings());
    const auto compressor = error_feedback{top_k{.ratio = static_cast<double>(count) / matrix}};
    run<double, deep_gradient, std::remove_const_t<decltype(compressor)>> all{optimizer, compressor};
    for (std::uint64_t step = 0; step < Rows; ++step) {
        INFO("step " << step);
        all.step(step, [&](std::size_t worker, std::size_t i) { return gradient(worker, i, step); });
        check(all.gradients, means[step]);
    }
    for (std::size_t worker = 0; worker < workers; ++worker) {
        check(all.state("proposal", worker), momentum[worker]);
        check(all.state("compressor", worker), residual[worker], bias);
    }
}

}  // namespace

TEST_CASE("reduce/proposals: deep gradient compression does what a scalar program does", "[reduce]") {
    check_deep_gradient({}, 2, reference::plain_means, reference::plain_momentum, reference::plain_residual);
    check_deep_gradient({.nesterov = true}, 3, reference::nesterov_means, reference::nesterov_momentum,
                        reference::nesterov_residual);
    check_deep_gradient({.momentum = 0.8, .clip = 1.5}, 2, reference::clipped_means, reference::clipped_momentum,
                        reference::clipped_residual);
    check_deep_gradient({.masks = false}, 2, reference::unmasked_means, reference::unmasked_momentum,
                        reference::unmasked_residual);
}

TEST_CASE("reduce/proposals: the norm and the momentum of a tensor do not depend on segments", "[reduce]") {
    const auto compressor = error_feedback{top_k{.ratio = 1}};
    using type = run<float, deep_gradient, std::remove_const_t<decltype(compressor)>>;
    const deep_gradient optimizer{.clip = 1, .masks = false};
    type whole{optimizer, compressor}, cut{optimizer, compressor, 4};
    for (std::uint64_t step = 0; step < steps; ++step)
        for (type* one : {&whole, &cut})
            one->step(step, [&](std::size_t worker, std::size_t i) { return gradient(worker, i, step); });
    CHECK(whole.weights == cut.weights);
    for (std::size_t worker = 0; worker < workers; ++worker)
        CHECK(whole.state("proposal", worker) == cut.state("proposal", worker));
}

TEST_CASE("reduce/proposals: a local gradient is the mean over the rows of its worker", "[reduce]") {
    // A gradient of 1 everywhere: a norm of sqrt(12) for the matrix, 4 / sqrt(2) the bound of 2 workers.
    const auto sums = [](std::vector<std::size_t> rows, double clip) {
        ls::tensor::arena arena;
        auto of = bucket();
        of.deal.lengths = rows;
        const deep_gradient optimizer{.momentum = 0, .clip = clip};
        const auto all = error_feedback{top_k{.ratio = 1}};
        ls::reduce::proposals<double, inner<double, error_feedback<top_k>>, deep_gradient, error_feedback<top_k>>
            reducer{of, all, arena};
        arena.allocate();
        reducer.bind(arena);
        reducer.propose_with(optimizer, {});
        std::vector<double> gradients(workers * n);
        const auto every = static_cast<double>(rows[0] + rows[1]);
        for (std::size_t worker = 0; worker < workers; ++worker)
            for (std::size_t i = 0; i < n; ++i)
                gradients[worker * n + i] = static_cast<double>(rows[worker]) / every;
        reducer.start(gradients, 0);
        reducer.finish();
        return gradients[bias];
    };
    const double norm = std::sqrt(12.0);
    for (const std::vector<std::size_t>& rows : {std::vector<std::size_t>{4, 4}, {1, 7}, {0, 3}, {5, 1}}) {
        CHECK(sums(rows, norm * std::sqrt(2) * 1.001) == Approx(1).epsilon(1e-12));
        CHECK(sums(rows, norm * std::sqrt(2) / 2) == Approx(0.5).epsilon(1e-12));
    }
}

TEST_CASE("reduce/proposals: where all of a tensor is sent momentum is kept", "[reduce]") {
    const auto expect = [](const auto& compressor, std::uint64_t whole_steps) {
        run<double, deep_gradient, std::remove_cvref_t<decltype(compressor)>> all{deep_gradient{}, compressor};
        double u = 0;
        for (std::uint64_t step = 0; step < 6; ++step) {
            all.step(step, [](std::size_t, std::size_t) { return 1.0; });
            u = 0.9 * u + 1;
            // The bias travels as it is; of the matrix the first number is among those that are sent.
            CHECK(all.gradients[0] == Approx(u));
            if (step < whole_steps)
                for (std::size_t i = bias; i < n; ++i) CHECK(all.gradients[i] == Approx(u));
        }
        if (whole_steps < 6) CHECK(all.state("proposal", 0)[bias] == 0);
    };
    expect(error_feedback{top_k{.ratio = 1}}, 6);
    expect(error_feedback{ls::compress::warm_up{top_k{.ratio = 0.5}, 0, 3}}, 3);
    expect(ls::compress::any{error_feedback{ls::compress::warm_up{top_k{.ratio = 0.5}, 0, 3}}}, 3);
    expect(error_feedback{ls::compress::by_layer{top_k{.ratio = 1}, top_k{.ratio = 0.1}}}, 6);
}

TEST_CASE("reduce/proposals: compress::any has the bits of what it holds, also of tensors that travel as they are",
          "[reduce]") {
    const auto held = error_feedback{top_k{.ratio = 0.25}};
    run<float, deep_gradient, error_feedback<top_k>> alone{{}, held};
    run<float, deep_gradient, ls::compress::any> inside{{}, held};
    const auto of_step = [](std::uint64_t step) {
        return [step](std::size_t worker, std::size_t i) { return gradient(worker, i, step); };
    };
    for (std::uint64_t step = 0; step < steps; ++step) {
        alone.step(step, of_step(step));
        inside.step(step, of_step(step));
        CHECK(inside.weights == alone.weights);
    }
    for (std::size_t worker = 0; worker < workers; ++worker)
        CHECK(inside.state("proposal", worker) == alone.state("proposal", worker));
}

TEST_CASE("reduce/proposals: 1-bit Adam does what a scalar program does", "[reduce]") {
    const one_bit_adam optimizer{.beta2 = 0.99, .warm_up = 3};
    const auto compressor = error_feedback{top_k{.ratio = 0.25}};
    run<double, one_bit_adam, std::remove_const_t<decltype(compressor)>> all{optimizer, compressor};
    for (std::uint64_t step = 0; step < steps; ++step) {
        INFO("step " << step);
        // The last number has no gradient in the warm-up, so it never moves.
        all.step(step, [&](std::size_t worker, std::size_t i) {
            return step >= 3 || i + 1 < n ? gradient(worker, i, step) : 0.0;
        });
        check(all.weights, reference::one_bit_weights[step]);
    }
    CHECK(all.weights.back() == 0.25 * (n - 1) - 1);
}

TEST_CASE("reduce/proposals: the warm-up of 1-bit Adam has the bits of Adam, also beside a reduction in rounds",
          "[reduce]") {
    const one_bit_adam optimizer{.warm_up = steps};
    const auto expect = [&](const auto& compressor) {
        run<float, one_bit_adam, std::remove_cvref_t<decltype(compressor)>> all{optimizer, compressor};
        std::vector<float> weights = all.weights, slots(2 * n);
        for (std::uint64_t step = 0; step < steps; ++step) {
            all.step(step, [&](std::size_t worker, std::size_t i) { return gradient(worker, i, step); });
            std::vector<float> mean(n);
            for (std::size_t i = 0; i < n; ++i)
                mean[i] = static_cast<float>(gradient(0, i, step)) / 2 + static_cast<float>(gradient(1, i, step)) / 2;
            ls::optim::adam{}.update(ls::optim::update_pass<float>{weights, mean, {slots.data(), 2, n, n}, 0.01, step});
            CHECK(all.weights == weights);
        }
        // The compressor has seen nothing of it.
        for (std::size_t worker = 0; worker < workers; ++worker)
            for (std::size_t i = bias; i < n; ++i) CHECK(all.state("compressor", worker)[i] == 0);
    };
    expect(error_feedback{top_k{.ratio = 0.25}});
    expect(error_feedback{ls::compress::power_sgd{}});
}

TEST_CASE("reduce/proposals: after the warm-up the momenta of all workers add up, also in rounds", "[reduce]") {
    // Of rank 3 a matrix of 3 x 4 is added as it is.
    const auto compressor = ls::compress::power_sgd{.rank = 3};
    run<double, one_bit_adam, std::remove_const_t<decltype(compressor)>> all{{.warm_up = 1}, compressor};
    std::vector<double> momentum(n);
    for (std::uint64_t step = 0; step < steps; ++step) {
        all.step(step, [&](std::size_t worker, std::size_t i) { return gradient(worker, i, step); });
        for (std::size_t i = 0; i < n; ++i)
            momentum[i] = 0.9 * momentum[i] + (1 - 0.9) * (gradient(0, i, step) + gradient(1, i, step)) / 2;
        check(all.slots, momentum.data());
    }
}

TEST_CASE("reduce/proposals: a number that is not finite is in the sums", "[reduce]") {
    const auto inf = std::numeric_limits<double>::infinity();
    const auto find = [&](const auto& optimizer, const auto& compressor, double bad, std::uint64_t step) {
        run<float, std::remove_cvref_t<decltype(optimizer)>, std::remove_cvref_t<decltype(compressor)>> all{optimizer,
                                                                                                            compressor};
        all.step(step, [&](std::size_t worker, std::size_t i) { return worker == 1 && i == 5 ? bad : 0.5; });
        CHECK_FALSE(std::isfinite(all.gradients[5]));
        CHECK_FALSE(std::isfinite(all.weights[5]));
    };
    for (const double bad : {inf, -inf, std::nan("")}) {
        for (const double clip : {0.0, 1.0})
            find(deep_gradient{.clip = clip}, error_feedback{top_k{.ratio = 0.1}}, bad, 0);
        find(one_bit_adam{.warm_up = 1}, error_feedback{top_k{.ratio = 0.1}}, bad, 1);
        find(one_bit_adam{.warm_up = 1}, error_feedback{ls::compress::power_sgd{}}, bad, 1);
    }
    // A norm that is too large for a double.
    run<double, deep_gradient, error_feedback<top_k>> all{{.clip = 1}, {{.ratio = 0.1}}};
    all.step(0, [](std::size_t, std::size_t) { return 1e200; });
    CHECK(std::isnan(all.gradients[5]));
}

TEST_CASE("reduce/proposals: gradients of nothing, and settings that make no sense", "[reduce]") {
    run<float, deep_gradient, error_feedback<top_k>> all{{.clip = 1}, {{.ratio = 0.1}}};
    const auto before = all.weights;
    for (std::uint64_t step = 0; step < 3; ++step) all.step(step, [](std::size_t, std::size_t) { return 0.0; });
    CHECK(all.weights == before);
    const auto throws = [](const auto& optimizer, const char* text) {
        CHECK_THROWS_WITH(optimizer.check(), Catch::Contains(text));
    };
    throws(deep_gradient{.momentum = 1}, "deep_gradient has momentum = 1, outside [0, 1) as a float");
    throws(deep_gradient{.momentum = 0.99999999}, "deep_gradient has momentum = 0.99999999, outside [0, 1) as a float");
    throws(deep_gradient{.momentum = std::nan("")}, "deep_gradient has momentum = nan");
    throws(deep_gradient{.clip = -1}, "deep_gradient has clip = -1, negative or not finite");
    throws(deep_gradient{.clip = std::numeric_limits<double>::infinity()}, "deep_gradient has clip = inf");
    throws(one_bit_adam{.beta1 = 1}, "one_bit_adam has beta1 = 1 and beta2 = 0.999, not both in [0, 1) as floats");
    throws(one_bit_adam{.epsilon = 0}, "one_bit_adam has epsilon = 0, outside [1e-18, 1e37]");
    throws(one_bit_adam{.warm_up = 0}, "one_bit_adam has warm_up = 0, so its second moments would stay zero");
    CHECK_NOTHROW(deep_gradient{}.check());
    CHECK_NOTHROW(one_bit_adam{}.check());
    CHECK(one_bit_adam{}.settings() != one_bit_adam{.warm_up = 10}.settings());
    CHECK(deep_gradient{}.settings() != deep_gradient{.masks = false}.settings());
}
