// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/sync/arrivals.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "unit/data/files.hpp"

namespace {

using namespace lockstep::sync;

arrival_list first(arrival_source from, std::uint64_t updates) {
    arrival_list out;
    for (std::uint64_t update = 0; update < updates; ++update)
        for (const arrival& one : from.of(update)) out.entries.push_back(one);
    return out;
}
arrival_list first(const arrival_model& model, std::size_t per_update, std::uint64_t updates) {
    return first(arrival_source{model, per_update, 11}, updates);
}
double mean(const std::vector<std::uint64_t>& counts) {
    double sum = 0, all = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        sum += static_cast<double>(i * counts[i]);
        all += static_cast<double>(counts[i]);
    }
    return sum / all;
}

}  // namespace

TEST_CASE("sync/arrivals: learners that never wait read what is newest when they have sent", "[sync]") {
    const lockstep::core::random_stream random{3, lockstep::core::purpose::user};
    for (std::uint32_t trial = 0; trial < 60; ++trial) {
        const std::size_t learners = 1 + random.below(20, 2 * trial), per_update = 1 + random.below(9, 2 * trial + 1);
        const arrival_list list = first({.learners = learners, .spread = 0.1 * (trial % 8)}, per_update, 40);
        INFO(learners << " learners, " << per_update << " in an update");
        CHECK_NOTHROW(list.check(per_update));
        std::vector<std::uint64_t> reads(learners);
        double before = 0;
        for (std::size_t number = 0; number < list.entries.size(); ++number) {
            const arrival& one = list.entries[number];
            REQUIRE(one.learner < learners);
            CHECK(one.time >= before);
            CHECK(one.version == reads[one.learner]);
            before = one.time;
            reads[one.learner] = (number + 1) / per_update;
        }
    }
}

TEST_CASE("sync/arrivals: with a bound no learner runs away from the slowest", "[sync]") {
    for (const std::uint64_t bound : {0U, 1U, 5U})
        for (const std::size_t per_update : {1U, 3U, 6U}) {
            const arrival_list list =
                first({.learners = 6, .bound = bound, .spread = 0.3, .slowest = 4}, per_update, 120);
            std::vector<std::uint64_t> sent(6);
            std::uint64_t most = 0;
            for (const arrival& one : list.entries) {
                ++sent[one.learner];
                const auto [least, greatest] = std::ranges::minmax(sent);
                most = std::max(most, greatest - least);
            }
            INFO("bound " << bound << ", " << per_update << " in an update");
            CHECK(most == bound + 1);
            CHECK_NOTHROW(list.check(per_update));
        }
}

TEST_CASE("sync/arrivals: bound 0 is a barrier", "[sync]") {
    const arrival_list list = first({.learners = 5, .bound = 0, .spread = 1}, 5, 30);
    for (std::size_t update = 0; update < 30; ++update) {
        std::vector<std::uint64_t> who;
        for (std::size_t k = 0; k < 5; ++k) {
            CHECK(list.entries[update * 5 + k].version == update);
            who.push_back(list.entries[update * 5 + k].learner);
        }
        std::ranges::sort(who);
        CHECK(who == std::vector<std::uint64_t>{0, 1, 2, 3, 4});
    }
    CHECK(list.staleness(5) == std::vector<std::uint64_t>{150});
}

TEST_CASE("sync/arrivals: learners of equal speed take turns, and a slow one sends less", "[sync]") {
    const arrival_list even = first({.learners = 4, .spread = 0}, 1, 400);
    for (std::size_t i = 0; i < 400; ++i) {
        CHECK(even.entries[i].learner == i % 4);
        CHECK(even.entries[i].version == (i < 4 ? 0 : i - 3));
    }
    CHECK(even.staleness(1) == std::vector<std::uint64_t>{1, 1, 1, 397});
    const arrival_list uneven = first({.learners = 4, .spread = 0, .slowest = 3}, 1, 1000);
    const auto of_first = std::ranges::count(uneven.entries, 0U, &arrival::learner);
    CHECK(of_first >= 98);
    CHECK(of_first <= 102);
    CHECK(uneven.entries.back().time == Approx(300).epsilon(0.01));
}

TEST_CASE("sync/arrivals: the mean staleness of n-softsync is about n", "[sync]") {
    // Between two gradients of a learner there are about learners - 1 others: (learners - 1) / per_update updates.
    for (const std::size_t per_update : {1U, 2U, 4U, 16U}) {
        const double found = mean(first({.learners = 16}, per_update, 4000 / per_update).staleness(per_update));
        INFO(per_update << " in an update: " << found);
        CHECK(found == Approx(15.0 / static_cast<double>(per_update)).margin(0.1));
    }
}

TEST_CASE("sync/arrivals: a source can begin anew, and a list says what a model does", "[sync]") {
    const arrival_model model{.learners = 7, .bound = 3, .spread = 0.5};
    const std::size_t per_update = 3, updates = 50;
    const arrival_list list = first(model, per_update, updates);
    arrival_source drawn{model, per_update, 11}, listed{list, per_update};
    REQUIRE(listed.learners() == 7);
    std::vector<std::uint64_t> last(7);
    for (std::size_t i = 0; i < list.entries.size(); ++i) last[list.entries[i].learner] = i / per_update;
    for (const std::uint64_t update : {0U, 1U, 1U, 2U, 30U, 4U, 5U, 49U, 0U}) {
        const auto a = drawn.of(update), b = listed.of(update);
        CHECK(std::ranges::equal(a, b));
        for (std::size_t k = 0; k < per_update; ++k) CHECK(a[k] == list.entries[update * per_update + k]);
        for (std::size_t learner = 0; learner < 7; ++learner)
            if (last[learner] > update)
                CHECK((drawn.version_of(learner) == update) == (listed.version_of(learner) == update));
    }
    CHECK_THROWS_WITH(listed.of(50), Catch::Contains("the list of arrivals has 150 gradients, enough for 50 updates"));
    CHECK(std::ranges::equal(listed.of(49), drawn.of(49)));
}

TEST_CASE("sync/arrivals: a list is the same after it was written and read", "[sync]") {
    const lockstep::test::directory here;
    const std::string path = here / "arrivals.txt";
    const arrival_list list = first({.learners = 3, .spread = 0.7}, 2, 20);
    list.write(path);
    CHECK(arrival_list::read(path) == list);
    CHECK(arrival_list::parse("# nothing\n\n2 5 1.5").entries == std::vector<arrival>{{2, 5, 1.5}});
    CHECK(arrival_list::parse("# nothing\r\n\r\n2 5 1.5\r\n1 0 1e-400\r\n").entries ==
          std::vector<arrival>{{2, 5, 1.5}, {1, 0, 0}});
    arrival_list other_times = list;
    for (arrival& one : other_times.entries) one.time += 1;
    CHECK(other_times.hash() == list.hash());
    other_times.entries.back().learner = 7;
    CHECK(other_times.hash() != list.hash());
}

TEST_CASE("sync/arrivals: lists that no run can have made are refused with their values", "[sync]") {
    const auto refused = [](const std::string& text, const std::string& why) {
        CHECK_THROWS_WITH((arrival_source{arrival_list::parse(text), 2}), Catch::Contains(why));
    };
    refused("0 0 1\n1 0\n", "line 2 of a list of arrivals is \"1 0\", no learner, version and time");
    refused("0 0 1 7\n", "gradient 0 of learner 0 of minibatch 7, where 2 of them make an update");
    for (const char* line : {"0 0 nan\n", "3 174.5\n", "3 17.5\n", "3 1-2\n", "1 2.5e3\n", "0 0 1 \n", "0  0 1\n",
                             "0 0\n", "0 0 1 x\n", "0 0 1 -2\n", "0 0 1 2 3\n", "0 0 1 2 \n", "0 0 1  2\n"})
        refused(line, "line 1 of a list of arrivals is");
    refused("-1 0 1\n", "line 1 of a list of arrivals is");
    refused("0 0 1\n1 1 2\n", "gradient 1 of learner 1 with version 1, where the newest is 0");
    refused("0 0 1\n1 0 2\n1 1 3\n0 0 4\n0 0 5\n",
            "gradient 4 of learner 0 with version 0, older than 1, the newest when it sent the one before");
    refused("9999999999 0 1\n", "of learner 9999999999, where numbers below 1048576 are possible");
}

TEST_CASE("sync/arrivals: a list names minibatches where they are not those of their places", "[sync]") {
    const arrival_list list{{{.learner = 1, .minibatch = 2}, {.learner = 0}, {.learner = 2, .minibatch = 0}}};
    CHECK(list.text() == "1 0 0 2\n0 0 0\n2 0 0 0\n");
    CHECK(arrival_list::parse(list.text()) == list);
    CHECK(arrival_list::parse("1 0 0 2\n0 0 0 1\n2 0 0 0\n") == list);
    CHECK(list.hash() != arrival_list::parse("1 0 0\n0 0 0\n2 0 0\n").hash());
    arrival_source source{list, 1};
    CHECK(source.minibatch_of(0) == 2);
    CHECK(source.minibatch_of(1) == 1);
    CHECK(source.minibatch_of(2) == 0);
    CHECK(source.minibatch_of(3) == 3);  // which the list has not
}

TEST_CASE("sync/arrivals: models that make no sense are refused with their values", "[sync]") {
    const auto refused = [](const arrival_model& model, std::size_t per_update, const std::string& why) {
        CHECK_THROWS_WITH((arrival_source{model, per_update, 1}), Catch::Contains(why));
    };
    refused({.learners = std::size_t{1} << 60}, 1, "an asynchronous run has 1152921504606846976 learners");
    refused({.learners = 0}, 1, "has 0 learners");
    refused({.spread = 400}, 1, "has spread = 400");
    refused({.slowest = 1.7e308}, 1, "has slowest = 1.7e+308");
    refused({}, 0, "an update is made of 0 gradients");
    CHECK_THROWS_WITH(arrival_list{}.check(0), Catch::Contains("an update is made of 0 gradients"));
    const arrival_list wild = first({.learners = 4, .bound = 0, .spread = 10, .slowest = 1e6}, 4, 30);
    CHECK(wild.staleness(4) == std::vector<std::uint64_t>{120});
    CHECK(arrival_list::parse(wild.text()) == wild);
}

TEST_CASE("sync/arrivals: of changed files each is refused with one message, or read as it is written", "[sync]") {
    const lockstep::core::random_stream random{9, lockstep::core::purpose::user};
    const std::string valid = "# a comment\n" + first({.learners = 3}, 2, 4).text();
    const std::string bytes = "0123456789 .-+einfx\n\r\t#\0\xff";
    std::size_t read = 0, refused = 0;
    for (std::uint32_t trial = 0; trial < 3000; ++trial) {
        std::string text = valid;
        for (std::uint32_t change = 0; change <= trial % 4; ++change) {
            const std::uint64_t word = 16 * trial + 4 * change;
            const std::size_t at = random.below(text.size(), word);
            const char byte = bytes[random.below(bytes.size(), word + 1)];
            const std::uint64_t what = random.below(3, word + 2);
            if (what == 0) text[at] = byte;
            if (what == 1) text.insert(at, 1, byte);
            if (what == 2) text.erase(at, 1 + random.below(4, word + 3));
        }
        try {
            const arrival_list list = arrival_list::parse(text);
            CHECK(arrival_list::parse(list.text()) == list);
            ++read;
        } catch (const lockstep::core::error& failure) {
            CHECK(std::string{failure.what()}.find("no learner, version and time; write three") != std::string::npos);
            ++refused;
        }
    }
    CHECK(read > 300);
    CHECK(refused > 300);
}
