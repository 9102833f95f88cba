// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/gathered_messages.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;

namespace {

constexpr std::size_t n = 40;

std::vector<float> alternating() {
    std::vector<float> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(i + 1) * (i % 2 == 0 ? 1.0F : -1.0F);
    return out;
}

/// The largest tenth of these numbers: the last four.
std::vector<float> largest_tenth() {
    auto out = alternating();
    std::fill(out.begin(), out.end() - 4, 0.0F);
    return out;
}

}  // namespace

TEST_CASE("reduce/gathered_messages: one rank gets what its message decodes to, also when several sums follow", "[reduce]") {
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{reduce_test::bucket_of(n, 8), ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    CHECK(sum.owned() == ls::parallel::block{0, n});
    for (int again = 0; again < 3; ++again) {
        auto gradient = alternating();
        sum.start(gradient, {1, ls::core::purpose::rounding});
        sum.finish();
        CHECK(gradient == largest_tenth());
        sum.finish();  // nothing is decoded twice
        CHECK(gradient == largest_tenth());
        std::vector<float> weights(n);
        sum.update(weights, [&](ls::parallel::block part, std::span<const float> sums) {
            for (std::size_t i = 0; i < sums.size(); ++i) weights[part.first + i] += sums[i];
        });
        CHECK(weights == largest_tenth());
        sum.share(gradient);
        CHECK(gradient == largest_tenth());
    }
    CHECK(sum.bytes_per_step() == 0);
}

TEST_CASE("reduce/gathered_messages: the nodes of a rank are added before its message is written", "[reduce]") {
    // Lanes 0 to 2 of 8 are two nodes: 0 and 1 together, and 2.
    auto bucket = reduce_test::bucket_of(n, 8);
    bucket.runs = {{0, 3}};
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{bucket, ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    std::vector<float> gradient(2 * n);
    for (std::size_t i = 0; i < n; ++i) {
        gradient[i] = 1000 - alternating()[i];
        gradient[n + i] = 2 * alternating()[i] - 1000;
    }
    sum.start(gradient, {1, ls::core::purpose::rounding});
    sum.finish();
    gradient.resize(n);
    CHECK(gradient == largest_tenth());
}

TEST_CASE("reduce/gathered_messages: the state of a compressor lasts from step to step", "[reduce]") {
    const ls::compress::error_feedback compressor{ls::compress::top_k{.ratio = 0.1}};
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, std::remove_const_t<decltype(compressor)>> sum{reduce_test::bucket_of(n, 8), compressor, arena};
    arena.allocate();
    sum.bind(arena);
    // What is not sent is kept; with no new gradient, ten messages of a tenth bring all of it.
    std::vector<float> sent(n);
    for (int step = 0; step < 10; ++step) {
        auto gradient = step == 0 ? alternating() : std::vector<float>(n);
        sum.start(gradient, {1, ls::core::purpose::rounding});
        sum.finish();
        for (std::size_t i = 0; i < n; ++i) sent[i] += gradient[i];
    }
    CHECK(sent == alternating());
}
