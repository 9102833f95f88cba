// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/algorithm_table.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace collectives = lockstep::collectives;
using table = collectives::algorithm_table;

TEST_CASE("collectives/algorithm_table: text and table are the same thing", "[collectives]") {
    for (const std::string text : {"tree:0-max", "doubling:0-8192;tree:8193-max",
                                   "doubling:0-0;hierarchical:1-1000;ring:1001-9999;halving-doubling:10000-max"}) {
        const auto read = table::parse(text);
        CHECK(read.text() == text);
        CHECK(table::parse(read.text()) == read);
    }
    CHECK(table{}.text() == "tree:0-max");
    const auto two = table::parse("doubling:0-8192;tree:8193-max");
    CHECK(two.at(0) == collectives::sum_algorithm::doubling);
    CHECK(two.at(8192) == collectives::sum_algorithm::doubling);
    CHECK(two.at(8193) == collectives::sum_algorithm::tree);
    CHECK(two.at(table::no_limit) == collectives::sum_algorithm::tree);
    CHECK(two.invariant());
    CHECK(table::parse("hierarchical:0-max").invariant());
    CHECK_FALSE(table::parse("tree:0-99;ring:100-max").invariant());
    CHECK_FALSE(table::parse("halving-doubling:0-max").invariant());
}

TEST_CASE("collectives/algorithm_table: what cannot be read is named, with what to write", "[collectives]") {
    const auto says = [](const std::string& text, const std::string& problem) {
        CHECK_THROWS_WITH(table::parse(text),
                          Catch::Contains("lockstep: the all-reduce '" + text + "' has " + problem) &&
                              Catch::Contains("; write them like doubling:0-8192;tree:8193-max"));
    };
    says("", "'', which is no name:first-last");
    says("tree:0-max;", "'tree:0-max', after which a ';' promises more");
    says("tree", "'tree', which is no name:first-last");
    says("tree:0", "'tree:0', which is no name:first-last");
    says("three:0-max", "'three:0-max', which names no algorithm");
    says("tree:0-many", "'tree:0-many', where 'many' is no number of bytes");
    says("tree:0-99999999999999999999",
         "'tree:0-99999999999999999999', where '99999999999999999999' is no number of bytes");
    says("tree:-1-max", "'tree:-1-max', where '' is no number of bytes");
    says("tree:0-8K;ring:9-max", "'tree:0-8K', where '8K' is no number of bytes");
    says("tree:1-max", "'tree:1-max', which begins at 1 and should at 0");
    says("doubling:0-8192;tree:8192-max", "'tree:8192-max', which begins at 8192 and should at 8193");
    says("doubling:0-99;tree:100-50;ring:51-max", "'tree:100-50', which ends at 50, before it begins");
    says("doubling:0-8192", "'doubling:0-8192', which is the last and does not end at max");
    says("doubling:0-max;tree:5-max", "'doubling:0-max', which is not the last and ends at max");
    says("doubling:0-8192;;tree:8193-max", "'', which is no name:first-last");
}
