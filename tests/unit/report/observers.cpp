// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/report/observers.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/metrics/top_k.hpp"
#include "lockstep/report/timeline.hpp"

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

struct trainer {};
/// One of each form in which a member is called, and one in which it is not.
struct writes {
    void on_epoch(ls::report::epoch_event&) {}
};
struct reads {
    void on_begin() {}
    void on_step(trainer&, const ls::report::step_event&) {}
    void on_epoch(trainer&, const ls::report::epoch_event&) const {}
    void on_end(int) {}
};
struct takes_all {
    void on_epoch(auto&, auto&) {}
};
/// Its body has to be looked at for the type that it returns, and takes no const event.
struct takes_all_and_writes {
    auto on_epoch(auto&, auto& event) { event.loss = 0; }
};
/// As observers of the library.
struct reads_in_a_template {
    template <class Trainer>
    void on_epoch(Trainer&, const ls::report::epoch_event&) {}
};
struct needs_at_last {
    static constexpr bool needs_validation = true, is_told_last = true;
    void on_epoch(const ls::report::epoch_event&) {}
};
struct changes {
    static constexpr bool changes_weights = true;
    void on_end(const ls::report::totals&) {}
};
struct overloads {
    void on_step(int) {}
    void on_step(double) {}
};
struct needs {
    static constexpr bool needs_validation = true;
    void on_epoch(const ls::report::epoch_event&) {}
};

}  // namespace

TEST_CASE("report/observers: members that are never called are found", "[report]") {
    using namespace ls::report;
    STATIC_REQUIRE((hears_begin<reads, trainer> && hears_steps<reads, trainer> && hears_epochs<reads, trainer>));
    STATIC_REQUIRE((names_end<reads> && !hears_end<reads, trainer>));
    // A const observer has its const members only.
    STATIC_REQUIRE((names_begin<const reads> && !hears_begin<const reads, trainer>));
    STATIC_REQUIRE((names_epochs<const reads> && hears_epochs<const reads, trainer>));
    // Of these the compiler cannot tell.
    STATIC_REQUIRE((!names_steps<overloads> && !names_epochs<takes_all>));
}

TEST_CASE("report/observers: what needs a validation set comes after what may read one", "[report]") {
    using namespace ls::report;
    using check = ls::validate<counted>;
    STATIC_REQUIRE((may_validate<check, trainer>() && may_validate<writes, trainer>()));
    STATIC_REQUIRE((may_validate<takes_all, trainer>() && may_validate<takes_all_and_writes, trainer>()));
    STATIC_REQUIRE((!may_validate<reads, trainer>() && !may_validate<needs, trainer>()));
    STATIC_REQUIRE((!may_validate<reads_in_a_template, trainer>()));
    STATIC_REQUIRE((validates_in_order<trainer, takes_all_and_writes>()));
    STATIC_REQUIRE((validates_in_order<trainer, needs_at_last, check>()));
    STATIC_REQUIRE((!validates_in_order<trainer, reads_in_a_template, needs, check>()));
    STATIC_REQUIRE((validates_in_order<trainer>() && validates_in_order<trainer, reads>()));
    STATIC_REQUIRE((validates_in_order<trainer, check, reads, needs, needs>()));
    STATIC_REQUIRE((!validates_in_order<trainer, needs, check>() && !validates_in_order<trainer, reads, needs>()));
}

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

TEST_CASE("report/observers: validate takes metrics one by one, or as a list", "[report]") {
    const counted set;
    const ls::metrics::list both{ls::metrics::accuracy{}, ls::metrics::top_k{.k = 3}};
    ls::validate listed{set, both};
    STATIC_REQUIRE(
        std::is_same_v<decltype(listed), ls::validate<const counted&, ls::metrics::accuracy, ls::metrics::top_k>>);
    CHECK(ls::core::get<1>(listed.also.all).k == 3);
    CHECK(&listed.set == &set);
    CHECK(read_by(listed) == 7);
    ls::validate one{counted{}, ls::metrics::list{ls::metrics::top_k{.k = 2}}};
    STATIC_REQUIRE(std::is_same_v<decltype(one), ls::validate<counted, ls::metrics::top_k>>);
    CHECK(ls::core::get<0>(one.also.all).k == 2);
    ls::validate none{set, ls::metrics::list{}};
    STATIC_REQUIRE(std::is_same_v<decltype(none), ls::validate<const counted&>>);
}

TEST_CASE("report/observers: those that change weights hear of the end first", "[report]") {
    std::string order;
    const auto note = [&]<class Observer>(Observer&) {
        order += ls::report::changes_weights<Observer> ? 'c' : std::is_same_v<Observer, needs> ? 'n' : 'w';
    };
    needs first;
    changes second;
    writes third;
    const changes last;
    ls::report::each_at_the_end(note, first, second, third, last);
    CHECK(order == "ccnw");
    ls::report::each_at_the_end(note);
}

TEST_CASE("report/observers: one timeline is recorded, whatever stands around it", "[report]") {
    ls::timeline made{"none.json"}, other{"other.json"}, empty{""};
    writes none;
    CHECK(ls::report::recorder_of(made, empty, none) == made.events_of_this_rank());
    CHECK(ls::report::recorder_of(empty, made) == made.events_of_this_rank());
    CHECK(ls::report::recorder_of(empty, none, empty) == nullptr);
    CHECK_THROWS_WITH(ls::report::recorder_of(made, empty, other),
                      "lockstep: fit() was given two timelines, and records for one; name one of them; its third "
                      "argument draws a picture of the same steps");
}
