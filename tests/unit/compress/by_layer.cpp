// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/by_layer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/top_k.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/by_layer: the tensor decides whose message it is", "[compress]", float, double) {
    using T = TestType;
    const std::size_t n = 1000;
    const auto values = normals<T>(n, 3);
    const by_layer parts{top_k{.ratio = 0.01}, quantize{.bits = 8}, none{}};
    const core::random_stream random{7, core::purpose::rounding};
    channel<T, std::remove_const_t<decltype(parts)>> one{parts, n};
    const auto compare = [&](const auto& part, const origin& from, std::size_t kind) {
        channel<T, std::remove_cvref_t<decltype(part)>> alone{part, n};
        one.from = from;
        const auto expected = alone.encode(values, random), message = one.encode(values, random);
        CHECK(message.size() == expected.size() + 1);
        CHECK(message.back() == static_cast<std::byte>(kind));
        CHECK(std::equal(expected.begin(), expected.end(), message.begin()));
        CHECK(one.decode(message) == alone.decode(expected));
        CHECK(one.guard_holds());
        // Room is that of the tensor, not of the longest message of all.
        CHECK(max_bytes_at<T>(parts, n, 0, from) == part.template max_bytes<T>(n) + 1);
    };
    compare(parts.dense, {.rows = 40, .columns = 25}, 0);
    compare(parts.convolutions, {.rows = 40, .columns = 25, .window = 25}, 1);
    compare(parts.convolutions, {.rows = 40, .columns = 25, .window = 1}, 1);
    compare(parts.vectors, {.rows = 1, .columns = 1000}, 2);
    CHECK(parts.template max_bytes<T>(n) == n * sizeof(T) + 1);
}

/// Tensors of less than 1,000 numbers travel as they are.
struct leaves_small : top_k {
    [[nodiscard]] bool is_dense(const matrix& shape) const { return shape.size() < 1000; }
};

TEST_CASE("compress/by_layer: vectors without a compressor are added as they are", "[compress]") {
    const by_layer parts{top_k{}, quantize{.bits = 8}};
    CHECK(compress::is_dense(parts, {1, 10}));
    CHECK(compress::is_dense(parts, {10, 1}));
    CHECK_FALSE(compress::is_dense(parts, {10, 2}));
    CHECK(compress::is_dense(error_feedback{parts}, {1, 10}));
    // Who names a compressor for vectors gets it, also one that would leave them out alone.
    CHECK_FALSE(compress::is_dense(by_layer{top_k{}, top_k{}, top_k{}}, {1, 10}));
    // What both compressors for matrices leave as it is.
    CHECK(compress::is_dense(by_layer{leaves_small{}, error_feedback{leaves_small{}}}, {10, 10}));
    CHECK_FALSE(compress::is_dense(by_layer{leaves_small{}, leaves_small{}}, {100, 10}));
    CHECK_FALSE(compress::is_dense(by_layer{leaves_small{}, top_k{}}, {10, 10}));
}

TEST_CASE("compress/by_layer: state, settings and check are those of its parts", "[compress]") {
    const by_layer parts{error_feedback{top_k{}}, quantize{.bits = 8}};
    static_assert(decltype(parts)::slot_count == 1);
    static_assert(!traits_of<decltype(parts)>.dense_vectors);
    CHECK(parts.settings() ==
          "dense=error_feedback(inner=top_k(ratio=0.01)) convolutions=quantize(bits=8 bucket=512 stochastic=true) "
          "vectors=none");
    CHECK_THROWS_WITH((by_layer{top_k{}, quantize{.bits = 0}}.check()), Catch::Contains("quantize has bits = 0"));
    CHECK_THROWS_WITH((by_layer{top_k{}, top_k{}, top_k{.ratio = 0}}.check()), Catch::Contains("top_k has ratio = 0"));
    CHECK_THROWS_AS((by_layer{top_k{}, quantize{.bits = 2}}.check_feedback()), core::error);
    CHECK_THROWS_WITH((by_layer{top_k{}, top_k{}, one_bit{}}.check()),
                      Catch::Contains("for vectors that takes whole tensors beside ones that take segments"));
    CHECK_NOTHROW((by_layer{top_k{}, top_k{}, one_bit{.by_column = false}}.check()));
    CHECK_NOTHROW((by_layer{one_bit{}, one_bit{}, one_bit{}}.check()));
}
