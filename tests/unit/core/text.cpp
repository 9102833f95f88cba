// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/core/text.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace core = lockstep::core;

TEST_CASE("core/text: parts are joined without separators", "[core]") {
    CHECK(core::text().empty());
    CHECK(core::text("rows ", 3, " of ", std::string{"seven"}, ',', ' ', std::string_view{"and"}, '\n') ==
          "rows 3 of seven, and\n");
    CHECK(core::text(true, ' ', false) == "true false");
    CHECK(core::text(std::int8_t{-7}, ' ', std::uint8_t{200}) == "-7 200");
    CHECK(core::text(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
    CHECK(core::text(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
}

TEST_CASE("core/text: a real number is the shortest text that reads back as the same number", "[core]") {
    CHECK(core::text(0.1) == "0.1");
    CHECK(core::text(0.1F) == "0.1");
    CHECK(core::text(-2.5) == "-2.5");
    CHECK(core::text(1e-300) == "1e-300");
    CHECK(core::text(std::numeric_limits<double>::infinity()) == "inf");
    for (const double number : {1.0 / 3, 2.0 / 3, 0.1 + 0.2, 6.02214076e23, std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::denorm_min()})
        CHECK(std::strtod(core::text(number).c_str(), nullptr) == number);
}

TEST_CASE("core/text: words of all kinds", "[core]") {
    CHECK(core::text("a ", 'b', std::string{" c"}, std::string_view{" d"}) == "a b c d");
}

TEST_CASE("core/text: fixed digits", "[core]") {
    CHECK(core::fixed(2.0 / 3, 3) == "0.667");
    CHECK(core::fixed(-2.0 / 3, 0) == "-1");
    CHECK(core::fixed(0, 2) == "0.00");
    CHECK(core::fixed(99.996, 2) == "100.00");
    CHECK(core::fixed(std::numeric_limits<double>::quiet_NaN(), 2) == "nan");
    // Whatever its sign: 0/0 has one on some machines.
    CHECK(core::fixed(-std::numeric_limits<double>::quiet_NaN(), 2) == "nan");
    CHECK(core::text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
    CHECK(core::text(-std::numeric_limits<float>::quiet_NaN(), " ", -std::numeric_limits<float>::infinity()) ==
          "nan -inf");
    // The longest number there is: a sign, 309 digits, the point.
    CHECK(core::fixed(std::numeric_limits<double>::lowest(), 40).size() == 1 + 309 + 1 + 40);
}

TEST_CASE("core/text: groups of three digits", "[core]") {
    CHECK(core::grouped(0) == "0");
    CHECK(core::grouped(999) == "999");
    CHECK(core::grouped(1000) == "1,000");
    CHECK(core::grouped(132863336) == "132,863,336");
    CHECK(core::grouped(std::numeric_limits<unsigned long long>::max()) == "18,446,744,073,709,551,615");
}

TEST_CASE("core/text: a JSON string", "[core]") {
    CHECK(core::json_string("") == R"("")");
    CHECK(core::json_string("fc \"1\" \\ ü\n\t") == "\"fc \\\"1\\\" \\\\ ü  \"");
}

TEST_CASE("core/text: foreign text becomes printable", "[core]") {
    CHECK(core::printable("") == "");
    CHECK(core::printable("run 1/\"a\\b\" ü € 😀") == "run 1/\"a\\b\" ü € 😀");
    CHECK(core::printable(std::string_view{"a\0b\n\r\t\x1b[2J\x7f", 11}) == R"(a\x00b\n\r\t\x1b[2J\x7f)");
    CHECK(core::printable("two\nlines\r", true) == "two\nlines\\r");
    // No UTF-8: a byte that only continues, one that never occurs, forms that are too long, a surrogate, beyond the
    // last, cut off.
    CHECK(core::printable("\x80") == R"(\x80)");
    CHECK(core::printable("\xff") == R"(\xff)");
    CHECK(core::printable("\xc0\xaf") == R"(\xc0\xaf)");
    CHECK(core::printable("\xe0\x9f\xbf") == R"(\xe0\x9f\xbf)");
    CHECK(core::printable("\xed\xa0\x80") == R"(\xed\xa0\x80)");
    CHECK(core::printable("\xf4\x90\x80\x80") == R"(\xf4\x90\x80\x80)");
    CHECK(core::printable("\xe2\x82"
                          "z") == R"(\xe2\x82z)");
    CHECK(core::printable("\xe2\x82") == R"(\xe2\x82)");
    // Characters that control: of C1, the end of a line, a reversed direction, a mark of byte order.
    CHECK(core::printable("\xc2\x9b"
                          "2J") == R"(\xc2\x9b2J)");
    CHECK(core::printable("\xe2\x80\xa8") == R"(\xe2\x80\xa8)");
    CHECK(core::printable("\xe2\x80\xae") == R"(\xe2\x80\xae)");
    CHECK(core::printable("\xef\xbb\xbf") == R"(\xef\xbb\xbf)");
    CHECK(core::printable("\xc2\xa0") == "\xc2\xa0");
    // Once is enough.
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    CHECK(core::printable(core::printable(all)) == core::printable(all));
}

TEST_CASE("core/text: an excerpt of a long text ends between two characters", "[core]") {
    CHECK(core::excerpt(std::string(80, 'a')) == std::string(80, 'a'));
    CHECK(core::excerpt(std::string(81, 'a')) == std::string(80, 'a') + "... (81 bytes)");
    CHECK(core::excerpt(std::string(79, 'a') + "€") == std::string(79, 'a') + "... (82 bytes)");
    CHECK(core::excerpt(std::string(100, '\xbf')).substr(0, 8) == R"(\xbf\xbf)");
}

TEST_CASE("core/text: numbers are read as strtod reads them; those below all doubles are 0", "[core]") {
    double found = 0;
    for (const std::string text :
         {"0", "1", "-1", "0.5", ".5", "5.", "1e-400", "-1e-400", "0.0e99999", "0.00001e-320", "4e-324", "2e-324",
          "123456789e-340", "1e308", "1e-99999999999999999999", "0.1e-323", "-0", "1000000e-330", "17e307"}) {
        INFO(text);
        REQUIRE(core::read_number(text, found));
        const double expected = std::strtod(text.c_str(), nullptr);
        CHECK(found == expected);
        CHECK(std::signbit(found) == std::signbit(expected));
    }
    const std::string zeros(400, '0');
    REQUIRE(core::read_number("0." + zeros + "1", found));
    CHECK(found == 0);
    REQUIRE(core::read_number("1" + zeros + "e-400", found));
    CHECK(found == 1);
    for (const std::string& text :
         std::vector<std::string>{"", "x", "1 ", " 1", "1e999", "-1e999", "1e99999999999999999999", "1" + zeros,
                                  "1" + zeros + "e-5", "0.1e310", "1e-400x"}) {
        INFO(text);
        CHECK_FALSE(core::read_number(text, found));
    }
}
