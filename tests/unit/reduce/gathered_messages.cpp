// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/gathered_messages.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/warm_up.hpp"
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

/// Says that its messages are longer than their room.
struct too_long : ls::compress::top_k {
    static constexpr std::string_view name = "too_long";
    bool vary = false;
    [[nodiscard]] bool varies() const { return vary; }
    template <class T>
    std::size_t encode(const ls::compress::encoding<T>& in) const noexcept {
        (void)top_k::encode(in);
        return in.message.size() + 1;
    }
};

/// Sends the first number of each row.
struct first_of_rows {
    static constexpr std::string_view name = "first_of_rows";
    static constexpr ls::compress::traits traits{.whole_tensors = true};
    static constexpr std::size_t slot_count = 0;
    [[nodiscard]] std::string settings() const { return {}; }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t count) const {
        return count * sizeof(T);
    }
    template <class T>
    [[nodiscard]] std::size_t max_bytes(std::size_t count, std::uint64_t, const ls::compress::origin& from) const {
        return (from.shape(count).rows + 1) * sizeof(T);
    }
    template <class T>
    std::size_t encode(const ls::compress::encoding<T>& in) const noexcept {
        const ls::compress::matrix shape = in.from.shape(in.values.size());
        const T columns = static_cast<T>(shape.columns);
        std::memcpy(in.message.data(), &columns, sizeof(T));
        for (std::size_t row = 0; row < shape.rows; ++row)
            std::memcpy(in.message.data() + (row + 1) * sizeof(T), &in.values[row * shape.columns], sizeof(T));
        return (shape.rows + 1) * sizeof(T);
    }
    template <class T>
    void decode_add(std::span<const std::byte> message, T scale, std::span<T> sum) const noexcept {
        std::vector<T> values(message.size() / sizeof(T));
        std::memcpy(values.data(), message.data(), message.size());
        for (std::size_t row = 0; row + 1 < values.size(); ++row)
            sum[row * static_cast<std::size_t>(values[0])] += scale * values[row + 1];
    }
};

}  // namespace

TEST_CASE("reduce/gathered_messages: a compressor that asks for the shape of whole tensors has it", "[reduce]") {
    const auto check = [](const auto& compressor, std::size_t segment, std::size_t columns, std::size_t bytes) {
        ls::tensor::arena arena;
        ls::reduce::gathered_messages<float, std::remove_cvref_t<decltype(compressor)>> sum{
            reduce_test::bucket_of_workers(n, 2, 1, 8, segment), compressor, arena};
        // Messages of two workers, each with its length, and what a residual takes.
        CHECK(arena.bytes() >= bytes);
        CHECK(arena.bytes() < bytes + 256);
        arena.allocate();
        sum.bind(arena);
        auto gradient = alternating();
        gradient.insert(gradient.end(), n, 0.5F);
        std::vector<float> expected(n);
        for (std::size_t i = 0; i < n; i += columns) expected[i] = gradient[i] + 0.5F;
        sum.start(gradient, 0);
        sum.finish();
        gradient.resize(n);
        CHECK(gradient == expected);
    };
    check(first_of_rows{}, n, 8, 2 * (8 + 6 * 4));
    check(ls::compress::error_feedback{first_of_rows{}}, n, 8, 2 * (8 + 6 * 4 + n * 4));
    // A segment is a row.
    check(first_of_rows{}, 20, 20, 2 * 2 * (8 + 2 * 4));
}

TEST_CASE("reduce/gathered_messages: one rank gets what its message decodes to, also when several sums follow",
          "[reduce]") {
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{reduce_test::bucket_of_workers(n, 1, 8, 4, n),
                                                                  ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    CHECK(sum.owned() == ls::parallel::block{0, n});
    for (int again = 0; again < 3; ++again) {
        auto gradient = alternating();
        sum.start(gradient, 0);
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

TEST_CASE("reduce/gathered_messages: each worker of a rank is compressed by itself, segment by segment", "[reduce]") {
    // A worker sends the largest of each ten numbers.
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{reduce_test::bucket_of_workers(n, 3, 2, 4, 10),
                                                                  ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    std::vector<float> gradient(3 * n), expected(n);
    for (std::size_t worker = 0; worker < 3; ++worker)
        for (std::size_t i = 0; i < n; ++i) {
            const bool largest = i % 10 == worker + i / 10;
            gradient[worker * n + i] = largest ? 100.0F + static_cast<float>(i) : static_cast<float>(worker);
            if (largest) expected[i] += gradient[worker * n + i];
        }
    sum.start(gradient, 0);
    sum.finish();
    gradient.resize(n);
    CHECK(gradient == expected);
}

TEST_CASE("reduce/gathered_messages: vectors travel as they are where the compressor says so", "[reduce]") {
    // One row: a bias.
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{reduce_test::bucket_of_workers(n, 2, 1, n, n),
                                                                  ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    std::vector<float> gradient = alternating();
    gradient.insert(gradient.end(), n, 0.5F);
    sum.start(gradient, 0);
    sum.finish();
    gradient.resize(n);
    auto expected = alternating();
    for (float& one : expected) one += 0.5F;
    CHECK(gradient == expected);
}

TEST_CASE("reduce/gathered_messages: a number that is not finite makes all sums NaN", "[reduce]") {
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::top_k> sum{reduce_test::bucket_of_workers(n, 2, 1, 4, 10),
                                                                  ls::compress::top_k{.ratio = 0.1}, arena};
    arena.allocate();
    sum.bind(arena);
    std::vector<float> gradient(2 * n, 1.0F);
    gradient[n + 25] = std::numeric_limits<float>::infinity();
    sum.start(gradient, 0);
    sum.finish();
    for (std::size_t i = 0; i < n; ++i) CHECK(std::isnan(gradient[i]));
}

TEST_CASE("reduce/gathered_messages: the state of a compressor lasts from step to step", "[reduce]") {
    const ls::compress::error_feedback compressor{ls::compress::top_k{.ratio = 0.1}};
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, std::remove_const_t<decltype(compressor)>> sum{
        reduce_test::bucket_of_workers(n, 1, 8, 4, n), compressor, arena};
    arena.allocate();
    sum.bind(arena);
    // What is not sent is kept; with no new gradient, ten messages of a tenth bring all of it.
    std::vector<float> sent(n);
    for (int step = 0; step < 10; ++step) {
        auto gradient = step == 0 ? alternating() : std::vector<float>(n);
        sum.start(gradient, 0);
        sum.finish();
        for (std::size_t i = 0; i < n; ++i) sent[i] += gradient[i];
    }
    CHECK(sent == alternating());
}

TEST_CASE("reduce/gathered_messages: messages have the lengths of their step, also where steps go back", "[reduce]") {
    const ls::compress::any compressor{ls::compress::warm_up<ls::compress::top_k>{
        .inner = {.ratio = 0.1}, .each = 1, .start = 2, .ratios = {0.5, 0.5, 0.3, 0.3}}};
    ls::tensor::arena arena;
    ls::reduce::gathered_messages<float, ls::compress::any> sum{reduce_test::bucket_of_workers(n, 2, 1, 4, n),
                                                                compressor, arena};
    arena.allocate();
    sum.bind(arena);
    for (const std::uint64_t step : {0, 1, 2, 3, 4, 5, 6, 7, 100, 3, 0, 6}) {
        const std::size_t sent = step < 2 ? n : step < 4 ? 20 : step < 6 ? 12 : 4;
        auto gradient = alternating();
        auto expected = alternating();
        std::fill(expected.begin(), expected.end() - static_cast<std::ptrdiff_t>(sent), 0.0F);
        for (float& one : expected) one += one;
        gradient.insert(gradient.end(), gradient.begin(), gradient.end());
        sum.start(gradient, step);
        sum.finish();
        gradient.resize(n);
        INFO("step " << step);
        CHECK(gradient == expected);
    }
}

TEST_CASE("reduce/gathered_messages: a compressor is told of the tensor", "[reduce]") {
    const ls::compress::any compressor{
        ls::compress::by_layer{ls::compress::top_k{.ratio = 0.1}, ls::compress::top_k{.ratio = 0.5}}};
    ls::tensor::arena arena;
    auto bucket = reduce_test::bucket_of_workers(n, 1, 1, 4, 20);
    bucket.deal.pieces[1].window = 9;
    ls::reduce::gathered_messages<float, ls::compress::any> sum{bucket, compressor, arena};
    arena.allocate();
    sum.bind(arena);
    auto gradient = alternating();
    sum.start(gradient, 0);
    sum.finish();
    auto expected = alternating();
    std::fill(expected.begin(), expected.begin() + 18, 0.0F);
    std::fill(expected.begin() + 20, expected.begin() + 30, 0.0F);
    CHECK(gradient == expected);
}

TEST_CASE("reduce/gathered_messages: a length beyond the room of a message is one error", "[reduce]") {
    for (const bool vary : {false, true}) {
        ls::tensor::arena arena;
        const too_long compressor{{.ratio = 0.1}, vary};
        ls::reduce::gathered_messages<float, too_long> sum{reduce_test::bucket_of_workers(n, 2, 1, 8, n), compressor,
                                                           arena};
        arena.allocate();
        sum.bind(arena);
        std::vector<float> gradient(2 * n, 1);
        CHECK_THROWS_WITH(sum.start(gradient, 0),
                          "lockstep: encode() of too_long returned 33 bytes for 40 numbers, with room for 32; return "
                          "the length of the message; max_bytes() is that of the longest one");
    }
}
