// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/random_block.hpp"

#include <catch2/catch.hpp>

#include "random_subset.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/random_block: sums of k elements, the same of all workers", "[compress]", float, double) {
    for (const double ratio : {0.001, 0.1, 0.37, 1.0}) sends_k_of_each_vector<TestType>(random_block{.ratio = ratio});
}

TEMPLATE_TEST_CASE("compress/random_block: linear", "[compress]", float, double) {
    is_linear<TestType>(random_block{.ratio = 0.1});
    is_linear<TestType>(random_block{.ratio = 0.1, .unbiased = true});
}

TEST_CASE("compress/random_block: each element in its turn", "[compress]") {
    draws_evenly(random_block{.ratio = 0.1}, 120, [](std::size_t) { return 0.1; });
    draws_evenly(random_block{.ratio = 0.5}, 31, [](std::size_t) { return 16.0 / 31; });
    CHECK(drawn(random_block{.ratio = 0.1}, 120, 1) != drawn(random_block{.ratio = 0.1}, 120, 2));
}

TEST_CASE("compress/random_block: the expectation is the vector where it is asked for", "[compress]") {
    is_unbiased(random_block{.ratio = 0.1, .unbiased = true}, 120, 10);
    is_unbiased(random_block{.ratio = 0.07, .unbiased = true}, 100, 15);
}

TEST_CASE("compress/random_block: neighbours, of which the first follows the last", "[compress]") {
    std::size_t over_the_end = 0;
    for (std::uint32_t step = 0; step < 200; ++step) {
        const auto ones = drawn(random_block{.ratio = 0.25}, 20, step);
        std::size_t begins = 0;
        for (std::size_t i = 0; i < 20; ++i) begins += ones[i] == 1 && ones[(i + 19) % 20] == 0;
        CHECK(begins == 1);
        CHECK(std::count(ones.begin(), ones.end(), 1.0F) == 5);
        over_the_end += ones.front() == 1 && ones.back() == 1;
    }
    CHECK(over_the_end > 0);
}

TEMPLATE_TEST_CASE("compress/random_block: with error feedback nothing is lost", "[compress]", float, double) {
    loses_nothing_in_sums<TestType>(random_block{.ratio = 0.1});
}

TEST_CASE("compress/random_block: check names the value and the remedy", "[compress]") {
    checks_its_settings<random_block>();
}
