// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/glyphs.hpp"

#include <catch2/catch.hpp>

namespace lockstep::data {
namespace {

TEST_CASE("data/glyphs: every stroke has two knots and every glyph ends with the pen lifted", "[data]") {
    for (std::size_t digit = 0; digit < 10; ++digit) {
        CHECK(ways_to_write(digit).size() >= 3);
        for (const glyph& way : ways_to_write(digit)) {
            REQUIRE(way.count >= 2);
            CHECK(way.all().back().then == pen::up);
            bool lifted = true;
            for (const knot& one : way.all()) {
                CHECK((0 <= one.x && one.x <= 100 && 0 <= one.y && one.y <= 100));
                if (lifted) CHECK(one.then == pen::smooth);
                lifted = one.then == pen::up;
            }
        }
    }
}

}  // namespace
}  // namespace lockstep::data
