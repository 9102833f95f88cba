// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/measured.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <sstream>

#include "by_hand.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/chain.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/sign_vote.hpp"
#include "lockstep/compress/sparse_sum.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "lockstep/compress/threshold.hpp"
#include "lockstep/compress/top_k.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEST_CASE("compress/measured: the last row names no tensor where it may be of several", "[compress]") {
    statistics seen{2};
    const std::vector<std::string> names{"first", "second", "third", "fourth"};
    for (std::size_t tensor = 0; tensor < names.size(); ++tensor)
        seen.add(tensor, {.messages = 1, .numbers = 10, .bytes = 10});
    CHECK(seen.text(names).find("third") == std::string::npos);
    CHECK(seen.text(names).find("\n2 and later ") != std::string::npos);
    CHECK(seen.text().find("\n2 and later ") != std::string::npos);
    CHECK(seen.name_of(1, names, "tensor ") == "second");
    CHECK(seen.name_of(1, {}, "tensor ") == "tensor 1");
    CHECK(seen.name_of(2, {}, "tensor ") == "tensor 2 and later");
    CHECK(seen.name_of(2, std::span{names}.first(3)) == "third");
}

TEMPLATE_TEST_CASE("compress/measured: the messages are those of the compressor inside, the sums those of each tensor",
                   "[compress]", float, double) {
    using T = TestType;
    const std::size_t n = 500;
    statistics seen{3};
    const top_k inner{.ratio = 0.1};
    channel<T, top_k> bare{inner, n};
    channel<T, measured<top_k>> watched{{inner, &seen}, n};
    channel<T, measured<top_k>> unwatched{{inner, nullptr}, n};
    CHECK(watched.scratch.size() == bare.scratch.size() + n);
    CHECK(unwatched.scratch.size() == bare.scratch.size());
    std::array<long double, 2> squares{}, lost{};
    for (std::uint64_t step = 0; step < 6; ++step) {
        watched.from.tensor = step % 2;
        const auto values = normals<T>(n, step);
        const auto expected = bare.encode(values), message = watched.encode(values), other = unwatched.encode(values);
        CHECK(std::equal(expected.begin(), expected.end(), message.begin(), message.end()));
        CHECK(std::equal(expected.begin(), expected.end(), other.begin(), other.end()));
        squares[step % 2] += square(values);
        lost[step % 2] += square_of_rest(values, bare.decode(expected));
    }
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        CHECK(seen.of(tensor).messages == 3);
        CHECK(seen.of(tensor).numbers == 3 * n);
        CHECK(seen.of(tensor).bytes == 3 * 50 * (sizeof(T) + 4));
        CHECK(seen.of(tensor).ratio(sizeof(T)) == Approx(10.0 * sizeof(T) / (sizeof(T) + 4)));
        CHECK(seen.of(tensor).squares == Approx(static_cast<double>(squares[tensor])));
        CHECK(seen.of(tensor).lost == Approx(static_cast<double>(lost[tensor])));
        CHECK(seen.of(tensor).relative_error() ==
              Approx(std::sqrt(static_cast<double>(lost[tensor] / squares[tensor]))));
        CHECK(seen.of(tensor).encode_seconds > 0);
        CHECK(seen.of(tensor).decode_seconds > 0);
    }
    CHECK(seen.of(2).messages == 0);
    // A tensor that there is no row for.
    watched.from.tensor = 77;
    watched.encode(normals<T>(n, 1));
    CHECK(seen.of(3).messages == 1);
    CHECK(seen.total().messages == 7);
    seen.clear();
    CHECK(seen.total().messages == 0);
}

TEST_CASE("compress/measured: inside error feedback the error is that of gradient and residual", "[compress]") {
    statistics seen{1};
    const any chosen{error_feedback<measured<top_k>>{{top_k{.ratio = 0.5}, &seen}}};
    channel<float, any> one{chosen, 2};
    one.encode(std::vector<float>{3, 4});  // 3 stays
    one.encode(std::vector<float>{1, 0});  // 4 is sent
    CHECK(seen.of(0).squares == 25 + 16);
    CHECK(seen.of(0).lost == 9);
    CHECK(seen.of(0).relative_error() == std::sqrt(9.0 / 41.0));
    CHECK(chosen.settings() == "error_feedback(inner=top_k(ratio=0.5))");
}

TEST_CASE("compress/measured: exactness, settings and check are the inner one's", "[compress]") {
    statistics seen{1};
    const quantize coarse{.bits = 3, .bucket = 50};
    channel<float, error_feedback<quantize>> bare{{coarse}, 257};
    channel<float, error_feedback<measured<quantize>>> watched{{{coarse, &seen}}, 257};
    for (std::uint64_t step = 0; step < 5; ++step) {
        const auto gradient = normals<float>(257, step);
        bare.encode(gradient);
        watched.encode(gradient);
        CHECK(watched.slots == bare.slots);
    }
    // As values of a chain, too, and within another combinator there.
    const chain exact{top_k{.ratio = 0.3}, coarse};
    channel<float, error_feedback<chain<top_k, quantize>>> plain{{exact}, 257};
    channel<float, error_feedback<chain<top_k, measured<quantize>>>> inside{{{exact.sparsifier, {coarse, &seen}}}, 257};
    channel<float, error_feedback<chain<top_k, warm_up<quantize>>>> later{{{exact.sparsifier, {coarse}}}, 257};
    for (std::uint64_t step = 0; step < 50; ++step) {
        const auto gradient = normals<float>(257, step);
        plain.encode(gradient);
        inside.encode(gradient);
        later.encode(gradient);
        REQUIRE(inside.slots == plain.slots);
        REQUIRE(later.slots == plain.slots);
    }
    CHECK(measured<quantize>{coarse, &seen}.settings() == coarse.settings());
    CHECK_THROWS_AS((measured<quantize>{{.bits = 0}, &seen}.check()), core::error);
    CHECK_THROWS_AS((measured<quantize>{{.bits = 2}, &seen}.check_feedback()), core::error);
    // Lists stay lists, and shares of elements can be changed.
    STATIC_REQUIRE(sends_index_list<measured<top_k>> && !sends_index_list<measured<quantize>>);
    const sparse_sum streams{error_feedback{measured<top_k>{{.ratio = 0.25}, &seen}}};
    CHECK_NOTHROW(streams.check());
    STATIC_REQUIRE(has_ratio<measured<top_k>> && !has_ratio<measured<quantize>>);
    CHECK(ratio_of(measured<top_k>{{.ratio = 0.25}, &seen}) == 0.25);
    const auto other = with_ratio(measured<top_k>{{.ratio = 0.25}, &seen}, 0.5);
    CHECK(other.inner.ratio == 0.5);
    CHECK(other.to == &seen);
}

TEST_CASE("compress/measured: a table with a line for each tensor that was sent", "[compress]") {
    statistics seen{4};
    seen.add(1, {.messages = 2,
                 .numbers = 2'000'000,
                 .bytes = 80'000,
                 .squares = 4,
                 .lost = 1,
                 .encode_seconds = 0.002,
                 .decode_seconds = 0.001});
    const std::array<std::string, 2> names{"0.dense.weight", "1.dense.weight"};
    CHECK(seen.text(names) ==
          "tensor                    messages       numbers         bytes    ratio    error   encode   decode ns each\n"
          "1.dense.weight                   2       2000000         80000    100.0   0.5000     1.00     0.50\n"
          "all                              2       2000000         80000    100.0   0.5000     1.00     0.50\n");
    CHECK(seen.text().find("\n1      ") != std::string::npos);
}

TEST_CASE("compress/measured: a message that travels with all of its room counts as that", "[compress]") {
    const std::size_t n = 300;
    for (const bool fixed_room : {false, true}) {
        statistics seen{1};
        const measured<threshold> one{{.value = 1e6, .most_share = 0.1}, &seen};
        const auto values = normals<float>(n, 1);
        std::vector<float> scratch(scratch_size<float>(one, n));
        std::vector<std::uint64_t> room(one.max_bytes<float>(n) / 8 + 1);
        const std::size_t length = one.encode(encoding<float>{.values = values,
                                                              .message = std::as_writable_bytes(std::span{room}),
                                                              .state = {},
                                                              .scratch = scratch,
                                                              .fixed_room = fixed_room});
        CHECK(length < 30 * 8);
        CHECK(seen.total().bytes == (fixed_room ? one.max_bytes<float>(n) : length));
    }
}

TEMPLATE_TEST_CASE("compress/measured: what two_sided does to the sum is no message", "[compress]", float, double) {
    using T = TestType;
    const std::size_t n = 300;
    statistics seen{1};
    const two_sided both{error_feedback{measured{quantize{.bits = 8}, &seen}}};
    std::vector<T> state(n), sum = normals<T>(n, 1), scratch(scratch_size<T>(both, n));
    std::vector<std::uint64_t> room(both.template max_bytes<T>(n) / 8 + 2);
    both.seal(sealing<T>{.sum = sum,
                         .state = tensor::slots<T>{state.data(), shared_slots_of(both), n, n},
                         .message = std::as_writable_bytes(std::span{room}),
                         .scratch = scratch});
    CHECK(seen.total().messages == 0);
    channel<T, two_sided<error_feedback<measured<quantize>>>> sender{both, n};
    (void)sender.encode(normals<T>(n, 2));
    CHECK(seen.total().messages == 1);
}

namespace {

/// The sums and state of `inner`, and statistics that are added up anew from what each worker has encoded.
template <class T, class R>
void counts_what_is_summed(const R& inner, std::size_t bytes) {
    INFO(detail::describe(inner));
    const matrix shape{20, 17};
    const std::size_t n = shape.size(), workers = 3, steps = 4;
    statistics seen{8};
    by_hand<T, R> bare{inner, shape, workers};
    by_hand<T, measured<R>> watched{{inner, &seen}, shape, workers}, unwatched{{inner, nullptr}, shape, workers};
    CHECK(watched.sizes.kept == bare.sizes.kept + n);
    CHECK(unwatched.sizes.kept == bare.sizes.kept);
    CHECK(watched.sizes.elements == bare.sizes.elements);
    CHECK(watched.reduction.settings() == inner.settings());
    long double squares = 0, lost = 0;
    for (std::uint32_t step = 0; step < steps; ++step) {
        const auto values = normals<T>(workers * n, step);
        const auto mean = bare(values, step);
        CHECK(watched(values, step) == mean);
        CHECK(unwatched(values, step) == mean);
        CHECK(watched.shared == bare.shared);
        CHECK(watched.state == bare.state);
        CHECK(watched.last == bare.last);
        squares += square(values);
        const std::size_t each = bare.last.size() / workers;
        for (std::size_t worker = 0; worker < workers; ++worker) {
            std::vector<T> own(n);
            inner.decode_own(bare.of(worker, values, step),
                             std::span{std::as_const(bare.last)}.subspan(worker * each, each), T{1}, std::span{own});
            lost += square_of_rest(std::vector<T>(values.begin() + static_cast<std::ptrdiff_t>(worker * n),
                                                  values.begin() + static_cast<std::ptrdiff_t>((worker + 1) * n)),
                                   own);
        }
    }
    const tensor_statistics& row = seen.of(bare.tensor);
    CHECK(row.messages == steps * workers);
    CHECK(row.numbers == steps * workers * n);
    CHECK(row.bytes == steps * workers * bytes);
    CHECK(row.squares == Approx(static_cast<double>(squares)));
    CHECK(row.lost == Approx(static_cast<double>(lost)));
    CHECK(row.lost > 0);
    CHECK(row.encode_seconds > 0);
    CHECK(row.decode_seconds > 0);
    CHECK(seen.total().messages == row.messages);
}

}  // namespace

TEMPLATE_TEST_CASE(
    "compress/measured: sums in rounds are those of the reduction inside, and what workers add is counted",
    "[compress]", float, double) {
    using T = TestType;
    counts_what_is_summed<T>(random_k{.ratio = 0.1, .unbiased = true}, 34 * sizeof(T));
    counts_what_is_summed<T>(power_sgd{.rank = 2}, 2 * (20 + 17) * sizeof(T));
    counts_what_is_summed<T>(terngrad{}, sizeof(T) + 4 * ((340 + 9) / 10));  // fields of 3 bits for 3 workers
    counts_what_is_summed<T>(sign_vote{.momentum = 0.9}, 4 * ((340 + 9) / 10));
    counts_what_is_summed<T>(half{}, 2 * 340);
}

TEST_CASE("compress/measured: around a reduction inside error feedback, what is lost is the residual", "[compress]") {
    const matrix shape{12, 30};
    statistics seen{8};
    using summed = any_reduction<algebra::ordered_sum, algebra::ordered_sum>;
    const summed chosen{error_feedback{measured{power_sgd{}, &seen}}};
    CHECK(chosen.settings() == detail::describe(error_feedback{power_sgd{}}));
    by_hand<double, summed> sum{chosen, shape, 2};
    long double lost = 0;
    for (std::uint32_t step = 0; step < 3; ++step) {
        sum(normals<double>(2 * shape.size(), step), step);
        lost += square(sum.state);
    }
    CHECK(seen.of(5).messages == 6);
    CHECK(seen.of(5).lost == Approx(static_cast<double>(lost)));
    CHECK(seen.of(5).relative_error() < 1);
    CHECK_THROWS_AS((measured<power_sgd>{{.rank = 0}, &seen}.check()), core::error);
    CHECK_THROWS_AS((measured<terngrad>{{}, &seen}.check_feedback()), core::error);
}

TEST_CASE("compress/measured: a trial is not counted, and has the elements of a step", "[compress]") {
    const matrix shape{4, 50};
    statistics seen{8};
    const measured<random_k> watched{{.ratio = 0.25}, &seen};
    by_hand<float, measured<random_k>> sum{watched, shape, 1};
    const auto values = normals<float>(shape.size(), 1);
    const auto mean = sum(values, 3);
    seen.clear();
    auto in = sum.of(0, values, 3);
    auto all = sum.all(3);
    in.is_sent = all.is_sent = false;
    std::vector<float> elements(50), again(shape.size());
    watched.encode(round_number<0>{}, in, std::span{elements});
    CHECK(elements == sum.last);
    watched.finish(all, std::span{std::as_const(elements)}, std::span{again});
    CHECK(again == mean);
    CHECK(seen.total().messages == 0);
    CHECK(seen.total().encode_seconds == 0);
    CHECK(seen.total().decode_seconds == 0);
}
