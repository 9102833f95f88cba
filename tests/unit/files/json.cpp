// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/json.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::files {
namespace {

/// What the call throws as core::error; empty when it throws nothing.
template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const core::error& error) {
        return error.what();
    }
    return {};
}
std::string error_of_text(std::string_view text) {
    return error_of([&] {
        json_reader in{text, "text"};
        in.skip();
        in.end();
    });
}
std::string string_in(std::string_view text) {
    json_reader in{text, "text"};
    std::string out = in.string();
    in.end();
    return out;
}

TEST_CASE("files/json: a text is read value by value", "[files]") {
    json_reader in{R"( {"step" : 12, "rate":-2.5e-1 ,"names":["a","", "b\n"], "more":{"x":[[],{}],"y":null},
                       "on":true,"off":false,"least":-9223372036854775808,"most":18446744073709551615} )",
                   "text"};
    std::vector<std::string> names, keys;
    in.object([&](const std::string& key) {
        keys.push_back(key);
        if (key == "step")
            CHECK(in.natural() == 12);
        else if (key == "rate")
            CHECK(in.real() == -0.25);
        else if (key == "names")
            in.array([&] { names.push_back(in.string()); });
        else if (key == "on")
            CHECK(in.boolean());
        else if (key == "off")
            CHECK(!in.boolean());
        else if (key == "least")
            CHECK(in.integer() == std::numeric_limits<std::int64_t>::min());
        else if (key == "most")
            CHECK(in.natural() == std::numeric_limits<std::uint64_t>::max());
        else
            in.skip();
    });
    in.end();
    CHECK(names == std::vector<std::string>{"a", "", "b\n"});
    CHECK(keys == std::vector<std::string>{"step", "rate", "names", "more", "on", "off", "least", "most"});
}

TEST_CASE("files/json: the kind of a value is known before it is read", "[files]") {
    json_reader in{R"([null,true,-1,"",[],{}])", "text"};
    std::vector<json_kind> found;
    in.array([&] {
        found.push_back(in.kind());
        in.skip();
    });
    CHECK(found == std::vector<json_kind>{json_kind::null, json_kind::boolean, json_kind::number, json_kind::string,
                                          json_kind::array, json_kind::object});
}

TEST_CASE("files/json: strings and their escapes", "[files]") {
    CHECK(string_in(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
    CHECK(string_in(R"("\u0041\u00e9\u20AC\ud83d\ude00\u0000")") ==
          std::string{"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0", 11});
    CHECK(string_in("\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"") == "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

// What the RFC forbids, as in the suite of Seriot 2016 (n_*.json).
TEST_CASE("files/json: what is no JSON is refused", "[files]") {
    for (const char* text : {"",
                             " ",
                             "[1,]",
                             "[,1]",
                             "[1 2]",
                             "{\"a\":1,}",
                             "{\"a\" 1}",
                             "{a:1}",
                             "{\"a\"}",
                             "{1:1}",
                             "[",
                             "{",
                             "]",
                             "}",
                             "[1}",
                             "nul",
                             "True",
                             "tru",
                             "01",
                             "-",
                             "-01",
                             "+1",
                             ".5",
                             "1.",
                             "1.e1",
                             "1e",
                             "1e+",
                             "0x1",
                             "NaN",
                             "Infinity",
                             "\"",
                             "\"a",
                             "\"\\\"",
                             "\"\\a\"",
                             "\"\\u12\"",
                             "\"\\u12g4\"",
                             "\"\\ud800\"",
                             "\"\\ud800\\u0041\"",
                             "\"\\udc00\"",
                             "\"\t\"",
                             "\"\n\"",
                             "\"\x80\"",
                             "\"\xc0\x80\"",
                             "\"\xe0\x80\x80\"",
                             "\"\xed\xa0\x80\"",
                             "\"\xf4\x90\x80\x80\"",
                             "\"\xf5\x80\x80\x80\"",
                             "\"\xe2\x82\"",
                             "1 1",
                             "[] []",
                             "/**/1",
                             "1//",
                             "'a'",
                             "\xef\xbb\xbf"
                             "1",
                             "[1\f]"}) {
        INFO(text);
        CHECK(error_of_text(text).starts_with("lockstep: text, byte "));
    }
    for (const char* text : {"0", "-0", "1.5", "1e5", "1E+5", "1e-5", "-0.0", "\"\x7f\"", "[\r\n\t ]", "1e999"}) {
        INFO(text);
        CHECK(error_of_text(text).empty());
    }
}

TEST_CASE("files/json: errors say where, and what was found", "[files]") {
    CHECK(error_of_text("{\"a\": [1, x]}") ==
          "lockstep: text, byte 10: a value expected, found \"x]}\"; correct the text there, or fetch or write the "
          "file again");
    CHECK(error_of_text("{\"a\": [1") ==
          "lockstep: text, byte 8: \",\" or \"]\" expected, found the end; correct the text there, or fetch or write "
          "the file again");
    const auto read = [](std::string_view text, auto f) {
        return error_of([&] {
            json_reader in{text, "file", 100};
            f(in);
        });
    };
    const auto natural = [](json_reader& in) { (void)in.natural(); };
    CHECK(read(" -5", natural) ==
          "lockstep: file, byte 101: a whole number from 0 on expected, found \"-5\"; correct the text there, or fetch "
          "or write the file again");
    CHECK(read("18446744073709551616", natural) ==
          "lockstep: file, byte 100: 18446744073709551616 is more than 64 bits hold; use a smaller number");
    CHECK(read("1.0", natural).find("a whole number from 0 on expected") != std::string::npos);
    CHECK(read("1e1", natural).find("a whole number from 0 on expected") != std::string::npos);
    CHECK(read("-9223372036854775809", [](json_reader& in) { (void)in.integer(); }).find("64 bits") !=
          std::string::npos);
    CHECK(read("1e999", [](json_reader& in) { (void)in.real(); }).find("no double holds 1e999") != std::string::npos);
    CHECK(read("7", [](json_reader& in) { (void)in.string(); }).find("a string expected") != std::string::npos);
}

TEST_CASE("files/json: depth is limited", "[files]") {
    const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
    CHECK(error_of_text(nested(json_reader::most_levels)).empty());
    CHECK(error_of_text(nested(json_reader::most_levels + 1)).find("byte 65: more than 64 objects and arrays") !=
          std::string::npos);
    CHECK(error_of_text(std::string(1'000'000, '[')).find("more than 64") != std::string::npos);
    std::string wide = "[";  // one after the other is no depth
    for (int i = 0; i < 200; ++i) wide += "[{}],";
    CHECK(error_of_text(wide + "0]").empty());
}

TEST_CASE("files/json: what is written reads back", "[files]") {
    json_writer out;
    out.begin_object().key("a\"\\\n\x01").value("x\ty\xc3\xa9").key("n").begin_array();
    out.value(18446744073709551615ULL).value(-9223372036854775807LL - 1).value(true).null().value(0.1).end_array();
    out.key("empty").begin_object().end_object().key("none").begin_array().end_array().end_object();
    CHECK(out.text() ==
          "{\"a\\\"\\\\\\u000a\\u0001\":\"x\\u0009y\xc3\xa9\",\"n\":[18446744073709551615,-9223372036854775808,true,"
          "null,0.1],\"empty\":{},\"none\":[]}");
    CHECK(error_of_text(out.text()).empty());
    CHECK(string_in(json_writer{}.value("a\"\\\n\x01\x1f\x7f").text()) == "a\"\\\n\x01\x1f\x7f");
    for (const double number : {0.0, -0.0, 0.1, 1.0 / 3, 1e22, 1e-300, 1.7976931348623157e308, -5e-324 * 0 + 3.0}) {
        json_writer one;
        one.value(number);
        json_reader in{one.text(), "text"};
        const double back = in.real();
        CHECK(back == number);
        CHECK(std::signbit(back) == std::signbit(number));
    }
}

// Whether a character is a number or a string only who writes it knows.
template <class Writer, class T>
concept takes = requires(Writer out, T value) {
    out.value(value);
};
static_assert(!takes<json_writer, char> && takes<json_writer, signed char> && takes<json_writer, int> &&
              takes<json_writer, bool> && takes<json_writer, float>);

TEST_CASE("files/json: what JSON cannot hold is not written", "[files]") {
    CHECK(error_of([] { json_writer{}.value(std::nan("")); }) == "lockstep: JSON holds no nan; write it as a string");
    CHECK(error_of([] { json_writer{}.value("\xff"); }).find("no UTF-8") != std::string::npos);
    CHECK(error_of([] { json_writer{}.value(1).value(2); }).find("second value") != std::string::npos);
    CHECK(error_of([] { json_writer{}.begin_array().end_object(); }).find("closes nothing") != std::string::npos);
    CHECK(error_of([] { json_writer{}.begin_object().key("a").end_object(); }).find("closes nothing") !=
          std::string::npos);
    CHECK(error_of([] { json_writer{}.begin_array().key("a"); }).find("outside of an object") != std::string::npos);
    CHECK(error_of([] { json_writer{}.begin_object().key("a").key("b"); }) ==
          "lockstep: a JSON text gets the name \"b\" where a value is expected; call value() after key()");
    for (const bool is_first : {true, false})
        CHECK(error_of([&] {
                  json_writer out;
                  out.begin_object();
                  if (!is_first) out.key("a").value(1);
                  out.value("b");
              }) == "lockstep: a JSON text gets the value \"b\" without a name in an object; call key() before it");
    CHECK(error_of([] { json_writer{}.begin_object().begin_array(); }).find("without a name") != std::string::npos);
    CHECK(error_of([] { json_writer{}.begin_object().key("a").null().null(); }).find("without a name") !=
          std::string::npos);
    // A name that is refused is none.
    json_writer out;
    out.begin_object();
    CHECK(!error_of([&] { out.key("\xff"); }).empty());
    CHECK(out.key("a").value(1).end_object().text() == "{\"a\":1}");
    CHECK(error_of([] { (void)json_writer{}.begin_array().text(); }).find("ends inside") != std::string::npos);
}

}  // namespace
}  // namespace lockstep::files
