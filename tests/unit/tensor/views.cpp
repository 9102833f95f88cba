// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/tensor/views.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>

namespace {

// Types of this file alone: what other files of the program include changes nothing about them.
struct unseen {};
struct seen {};

#ifdef XTENSOR_VERSION_MAJOR
constexpr bool includes_xtensor = true;
#else
constexpr bool includes_xtensor = false;
#endif

}  // namespace

template <>
struct lockstep::tensor::views<seen> {
    template <std::size_t Rank>
    static std::size_t of(seen, const std::array<std::size_t, Rank>& extents) {
        return extents[Rank - 1];
    }
};

TEST_CASE("tensor/views: there are none until a header defines them, for one type at a time", "[tensor]") {
    using lockstep::tensor::has_views;
    STATIC_REQUIRE(!has_views<unseen>);
    STATIC_REQUIRE(!has_views<const seen>);
    STATIC_REQUIRE(has_views<seen>);
    CHECK(lockstep::tensor::views<seen>::of({}, std::array<std::size_t, 2>{3, 4}) == 4);
}

TEST_CASE("tensor/views: the header that asks for xtensor does not include it", "[tensor]") {
    CHECK_FALSE(includes_xtensor);
}
