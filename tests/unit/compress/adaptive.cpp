// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/adaptive.hpp"

#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/compress/by_layer.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/one_bit.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/two_sided.hpp"
#include "lockstep/compress/warm_up.hpp"

using namespace lockstep;
using namespace lockstep::compress;

namespace {

std::vector<float> draws(std::size_t n, std::uint64_t seed) {
    const core::random_stream random{seed, core::purpose::user};
    std::vector<float> out(n);
    for (std::size_t i = 0; i < n; ++i) {
        const float one = random.uniform(i) - 0.5F;
        out[i] = one * one * one;
    }
    return out;
}

/// A message of x as `of` writes it, with this state.
template <class C>
std::vector<std::byte> message_of(const C& of, const std::vector<float>& x, std::vector<float>& state,
                                  const origin& from) {
    std::vector<double> room(of.template max_bytes<float>(x.size()) / 8 + 1);
    std::vector<float> scratch(scratch_size<float>(of, x.size()));
    const auto bytes = std::as_writable_bytes(std::span{room});
    const std::size_t length = of.encode(encoding<float>{.values = x,
                                                         .message = bytes,
                                                         .state = {state.data(), slots_of(of), x.size(), x.size()},
                                                         .scratch = scratch,
                                                         .from = from});
    return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)};
}

}  // namespace

TEST_CASE("compress/adaptive: one of several compressors writes its messages, and has its room") {
    const std::vector<any> inside{any{none{}}, any{top_k{.ratio = 0.1}}, any{quantize{.bits = 4, .bucket = 50}}};
    one_of all{.candidates = inside};
    CHECK(all.changes() == std::vector<std::uint64_t>{1, 2});
    const std::size_t sizes[] = {1, 7, 1000};
    for (const std::size_t n : sizes) {
        // Of a vector, which top_k leaves dense, and of a matrix.
        for (const origin& from : {origin{.rows = 1, .columns = n}, origin{.rows = 2, .columns = n + 1}}) {
            CAPTURE(n, from.rows);
            const auto x = draws(n, n);
            for (std::size_t which = 0; which < inside.size(); ++which) {
                all.chosen = which;
                const std::size_t sends = which == 1 && from.rows == 1 ? 0 : which;
                std::vector<float> state(n);
                auto message = message_of(all, x, state, from);
                auto expected_message = message_of(inside[sends], x, state, from);
                expected_message.push_back(static_cast<std::byte>(sends));
                CHECK(message == expected_message);
                CHECK(all.max_bytes<float>(n, which, from) == 1 + inside[sends].max_bytes<float>(n));
                CHECK(all.max_bytes<float>(n, which, from) <= all.max_bytes<float>(n));
                std::vector<float> sum(n, 1), expected(n, 1);
                all.chosen = 0;  // messages say whose they are
                all.decode_add(std::span<const std::byte>{message}, 0.5F, std::span{sum});
                expected_message.pop_back();
                inside[sends].decode_add(std::span<const std::byte>{expected_message}, 0.5F, std::span{expected});
                CHECK(sum == expected);
            }
        }
    }
}

TEST_CASE("compress/adaptive: a candidate has the room of its messages for the tensor") {
    const top_k list{.ratio = 0.01};
    const one_of all = adaptive{.candidates = {by_layer{list}}}.as_one();
    const std::size_t n = 10'000;
    CHECK(all.max_bytes<float>(n, 1, {.rows = 100, .columns = 100}) == 2 + list.max_bytes<float>(n));
    CHECK(all.max_bytes<float>(n, 1, {.rows = 1, .columns = n}) == 1 + sizeof(float) * n);
}

TEST_CASE("compress/adaptive: one residual for all candidates, which a dense message empties") {
    error_feedback<one_of> all{adaptive{.candidates = {top_k{.ratio = 0.1}, quantize{.bits = 4}}}.as_one()};
    const std::size_t n = 500;
    // Of a vector top_k sends all, too.
    const std::size_t rows = GENERATE(2U, 1U);
    const origin from{.rows = rows, .columns = n};
    std::vector<float> residual(n);
    const std::size_t order[] = {1, 2, 1, 1, 0, 2, 0, 0, 1};
    for (std::size_t step = 0; step < std::size(order); ++step) {
        const auto g = draws(n, 10 + step);
        const std::vector<float> before = residual;
        all.inner.chosen = order[step];
        const auto message = message_of(all, g, residual, from);
        std::vector<float> sent(n);
        all.decode_add(std::span<const std::byte>{message}, 1.0F, std::span{sent});
        INFO("step " << step);
        for (std::size_t i = 0; i < n; ++i) {
            const float p = before[i] + g[i];
            // quantize may round p to its grid before it encodes.
            if (order[step] == 2)
                CHECK(sent[i] + residual[i] == Approx(p).epsilon(1e-5).margin(1e-7));
            else
                CHECK(sent[i] + residual[i] == p);
            if (order[step] == 0 || (order[step] == 1 && rows == 1)) CHECK((sent[i] == p && residual[i] == 0));
        }
    }
}

TEST_CASE("compress/adaptive: a phase is critical where the norm of the gradient changes") {
    const adaptive one{.critical_error = 0.3, .critical_change = 0.5};
    CHECK(one.is_critical(-1, 2));
    CHECK_FALSE(one.is_critical(2, 2));
    CHECK_FALSE(one.is_critical(2, 1.01));
    CHECK_FALSE(one.is_critical(2, 2.99));
    CHECK(one.is_critical(2, 1));
    CHECK(one.is_critical(2, 3));
    CHECK(one.is_critical(0, 1));
    CHECK_FALSE(one.is_critical(0, 0));
    CHECK(one.is_critical(2, std::numeric_limits<double>::quiet_NaN()));
    CHECK(one.is_critical(2, std::numeric_limits<double>::infinity()));
    // Without a lower bound than the usual one there is none.
    CHECK_FALSE(adaptive{}.is_critical(-1, 2));
    CHECK_FALSE(adaptive{.max_error = 0.3, .critical_error = 0.3}.is_critical(2, 9));
}

TEST_CASE("compress/adaptive: settings that make no sense are refused") {
    const auto refuses = [](const adaptive& one, const std::string& text) {
        CHECK_THROWS_WITH(one.check(), Catch::Contains(text));
    };
    CHECK_NOTHROW(adaptive{}.check());
    refuses({.candidates = {}}, "lockstep: adaptive has no candidates");
    refuses({.candidates = std::vector<candidate>(256, top_k{})},
            "lockstep: adaptive has 256 candidates; use at most 255");
    refuses({.candidates = {error_feedback{top_k{}}}}, "keeps a state of its own; leave error_feedback out");
    refuses({.candidates = {two_sided{error_feedback{one_bit{}}}}}, "keeps a state of its own");
    refuses({.candidates = {two_sided{quantize{}}}}, "changes the sum of all workers; leave two_sided out");
    refuses({.candidates = {quantize{.bits = 1}}}, "quantize has bits = 1");
    refuses({.candidates = {quantize{.bits = 2}}}, "error_feedback around quantize with bits = 2");
    refuses({.candidates = {one_bit{}}}, "takes whole tensors");
    CHECK_NOTHROW(adaptive{.candidates = {power_sgd{.rank = 2}, random_block{.ratio = 0.1}}}.check());
    refuses({.candidates = {power_sgd{.rank = 0}}}, "power_sgd has rank = 0");
    refuses({.candidates = {top_k{}, error_feedback{power_sgd{}}}},
            "error_feedback(inner=power_sgd(rank=1)) of adaptive keeps a state of its own");
    refuses({.candidates = {random_block{.ratio = 2}}}, "random_block has ratio = 2");
    refuses({.period = 0}, "period of 0 steps");
    refuses({.max_error = -1}, "max_error = -1");
    refuses({.critical_error = -1}, "critical_error = -1");
    refuses({.critical_change = std::numeric_limits<double>::quiet_NaN()}, "critical_change = nan");
    refuses({.max_error = std::numeric_limits<double>::quiet_NaN()}, "max_error = nan");
    refuses({.margin = 1}, "margin = 1");
    refuses({.least_numbers = 0}, "least_numbers = 0");
    refuses({.candidates = {warm_up{.inner = top_k{}, .start = 5}}},
            "has messages of other lengths in later steps; leave warm_up out");
    refuses({.candidates = {top_k{}}, .replay = choice_list{{{5, 3, 2}}}},
            "lockstep: the list of choices has candidate 2 in step 5, and there are 1");
    CHECK(adaptive{.replay = choice_list{{{1, 2, 1}}}}.settings() !=
          adaptive{.replay = choice_list{{{1, 2, 2}}}}.settings());
    CHECK(adaptive{.replay = choice_list{}}.settings() != adaptive{}.settings());
    candidate first{power_sgd{.rank = 3}};
    const candidate second{first};
    const std::vector<candidate> both{first, top_k{.ratio = 0.5}};
    CHECK(second.settings() == "power_sgd(rank=3)");
    CHECK(both.at(1).settings() == "top_k(ratio=0.5)");
    // Compressors and reductions are named in their order.
    const adaptive mixed{.candidates = {power_sgd{.rank = 2}, top_k{.ratio = 0.1}}};
    CHECK(mixed.settings().starts_with("candidates=none, power_sgd(rank=2), top_k(ratio=0.1) least_numbers="));
    CHECK(mixed.as_one().settings() == "none, top_k(ratio=0.1)");
    CHECK(mixed.name_of(0) == "dense");
    CHECK(mixed.name_of(1) == "power_sgd(rank=2)");
}

TEST_CASE("compress/adaptive: a list of choices as text and as a file") {
    const choice_list list{{{0, 4, 1}, {3, 4, 0}, {3, 7, 2}, {18'446'744'073'709'551'615U, 0, 255}}};
    CHECK(list.text() == "0 4 1\n3 4 0\n3 7 2\n18446744073709551615 0 255\n");
    CHECK(choice_list::parse(list.text()) == list);
    CHECK(choice_list::parse("# a comment\n\n3 4 1") == choice_list{{{3, 4, 1}}});
    CHECK(choice_list::parse("1 2 3\r\n\r\n") == choice_list{{{1, 2, 3}}});
    CHECK(choice_list::parse("") == choice_list{});
    const std::string path =
        std::filesystem::temp_directory_path() / ("lockstep-choices-" + std::to_string(::getpid()));
    list.write(path);
    CHECK(choice_list::read(path) == list);
    std::filesystem::remove(path);
    CHECK_THROWS_WITH(choice_list::read(path), Catch::Contains(path));
    for (const char* wrong :
         {"1 2", "1 2 3 4", "1 2 x", "-1 2 3", "1  2 3", "1,2,3", "1 2 3 ", "18446744073709551616 1 1", " 1 2 3"}) {
        INFO("'" << wrong << "'");
        CHECK_THROWS_WITH(choice_list::parse("0 0 0\n" + std::string{wrong}),
                          Catch::Contains("line 2 of a list of compressor choices is \"" + std::string{wrong} +
                                          "\", no step, layer and candidate"));
    }
    CHECK_THROWS_WITH(choice_list::parse("3 1 1\n2 1 0\n"), Catch::Contains("has step 2 after step 3"));
    CHECK_THROWS_WITH(choice_list::parse("3 1 1\n3 2 1\n3 1 0\n"), Catch::Contains("has layer 1 twice in step 3"));
}
