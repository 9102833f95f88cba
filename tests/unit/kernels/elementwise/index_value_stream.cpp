// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/kernels/elementwise/index_value_stream.hpp"

#include <sys/mman.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "unit/kernels/common.hpp"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

constexpr std::size_t page = 4096;

/// So many bytes between two pages that must not be touched, at the end of theirs or at the beginning.
class fenced {
public:
    fenced(std::size_t bytes, bool at_end)
        : inside_{(bytes + page - 1) / page * page},
          all_{static_cast<std::byte*>(
              mmap(nullptr, inside_ + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))},
          data_{all_ + page + (at_end ? inside_ - bytes : 0)} {
        REQUIRE(mprotect(all_, page, PROT_NONE) == 0);
        REQUIRE(mprotect(all_ + page + inside_, page, PROT_NONE) == 0);
        std::fill(all_ + page, all_ + page + inside_, std::byte{0xa5});
    }
    fenced(const fenced&) = delete;
    fenced& operator=(const fenced&) = delete;
    ~fenced() { munmap(all_, inside_ + 2 * page); }
    [[nodiscard]] std::byte* data() const { return data_; }

private:
    std::size_t inside_;
    std::byte* all_;
    std::byte* data_;
};

template <class T>
using numbers = std::map<std::uint32_t, T>;

template <class T>
std::uint64_t bits(T value) {
    if constexpr (sizeof(T) == 4)
        return std::bit_cast<std::uint32_t>(value);
    else
        return std::bit_cast<std::uint64_t>(value);
}

/// In memory of exactly its own length.
template <class T>
struct stream_of {
    fenced memory;
    stream_of(const numbers<T>& what, std::size_t universe, std::size_t room, bool at_end)
        : memory{stream_bytes<T>(room, universe), at_end} {
        const fenced scratch{universe * sizeof(T), at_end};
        const index_value_stream<T> out{memory.data()};
        out.clear(universe);
        for (const auto& [index, value] : what)
            out.append(
                1,
                [&](std::size_t) {
                    return stream_entry<T>{index, value};
                },
                scratch.data());
    }
};

template <class T>
void require_equal(const std::byte* memory, const numbers<T>& expected, std::size_t universe, bool was_dense) {
    const index_value_stream<const T> found{memory};
    const bool dense = was_dense || expected.size() > break_even<T>(universe);
    REQUIRE(found.header().is_dense == (dense ? 1 : 0));
    REQUIRE(found.header().universe == universe);
    REQUIRE(found.header().bytes == (dense ? 16 + universe * sizeof(T) : 16 + expected.size() * (4 + sizeof(T))));
    if (dense) {
        for (std::uint32_t i = 0; i < universe; ++i) {
            const auto at = expected.find(i);
            REQUIRE(bits(found.values()[i]) == bits(at == expected.end() ? T{-0.0F} : at->second));
        }
        return;
    }
    REQUIRE(found.count() == expected.size());
    std::size_t i = 0;
    for (const auto& [index, value] : expected) {
        const auto entry = index_value_stream<T>::entry(found.entries(), i++);
        REQUIRE(entry.index == index);
        REQUIRE(bits(entry.value) == bits(value));
    }
}

template <class T>
numbers<T> sum_of(const numbers<T>& a, const numbers<T>& b) {
    numbers<T> out = a;
    for (const auto& [index, value] : b)
        if (const auto [at, is_new] = out.insert({index, value}); !is_new) at->second = at->second + value;
    return out;
}

/// Both orders and both fences.
template <class T>
void check_merge(const numbers<T>& a, const numbers<T>& b, std::size_t universe) {
    const auto expected = sum_of(a, b);
    const auto is_dense = [&](const numbers<T>& one) { return one.size() > break_even<T>(universe); };
    for (const bool at_end : {true, false})
        for (const bool swapped : {false, true}) {
            const auto &left = swapped ? b : a, &right = swapped ? a : b;
            const stream_of<T> to{left, universe, is_dense(right) ? universe : expected.size(), at_end};
            const stream_of<T> from{right, universe, right.size(), at_end};
            const fenced scratch{universe * sizeof(T), at_end};
            merge_streams<T>(to.memory.data(), from.memory.data(), scratch.data());
            require_equal(to.memory.data(), expected, universe, is_dense(a) || is_dense(b));
            require_equal(from.memory.data(), right, universe, false);
        }
}

template <class T>
struct generator {
    core::random_stream random;
    std::uint64_t at = 0;
    explicit generator(std::uint32_t series) : random{11, core::purpose::user, series} {}
    std::size_t below(std::size_t n) {
        return std::min(n - 1, static_cast<std::size_t>(random.uniform(at++) * static_cast<float>(n)));
    }
    T value() {
        // Few values, so that some sums cancel to zero.
        constexpr std::array<float, 8> all{1, -1, 0.5F, -0.5F, 0, -0.0F, 3.25F, 0x1p-130F};
        return static_cast<T>(all[below(all.size())]);
    }
    numbers<T> some(std::size_t universe, std::size_t count, std::size_t first = 0) {
        numbers<T> out;
        while (out.size() < count) out[static_cast<std::uint32_t>(first + below(universe - first))] = value();
        return out;
    }
};

}  // namespace

TEMPLATE_TEST_CASE("kernels/index_value_stream: sums of random streams are those of a map, bit for bit", "[kernels]",
                   float, double) {
    using T = TestType;
    generator<T> draw{1};
    for (std::size_t universe : {1, 2, 3, 7, 64, 513})
        for (std::size_t a : {std::size_t{0}, std::size_t{1}, universe / 7, universe / 3, universe / 2, universe})
            for (std::size_t b : {std::size_t{0}, universe / 5, universe / 2, universe}) {
                INFO(universe << " numbers, " << a << " and " << b << " entries");
                check_merge(draw.some(universe, a), draw.some(universe, b), universe);
            }
    for (int again = 0; again < 200; ++again) {
        const std::size_t universe = 1 + draw.below(90);
        check_merge(draw.some(universe, draw.below(universe + 1)), draw.some(universe, draw.below(universe + 1)),
                    universe);
    }
}

TEMPLATE_TEST_CASE("kernels/index_value_stream: unions around break-even, disjoint, nested and interleaved",
                   "[kernels]", float, double) {
    using T = TestType;
    for (std::size_t universe : {12, 300}) {
        const std::size_t most = break_even<T>(universe);
        CHECK(most == (sizeof(T) == 4 ? universe / 2 : 2 * universe / 3));
        for (std::size_t whole : {most - 1, most, most + 1})
            for (std::size_t left : {std::size_t{0}, std::size_t{1}, whole / 2, whole}) {
                numbers<T> low, high, even, odd, all;
                for (std::uint32_t i = 0; i < whole; ++i) {
                    (i < left ? low : high)[i] = static_cast<T>(i + 1);
                    (i % 2 == 0 ? even : odd)[i] = static_cast<T>(i + 1);
                    all[i] = -static_cast<T>(i + 1);
                }
                check_merge(low, high, universe);
                check_merge(even, odd, universe);
                check_merge(all, low, universe);  // cancels
                check_merge(all, all, universe);
            }
    }
}

TEMPLATE_TEST_CASE("kernels/index_value_stream: what cancels stays, and -0 is no entry of its own", "[kernels]", float,
                   double) {
    using T = TestType;
    const numbers<T> a{{1, T{2}}, {4, T{-0.0F}}}, b{{1, T{-2}}, {4, T{-0.0F}}, {5, T{0}}};
    const auto sum = sum_of(a, b);
    CHECK(sum.size() == 3);
    CHECK(std::signbit(sum.at(4)));
    check_merge(a, b, 100);
    check_merge(a, b, 6);
    // A dense one adds as a sparse one would.
    numbers<T> full;
    for (std::uint32_t i = 0; i < 6; ++i) full[i] = i == 4 ? T{-0.0F} : T{1};
    check_merge(a, full, 6);
    check_merge(full, full, 6);
}

TEST_CASE("kernels/index_value_stream: numbers that are not finite are added as such", "[kernels]") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (std::size_t universe : {4, 400}) {
        const stream_of<float> to{{{0, infinity}, {2, infinity}}, universe, 4, true};
        const stream_of<float> from{{{0, infinity}, {2, -infinity}, {3, std::nanf("")}}, universe, 3, true};
        const fenced scratch{universe * sizeof(float), true};
        merge_streams<float>(to.memory.data(), from.memory.data(), scratch.data());
        const index_value_stream<const float> sum{to.memory.data()};
        std::vector<float> found(universe);
        if (sum.header().is_dense != 0) found.assign(sum.values().begin(), sum.values().end());
        for (std::size_t i = 0; sum.header().is_dense == 0 && i < sum.count(); ++i)
            found[index_value_stream<float>::entry(sum.entries(), i).index] =
                index_value_stream<float>::entry(sum.entries(), i).value;
        CHECK(found[0] == infinity);
        CHECK(std::isnan(found[2]));
        CHECK(std::isnan(found[3]));
    }
}

TEST_CASE("kernels/index_value_stream: a lost one makes the sum a lost one", "[kernels]") {
    for (const bool first : {true, false}) {
        const stream_of<float> to{{{3, 1.0F}}, 90, 2, true}, from{{{4, 1.0F}}, 90, 1, true};
        const index_value_stream<float> lost{(first ? to : from).memory.data()};
        auto header = lost.header();
        header.is_lost = 1;
        lost.write(header);
        const fenced scratch{90 * sizeof(float), true};
        merge_streams<float>(to.memory.data(), from.memory.data(), scratch.data());
        CHECK(index_value_stream<float>{to.memory.data()}.header().is_lost == 1);
        CHECK(index_value_stream<float>{to.memory.data()}.count() == 2);
    }
}

TEMPLATE_TEST_CASE("kernels/index_value_stream: a merge of the largest keeps as many of each run as there were",
                   "[kernels]", float, double) {
    using T = TestType;
    generator<T> draw{5};
    for (int again = 0; again < 300; ++again) {
        std::vector<stream_cut> cuts;
        numbers<T> a, b, expected;
        std::uint32_t begin = 0;
        for (std::size_t run = draw.below(4); run < 4; ++run) {
            const std::size_t n = 1 + draw.below(30), k = 1 + draw.below(n);
            cuts.push_back({static_cast<std::uint32_t>(begin + n), static_cast<std::uint32_t>(k)});
            auto left = draw.some(begin + n, k, begin), right = draw.some(begin + n, k, begin);
            const auto both = sum_of(left, right);
            std::vector<std::pair<std::uint32_t, T>> order(both.begin(), both.end());
            std::stable_sort(order.begin(), order.end(),
                             [](const auto& x, const auto& y) { return std::abs(x.second) > std::abs(y.second); });
            expected.insert(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
            a.merge(left);
            b.merge(right);
            begin += static_cast<std::uint32_t>(n);
        }
        // Sparse, however many entries there are.
        const auto write = [&](std::byte* memory, const numbers<T>& what) {
            const index_value_stream<T> out{memory};
            out.write({.bytes = 16 + what.size() * (4 + sizeof(T)), .universe = begin});
            std::size_t i = 0;
            for (const auto& [index, value] : what) out.set_entry(out.entries(), i++, {index, value});
        };
        for (const bool at_end : {true, false}) {
            const std::size_t bytes = 16 + a.size() * (4 + sizeof(T));
            const fenced to{bytes, at_end}, from{bytes, at_end};
            const std::size_t room = (merge_largest_scratch<T>(cuts) + 7) / 8 * 8;
            const fenced scratch{room, at_end};
            write(to.data(), a);
            write(from.data(), b);
            merge_largest<T>(cuts, to.data(), from.data(), scratch.data());
            const index_value_stream<const T> found{to.data()};
            REQUIRE(found.header().bytes == bytes);
            std::size_t i = 0;
            for (const auto& [index, value] : expected) {
                const auto entry = index_value_stream<T>::entry(found.entries(), i++);
                REQUIRE(entry.index == index);
                REQUIRE(bits(entry.value) == bits(value));
            }
        }
    }
}
