// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/split.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files.hpp"
#include "lockstep/data/augmented.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/memory.hpp"

namespace lockstep::data {
namespace {

/// Samples that are their own numbers.
struct numbered {
    using sample = tensor::shape<2>;
    using label = tensor::classes<1000>;
    std::size_t count = 0;

    [[nodiscard]] std::size_t size() const { return count; }
    [[nodiscard]] std::string name() const { return "numbers"; }
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            x.sample(i)[0] = x.sample(i)[1] = static_cast<T>(rows[i]);
            y[i] = static_cast<std::int32_t>(rows[i] % 1000);
        }
    }
};
using part = part_of<numbered>;
static_assert(Dataset<part> && Dataset<part, double> && !VaryingDataset<part>);

/// The same in double alone, from another number on in each epoch.
struct in_double : numbered {
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<std::int32_t> y) const {
        numbered::read<double>(rows, x, y);
    }
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<std::int32_t> y,
              const reading& key) const {
        read(rows, x, y);
        for (double& one : x.all()) one += 1000 * static_cast<double>(key.epoch);
    }
};
static_assert(VaryingDataset<part_of<in_double>, double> && !Dataset<part_of<in_double>, float>);

/// For training in double alone: no part of it may be trained on in float.
struct trained_in_double : numbered {
    using numbered::read;
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<std::int32_t> y,
              const reading&) const {
        read<double>(rows, x, y);
    }
};
static_assert(Dataset<part_of<trained_in_double>> && !keeps_reading<part_of<trained_in_double>, float> &&
              keeps_reading<part_of<trained_in_double>, double>);

/// The numbers of all samples of a part, in its order.
std::vector<std::uint64_t> numbers_in(const part& of) {
    std::vector<std::uint64_t> rows(of.size()), out;
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<double> x(2 * rows.size());
    std::vector<std::int32_t> y(rows.size());
    of.read<double>(rows, {x.data(), rows.size()}, y);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        out.push_back(static_cast<std::uint64_t>(x[2 * i]));
        CHECK(y[i] == static_cast<std::int32_t>(out.back() % 1000));
    }
    return out;
}

TEST_CASE("data/split: a sample is held out where its own word says so", "[data]") {
    for (const std::size_t size : {2U, 3U, 63U, 64U, 65U, 127U, 128U, 1000U, 5003U})
        for (const double share : {0.1, 0.5, 0.97}) {
            const split_options options{.held_out = share, .seed = 17};
            const core::random_stream stream{17, core::purpose::split};
            std::vector<std::uint64_t> held_out, training;
            for (std::uint64_t i = 0; i < size; ++i)
                (static_cast<double>(stream.word(i)) < share * 4294967296.0 ? held_out : training).push_back(i);
            if (held_out.empty() || training.empty()) continue;
            INFO(size << " samples, " << share);
            const auto both = split(numbered{size}, options);
            CHECK(numbers_in(both.training) == training);
            CHECK(numbers_in(both.held_out) == held_out);
        }
}

TEST_CASE("data/split: shares, seeds and sets that grow", "[data]") {
    constexpr std::size_t n = 100'000;
    const auto [training, held_out] = split(numbered{n}, {.held_out = 0.1, .seed = 1});
    CHECK(training.size() + held_out.size() == n);
    // Five deviations of a binomial distribution: 1 in 1.7 million.
    CHECK(std::abs(static_cast<double>(held_out.size()) - 0.1 * n) < 5 * std::sqrt(0.09 * n));
    const auto first = numbers_in(held_out);
    const auto grown = numbers_in(split(numbered{n + 1000}, {.held_out = 0.1, .seed = 1}).held_out);
    CHECK(std::equal(first.begin(), first.end(), grown.begin()));
    const auto wider = numbers_in(split(numbered{n}, {.held_out = 0.2, .seed = 1}).held_out);
    CHECK(std::ranges::includes(wider, first));
    const auto other = numbers_in(split(numbered{n}, {.held_out = 0.1, .seed = 2}).held_out);
    std::vector<std::uint64_t> both;
    std::ranges::set_intersection(first, other, std::back_inserter(both));
    CHECK(std::abs(static_cast<double>(both.size()) - 0.01 * n) < 5 * std::sqrt(0.0099 * n));
}

TEST_CASE("data/split: rows in any order and with repeats", "[data]") {
    const auto both = split(numbered{1000}, {.held_out = 0.3, .seed = 5});
    const auto all = numbers_in(both.held_out);
    std::vector<std::uint64_t> rows;
    for (std::uint64_t i = 0; i < 500; ++i) rows.push_back(i * 7919 % both.held_out.size());
    std::vector<float> x(2 * rows.size());
    std::vector<std::int32_t> y(rows.size());
    both.held_out.read<float>(rows, {x.data(), rows.size()}, y);
    for (std::size_t i = 0; i < rows.size(); ++i) CHECK(x[2 * i] == static_cast<float>(all[rows[i]]));
    CHECK(test::error_of([&] {
              both.held_out.read<float>(std::array<std::uint64_t, 1>{all.size()}, {x.data(), 1}, {y.data(), 1});
          }) == "lockstep: held-out part of numbers: sample " + std::to_string(all.size()) + " of " +
                    std::to_string(all.size()) + " was asked for; number samples from 0 to size() - 1");
}

TEST_CASE("data/split: a data set of double", "[data]") {
    const auto both = split(in_double{{1000}}, {.held_out = 0.3, .seed = 5});
    const auto all = numbers_in(split(numbered{1000}, {.held_out = 0.3, .seed = 5}).held_out);
    std::array<double, 2> x{};
    std::array<std::int32_t, 1> y{};
    for (std::uint64_t row = 0; row < both.held_out.size(); ++row) {
        both.held_out.read<double>(std::array{row}, {x.data(), 1}, y);
        CHECK(x[0] == static_cast<double>(all[row]));
        both.held_out.read<double>(std::array{row}, {x.data(), 1}, y, {.seed = 1, .epoch = 3});
        CHECK(x[0] == 3000 + static_cast<double>(all[row]));
    }
}

TEST_CASE("data/split: names, settings and errors", "[data]") {
    const auto both = split(numbered{100}, {.held_out = 0.25, .seed = 3});
    CHECK(both.training.name() == "training part of numbers");
    CHECK(both.training.settings() == "training part(held_out=0.25 seed=3)");
    CHECK(both.held_out.settings() == "held-out part(held_out=0.25 seed=3)");
    for (const double share : {0.0, 1.0, -0.1, std::nan("")})
        CHECK(test::error_of([&] { (void)split(numbered{100}, {.held_out = share}); }) ==
              "lockstep: a data set was to be split with held_out = " + core::text(share) +
                  "; hold out a share between 0 and 1, such as 0.1");
    CHECK(test::error_of([] { (void)split(numbered{5}, {.held_out = 1e-6}); }) ==
          "lockstep: of the 5 samples of numbers 0 are held out with held_out = 1e-06 and seed = 1; use another share "
          "or seed, or a data set with more samples");
    CHECK(test::error_of([] { (void)split(numbered{0}); }).find("of the 0 samples") != std::string::npos);
}

TEST_CASE("data/split: augmentations draw by the number in the whole set", "[data]") {
    std::vector<float> x(100 * 4);
    std::iota(x.begin(), x.end(), 0.0F);
    const std::vector<int> y(100);
    const augmented whole{in_memory<tensor::shape<2, 2, 1>, tensor::classes<2>>(x, y), flip{}};
    const auto both = split(whole, {.held_out = 0.4, .seed = 9});
    static_assert(VaryingDataset<decltype(both.training)>);
    const split_choice choice{100, {.held_out = 0.4, .seed = 9}};
    const reading key{.seed = 4, .epoch = 2};
    std::array<float, 4> one{}, right{};
    std::array<std::int32_t, 1> label{};
    for (std::uint64_t row = 0; row < both.training.size(); ++row) {
        both.training.read<float>(std::array{row}, {one.data(), 1}, label, key);
        whole.read<float>(std::array{choice.number(false, row)}, {right.data(), 1}, label, key);
        CHECK(one == right);
    }
}

}  // namespace
}  // namespace lockstep::data
