// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/verify.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace collectives = lockstep::collectives;
namespace core = lockstep::core;
using collectives::in_data;
using collectives::in_work;

namespace {

/// What verify() says about two ranks with these programs; empty if it finds nothing.
template <class First, class Second>
std::string fault(First&& first, Second&& second) {
    std::vector<collectives::schedule> programs(2);
    first(programs[0]);
    second(programs[1]);
    for (auto& program : programs) program.end_round();
    try {
        collectives::verify(programs);
    } catch (const core::error& error) {
        return error.what();
    }
    return {};
}

using program = collectives::schedule&;

}  // namespace

TEST_CASE("collectives/verify: an exchange fits", "[collectives]") {
    const auto swap = [](std::size_t peer) {
        return [peer](program one) {
            one.receive(peer, collectives::in_work(0, 4));
            one.send(peer, collectives::in_data(0, 4));
            one.add(collectives::in_data(0, 4), collectives::in_work(0, 4));
        };
    };
    CHECK(fault(swap(1), swap(0)).empty());
}

TEST_CASE("collectives/verify: messages that do not fit together", "[collectives]") {
    const auto nothing = [](program) {};
    CHECK_THAT(fault([](program one) { one.send(1, collectives::in_data(0, 4)); }, nothing),
               Catch::Contains("rank 0 sends 1 messages to rank 1, which receives 0"));
    CHECK_THAT(fault([](program one) { one.receive(1, collectives::in_data(0, 4)); }, nothing),
               Catch::Contains("rank 1 sends 0 messages to rank 0"));
    CHECK_THAT(fault([](program one) { one.send(1, collectives::in_data(0, 4)); },
                     [](program one) { one.receive(0, collectives::in_data(0, 5)); }),
               Catch::Contains("has 4 elements, rank 1 expects 5"));
    CHECK_THAT(fault([](program one) { one.send(2, collectives::in_data(0, 4)); }, nothing), Catch::Contains("rank 2"));
    CHECK_THAT(fault([](program one) { one.send(0, collectives::in_data(0, 4)); }, nothing),
               Catch::Contains("from rank 0"));
}

TEST_CASE("collectives/verify: ranks that wait for each other for ever", "[collectives]") {
    const auto receive_first = [](std::size_t peer) {
        return [peer](program one) {
            one.receive(peer, collectives::in_work(0, 4));
            one.end_round();
            one.send(peer, collectives::in_data(0, 4));
        };
    };
    CHECK_THAT(fault(receive_first(1), receive_first(0)), Catch::Contains("waits for ever in round 0 of 2"));
    // With buffering in MPI this one would end: the verdict must not depend on that.
    const auto send_first = [](std::size_t peer) {
        return [peer](program one) {
            one.send(peer, collectives::in_data(0, 4));
            one.end_round();
            one.receive(peer, collectives::in_work(0, 4));
        };
    };
    CHECK_THAT(fault(send_first(1), send_first(0)), Catch::Contains("waits for ever"));
    CHECK(fault(send_first(1), receive_first(0)).empty());
}

TEST_CASE("collectives/verify: two uses of a range in one round", "[collectives]") {
    const auto partner = [](program one) {
        one.receive(0, collectives::in_work(0, 4));
        one.send(0, collectives::in_data(0, 4));
    };
    const auto exchange = [](collectives::range sent, collectives::range received) {
        return [=](program one) {
            one.send(1, sent);
            one.receive(1, received);
        };
    };
    CHECK(fault(exchange(collectives::in_data(0, 4), collectives::in_data(4, 4)), partner).empty());
    CHECK(fault(exchange(collectives::in_data(0, 4), collectives::in_work(0, 4)), partner).empty());
    CHECK_THAT(fault(exchange(in_data(0, 4), in_data(3, 4)), partner),
               Catch::Contains("another message of the round uses"));
    CHECK_THAT(fault(exchange(in_data(3, 4), in_data(0, 4)), partner),
               Catch::Contains("another message of the round uses"));
    const auto twice = [](program one) {
        one.receive(1, collectives::in_work(0, 4));
        one.receive(1, collectives::in_work(2, 4));
    };
    const auto sends_twice = [](program one) {
        one.send(0, collectives::in_data(0, 4));
        one.send(0, collectives::in_data(0, 4));
    };
    CHECK_THAT(fault(twice, sends_twice), Catch::Contains("another message of the round uses"));
    CHECK_THAT(
        fault([](program one) { one.add(collectives::in_data(0, 4), collectives::in_data(2, 4)); }, [](program) {}),
        Catch::Contains("differ or overlap"));
    CHECK_THAT(
        fault([](program one) { one.add(collectives::in_data(0, 4), collectives::in_data(4, 3)); }, [](program) {}),
        Catch::Contains("differ or overlap"));
}

TEST_CASE("collectives/verify: arrays that are too short or too few", "[collectives]") {
    std::vector<collectives::schedule> programs(1);
    programs[0].add(collectives::in_data(0, 4), collectives::in_data(4, 4));
    programs[0].end_round();
    std::vector<std::vector<float>> data{{1, 2, 3, 4, 5, 6, 7}};
    CHECK_THROWS_AS(collectives::simulate<float>(programs, data), core::error);
    data[0].push_back(8);
    CHECK_NOTHROW(collectives::simulate<float>(programs, data));
    CHECK(data[0] == std::vector<float>{6, 8, 10, 12, 5, 6, 7, 8});
    data.clear();
    CHECK_THROWS_AS(collectives::simulate<float>(programs, data), core::error);
}

TEST_CASE("collectives/verify: a message carries what was in the range when its round began", "[collectives]") {
    std::vector<collectives::schedule> programs(2);
    programs[0].send(1, collectives::in_data(0, 1));
    programs[0].copy(collectives::in_data(0, 1), collectives::in_data(1, 1));
    programs[0].end_round();
    programs[1].copy(in_data(0, 1), in_data(1, 1));
    programs[1].end_round();
    programs[1].receive(0, in_data(0, 1));
    programs[1].end_round();
    std::vector<std::vector<int>> data{{1, 2}, {3, 4}};
    const auto sent = collectives::simulate<int>(programs, data);
    CHECK(data[0][0] == 2);
    CHECK(data[1][0] == 1);
    CHECK(sent[0] == collectives::traffic{1, 1});
    CHECK(sent[1] == collectives::traffic{0, 0});
}

TEST_CASE("collectives/verify: scratch that was never written shows", "[collectives]") {
    std::vector<collectives::schedule> programs(1);
    programs[0].add(collectives::in_data(0, 1), collectives::in_work(0, 1));
    programs[0].end_round();
    std::vector<std::vector<float>> data{{1}};
    collectives::simulate<float>(programs, data);
    CHECK(std::isnan(data[0][0]));
}
