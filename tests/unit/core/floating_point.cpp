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
