// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/random_k.hpp"

#include <catch2/catch.hpp>

#include "random_subset.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

TEMPLATE_TEST_CASE("compress/random_k: sums of k elements, the same of all workers", "[compress]", float, double) {
    for (const double ratio : {0.001, 0.1, 0.37, 1.0}) sends_k_of_each_vector<TestType>(random_k{.ratio = ratio});
}

TEMPLATE_TEST_CASE("compress/random_k: linear", "[compress]", float, double) {
    is_linear<TestType>(random_k{.ratio = 0.1});
    is_linear<TestType>(random_k{.ratio = 0.1, .unbiased = true});
}

TEST_CASE("compress/random_k: each element in its turn", "[compress]") {
    // 12 runs of 10 elements; and 7 runs, of which the lengths are 14 and 15.
    draws_evenly(random_k{.ratio = 0.1}, 120, [](std::size_t) { return 0.1; });
    draws_evenly(random_k{.ratio = 0.07}, 100, [](std::size_t i) {
        const std::size_t run = (7 * i + 6) / 100, first = run * 100 / 7, last = (run + 1) * 100 / 7;
        return 1.0 / static_cast<double>(last - first);
    });
    CHECK(drawn(random_k{.ratio = 0.1}, 120, 1) != drawn(random_k{.ratio = 0.1}, 120, 2));
}

TEST_CASE("compress/random_k: the expectation is the vector where it is asked for", "[compress]") {
    is_unbiased(random_k{.ratio = 0.1, .unbiased = true}, 120, 10);
    is_unbiased(random_k{.ratio = 0.07, .unbiased = true}, 100, 15);
}

TEST_CASE("compress/random_k: one of each run", "[compress]") {
    for (const std::size_t n : {100, 101, 1009})
        for (const double ratio : {0.07, 0.3, 0.9}) {
            const std::size_t k = share_of(ratio, n);
            const auto ones = drawn(random_k{.ratio = ratio}, n, 3);
            for (std::size_t j = 0; j < k; ++j)
                CHECK(std::count(ones.begin() + static_cast<std::ptrdiff_t>(j * n / k),
                                 ones.begin() + static_cast<std::ptrdiff_t>((j + 1) * n / k), 1.0F) == 1);
        }
}

TEMPLATE_TEST_CASE("compress/random_k: with error feedback nothing is lost", "[compress]", float, double) {
    loses_nothing_in_sums<TestType>(random_k{.ratio = 0.1});
}

TEST_CASE("compress/random_k: check names the value and the remedy", "[compress]") { checks_its_settings<random_k>(); }
