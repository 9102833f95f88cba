// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/compress/sign_vote.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "reference_quantisers.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/sign_vote: majorities, of signs and of the signs of momenta", "[compress]", float,
                   double) {
    using T = TestType;
    constexpr std::size_t n = reference::rows * reference::columns, workers = reference::voters;
    for (const double momentum : {0.0, 0.875}) {
        const auto& expected = momentum > 0 ? reference::votes_of_momenta : reference::votes;
        by_hand<T, sign_vote> sum{
            {.scale = 0.25, .momentum = momentum}, {reference::rows, reference::columns}, workers};
        CHECK(sum.state.size() == (momentum > 0 ? workers * n : 0));
        for (std::uint32_t step = 0; step < expected.size(); ++step) {
            std::vector<T> values(workers * n);
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = reference_number<T>(step * workers * n + i);
            const auto mean = sum(values, step);
            for (std::size_t i = 0; i < n; ++i) CHECK(mean[i] == T{0.25F} * static_cast<T>(expected[step][i]));
        }
    }
}

TEST_CASE("compress/sign_vote: no field overflows, whatever the number of workers", "[compress]") {
    for (const std::size_t workers : {1, 2, 3, 4, 7, 8, 16, 100, 1000, 40'000}) {
        const ternary_fields fields{workers};
        CHECK((std::size_t{1} << fields.bits()) > 2 * workers);
        CHECK((std::size_t{1} << (fields.bits() - 1)) <= 2 * workers);
        CHECK(fields.each() == 32 / fields.bits());
        // All workers vote for the first number, against the second, and abstain from the third.
        const std::size_t n = 2 * fields.each() + 1;
        const sign_vote vote;
        REQUIRE(vote.sizes({1, n}, workers).elements[0] == 3);
        std::vector<float> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = i % 3 == 0 ? 1e-30F : i % 3 == 1 ? -3.0F : 0.0F;
        std::vector<std::uint32_t> one(3), all(3);
        worker_pass<float> voter{};
        voter.workers = workers;
        voter.values = values;
        shared_pass<float> everyone{};
        everyone.workers = workers;
        vote.encode(round_number<0>{}, voter, std::span{one});
        for (std::size_t word = 0; word < 3; ++word) {
            const std::uint64_t exact = std::uint64_t{one[word]} * workers;
            CHECK(exact <= 0xffffffffU);
            all[word] = static_cast<std::uint32_t>(exact);
        }
        std::vector<float> mean(n, 5.0F), own(n);
        vote.finish(everyone, std::span<const std::uint32_t>{all}, std::span{mean});
        vote.decode_own(voter, std::span<const std::uint32_t>{one}, static_cast<float>(workers), std::span{own});
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(mean[i] == (i % 3 == 0 ? 1.0F : i % 3 == 1 ? -1.0F : 0.0F));
            CHECK(own[i] == Approx(mean[i]));
        }
    }
}

TEST_CASE("compress/sign_vote: zeros have no sign, ties no result, and who has nothing abstains", "[compress]") {
    by_hand<float, sign_vote> sum{{}, {1, 4}, 4};
    const std::vector<float> votes{1,  -1, 0,  -0.0F,  //
                                   1,  1,  0,  2,      //
                                   0,  -1, 0,  0,      //
                                   -1, 1,  -3, 0};
    CHECK(sum(votes, 0) == std::vector<float>{1, 0, -1, 1});
    by_hand<float, sign_vote> many{{.momentum = 0.5}, {1, 2}, 3};
    CHECK(many(std::vector<float>{1, 1, 1, -1, -5, 1}, 0) == std::vector<float>{1, 1});
    // The first two workers have no rows now: they abstain, although their momenta are not zero, and keep these.
    CHECK(many(std::vector<float>{0, 0, 0, 0, -1, 0}, 1) == std::vector<float>{-1, 1});
    CHECK(many.state == std::vector<float>{0.5F, 0.5F, 0.5F, -0.5F, -1.75F, 0.25F});
    CHECK(many(std::vector<float>(6), 2) == std::vector<float>(2));
    for (const std::size_t n : {0, 1}) {
        by_hand<float, sign_vote> few{{}, {1, n}, 8};
        CHECK(few(std::vector<float>(8 * n, -2.0F), 0) == std::vector<float>(n, -1.0F));
    }
}

TEST_CASE("compress/sign_vote: settings and errors", "[compress]") {
    CHECK_NOTHROW(sign_vote{}.check());
    CHECK(sign_vote{.momentum = 0.9}.settings() == "scale=1 momentum=0.9");
    CHECK(slots_of(sign_vote{}) == 0);
    CHECK(slots_of(sign_vote{.momentum = 0.9}) == 1);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double bad : {0.0, -1.0, 1e-60, nan, std::numeric_limits<double>::infinity()})
        CHECK_THROWS_AS(sign_vote{.scale = bad}.check(), core::error);
    for (const double bad : {1.0, 0.99999999, -0.1, nan})
        CHECK_THROWS_AS(sign_vote{.momentum = bad}.check(), core::error);
    CHECK_THROWS_AS(error_feedback{sign_vote{}}.check(), core::error);
}
