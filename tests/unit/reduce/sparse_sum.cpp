// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/sparse_sum.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/gaussian_top_k.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sampled_top_k.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/reduce/gathered_messages.hpp"
#include "unit/reduce/naive_streams.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;
using ls::compress::error_feedback;
using ls::compress::global_top_k;
using ls::compress::quantize;
using ls::compress::sparse_sum;
using ls::compress::top_k;

namespace {

/// Numbers around zero with equal magnitudes, zeros of both signs and some that cancel.
template <class T>
std::vector<T> gradients(std::size_t n, std::size_t workers, std::uint64_t step) {
    const ls::core::random_stream random{17, ls::core::purpose::user, static_cast<std::uint32_t>(n),
                                         static_cast<std::uint32_t>(step)};
    std::vector<T> out(n * workers);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto u = static_cast<T>(random.uniform(i)) - T{0.5};
        out[i] = i % 11 == 0  ? static_cast<T>(std::copysign(0.25F, static_cast<float>(u)))
                 : i % 7 == 3 ? static_cast<T>(std::copysign(0.0F, static_cast<float>(u)))
                              : u;
    }
    return out;
}

template <class T, class Reducer>
struct one_rank {
    std::size_t n;
    ls::tensor::arena arena;
    Reducer sum;
    template <class C>
    one_rank(const ls::reduce::bucket& of, const C& compressor) : n{of.n}, sum{of, compressor, arena} {
        arena.allocate();
        sum.bind(arena);
    }
    std::vector<T> operator()(std::vector<T> gradient, std::uint64_t step) {
        sum.start(gradient, step);
        sum.finish();
        sum.finish();
        arena.check();
        gradient.resize(n);
        return gradient;
    }
    /// All that outlives a step.
    [[nodiscard]] std::vector<T> state() const {
        std::vector<T> out;
        sum.visit_state([&](const auto& part) { out.insert(out.end(), part.numbers.begin(), part.numbers.end()); }, 0);
        return out;
    }
};
template <class T, class C>
using sparse = one_rank<T, ls::reduce::sparse_sum<T, C>>;
template <class T, class C>
using gathered = one_rank<T, ls::reduce::gathered_messages<T, C>>;

ls::reduce::bucket bucket_of(std::size_t n, std::size_t workers, std::size_t segment, std::size_t columns = 1) {
    auto out = reduce_test::bucket_of_workers(n, workers, 1, columns, segment);
    for (auto& one : out.deal.pieces)
        if (columns == 1) one.rows = one.columns = 2;  // no vector, whatever its length
    out.deal.seed = 23;
    return out;
}

/// Naive: residuals, messages and the tree of workers, with maps.
template <class T>
struct by_hand {
    ls::reduce::bucket of;
    double ratio;
    bool keeps = true;  // residuals
    bool cuts = false;
    std::vector<T> residual{};

    std::vector<T> operator()(const std::vector<T>& gradient) {
        const std::size_t n = of.n, workers = of.deal.workers;
        residual.resize(n * workers);
        std::vector<T> out(n);
        for (const auto& piece : of.deal.pieces) {
            const std::size_t k = top_k{.ratio = ratio}.count(piece.count);
            std::vector<naive::entries<T>> messages;
            for (std::size_t worker = 0; worker < workers; ++worker) {
                std::vector<T> p(piece.count);
                for (std::size_t i = 0; i < p.size(); ++i) {
                    const std::size_t at = worker * n + piece.first + i;
                    p[i] = keeps ? residual[at] + gradient[at] : gradient[at];
                }
                messages.push_back(naive::largest<T>(p, k));
                for (std::size_t i = 0; i < p.size(); ++i)
                    residual[worker * n + piece.first + i] = messages.back().contains(i) ? p[i] - p[i] : p[i];
            }
            const auto sum = naive::tree<T>(messages, [&](const auto& a, const auto& b) {
                return cuts ? naive::largest(naive::add(a, b), k) : naive::add(a, b);
            });
            for (const auto& [index, value] : sum) out[piece.first + index] = T{0} + value;
            for (std::size_t worker = 0; worker < workers; ++worker)
                for (const auto& [index, value] : messages[worker])
                    if (!sum.contains(index)) residual[worker * n + piece.first + index] = value;
        }
        return out;
    }
};

struct size {
    std::size_t n, segment;
};
constexpr size sizes[] = {{1, 1}, {2, 1}, {40, 40}, {97, 64}, {257, 64}, {1009, 1009}};

}  // namespace

TEMPLATE_TEST_CASE("reduce/sparse_sum: lists are added over the tree of workers, bit for bit", "[reduce]", float,
                   double) {
    using T = TestType;
    for (const auto& [n, segment] : sizes)
        for (std::size_t workers : {1, 2, 3, 5, 8})
            for (double ratio : {1e-6, 0.05, 0.3, 1.0}) {
                INFO(n << " numbers, segments of " << segment << ", " << workers << " workers, ratio " << ratio);
                const auto of = bucket_of(n, workers, segment);
                sparse<T, sparse_sum<top_k>> plain{of, sparse_sum{top_k{.ratio = ratio}}};
                by_hand<T> naive{.of = of, .ratio = ratio, .keeps = false};
                for (std::uint64_t step = 0; step < 2; ++step) {
                    const auto gradient = gradients<T>(n, workers, step);
                    const auto sum = plain(gradient, step);
                    REQUIRE(naive::same_bits<T>(sum, naive(gradient)));
                    for (const T one : sum) REQUIRE(!(one == 0 && std::signbit(one)));
                }
            }
}

TEMPLATE_TEST_CASE("reduce/sparse_sum: error feedback inside and around it have the same bits", "[reduce]", float,
                   double) {
    using T = TestType;
    for (const auto& [n, segment] : sizes)
        for (std::size_t workers : {1, 3, 8}) {
            INFO(n << " numbers, segments of " << segment << ", " << workers << " workers");
            const auto of = bucket_of(n, workers, segment);
            const sparse_sum inside{error_feedback{top_k{.ratio = 0.05}}};
            const error_feedback around{sparse_sum{top_k{.ratio = 0.05}}};
            sparse<T, std::remove_const_t<decltype(inside)>> first{of, inside};
            sparse<T, std::remove_const_t<decltype(around)>> second{of, around};
            gathered<T, error_feedback<top_k>> messages{of, error_feedback{top_k{.ratio = 0.05}}};
            by_hand<T> naive{.of = of, .ratio = 0.05};
            for (std::uint64_t step = 0; step < 5; ++step) {
                const auto gradient = gradients<T>(n, workers, step);
                const auto sum = first(gradient, step), expected = naive(gradient);
                REQUIRE(naive::same_bits<T>(sum, expected));
                REQUIRE(naive::same_bits<T>(second(gradient, step), expected));
                // Gathered messages differ in the order of additions: each is within workers - 1 roundings.
                const auto other = messages(gradient, step);
                for (std::size_t i = 0; i < n; ++i)
                    REQUIRE(std::abs(sum[i] - other[i]) <=
                            2 * static_cast<T>(workers * workers) * std::numeric_limits<T>::epsilon());
                REQUIRE(first.state() == messages.state());
                REQUIRE(second.state() == messages.state());
            }
        }
}

TEST_CASE("reduce/sparse_sum: lists of any length, also empty ones, as gathered messages", "[reduce]") {
    const std::size_t n = 500, workers = 5;
    const auto check = [&](auto inner) {
        INFO(inner.name << " " << inner.settings());
        const auto of = bucket_of(n, workers, 128);
        using feedback = error_feedback<decltype(inner)>;
        sparse<float, sparse_sum<feedback>> one{of, sparse_sum<feedback>{{inner}}};
        gathered<float, feedback> messages{of, feedback{inner}};
        for (std::uint64_t step = 0; step < 4; ++step) {
            auto gradient = gradients<float>(n, workers, step);
            std::fill_n(gradient.begin(), n + 128, 0.0F);
            const auto sum = one(gradient, step), other = messages(gradient, step);
            for (std::size_t i = 0; i < n; ++i)
                REQUIRE(std::abs(sum[i] - other[i]) <=
                        static_cast<float>(workers * workers) * 2 * std::numeric_limits<float>::epsilon());
            REQUIRE(one.state() == messages.state());
        }
    };
    check(ls::compress::threshold{.value = 0.45, .most_share = 0.5});
    check(ls::compress::threshold{.value = 100});
    check(ls::compress::sampled_top_k{.ratio = 0.1});
    check(ls::compress::gaussian_top_k{.ratio = 0.1});
}

TEST_CASE("reduce/sparse_sum: a warm-up from all numbers to few, as gathered messages", "[reduce]") {
    const std::size_t n = 500;
    for (const std::size_t workers : {1, 2, 5}) {
        const auto of = bucket_of(n, workers, 128);
        using feedback = error_feedback<ls::compress::warm_up<top_k>>;
        const feedback inner{{top_k{.ratio = 0.02}, 1, 2}};
        sparse<float, sparse_sum<feedback>> one{of, sparse_sum<feedback>{inner}};
        gathered<float, feedback> messages{of, inner};
        for (std::uint64_t step = 0; step < 10; ++step) {
            INFO(workers << " workers, step " << step);
            const auto gradient = gradients<float>(n, workers, step);
            const auto sum = one(gradient, step), other = messages(gradient, step);
            for (std::size_t i = 0; i < n; ++i)  // of two workers in one order only
                REQUIRE(std::abs(sum[i] - other[i]) <= (workers <= 2 ? 0.0F
                                                                     : static_cast<float>(workers * workers) * 2 *
                                                                           std::numeric_limits<float>::epsilon()));
            REQUIRE(one.state() == messages.state());
        }
    }
}

TEST_CASE("reduce/sparse_sum: vectors travel as they are beside the streams", "[reduce]") {
    // A matrix, a bias, another matrix: the streams leave a gap.
    auto of = bucket_of(120, 3, 40);
    of.deal.pieces[1].rows = 1;
    of.deal.pieces[1].columns = 40;
    sparse<float, sparse_sum<top_k>> one{of, sparse_sum{top_k{.ratio = 0.1}}};
    by_hand<float> naive{.of = of, .ratio = 0.1, .keeps = false};
    const auto gradient = gradients<float>(120, 3, 1);
    auto expected = naive(gradient);
    for (std::size_t i = 40; i < 80; ++i) expected[i] = (gradient[i] + gradient[120 + i]) + gradient[240 + i];
    CHECK(one(gradient, 1) == expected);
    // Nothing but vectors.
    const auto biases = bucket_of(40, 2, 40, 40);
    sparse<float, sparse_sum<top_k>> two{biases, sparse_sum{top_k{.ratio = 0.1}}};
    auto sum = two(gradients<float>(40, 2, 3), 3);
    const auto both = gradients<float>(40, 2, 3);
    for (std::size_t i = 0; i < 40; ++i) REQUIRE(sum[i] == both[i] + both[40 + i]);
    auto bad = both;
    bad[7] = std::numeric_limits<float>::infinity();
    for (const float number : two(bad, 4)) REQUIRE(std::isnan(number));
}

TEST_CASE("reduce/sparse_sum: zeros, and numbers that are not finite", "[reduce]") {
    const auto of = bucket_of(200, 4, 64);
    const auto check = [&](auto compressor) {
        sparse<float, decltype(compressor)> one{of, compressor};
        CHECK(one(std::vector<float>(800), 0) == std::vector<float>(200));
        CHECK(one(std::vector<float>(800, -0.0F), 1) == std::vector<float>(200));
        for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
            for (std::size_t at : {0, 399, 799}) {
                auto gradient = gradients<float>(200, 4, 2);
                gradient[at] = bad;
                for (const float number : one(gradient, 2)) REQUIRE(std::isnan(number));
            }
        CHECK(std::isfinite(one(gradients<float>(200, 4, 3), 3)[0]));
    };
    check(sparse_sum{top_k{.ratio = 0.1}});
    check(sparse_sum{top_k{.ratio = 0.1}, quantize{.bits = 8}});
    check(sparse_sum{top_k{.ratio = 0.5}, quantize{.bits = 8}});
    check(global_top_k{.ratio = 0.1});
}

TEMPLATE_TEST_CASE("reduce/sparse_sum: a sum that is expected to turn dense is quantised, others are not", "[reduce]",
                   float, double) {
    using T = TestType;
    for (const auto& [n, segment] : {size{1, 1}, size{5000, 4996}, size{20000, 9000}, size{9001, 0x10000}})
        for (std::size_t workers : {1, 4}) {
            const auto of = bucket_of(n, workers, segment);
            for (double ratio : {0.01, 0.4}) {
                INFO(n << " numbers, segments of " << segment << ", " << workers << " workers, ratio " << ratio);
                sparse<T, sparse_sum<top_k>> exact{of, sparse_sum{top_k{.ratio = ratio}}};
                sparse<T, sparse_sum<top_k, quantize>> rounded{of,
                                                               sparse_sum{top_k{.ratio = ratio}, quantize{.bits = 4}}};
                const auto gradient = gradients<T>(n, workers, 1);
                auto expected = exact(gradient, 6);
                for (const auto& piece : of.deal.pieces) {
                    // E[K] against delta, with the formula by hand.
                    const auto count = static_cast<double>(piece.count),
                               k = static_cast<double>(top_k{.ratio = ratio}.count(piece.count)),
                               full = count * (1 - std::pow(1 - k / count, static_cast<double>(workers)));
                    if (full < count * sizeof(T) / (4 + sizeof(T))) continue;
                    for (std::size_t first = 0; first < piece.count; first += 4096) {
                        const std::size_t length = std::min<std::size_t>(4096, piece.count - first);
                        const std::span<T> chunk = std::span{expected}.subspan(piece.first + first, length);
                        const quantize how{.bits = 4};
                        std::vector<std::byte> message(how.max_bytes<T>(length));
                        const ls::core::random_stream random{23, ls::core::purpose::reduction,
                                                             static_cast<std::uint32_t>(piece.tensor), 6};
                        how.encode(ls::compress::encoding<T>{.values = chunk,
                                                             .message = message,
                                                             .state = {},
                                                             .scratch = {},
                                                             .random = random.from((piece.offset + first) / 4)});
                        std::ranges::fill(chunk, T{0});
                        how.decode_add(message, T{1}, chunk);
                    }
                }
                CHECK(naive::same_bits<T>(rounded(gradient, 6), expected));
            }
        }
}

TEMPLATE_TEST_CASE("reduce/sparse_sum: global_top_k merges to width k and puts back what is not in the result",
                   "[reduce]", float, double) {
    using T = TestType;
    for (const auto& [n, segment] : sizes)
        for (std::size_t workers : {1, 2, 3, 5, 8})
            for (double ratio : {1e-6, 0.1, 1.0}) {
                INFO(n << " numbers, segments of " << segment << ", " << workers << " workers, ratio " << ratio);
                const auto of = bucket_of(n, workers, segment);
                sparse<T, global_top_k> one{of, global_top_k{.ratio = ratio}};
                by_hand<T> naive{.of = of, .ratio = ratio, .cuts = true};
                for (std::uint64_t step = 0; step < 4; ++step) {
                    const auto gradient = gradients<T>(n, workers, step);
                    REQUIRE(naive::same_bits<T>(one(gradient, step), naive(gradient)));
                    auto state = one.state();
                    // The visitor shows piece after piece, of each the workers.
                    std::vector<T> expected;
                    for (const auto& piece : of.deal.pieces)
                        for (std::size_t worker = 0; worker < workers; ++worker)
                            for (std::size_t i = 0; i < piece.count; ++i)
                                expected.push_back(naive.residual[worker * n + piece.first + i]);
                    REQUIRE(state == expected);
                }
            }
}

TEST_CASE("reduce/sparse_sum: what workers keep and send is what they had, also in global_top_k with k = n",
          "[reduce]") {
    // Whole numbers: sums are exact.
    const std::size_t n = 60, workers = 4;
    const auto of = bucket_of(n, workers, n);
    const auto check = [&](auto compressor) {
        sparse<double, decltype(compressor)> one{of, compressor};
        std::vector<double> had(n), sent(n);
        for (std::uint64_t step = 0; step < 6; ++step) {
            std::vector<double> gradient(n * workers);
            for (std::size_t i = 0; i < gradient.size(); ++i)
                gradient[i] = static_cast<double>((i * 37 + 11 * step) % 101) - 50;
            for (std::size_t i = 0; i < gradient.size(); ++i) had[i % n] += gradient[i];
            const auto sum = one(gradient, step);
            for (std::size_t i = 0; i < n; ++i) sent[i] += sum[i];
            const auto state = one.state();
            for (std::size_t i = 0; i < n; ++i) {
                double kept = 0;
                for (std::size_t worker = 0; worker < workers; ++worker) kept += state[worker * n + i];
                REQUIRE(kept + sent[i] == had[i]);
            }
        }
    };
    check(sparse_sum{error_feedback{top_k{.ratio = 0.1}}});
    check(error_feedback{sparse_sum{top_k{.ratio = 0.3}}});
    check(global_top_k{.ratio = 1});
}

TEST_CASE("reduce/sparse_sum: an index that a merge has cut and the result has is lost, as published", "[reduce]") {
    // Four workers, k = 1. Index 0 is cut in the first merge and comes to the root by the second one.
    const auto of = bucket_of(3, 4, 3);
    sparse<float, global_top_k> one{of, global_top_k{.ratio = 0.3}};
    const auto sum = one({2, 0, 0, 0, 3, 0, 5, 0, 0, 4, 0, 0}, 0);
    CHECK(sum == std::vector<float>{9, 0, 0});
    CHECK(one.state() == std::vector<float>{0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0});  // the 2 of worker 0 is gone
}

TEST_CASE("reduce/sparse_sum: one rank sends nothing", "[reduce]") {
    const auto of = bucket_of(200, 4, 64);
    sparse<float, sparse_sum<top_k>> plain{of, sparse_sum{top_k{}}};
    sparse<float, sparse_sum<top_k, quantize>> dense{of, sparse_sum{top_k{.ratio = 0.5}, quantize{}}};
    sparse<float, global_top_k> cut{of, global_top_k{}};
    CHECK(plain.sum.bytes_per_step() == 0);
    CHECK(dense.sum.bytes_per_step() == 0);
    CHECK(cut.sum.bytes_per_step() == 0);
    CHECK(plain.sum.replicates());
    CHECK(plain.sum.owned() == ls::parallel::block{0, 200});
}
