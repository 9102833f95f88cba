// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/collectives/sparse_sum.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "lockstep/collectives/verify.hpp"
#include "lockstep/core/random.hpp"
#include "unit/reduce/naive_streams.hpp"

namespace collectives = lockstep::collectives;
namespace tensor = lockstep::tensor;
using collectives::sparse_algorithm;
using lockstep::parallel::block;

namespace {

/// An element of a schedule: a stream, or nothing that a program may use.
struct stream {
    std::optional<naive::entries<float>> what;
    friend stream operator+(const stream& a, const stream& b) {
        if (!a.what || !b.what) throw std::runtime_error{"a sum with scratch that was never written"};
        return {naive::add(*a.what, *b.what)};
    }
};

constexpr std::size_t universe = 40;

naive::entries<float> worker_entries(std::size_t worker) {
    const lockstep::core::random_stream random{3, lockstep::core::purpose::user, static_cast<std::uint32_t>(worker)};
    naive::entries<float> out;
    for (std::size_t i = 0; i < 7; ++i)
        out[static_cast<std::size_t>(random.uniform(2 * i) * universe)] = random.uniform(2 * i + 1) - 0.5F;
    return out;
}
naive::entries<float> part_of(const naive::entries<float>& all, block part) {
    return {all.lower_bound(part.first), all.lower_bound(part.last)};
}

/// Whether every rank gets the sum over the tree of workers, bit for bit.
bool as_the_tree(const std::vector<block>& runs, std::size_t workers, sparse_algorithm which) {
    std::vector<naive::entries<float>> all;
    for (std::size_t worker = 0; worker < workers; ++worker) all.push_back(worker_entries(worker));
    const auto sum = [](const auto& a, const auto& b) { return naive::add(a, b); };
    const auto expected = naive::tree<float>(all, sum);
    const std::size_t ranks = runs.size(), parts = which == sparse_algorithm::split_all_gather ? ranks : 1;
    std::vector<collectives::schedule> programs;
    std::vector<std::vector<stream>> data;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        programs.push_back(collectives::in_single_elements(
            parts == 1 ? collectives::sparse_doubling(rank, runs) : collectives::sparse_split_all_gather(rank, runs)));
        data.emplace_back(std::max(collectives::tree_data_size(runs[rank], workers, parts), parts));
        std::size_t slot = 0;
        for (const auto& node : tensor::cover(runs[rank], workers)) {
            const std::span<const naive::entries<float>> own{all.data() + node.first, node.count};
            const auto whole = naive::tree<float>(own, sum);
            for (std::size_t part = 0; part < parts; ++part)
                data[rank][slot * parts + part].what = part_of(whole, lockstep::parallel::split(universe, parts, part));
            ++slot;
        }
    }
    const auto sent = collectives::simulate<stream>(programs, data);
    bool right = true;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (const auto& message : programs[rank].sends()) right = right && message.what.count == 1;
        for (std::size_t part = 0; part < parts; ++part)
            right =
                right && data[rank][part].what == part_of(expected, lockstep::parallel::split(universe, parts, part));
        right = right && sent[rank] == programs[rank].sent() && programs[rank].invariant();
    }
    return right;
}

}  // namespace

TEST_CASE("collectives/sparse_sum: both have the bits of the tree of workers, for every number of ranks",
          "[collectives]") {
    for (const auto which : {sparse_algorithm::recursive_doubling, sparse_algorithm::split_all_gather})
        for (std::size_t ranks = 1; ranks <= 17; ++ranks)
            for (const std::size_t workers : {ranks, std::size_t{8}, std::size_t{13}, ranks + 7}) {
                INFO(collectives::name_of(which) << ", " << ranks << " ranks, " << workers << " workers");
                REQUIRE(as_the_tree(collectives::deal_lanes(ranks, workers), workers, which));
            }
    for (const auto which : {sparse_algorithm::recursive_doubling, sparse_algorithm::split_all_gather}) {
        CHECK(as_the_tree({{0, 1}, {1, 1}, {1, 2}, {2, 2}}, 2, which));  // two ranks for each worker
        CHECK(as_the_tree({{0, 0}, {2, 4}, {0, 2}, {4, 5}}, 5, which));
        CHECK(as_the_tree(collectives::deal_lanes(64, 64), 64, which));
    }
}

TEST_CASE("collectives/sparse_sum: so many messages", "[collectives]") {
    for (std::size_t ranks = 1, rounds = 0; ranks <= 32; ranks *= 2, ++rounds) {
        const auto runs = collectives::deal_lanes(ranks, 64);
        CHECK(collectives::sparse_doubling(ranks - 1, runs).sent() == collectives::traffic{rounds, rounds});
        const auto split = collectives::in_single_elements(collectives::sparse_split_all_gather(ranks - 1, runs));
        CHECK(split.sent() == collectives::traffic{2 * (ranks - 1), 2 * (ranks - 1)});
        CHECK(split.rounds().size() == (ranks == 1 ? 0 : 1 + rounds));
    }
}

TEST_CASE("collectives/sparse_sum: the expected size of a union", "[collectives]") {
    using collectives::expected_union;
    CHECK(expected_union(1000, 10, 1) == Approx(10));
    CHECK(expected_union(1000, 10, 16) == Approx(1000 * (1 - std::pow(0.99, 16))));
    CHECK(expected_union(1000, 10, 16) / 1000 == Approx(0.1485).margin(1e-4));  // as published
    CHECK(expected_union(1000, 10, 128) / 1000 == Approx(0.724).margin(1e-3));
    CHECK(expected_union(1000, 100, 8) / 1000 == Approx(0.5695).margin(1e-4));
    CHECK(expected_union(7, 7, 3) == Approx(7));
    CHECK(expected_union(0, 0, 3) == 0);
    // Against the mean of draws: 2,000 of them, standard error below 0.2.
    const lockstep::core::random_stream random{9, lockstep::core::purpose::user, 1};
    std::uint64_t at = 0;
    double sum = 0;
    constexpr int draws = 2000;
    for (int draw = 0; draw < draws; ++draw) {
        std::vector<bool> hit(100);
        for (int worker = 0; worker < 4; ++worker) {
            std::vector<bool> mine(100);
            for (int k = 0; k < 10;) {
                const auto i = static_cast<std::size_t>(random.uniform(at++) * 100);
                if (!mine[i]) ++k;
                mine[i] = hit[i] = true;
            }
        }
        for (const bool one : hit) sum += one;
    }
    CHECK(sum / draws == Approx(expected_union(100, 10, 4)).margin(0.5));
    // delta: half of the floats, two thirds of the doubles.
    CHECK(collectives::is_expected_dense({1000, 100, 4}, 8));
    CHECK(!collectives::is_expected_dense({1000, 100, 4}, 6));
    CHECK(!collectives::is_expected_dense({1000, 100, 8}, 8));
    CHECK(collectives::is_expected_dense({1, 1, 4}, 1));
    CHECK(!collectives::is_expected_dense({0, 0, 4}, 1));
}

TEST_CASE("collectives/sparse_sum: costs are those of the formulas, and the cheaper one is chosen", "[collectives]") {
    using collectives::cost_of, collectives::choose_sparse;
    const collectives::cost_model model{
        .inside = {1e-6, 1e-10}, .between = {1e-4, 1e-8}, .seconds_per_added_byte = 1e-10};
    const collectives::stream_shape shape{1'000'000, 1000, 4};
    const auto bytes = [](std::size_t workers) {
        return 8 * 1e6 * (1 - std::pow(0.999, static_cast<double>(workers)));
    };
    const auto doubling = cost_of(sparse_algorithm::recursive_doubling, shape, 8, 4, model);
    CHECK(doubling.bytes == Approx(bytes(2) + bytes(4)));
    CHECK(doubling.seconds == Approx(2 * 1e-4 + doubling.bytes * (1e-8 + 1e-10)));
    const auto split = cost_of(sparse_algorithm::split_all_gather, shape, 8, 4, model);
    CHECK(split.bytes == Approx(0.75 * (bytes(2) + bytes(8))));
    CHECK(split.seconds == Approx(5 * 1e-4 + split.bytes * 1e-8 + 0.75 * bytes(2) * 1e-10));
    CHECK(cost_of(sparse_algorithm::split_all_gather, shape, 8, 1, model).bytes == 0);
    CHECK(cost_of(sparse_algorithm::recursive_doubling, shape, 1, 4, model).bytes == 0);
    // Short streams by doubling, long ones split.
    CHECK(choose_sparse({1000, 10, 4}, 8, 8, model) == sparse_algorithm::recursive_doubling);
    CHECK(choose_sparse({10'000'000, 1'000'000, 4}, 8, 8, model) == sparse_algorithm::split_all_gather);
    CHECK(choose_sparse({1000, 10, 4}, 8, 8, {}) == sparse_algorithm::recursive_doubling);
    CHECK(choose_sparse({10'000'000, 1'000'000, 4}, 8, 8, {}) == sparse_algorithm::split_all_gather);
    // Ranks of one host pay what is measured there.
    collectives::cost_model here = model;
    here.on = {0, 0, 0, 0};
    CHECK(cost_of(sparse_algorithm::recursive_doubling, shape, 8, 4, here).seconds ==
          Approx(2 * 1e-6 + doubling.bytes * 2e-10));
}
