// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/observers.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/metrics/accuracy.hpp"

namespace ls = lockstep;

namespace {

/// A data set that cannot be copied, and holds nothing once it is gone.
struct counted {
    std::unique_ptr<int> number = std::make_unique<int>(7);
};

/// What validate does with its data set, without a trainer.
struct reader {
    int seen = 0;
    template <class Dataset>
    ls::report::evaluation evaluate(const Dataset& set, const auto&) {
        seen = *set.number;
        return {};
    }
};

int read_by(auto& check) {
    reader one;
    ls::report::epoch_event event;
    check.on_epoch(one, event);
    return one.seen;
}

}  // namespace

TEST_CASE("report/observers: validate keeps a temporary data set, and reads one with a name where it is", "[report]") {
    ls::validate kept{counted{}};
    STATIC_REQUIRE(std::is_same_v<decltype(kept.set), counted>);
    CHECK(read_by(kept) == 7);

    counted named;
    ls::validate seen{named, ls::metrics::accuracy{}};
    STATIC_REQUIRE(std::is_same_v<decltype(seen.set), const counted&>);
    CHECK(&seen.set == &named);
    *named.number = 8;
    CHECK(read_by(seen) == 8);

    const counted constant;
    const ls::validate other{constant};
    CHECK(&other.set == &constant);
    ls::validate moved{std::move(named)};
    CHECK(named.number == nullptr);
    CHECK(read_by(moved) == 8);
}
