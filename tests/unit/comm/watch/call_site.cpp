// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/watch/call_site.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace comm = lockstep::comm;

TEST_CASE("comm/call_site: where a rank is, in one line", "[comm]") {
    comm::collective sum{
        .elements = 4096, .unit = "floats", .kind = comm::short_name{"all-reduce"}, .what = comm::short_name{"fc2"}};
    sum.runs = 17;
    sum.where = std::source_location::current();
    const std::string line = std::to_string(sum.where.line());
    const auto text = [&](const comm::call_record* call) {
        comm::short_line out;
        comm::describe(out, sum, call);
        return std::string{out.text()};
    };
    CHECK(text(nullptr) == "all-reduce #17 of 'fc2' at call_site.cpp:" + line + ", 4096 floats");
    comm::call_record fit{.name = "fit", .where = std::source_location::current()};
    CHECK(text(&fit) ==
          "all-reduce #17 of 'fc2' in fit at call_site.cpp:" + std::to_string(fit.where.line()) + ", 4096 floats");
    sum.what = {};
    sum.elements = 0;
    CHECK(text(nullptr) == "all-reduce #17 at call_site.cpp:" + line);
    sum.where = {};
    sum.unit = "";
    CHECK(text(nullptr) == "all-reduce");
}

TEST_CASE("comm/call_site: what is too long is cut", "[comm]") {
    const std::string part(100, 'x');
    comm::short_line out;
    for (int i = 0; i < 3; ++i) out.add(std::string_view{part});
    CHECK(out.text() == std::string(comm::short_line::longest, 'x'));
    out.add(std::uint64_t{7});
    out.end();
    std::string whole(comm::short_line::longest, 'x');
    whole.back() = '\n';
    CHECK(out.text() == whole);
    comm::short_line number;
    number.add(std::uint64_t{18446744073709551615U});
    number.end();
    CHECK(number.text() == "18446744073709551615\n");
    CHECK(part.starts_with(comm::short_name{std::string_view{part}}.text()));
}

TEST_CASE("comm/call_site: fingerprints differ with kind, elements and type", "[comm]") {
    const auto print = [](std::string_view kind, std::size_t elements, const char* unit) {
        comm::collective one{.elements = elements, .unit = unit, .kind = comm::short_name{kind}, .what = {}};
        one.identify();
        return one.fingerprint;
    };
    const auto first = print("all-reduce", 8, "floats");
    CHECK(print("all-reduce", 8, "floats") == first);
    CHECK(print("all-gather", 8, "floats") != first);
    CHECK(print("all-reduce", 9, "floats") != first);
    CHECK(print("all-reduce", 8, "doubles") != first);
}
