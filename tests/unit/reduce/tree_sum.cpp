// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/reduce/tree_sum.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "unit/reduce/one_rank.hpp"

namespace ls = lockstep;

TEST_CASE("reduce/tree_sum: one rank owns everything, and its sum is what it had", "[reduce]") {
    for (const std::size_t lanes : {1, 2, 5, 8}) {
        constexpr std::size_t n = 37;
        ls::tensor::arena arena;
        ls::reduce::tree_sum<float> sum{reduce_test::bucket_of(n, lanes), arena};
        arena.allocate();
        sum.bind(arena);
        CHECK(sum.owned() == ls::parallel::block{0, n});
        std::vector<float> gradient(n);
        std::iota(gradient.begin(), gradient.end(), 1.0F);
        const auto before = gradient;
        CHECK(sum.poll());
        for (int again = 0; again < 2; ++again) {
            sum.start(gradient, 0);
            sum.finish();
            std::vector<float> weights(n);
            sum.update(weights, [&](ls::parallel::block part, std::span<const float> sums) {
                for (std::size_t i = 0; i < sums.size(); ++i) weights[part.first + i] += sums[i];
            });
            CHECK(weights == before);
            CHECK(gradient == before);
            sum.share(gradient);
            CHECK(sum.poll());
            sum.finish();
            CHECK(gradient == before);
        }
        CHECK(sum.bytes_per_step() == 0);
    }
}
