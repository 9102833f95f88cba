// SPDX-License-Identifier: BSD-3-Clause
// The file of a state is the same for every cut of it over ranks, shards and buckets.
#include "lockstep/saving/state_layout.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

namespace ls = lockstep;
using ls::saving::named_array;
using ls::saving::state_layout;
using ls::saving::state_parts;
using ls::tensor::state_part;

constexpr std::size_t workers = 3;

/// Two parameters, the first one in so many shards, and a layer with two statistics.
ls::saving::named_arrays names(std::size_t shards) {
    return {{{"0.dense.weight", 5, 12 / shards, shards, 0}, {"0.dense.bias", 1, 7, 1, 1}},
            {{"1.norm.mean", 1, 4, 1, 1}, {"1.norm.variance", 1, 4, 1, 1}}};
}

/// Number i of an array is a function of its name and i.
float value(const std::string& name, std::size_t i) {
    return static_cast<float>(std::hash<std::string>{}(name) % 1000) + static_cast<float>(i) / 1024;
}

/// A state that is cut at random, and keeps its numbers.
struct cut_state {
    std::mt19937 random;
    std::size_t shards;
    std::vector<std::vector<float>> memory{};
    std::vector<std::uint64_t> counters{};
    state_parts parts{};

    cut_state(unsigned seed, std::size_t cut) : random{seed}, shards{cut} {
        counters = {11, 22, 33};
        for (std::size_t which = 0; which < workers; ++which)
            parts(state_part<std::uint64_t>{
                .role = "samples", .worker = which, .numbers = std::span{&counters[which], 1}});
        const auto all = names(shards);
        for (const char* role : {"weights", "optimizer", "compressor"})
            for (const named_array& one : all.parameters)
                for (std::size_t shard = 0; shard < one.shards; ++shard)
                    for (std::size_t worker = 0; worker < (std::string{role} == "compressor" ? workers : 1); ++worker)
                        add(role, one, shard, worker);
        // Numbers of their own beside the parameter, for two segments.
        for (std::size_t segment : {std::size_t{0}, std::size_t{40}}) {
            std::vector<float> here(3);
            for (std::size_t i = 0; i < 3; ++i) here[i] = value("reduction", segment + i);
            show({.role = "reduction", .tensor = 0, .segment = segment}, std::move(here), 0, true);
        }
        std::vector<float> statistics(8);
        for (std::size_t i = 0; i < 8; ++i) statistics[i] = value("statistics", i);
        show({.role = "statistics", .tensor = 1}, std::move(statistics), 0, true);
    }

    /// Runs of random lengths, some of them also shown by a rank that does not speak of them.
    void add(const std::string& role, const named_array& one, std::size_t shard, std::size_t worker) {
        const bool is_of_workers = role == "compressor";
        const auto number = [&](std::size_t i) {
            const std::size_t whole =
                i / one.columns * one.columns * one.shards + shard * one.columns + i % one.columns;
            return value(one.name + role + std::to_string(is_of_workers ? worker : 0), whole);
        };
        // A compressor cuts tensors into segments, each of which is shown from its own beginning.
        for (std::size_t begin = 0; begin < one.size();) {
            const std::size_t longest = is_of_workers ? 16 : one.size();
            const std::size_t segment = is_of_workers ? begin / longest * longest : 0;
            const std::size_t end = std::min(one.size(), segment + longest);
            const std::size_t count = 1 + random() % (end - begin);
            std::vector<float> here(count);
            for (std::size_t i = 0; i < count; ++i) here[i] = number(begin + i);
            state_part<float> part{.role = role == "weights"     ? std::string_view{"weights"}
                                           : role == "optimizer" ? "optimizer"
                                                                 : "compressor",
                                   .tensor = one.tensor * shards + shard,
                                   .segment = segment};
            if (is_of_workers) part.worker = worker;
            if (random() % 3 == 0) show(part, here, begin - segment, false);
            show(part, std::move(here), begin - segment, true);
            begin += count;
        }
    }
    void show(state_part<float> part, std::vector<float> numbers, std::size_t first, bool speaks) {
        memory.push_back(std::move(numbers));
        part.first = first;
        part.numbers = memory.back();
        part.speaks = speaks;
        parts(part);
    }
    state_layout layout() const { return {ls::comm::group{}, parts, names(shards), shards, workers}; }
    std::vector<std::byte> file(const state_layout& by) const {
        std::vector<std::byte> out(by.bytes(), std::byte{0xee});
        std::vector<int> times(by.bytes());
        for (const auto& run : by.runs(parts, false)) {
            std::memcpy(out.data() + run.offset, run.data, run.bytes);
            for (std::size_t i = 0; i < run.bytes; ++i) ++times.at(run.offset + i);
        }
        CHECK(std::count(times.begin(), times.end(), 1) == static_cast<std::ptrdiff_t>(by.bytes()));
        return out;
    }
};

TEST_CASE("a state has one file, however it is cut", "[saving]") {
    for (const std::size_t shards : {std::size_t{1}, std::size_t{2}, std::size_t{3}})
        for (unsigned seed = 0; seed < 20; ++seed) {
            const cut_state cut{seed, shards};
            const auto layout = cut.layout();
            const auto file = cut.file(layout);
            std::map<std::string, std::vector<float>> found;
            std::uint64_t at = 0;
            for (const auto& one : layout.arrays()) {
                REQUIRE(one.begin == at);
                at += one.size;
                std::uint64_t numbers = 1;
                for (const auto extent : one.shape) numbers *= extent;
                REQUIRE(one.size == numbers * (one.type == ls::files::dtype::u64 ? 8U : 4U));
                if (one.type == ls::files::dtype::u64) continue;
                auto& to = found[one.name];
                to.resize(numbers);
                std::memcpy(to.data(), file.data() + one.begin, one.size);
            }
            REQUIRE(at == layout.bytes());
            const auto expect = [&](const std::string& name, const std::string& source, std::size_t first,
                                    std::size_t count, std::size_t skip = 0) {
                INFO(name << ", " << shards << " shards, seed " << seed);
                REQUIRE(found.contains(name));
                const auto& here = found[name];
                REQUIRE(here.size() >= skip + count);
                for (std::size_t i = 0; i < count; ++i) REQUIRE(here[skip + i] == value(source, first + i));
            };
            for (const std::string name : {"0.dense.weight", "0.dense.bias"}) {
                const std::size_t size = name == "0.dense.weight" ? 60 : 7;
                expect(name, name + "weights0", 0, size);
                expect(name + ".optimizer.0", name + "optimizer0", 0, size);
                for (std::size_t worker = 0; worker < workers; ++worker)
                    expect(name + ".compressor.0", name + "compressor" + std::to_string(worker), 0, size,
                           worker * size);
            }
            expect("1.norm.mean", "statistics", 0, 4);
            expect("1.norm.variance", "statistics", 4, 4);
            const std::string tail = shards > 1 ? ".shard0" : "";
            expect("0.dense.weight.reduction.0.segment0" + tail, "reduction", 0, 3);
            expect("0.dense.weight.reduction.0.segment40" + tail, "reduction", 40, 3);
        }
}

TEST_CASE("what is saved from one cut is read into another one", "[saving]") {
    const cut_state from{1, 2};
    const auto file = from.file(from.layout());
    cut_state to{2, 1};
    const auto wanted = to.memory;
    for (auto& some : to.memory)
        for (auto& one : some) one = -1;
    const auto layout = to.layout();
    for (const auto& run : layout.runs(to.parts, true)) std::memcpy(run.data, file.data() + run.offset, run.bytes);
    CHECK(to.memory == wanted);
}

TEST_CASE("numbers that are shown twice or not at all are refused", "[saving]") {
    std::vector<float> numbers(7);
    const std::span<float> all{numbers};
    const auto layout = [&](std::initializer_list<std::pair<std::size_t, std::size_t>> runs) {
        state_parts parts;
        for (const auto& [first, count] : runs)
            parts(state_part<float>{
                .role = "weights", .tensor = 1, .first = first, .numbers = all.subspan(first, count)});
        return state_layout{ls::comm::group{}, parts, names(1), 1, 1};
    };
    CHECK(layout({{0, 3}, {3, 4}}).arrays().at(0).name == "0.dense.bias");
    CHECK_THROWS_WITH(layout({{0, 3}, {4, 3}}), Catch::Contains("0.dense.bias"));
    CHECK_THROWS_WITH(layout({{0, 4}, {3, 4}}), Catch::Contains("twice or not at all"));
}

}  // namespace

TEST_CASE("the role of a state is a name", "[saving]") {
    std::vector<float> numbers(2);
    for (const std::string_view role :
         {"", "slow\tweights", "slow\nweights", "slow/weights", "slow_weights", "\xc3\xa4"}) {
        state_parts parts;
        CHECK_THROWS_WITH(parts(state_part<float>{.role = role, .numbers = numbers}),
                          Catch::Contains("which is no name; call it by letters"));
        CHECK(parts.all().empty());
    }
    state_parts parts;
    parts(state_part<float>{.role = "Slow weights-2 of 3", .numbers = numbers});
    CHECK(parts.all().size() == 1);
}
