// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/csv.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "files.hpp"
#include "lockstep/core/hash.hpp"

namespace lockstep::data {
namespace {

using small = csv<tensor::shape<2>, tensor::classes<3>>;
using regression = csv<tensor::shape<1>, tensor::shape<2>>;
static_assert(Dataset<small> && Dataset<small, double> && Dataset<regression>);

template <class Set>
auto all_of(const Set& set) {
    std::vector<std::uint64_t> rows(set.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::pair<std::vector<double>, std::vector<tensor::label_element<typename Set::label, double>>> out;
    out.first.resize(rows.size() * Set::sample::size);
    out.second.resize(rows.size() * tensor::label_size<typename Set::label>);
    set.template read<double>(rows, {out.first.data(), rows.size()}, out.second);
    return out;
}
using numbers = std::vector<double>;
using labels = std::vector<std::int32_t>;

TEST_CASE("data/csv: the last columns are the label where nothing else is said", "[data]") {
    const test::directory here;
    const small set{here.write("x.csv", "a,b,c\n1,2.5,0\n-3e2,.5,2\n")};
    CHECK(all_of(set) == std::pair{numbers{1, 2.5, -300, 0.5}, labels{0, 2}});
    CHECK(set.name() == "\"" + (here / "x.csv") + "\"");
    CHECK(all_of(regression{here.write("y.csv", "7\t8\t9\n"), {.separator = '\t', .header = false}}) ==
          std::pair{numbers{7}, numbers{8, 9}});
    // Below all doubles is 0.
    CHECK(all_of(regression{here.write("z.csv", "1e-400,-2e-330,5e-324\n0.0e9999,1,1\n"), {.header = false}}) ==
          std::pair{numbers{0, 0}, numbers{0, 5e-324, 1, 1}});
    std::array<float, 2> one{};
    std::array<std::int32_t, 1> label{};
    set.read<float>(std::array<std::uint64_t, 1>{1}, {one.data(), 1}, label);
    CHECK(one == std::array{-300.0F, 0.5F});
    CHECK(label[0] == 2);
}

TEST_CASE("data/csv: columns by name and by number", "[data]") {
    const test::directory here;
    const std::string path = here.write("x.csv", "id,kind,a,b\n100,2,3,4\n101,0,5,6\n");
    const std::pair right{numbers{3, 4, 5, 6}, labels{2, 0}};
    CHECK(all_of(small{path, {.labels = {"kind"}, .ignored = {"id"}}}) == right);
    CHECK(all_of(small{path, {.labels = {1}, .ignored = {0}}}) == right);
    CHECK(all_of(regression{path, {.labels = {"b", "id"}, .ignored = {"kind"}}}) ==
          std::pair{numbers{3, 5}, numbers{4, 100, 6, 101}});
    const std::string named = here.write("y.csv", "red, 1, 2\n\"green\", 3, 4\nblue,5,6\nred,7,8");
    CHECK(all_of(small{named, {.header = false, .labels = {0}, .classes = {"blue", "green", "red"}}}) ==
          std::pair{numbers{1, 2, 3, 4, 5, 6, 7, 8}, labels{2, 1, 0, 2}});
}

TEST_CASE("data/csv: columns that pandas has counted have names", "[data]") {
    const test::directory here;
    const std::string path = here.write("x.csv", "0,1,2\n7,8,1\n9,10,0\n");
    CHECK(all_of(small{path, {.labels = {"2"}}}) == std::pair{numbers{7, 8, 9, 10}, labels{1, 0}});
    CHECK(all_of(small{path, {.header = false}}) == std::pair{numbers{0, 1, 7, 8, 9, 10}, labels{2, 1, 0}});
    // Without a name that is called, it may be a sample.
    CHECK_THROWS_WITH(small{path}, Catch::Contains("numbers, where names of columns were expected"));
    for (const char* first : {"1,2,0\n", "0,1,2.0\n", "0,2,1\n", "00,1,2\n"})
        CHECK_THROWS_WITH((small{here.write("y.csv", std::string{first} + "7,8,1\n"), {.labels = {"2"}}}),
                          Catch::Contains("numbers, where names of columns were expected"));
}

TEST_CASE("data/csv: a first line that could be a sample is none of names", "[data]") {
    const test::directory here;
    const auto error = [&](const std::string& content, const csv_format& format) {
        const std::string path = here.write("x.csv", content);
        return test::error_of([&] { small{path, format}; });
    };
    const std::string expected = "line 1: numbers, where names of columns were expected";
    const csv_format named{.classes = {"blue", "green", "red"}};
    CHECK_THAT(error("1,2,red\n3,4,blue\n", named), Catch::Contains(expected));
    CHECK_THAT(error("monday,1,2,0\ntuesday,3,4,1\n", {.ignored = {0}}), Catch::Contains(expected));
    for (const char* line : {"1,,0", "1,NA,0", "NaN,2,0", "?,2,1"})
        CHECK_THAT(error(std::string{line} + "\n3,4,1\n", {}), Catch::Contains(expected));
    CHECK_THAT(error("1,,red\n3,4,blue\n", named), Catch::Contains(expected));
    // These could not.
    const std::pair right{numbers{3, 4}, labels{1}};
    CHECK(all_of(small{here.write("y.csv", "a,2,0\n3,4,1\n")}) == right);
    CHECK(all_of(small{here.write("y.csv", "1,2,colour\n3,4,green\n"), named}) == right);
    CHECK(all_of(small{here.write("y.csv", "0,1,colour\n3,4,green\n"),
                       {.labels = {"colour"}, .classes = {"blue", "green", "red"}}}) == right);
    CHECK(all_of(small{here.write("y.csv", "red,green,blue\n3,4,green\n"), named}) == right);
    CHECK(all_of(small{here.write("y.csv", ",,\n3,4,1\n")}) == right);
    // Years, and what pandas writes with its numbers of rows.
    CHECK(all_of(small{here.write("y.csv", "country,1990,1991,2000\nFR,3,4,1\n"), {.ignored = {"country"}}}) == right);
    const std::string table = here.write("y.csv", ",0,1,2\n0,3,4,1\n");
    CHECK(all_of(small{table, {.ignored = {0}}}) == right);
    CHECK(all_of(small{table, {.ignored = {""}}}) == right);
    CHECK(all_of(small{table, {.labels = {"2"}, .ignored = {0}}}) == right);
    CHECK_THAT(error("FR,1990,1991,2\nUK,3,4,1\n", {.ignored = {0}}), Catch::Contains(expected));
}

TEST_CASE("data/csv: quotes, ends of lines, blanks, a mark of UTF-8 and packed files", "[data]") {
    const test::directory here;
    const std::pair right{numbers{1, 2, 3, 4}, labels{1, 2}};
    for (const std::string content :
         {"a,b,c\n1,2,1\n3,4,2\n", "a,b,c\n1,2,1\n3,4,2", "a,b,c\r\n1,2,1\r\n3,4,2\r\n", "a,b,c\n1,2,1\n3,4,2\n\n\n",
          "\xef\xbb\xbf"
          "a,b,c\n1,2,1\n3,4,2\n",
          " a ,b,c\n 1,\t2 , 1 \n3,4,2\n", "\"a\",\"b,\n\"\"x\"\"\",c\n\"1\",2,\"1\"\r\n3,\"4\",2\n",
          "a,b,c\n+1,2.0,1.0\n3,4e0,2\n"}) {
        INFO(content);
        const small set{here.write("x.csv", content)};
        CHECK(all_of(set) == right);
        CHECK(all_of(small{here.write_packed("x.csv.gz", content)}) == right);
    }
    CHECK(small{here.write("none.csv", "a,b,c\n")}.size() == 0);
}

TEST_CASE("data/csv: a random table reads back, however it is written", "[data]") {
    std::mt19937 random{3};
    const test::directory here;
    constexpr std::size_t columns = 40, rows = 300;
    std::string content;
    numbers x, y;
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < columns; ++column) {
            const double number = static_cast<double>(random()) / (1 << (random() % 31)) - 1000;
            const bool quoted = random() % 3 == 0, blank = random() % 4 == 0;
            content += (quoted ? "\"" : "") + std::string(blank ? " " : "") + core::text(number) +
                       (quoted ? "\"" : "") +
                       (column + 1 < columns ? ";"
                        : random() % 2 == 0  ? "\r\n"
                                             : "\n");
            (column < 2 ? y : x).push_back(number);
        }
    REQUIRE(content.size() > 2 * 65'536);  // several pieces of what is read at once
    const csv<tensor::shape<38>, tensor::shape<2>> set{here.write("x.csv", content),
                                                       {.separator = ';', .header = false, .labels = {0, 1}}};
    CHECK(all_of(set) == std::pair{x, y});
}

TEST_CASE("data/csv: ranks with other numbers are told apart", "[data]") {
    const test::directory here;
    const small a{here.write("a.csv", "a,b,c\n1,2,1\n")}, b{here.write("b.csv", "a,b,c\n1,3,1\n")},
        c{here.write("c.csv", "a,b,c\n1,2,1.0\n\n")};
    CHECK(a.settings() != b.settings());
    CHECK(a.settings() == c.settings());
    // The hash of the samples, then of the labels, as doubles.
    const std::array<double, 2> x{1, 2};
    const std::array<double, 1> y{1};
    const std::uint64_t hash = core::hash(std::as_bytes(std::span{y}), core::hash(std::as_bytes(std::span{x})));
    CHECK(a.settings() == "numbers=" + core::hexadecimal(hash));
}

TEST_CASE("data/csv: a number beyond float is an error where the file is read as float", "[data]") {
    const test::directory here;
    const auto read = []<class T>(const regression& set, T) {
        std::array<T, 1> x{};
        std::array<T, 2> y{};
        return test::error_of([&] { set.read<T>(std::array<std::uint64_t, 1>{0}, {x.data(), 1}, y); });
    };
    const std::string path = here.write("x.csv", "a,b,c\n1,2,3\n4,-1e39,6\n1e300,8,9\n");
    const regression wide{path};
    CHECK(read(wide, 0.0F) == "lockstep: \"" + path +
                                  "\", line 3: column 1 (\"b\") has \"-1e39\", more than float holds; correct or "
                                  "remove the line, ignore the column, or read it as double: a plan with .precision = "
                                  "real<double>{}");
    CHECK(read(wide, 0.0).empty());
    CHECK(all_of(wide) == std::pair{numbers{1, 4, 1e300}, numbers{2, 3, -1e39, 6, 8, 9}});
    CHECK_THAT(read(regression{here.write("y.csv", "1,2,3.5e38\n"), {.header = false}}, 0.0F),
               Catch::Contains("line 1: column 2 has \"3.5e38\", more than float holds"));
    // Ignored columns are not read, and the largest float may be written with a few digits.
    CHECK(
        read(regression{here.write("z.csv", "1,3.4028235e38,-3.4028235e+38,1e39\n"), {.header = false, .ignored = {3}}},
             0.0F)
            .empty());
}

TEST_CASE("data/csv: each thing that can be wrong has its message", "[data]") {
    const test::directory here;
    const std::string path = here / "x.csv";
    const auto error = [&](const std::string& content, const csv_format& format = {}) {
        here.write("x.csv", content);
        std::string out = test::error_of([&] { small{path, format}; });
        if (const auto at = out.find(path); at != std::string::npos) out.replace(at, path.size(), "x.csv");
        return out;
    };
    const auto line = [](int number, const std::string& rest) {
        return "lockstep: \"x.csv\", line " + std::to_string(number) + ": " + rest;
    };
    CHECK(error("") == line(1, "the line with the names of the columns is missing; check the file"));
    CHECK(error("a,b,c\n1,2,1\n1,,1\n") ==
          line(3, "column 1 (\"b\") is empty; fill in missing values, or remove the line"));
    CHECK(error("a,b,c\n1,2,1\n\n\n1,2,1\n") ==
          "lockstep: \"x.csv\", line 3 is empty, and others follow; remove the empty line");
    for (const std::string text : {"NA", "nan", "inf", "-inf", "1e999", "0x10", "1 2", "++1", "+-1", "+", "?", "--1"})
        CHECK(error("a,b,c\n1," + text + ",1\n") ==
              line(2, "column 1 (\"b\") has \"" + text +
                          "\", expected a finite number; correct or remove the line, ignore the column, or set .header "
                          "where names stand above"));
    // Decimal commas, and marks between thousands.
    const std::string with_point =
        "\", expected a finite number; write numbers with a decimal point, and without a mark "
        "between thousands: 1234.5";
    for (const std::string text : {"1,5", "-0,5e3", "1.234,5", "1,234.5", "1,000,000"}) {
        CHECK(error("a;b;c\n1;" + text + ";1\n", {.separator = ';'}) ==
              line(2, "column 1 (\"b\") has \"" + text + with_point));
        CHECK(error("a,b,c\n1,\"" + text + "\",1\n") == line(2, "column 1 (\"b\") has \"" + text + with_point));
    }
    CHECK(error("1;2;1,0\n", {.separator = ';', .header = false}) == line(1, "column 2 has \"1,0" + with_point));
    CHECK(error("1;a,b;1\n", {.separator = ';', .header = false}).find("or set .header") != std::string::npos);
    CHECK(error("1,2,x\n", {.header = false}) ==
          line(1, "column 2 has \"x\", expected a finite number; correct the line, or name the classes in .classes"));
    const std::string from_1 = "labels count from 0: subtract 1 if these count from 1, or declare more classes",
                      below = "correct the label: classes count from 0, and none stands for a sample to leave out",
                      part = "correct the line: a class is a whole number; or name the classes in .classes",
                      more = "declare more classes, or correct the line";
    for (const auto& [text, remedy] : {std::pair<std::string, std::string>{"3", from_1},
                                       {"-1", below},
                                       {"0.5", part},
                                       {"-0.5", part},
                                       {"1e30", more}})
        CHECK(error("a,b,c\n1,2," + text + "\n") ==
              line(2, "column 2 (\"c\") has the label " + text + ", allowed are 0 to 2; " + remedy));
    CHECK(error("a,b,c\n1,2,red\n", {.classes = {"red", "green", "red"}}) ==
          "lockstep: \"x.csv\" was to be read with classes 0 and 2 of one name, \"red\"; name each class of "
          "tensor::classes once");
    CHECK(
        error("a,b,c\n1,2,pink\n", {.classes = {"red", "green", "blue"}}) ==
        line(
            2,
            "column 2 (\"c\") has \"pink\", which is none of the 3 classes; name it in .classes, or correct the line"));
    CHECK(error("a,b,c\n1,2,1\n", {.classes = {"red"}}).find("with 1 names of classes, its label has 3 classes") !=
          std::string::npos);
    const std::string counted = " separated by ',', expected 3: 2 of the sample, 1 of the label, 0 ignored; ",
                      expected = counted +
                                 "declare the data set with as many, name other columns to be ignored, or set another "
                                 ".separator";
    CHECK(error("1,2\n", {.header = false}) == line(1, "2 columns" + expected));
    CHECK(error("a,b,c,d\n1,2,3,4\n") == line(1, "4 columns" + expected));
    // The line with the names had the right number.
    CHECK(error("a,b,c\n1,2\n") == line(2, "2 columns" + counted +
                                               "fill in what is missing, or remove the line: it has fewer columns than "
                                               "the line with the names"));
    CHECK(error("a,b,c\n1,5,2,5,1\n") == line(2, "5 columns" + counted +
                                                     "write numbers with a decimal point (1.5), and put a field with a "
                                                     "comma inside into quotation marks"));
    CHECK(error("a;b;c\n1;2;3;1\n", {.separator = ';'}).find("; put a field with the separator inside into") !=
          std::string::npos);
    CHECK(error("a;b;c\n1;2;1\n") == line(1, "1 column" + expected));
    CHECK(error("1,2,1\n") ==
          line(1,
               "numbers, where names of columns were expected; set .header = false, add a line with names, or call "
               "columns by their names, as in .labels = {\"2\"}"));
    // A first line with a value that is missing or not finite is a sample all the same.
    for (const std::string word :
         {"", "NA", "n/a", "#N/A", "<NA>", "None", "-nan", "NaN", "-inf", "+inf", "Inf", "INFINITY"})
        CHECK(
            error("1," + word + ",1\n2,3,1\n").starts_with(line(1, "numbers, where names of columns were expected; ")));
    CHECK(error("5.1;1,5;1\n", {.separator = ';'}).starts_with(line(1, "numbers, where names of columns were ")));
    CHECK(error("1,information,a-b\n2,3,1\n").empty());
    CHECK(error("a,b,c\n1,\"2,1\n3,4,1\n") == line(2, "column 1 has a quotation mark that is never closed; close it"));
    CHECK(error("a,b,c\n1,\"2\"3,1\n") == line(2,
                                               "column 1 goes on after its closing quotation mark; write a quotation "
                                               "mark inside of a quoted field twice"));
    CHECK(error("a,b,c\n1,2\"3\",1\n") ==
          line(2, "column 1 has a quotation mark inside; put the whole field into quotation marks"));
    CHECK(error("a,b,c\r1,2,1\r") ==
          line(1, "a carriage return (CR) without a line feed (LF); end lines with LF or CR LF"));
    CHECK(error("a,b,c\n1,\"" + std::string(65'537, 'x') + "\",1\n") ==
          line(2, "column 1 is longer than 65536 bytes; look for a quotation mark that is never closed"));
    CHECK(error("\"a\n\n\",b,c\n1,2,9\n").starts_with(line(4, "column 2 (\"c\") has the label 9")));
    CHECK(error("a,b,c\n", {.labels = {"d"}}) == "lockstep: \"x.csv\" has no column \"d\"; its columns are a, b, c");
    CHECK(error("a,c,c\n", {.labels = {"c"}}) ==
          "lockstep: \"x.csv\" has more than one column \"c\"; its columns are a, c, c");
    CHECK(error("1,2,3\n", {.header = false, .labels = {"c"}}) ==
          "lockstep: \"x.csv\" has no column \"c\"; number columns from 0, or set .header = true");
    CHECK(error("a,b,c\n", {.labels = {3}}) ==
          "lockstep: \"x.csv\" was to be read with column 3, it has columns 0 to 2; count columns from 0");
    CHECK(error(",a,b\n1,2,1\n", {.labels = {-1}}) ==
          "lockstep: \"x.csv\" was to be read with column -1, it has columns 0 to 2; count columns from 0");
    CHECK(error("a,b,c,d\n", {.labels = {"a"}, .ignored = {0}}) ==
          "lockstep: column \"a\" of \"x.csv\" is named twice; name each column once");
    CHECK(error("a,b,c\n", {.labels = {"a", "b"}}) ==
          "lockstep: \"x.csv\" was to be read with 2 columns of the label, which has 1; name a column for each number "
          "of the label");
    for (const char wrong : {'"', '\n', '\r', '+', '-', '.', 'e', 'E', '0', '1', '9'})
        CHECK(
            error("a,b,c\n", {.separator = wrong}) ==
            "lockstep: a CSV file was to be read with a separator that ends lines, quotes fields or stands in numbers; "
            "separate columns by a comma, a semicolon or a tab");
}

}  // namespace
}  // namespace lockstep::data
