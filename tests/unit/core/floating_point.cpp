// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/floating_point.hpp"

#include <catch2/catch.hpp>
#include <cfenv>
#include <cmath>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace core = lockstep::core;

TEST_CASE("core/floating_point: this program computes as it is written", "[core]") {
    CHECK(!core::fuses_products());
    CHECK(core::arithmetic_mode() == "as usual");
    // What the probe would see of a fused product.
    CHECK(std::fma(1 + 0x1p-12F, 1 + 0x1p-12F, -1 - 0x1p-11F) != (1 + 0x1p-12F) * (1 + 0x1p-12F) + (-1 - 0x1p-11F));
}

TEST_CASE("core/floating_point: a fraction is below 1 as a float too", "[core]") {
    for (const double yes : {0.0, 1e-50, 0.5, 0.9999999, 1 - 0x1p-24, 1 - 0x1.1p-25})
        CHECK(core::is_fraction_as_float(yes));
    for (const double no : {-1e-50, 1 - 0x1p-25, 0.99999999999, 1.0, 1e300, HUGE_VAL, std::nan("")})
        CHECK(!core::is_fraction_as_float(no));
}

TEST_CASE("core/floating_point: the mode of a thread is seen, and is not taken for fused products", "[core]") {
    REQUIRE(std::fesetround(FE_UPWARD) == 0);
    const auto upward = core::arithmetic_mode();
    const bool fuses = core::fuses_products();
    std::fesetround(FE_TONEAREST);
    CHECK(upward == "rounds in a direction");
    CHECK(!fuses);
#if defined(__SSE2__)
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    const auto flushing = core::arithmetic_mode();
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_OFF);
    CHECK(flushing == "flushes to zero");
#endif
}
