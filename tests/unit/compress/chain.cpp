// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/chain.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <limits>

#include "lockstep/compress/none.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

/// Of unequal lengths, as entropy codes are: a number for each value that is not zero, after a count.
struct without_zeros {
    static constexpr std::string_view name = "without_zeros";
    static constexpr std::size_t slot_count = 0;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t n) const {
        return n * (sizeof(T) + 2);
    }
    template <class T>
    std::size_t encode(const encoding<T>& in) const noexcept {
        std::size_t at = 0;
        for (std::uint16_t i = 0; i < in.values.size(); ++i) {
            if (in.values[i] == 0) continue;
            std::memcpy(&in.message[at], &i, 2);
            std::memcpy(&in.message[at + 2], &in.values[i], sizeof(T));
            at += 2 + sizeof(T);
        }
        return at;
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        for (std::size_t at = 0; at < message.size(); at += 2 + sizeof(T)) {
            std::uint16_t i;
            T value;
            std::memcpy(&i, &message[at], 2);
            std::memcpy(&value, &message[at + 2], sizeof(T));
            sum[i] += scale * value;
        }
    }
};

std::size_t whole(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

TEMPLATE_TEST_CASE("compress/chain: what the sparsifier sends, where values are compressed without loss", "[compress]",
                   float, double) {
    using T = TestType;
    for (std::size_t n : {0, 1, 7, 257, 1024, 1025, 5003}) {
        const auto values = normals<T>(n, 3, 2);
        for (double ratio : {0.001, 0.3, 1.0}) {
            const top_k picks{.ratio = ratio};
            const std::size_t k = picks.count(n);
            INFO(n << " values, " << k << " sent");
            channel<T, chain<top_k, none>> one{{picks}, n};
            const auto message = one.encode(values);
            CHECK(one.decode(message) == by_sorting(values, k));
            CHECK(one.guard_holds());
            // Blocks of 1,024 values, their lengths, the indices and their number.
            CHECK(message.size() == whole(k * sizeof(T)) + 4 * k + 4 * ((k + 1023) / 1024) + 4);
            CHECK(message.size() == one.most);

            channel<T, chain<top_k, without_zeros>> other{{picks}, n};
            CHECK(other.decode(other.encode(values)) == by_sorting(values, k));
            CHECK(other.guard_holds());
        }
    }
    // Fewer than there is room for.
    channel<T, chain<threshold, without_zeros>> few{{threshold{.value = 2, .most_share = 0.9}}, 3000};
    const auto values = normals<T>(3000, 4);
    std::vector<T> expected(3000);
    for (std::size_t i = 0; i < 3000; ++i) expected[i] = std::abs(values[i]) >= 2 ? values[i] : T{0};
    CHECK(few.decode(few.encode(values)) == expected);
    CHECK(few.encode(std::vector<T>(3000)).size() == 4);
}

TEMPLATE_TEST_CASE("compress/chain: the values are those that quantize makes of each 1,024 of them", "[compress]",
                   float, double) {
    using T = TestType;
    const std::size_t n = 5003;
    const auto values = normals<T>(n, 9);
    const top_k picks{.ratio = 0.5};
    const quantize few{.bits = 4, .bucket = 512};
    channel<T, chain<top_k, quantize>> one{{picks, few}, n};
    const core::random_stream random{5, core::purpose::rounding, 3, 8};
    const auto message = one.encode(values, random);
    const auto decoded = one.decode(message);

    const auto largest = by_sorting(values, picks.count(n));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < n; ++i)
        if (largest[i] != 0) places.push_back(i);
    std::vector<T> expected(n);
    std::size_t bytes = 4;
    for (std::size_t first = 0; first < places.size(); first += 1024) {
        std::vector<T> some;
        for (std::size_t i = first; i < std::min(first + 1024, places.size()); ++i) some.push_back(values[places[i]]);
        channel<T, quantize> inner{few, some.size()};
        const auto coded = inner.encode(some, random.from(first / 4));
        const auto back = inner.decode(coded);
        for (std::size_t i = 0; i < some.size(); ++i) expected[places[first + i]] = back[i];
        bytes += whole(coded.size()) + 4 * some.size() + 4;
    }
    CHECK(decoded == expected);
    CHECK(message.size() == bytes);
}

TEMPLATE_TEST_CASE("compress/chain: what is selected is one column for one_bit, also all of a matrix", "[compress]",
                   float, double) {
    using T = TestType;
    const std::size_t n = 96;
    const auto values = normals<T>(n, 6);
    for (double ratio : {0.5, 1.0}) {
        const top_k picks{.ratio = ratio};
        channel<T, chain<top_k, one_bit>> one{{picks}, n, origin{.rows = 4, .columns = 24}};
        const auto message = one.encode(values);
        const std::size_t k = picks.count(n);
        REQUIRE(message.size() == whole(2 * sizeof(T) + k / 8) + 4 * k + 8);
        CHECK(one.guard_holds());

        const auto sent = by_sorting(values, k);
        std::vector<T> some;
        std::copy_if(sent.begin(), sent.end(), std::back_inserter(some), [](T value) { return value != 0; });
        channel<T, one_bit> inner{{}, k};
        const auto back = inner.decode(inner.encode(some));
        std::vector<T> expected(n);
        for (std::size_t i = 0, at = 0; i < n; ++i)
            if (sent[i] != 0) expected[i] = back[at++];
        CHECK(one.decode(message) == expected);
    }
}

TEMPLATE_TEST_CASE("compress/chain: numbers that are not finite are never left out", "[compress]", float, double) {
    using T = TestType;
    auto values = normals<T>(3000, 2);
    values[83] = std::numeric_limits<T>::infinity();
    channel<T, chain<top_k, quantize>> one{{top_k{.ratio = 0.01}}, 3000};
    CHECK(!std::isfinite(one.decode(one.encode(values))[83]));
}

TEST_CASE("compress/chain: traits, settings and check are those of its parts", "[compress]") {
    static_assert(traits_of<chain<top_k, quantize>>.dense_vectors);
    CHECK(chain{top_k{.ratio = 0.01}, quantize{}}.settings() ==
          "top_k(ratio=0.01) quantize(bits=4 bucket=512 stochastic=true)");
    CHECK_THROWS_WITH((chain{top_k{.ratio = 2}, quantize{}}.check()), Catch::Contains("top_k has ratio = 2"));
    CHECK_THROWS_WITH((chain{top_k{}, quantize{.bits = 33}}.check()), Catch::Contains("quantize has bits = 33"));
    CHECK_THROWS_AS((chain{top_k{}, quantize{.bits = 2}}.check_feedback()), core::error);
    CHECK(chain{top_k{.ratio = 0.01}, quantize{}}.with_ratio(0.5).sparsifier.ratio == 0.5);
    struct of_whole_matrices : top_k {
        [[nodiscard]] bool is_dense(const matrix& shape) const { return shape.size() < 1000; }
        [[nodiscard]] bool sees_whole_tensors() const { return true; }
    };
    const chain whole{of_whole_matrices{}, quantize{}};
    CHECK(compress::is_dense(whole, {10, 10}));
    CHECK_FALSE(compress::is_dense(whole, {100, 10}));
    CHECK(compress::sees_whole_tensors(whole));
    CHECK_FALSE(compress::sees_whole_tensors(chain{top_k{}, quantize{}}));
    CHECK(compress::sends_all(chain{top_k{.ratio = 1}, none{}}, 0, {}));
    CHECK_FALSE(compress::sends_all(chain{top_k{.ratio = 1}, quantize{}}, 0, {}));
    CHECK_FALSE(compress::sends_all(chain{top_k{.ratio = 0.5}, none{}}, 0, {}));
}
