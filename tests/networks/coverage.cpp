// SPDX-License-Identifier: BSD-3-Clause
// The networks of the suite: that together they have every layer, every combinator but `join` inside of every other,
// and every setting: those of required_features().
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "networks/check.hpp"
#include "networks/features.hpp"

namespace {

TEST_CASE("networks/coverage: every layer, combinator and setting is in one of the networks", "[coverage]") {
    std::set<std::string> found;
    for (const networks::entry& one : networks::entries())
        found.merge(networks::features_of(networks::parse(one.network), networks::parse(one.loss),
                                          networks::parse(one.optimizer), one.settings_text, one.shards));
    for (const std::string& wanted : networks::required_features()) {
        INFO(wanted);
        CHECK(found.contains(wanted));
    }
}

}  // namespace
