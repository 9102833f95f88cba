// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/convolution/algorithm_choice.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace lockstep;
using kernels::algorithm;
using kernels::convolution_pass;
using kernels::micro_batches;

namespace {

std::vector<std::size_t> runs(const micro_batches& of, std::size_t samples) {
    std::vector<std::size_t> out;
    std::size_t next = 0;
    of.each(samples, [&](std::size_t first, std::size_t count) {
        CHECK(first == next);
        CHECK(count <= of.longest(samples));
        next = first + count;
        out.push_back(count);
    });
    CHECK(next == samples);
    return out;
}

using list = std::vector<std::size_t>;

}  // namespace

TEST_CASE("kernels/algorithm_choice: runs of a minibatch", "[kernels]") {
    CHECK(runs({}, 7) == list{7});
    CHECK(runs({}, 0) == list{});
    CHECK(runs({{8}, 1}, 0) == list{});
    CHECK(runs({{8}, 1}, 20) == list{8, 8, 4});
    CHECK(runs({{8}, 1}, 3) == list{3});
    CHECK(runs({{4, 16}, 2}, 40) == list{4, 16, 16, 4});
    CHECK(runs({{4, 16}, 2}, 3) == list{3});
    CHECK(runs({{16, 4, 1}, 3}, 23) == list{16, 4, 1, 1, 1});
    CHECK(micro_batches{{4, 16}, 2}.longest(100) == 16);
    CHECK(micro_batches{{4, 16}, 2}.longest(10) == 10);
}

TEST_CASE("kernels/algorithm_choice: as text, and by a rule", "[kernels]") {
    CHECK(to_text(kernels::pass_choice{}) == "direct");
    CHECK(to_text(kernels::pass_choice{algorithm::winograd4, {{8, 16}, 2}}) == "winograd4 micro 8 16");
    constexpr kernels::convolution g{.rows = 28,
                                     .columns = 28,
                                     .channels = 512,
                                     .filters = 512,
                                     .kernel_rows = 3,
                                     .kernel_columns = 3,
                                     .pad_top = 1,
                                     .pad_bottom = 1,
                                     .pad_left = 1,
                                     .pad_right = 1};
    constexpr auto chosen = kernels::choice_of(kernels::preferred_algorithm, g);
    for (const auto pass : kernels::convolution_passes)
        CHECK(chosen[pass].which == kernels::preferred_algorithm(g, pass));
    CHECK(kernels::choice_of(kernels::always_direct, g) == kernels::convolution_choice{});
    CHECK(chosen != kernels::convolution_choice{});
}
