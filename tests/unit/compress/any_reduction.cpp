// SPDX-License-Identifier: BSD-3-Clause

#include "lockstep/compress/any_reduction.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "by_hand.hpp"
#include "lockstep/compress/error_feedback.hpp"
#include "lockstep/compress/power_sgd.hpp"
#include "lockstep/compress/random_block.hpp"
#include "lockstep/compress/random_k.hpp"
#include "lockstep/compress/terngrad.hpp"
#include "support.hpp"

using namespace lockstep;
using namespace lockstep::compress;
using namespace lockstep::compress::testing;

namespace {

using one_sum = any_reduction<algebra::ordered_sum>;
using two_sums = any_reduction<algebra::ordered_sum, algebra::ordered_sum>;
using scaled_sum = any_reduction<algebra::max, algebra::exact_sum>;
static_assert(Reduction<one_sum> && Reduction<two_sums, double> && Reduction<scaled_sum>);
static_assert(!std::is_constructible_v<one_sum, power_sgd> && std::is_constructible_v<two_sums, power_sgd>);

/// The same sums and state in some steps.
template <class T, class Any, class R>
void is_the_same(const R& inner) {
    INFO(detail::describe(inner));
    const matrix shape{20, 17};
    by_hand<T, R> bare{inner, shape, 3};
    by_hand<T, Any> held{Any{inner}, shape, 3};
    CHECK(slots_of(held.reduction) == R::slot_count);
    CHECK(sees_whole_tensors(held.reduction) == sees_whole_tensors(inner));
    for (const matrix of : {matrix{1, 9}, matrix{2, 2}, shape})
        CHECK(is_dense(held.reduction, of) == is_dense(inner, of));
    CHECK(held.reduction.settings() == detail::describe(inner));
    for (std::uint32_t step = 0; step < 4; ++step) {
        const auto values = normals<T>(3 * shape.size(), step);
        CHECK(held(values, step) == bare(values, step));
        CHECK(held.shared == bare.shared);
        CHECK(std::equal(bare.state.begin(), bare.state.end(), held.state.begin()));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("compress/any_reduction: says what it holds says", "[compress]", float, double) {
    using T = TestType;
    is_the_same<T, one_sum>(random_k{.ratio = 0.1, .unbiased = true});
    is_the_same<T, two_sums>(power_sgd{.rank = 2});
    is_the_same<T, scaled_sum>(terngrad{});
}

TEST_CASE("compress/any_reduction: error feedback inside, copies, check", "[compress]") {
    one_sum chosen{error_feedback{random_k{.ratio = 0.1}}};
    CHECK(slots_of(chosen) == 1);
    CHECK(chosen.settings() == "error_feedback(inner=random_k(ratio=0.1 unbiased=false))");
    CHECK_NOTHROW(chosen.check());
    const one_sum other{random_block{.ratio = 0}};
    chosen = other;
    CHECK(slots_of(chosen) == 0);
    CHECK_THROWS_WITH(chosen.check(), Catch::Contains("random_block has ratio = 0"));
    CHECK_THROWS_AS(error_feedback<scaled_sum>{terngrad{}}.check(), core::error);
}
