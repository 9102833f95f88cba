// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/rounds.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "reference/median_of_workers.hpp"
#include "unit/compress/by_hand.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;
using ls::compress::algebra;
using ls::compress::matrix;
using ls::compress::round_number;

namespace {

constexpr std::size_t n = 48;

/// All three algebras: numbers are rounded to the nearest multiple of the largest magnitude / 8, and the sum of the
/// largest is added to all.
struct coarse {
    static constexpr std::string_view name = "coarse";
    static constexpr ls::compress::traits traits{.dense_vectors = true};
    static constexpr std::size_t slot_count = 1;
    static constexpr std::array rounds{algebra::max, algebra::ordered_sum, algebra::exact_sum};
    [[nodiscard]] std::string settings() const { return {}; }
    [[nodiscard]] bool is_dense(const matrix& shape) const { return shape.columns == 3; }
    [[nodiscard]] ls::compress::reduction_sizes<3> sizes(const matrix& shape, std::size_t) const {
        return {.elements = {1, 1, shape.size()}, .shared = 3, .kept = 1};
    }
    template <class T>
    void initialise(const ls::compress::shared_pass<T>& all) const noexcept {
        all.shared[2] = T{7};
    }
    template <class T>
    void encode(round_number<0>, const ls::compress::worker_pass<T>& in, std::span<T> out) const noexcept {
        out[0] = 0;
        for (const T value : in.values) out[0] = std::max(out[0], std::abs(value));
        for (std::size_t i = 0; i < in.values.size(); ++i) in.state[0][i] += in.values[i];
        in.kept[0] = in.values[0];
    }
    template <class T>
    void combined(round_number<0>, const ls::compress::shared_pass<T>& all, std::span<const T> result) const noexcept {
        all.shared[0] = result[0] / 8;
    }
    template <class T>
    void encode(round_number<1>, const ls::compress::worker_pass<T>& in, std::span<T> out) const noexcept {
        out[0] = in.kept[0];
    }
    template <class T>
    void combined(round_number<1>, const ls::compress::shared_pass<T>& all, std::span<const T> result) const noexcept {
        all.shared[1] = result[0];
    }
    template <class T>
    void encode(round_number<2>, const ls::compress::worker_pass<T>& in, std::span<std::uint32_t> out) const noexcept {
        for (std::size_t i = 0; i < in.values.size(); ++i)
            out[i] = static_cast<std::uint32_t>(static_cast<int>(std::nearbyint(in.values[i] / in.shared[0])));
    }
    template <class T>
    void finish(const ls::compress::shared_pass<T>& all, std::span<const std::uint32_t> result,
                std::span<T> mean) const noexcept {
        all.shared[2] += T{1};
        for (std::size_t i = 0; i < mean.size(); ++i)
            mean[i] = all.shared[0] * static_cast<T>(static_cast<int>(result[i])) + all.shared[1] + all.shared[2];
    }
    template <class T>
    void decode_own(const ls::compress::worker_pass<T>&, std::span<const std::uint32_t>, T,
                    std::span<T>) const noexcept {}
};
static_assert(ls::compress::Reduction<coarse> && ls::reduce::Reducer<ls::reduce::rounds<float, coarse>>);
static_assert(!ls::compress::Reduction<ls::compress::none> && !ls::compress::Compressor<coarse>);

template <class R>
struct reducer {
    ls::tensor::arena arena;
    ls::reduce::rounds<float, R> sum;
    reducer(const ls::reduce::bucket& of, const R& reduction) : sum{of, reduction, arena} {
        arena.allocate();
        sum.bind(arena);
    }
    std::vector<float> operator()(std::vector<float> gradient, std::uint64_t step = 0) {
        sum.start(gradient, step);
        for (int polls = 0; !sum.poll(); ++polls) REQUIRE(polls < 100);
        sum.finish();
        arena.check();
        gradient.resize(sum.owned().size());
        return gradient;
    }
};

std::vector<float> numbers(std::size_t workers) {
    std::vector<float> out(workers * n);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((37 * i + 11) % 101) / 64 - 0.75F;
    return out;
}

}  // namespace

TEST_CASE("reduce/rounds: largest finds the maximum in any order, and NaN", "[reduce]") {
    using largest = ls::reduce::largest<float>;
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const float a : {-2.0F, -0.0F, 0.0F, 1.0F, inf, nan})
        for (const float b : {-2.0F, -0.0F, 0.0F, 1.0F, inf, nan}) {
            const float one = (largest{a} + largest{b}).value, other = (largest{b} + largest{a}).value;
            CHECK((std::isnan(one) ? std::isnan(other) : one == other && std::signbit(one) == std::signbit(other)));
            CHECK(std::isnan(one) == (std::isnan(a) || std::isnan(b)));
            if (!std::isnan(one)) CHECK(one == std::max(a, b));
        }
}

TEST_CASE("reduce/rounds: each round combines the workers of a rank by its algebra, piece by piece", "[reduce]") {
    for (const std::size_t workers : {1, 2, 3, 5, 8}) {
        reducer<coarse> sum{reduce_test::bucket_of_workers(n, workers, 2, 4, 16), coarse{}};
        for (int step = 0; step < 3; ++step) {
            const auto gradient = numbers(workers);
            const auto found = sum(gradient);
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t first = i / 16 * 16;
                float most = 0, firsts[8] = {};
                int k = 0;
                for (std::size_t worker = 0; worker < workers; ++worker) {
                    for (std::size_t j = first; j < first + 16; ++j)
                        most = std::max(most, std::abs(gradient[worker * n + j]));
                    firsts[worker] = gradient[worker * n + first];
                }
                for (std::size_t worker = 0; worker < workers; ++worker)
                    k += static_cast<int>(std::nearbyint(gradient[worker * n + i] / (most / 8)));
                // Missing leaves are zeros, which change no sum.
                const float tree = ((firsts[0] + firsts[1]) + (firsts[2] + firsts[3])) +
                                   ((firsts[4] + firsts[5]) + (firsts[6] + firsts[7]));
                CHECK(found[i] == most / 8 * static_cast<float>(k) + tree + static_cast<float>(8 + step));
            }
        }
        CHECK(sum.sum.bytes_per_step() == 0);
    }
}

TEST_CASE("reduce/rounds: vectors and what a reduction leaves alone are added over the tree of workers", "[reduce]") {
    for (const std::size_t columns : {n, std::size_t{1}, std::size_t{3}}) {
        reducer<coarse> sum{reduce_test::bucket_of_workers(n, 3, 2, columns, n), coarse{}};
        auto gradient = numbers(3);
        for (float& one : gradient) one /= 3;
        const auto found = sum(gradient);
        for (std::size_t i = 0; i < n; ++i) CHECK(found[i] == gradient[i] + gradient[n + i] + gradient[2 * n + i]);
    }
}

TEST_CASE("reduce/rounds: a rule over the values of all workers", "[reduce]") {
    for (const std::size_t workers : {1, 2, 3, 5, 8}) {
        reducer<reference::median_of_workers> sum{reduce_test::bucket_of_workers(n, workers, 2, 4, 16), {}};
        const auto gradient = numbers(workers);
        const auto found = sum(gradient);
        for (std::size_t i = 0; i < n; ++i) {
            // Below and above the middle there are as many.
            std::size_t below = 0, above = 0;
            const float median = found[i] / static_cast<float>(workers);
            for (std::size_t worker = 0; worker < workers; ++worker) {
                below += gradient[worker * n + i] < median - 1e-6F;
                above += gradient[worker * n + i] > median + 1e-6F;
            }
            CHECK(below <= workers / 2);
            CHECK(above <= workers / 2);
            CHECK((workers % 2 == 0 || below + above < workers));
        }
    }
}

namespace {

/// Three matrices and a bias of three workers, against one matrix at a time in plain loops. The tree over three workers
/// is their order.
template <class R>
void as_by_hand(const R& reduction) {
    constexpr std::size_t workers = 3, extents[][2] = {{16, 12}, {1, 7}, {9, 20}, {8, 8}};
    auto bucket = reduce_test::bucket_of(0, workers);
    bucket.deal = {.workers = workers, .lanes = 1, .own = {0, workers}, .messages = {{0, workers}}, .seed = 11};
    std::vector<ls::compress::testing::by_hand<float, R>> single;
    for (std::size_t tensor = 0; tensor < std::size(extents); ++tensor) {
        const auto [rows, columns] = extents[tensor];
        bucket.deal.pieces.push_back(
            {.first = bucket.n, .count = rows * columns, .tensor = 40 + tensor, .rows = rows, .columns = columns});
        bucket.n += rows * columns;
        single.emplace_back(reduction, matrix{rows, columns}, workers, ls::parallel::team{}, 11, 40 + tensor);
    }
    reducer<R> sum{bucket, reduction};
    for (std::uint32_t step = 0; step < 4; ++step) {
        std::vector<float> gradient(workers * bucket.n);
        for (std::size_t i = 0; i < gradient.size(); ++i)
            gradient[i] = static_cast<float>((31 * (i + step) + 7) % 103) / 32 - 1.5F;
        const auto found = sum(gradient, step);
        for (std::size_t tensor = 0; tensor < std::size(extents); ++tensor) {
            const auto& piece = bucket.deal.pieces[tensor];
            std::vector<float> values, expected(piece.count);
            for (std::size_t worker = 0; worker < workers; ++worker)
                for (std::size_t i = 0; i < piece.count; ++i) {
                    values.push_back(gradient[worker * bucket.n + piece.first + i]);
                    expected[i] += values.back();
                }
            if (!piece.is_vector()) expected = single[tensor](values, step);
            for (std::size_t i = 0; i < piece.count; ++i) CHECK(found[piece.first + i] == expected[i]);
        }
    }
}

}  // namespace

TEST_CASE("reduce/rounds: matrices of one bucket are reduced as each alone, with their own state and random words",
          "[reduce]") {
    as_by_hand(ls::compress::terngrad{});
    as_by_hand(ls::compress::power_sgd{.rank = 2});
    as_by_hand(ls::compress::error_feedback{ls::compress::power_sgd{.rank = 3}});
}

TEST_CASE("reduce/rounds: a number that is not finite makes all sums of the bucket NaN", "[reduce]") {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
        for (const std::size_t where : {0UL, n - 1, n, 2 * n - 1}) {
            auto gradient = numbers(2);
            gradient[where] = bad;
            reducer<coarse> coarse_sum{reduce_test::bucket_of_workers(n, 2, 1, 4, 16), coarse{}};
            for (const float one : coarse_sum(gradient)) CHECK(std::isnan(one));
            reducer<ls::compress::terngrad> ternary{reduce_test::bucket_of_workers(n, 2, 1, 4, n), {}};
            for (const float one : ternary(gradient)) CHECK(std::isnan(one));
        }
}

TEST_CASE("reduce/rounds: updates see the whole bucket, nothing is shared, and finish is idempotent", "[reduce]") {
    reducer<coarse> sum{reduce_test::bucket_of_workers(n, 2, 1, 4, n), coarse{}};
    CHECK(sum.sum.owned() == ls::parallel::block{0, n});
    auto gradient = numbers(2);
    sum.sum.start(gradient, 0);
    sum.sum.finish();
    const auto before = gradient;
    sum.sum.finish();
    CHECK(gradient == before);
    std::vector<float> weights(n);
    sum.sum.update(weights, [&](ls::parallel::block part, std::span<const float> sums) {
        for (std::size_t i = 0; i < sums.size(); ++i) weights[part.first + i] += sums[i];
    });
    CHECK(std::equal(weights.begin(), weights.end(), gradient.begin()));
    sum.sum.share(weights);
    CHECK(sum.sum.poll());
}

TEMPLATE_TEST_CASE("reduce/rounds: numbers of 16 bits are rounded at each node of the tree of workers", "[reduce]",
                   ls::compress::half, ls::compress::bfloat16) {
    using number = typename TestType::template element<float>;
    for (const std::size_t workers : {1, 2, 3, 5, 8}) {
        reducer<TestType> sum{reduce_test::bucket_of_workers(n, workers, 2, 4, 16), TestType{}};
        auto gradient = numbers(workers);
        for (float& one : gradient) one /= 3;
        const auto found = sum(gradient);
        bool differs = false;
        for (std::size_t i = 0; i < n; ++i) {
            number of[8];
            float exact = 0;
            for (std::size_t worker = 0; worker < workers; ++worker) {
                of[worker] = number{gradient[worker * n + i]};
                exact += gradient[worker * n + i];
            }
            // Missing leaves are zeros, which change no sum.
            const number tree = ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
            CHECK(found[i] == static_cast<float>(tree));
            differs = differs || found[i] != static_cast<float>(number{exact});
        }
        if (workers > 2) CHECK(differs);  // rounding the sum alone would give other numbers
        gradient[n / 2] = std::numeric_limits<float>::quiet_NaN();
        for (const float one : sum(gradient)) CHECK(std::isnan(one));
        // A sum that overflows is not finite: that fails the step.
        for (float& one : gradient) one = std::numeric_limits<float>::max();
        for (const float one : sum(gradient)) CHECK(!std::isfinite(one));
    }
}

TEST_CASE("reduce/rounds: what is tried is spread over all pieces by their numbers") {
    const auto taken = [](const std::vector<std::size_t>& counts, std::size_t most) {
        std::size_t all = 0;
        for (const std::size_t count : counts) all += count;
        ls::reduce::sample_of_pieces sample{all, counts.size(), most};
        std::vector<std::size_t> out;
        for (std::size_t which = 0; which < counts.size(); ++which)
            if (sample.takes(counts[which])) out.push_back(which);
        return out;
    };
    using pieces = std::vector<std::size_t>;
    CHECK(taken({10, 20, 30}, 60) == pieces{0, 1, 2});
    CHECK(taken({10, 90}, 40) == pieces{1});
    CHECK(taken({90, 10}, 40) == pieces{0});
    CHECK(taken({1'000}, 10) == pieces{0});
    CHECK(taken({}, 10).empty());
    const ls::core::random_stream random{3, ls::core::purpose::user};
    for (std::size_t turn = 0; turn < 500; ++turn) {
        pieces counts;
        std::size_t all = 0, longest = 0;
        const auto below = [&](std::size_t word, float most) {
            return static_cast<std::size_t>(random.uniform(1'000 * turn + word) * most);
        };
        for (std::size_t k = 0; k < 1 + below(0, 50); ++k) {
            counts.push_back(1 + below(2 + k, 4'000));
            all += counts.back();
            longest = std::max(longest, counts.back());
        }
        const std::size_t most = 1 + below(1, 30'000);
        const auto which = taken(counts, most);
        std::size_t numbers = 0;
        for (const std::size_t one : which) numbers += counts[one];
        CAPTURE(turn, all, most, numbers);
        CHECK_FALSE(which.empty());
        if (all <= most) CHECK(numbers == all);
        CHECK(numbers <= 4 * most + 2 * longest);
    }
}
