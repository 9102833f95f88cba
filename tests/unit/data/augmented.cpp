// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/augmented.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "files.hpp"
#include "lockstep/data/cutout.hpp"
#include "lockstep/data/flip.hpp"
#include "lockstep/data/memory.hpp"
#include "lockstep/data/normalised.hpp"
#include "lockstep/data/pad_crop.hpp"
#include "pictures.hpp"

namespace lockstep::data {
namespace {

using shape = tensor::shape<32, 32, 3>;
constexpr std::size_t count = 37;

/// Pictures without a zero, labelled by their number.
struct pictures {
    std::vector<float> x = std::vector<float>(count * shape::size);
    std::vector<std::int32_t> y = std::vector<std::int32_t>(count);

    pictures() {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i % 1009);
        std::iota(y.begin(), y.end(), 0);
    }
    [[nodiscard]] auto set() const { return in_memory<shape, tensor::classes<count>>(x, y); }
};
const pictures all;

struct batch {
    std::vector<float> x;
    std::vector<std::int32_t> y;
};
template <class Set>
batch read(const Set& set, const std::vector<std::uint64_t>& rows, const reading& key) {
    batch out{std::vector<float>(rows.size() * shape::size), std::vector<std::int32_t>(rows.size())};
    read_for_training<Set, float>(set, rows, {out.x.data(), rows.size()}, out.y, key);
    return out;
}

/// A user's augmentation: keeps a word of each picture.
struct marking {
    static constexpr std::string_view name = "marking";
    [[nodiscard]] std::string settings() const { return ""; }
    template <class T>
    void apply(const picture<T>& of, const draws& random) const noexcept {
        of.data[0] = static_cast<T>(random.uniform(0));
    }
};

TEST_CASE("data/augmented: a picture depends on its number, the seed and the epoch alone", "[data]") {
    const augmented set{all.set(), pad_crop{}, flip{}, cutout{}};
    static_assert(VaryingDataset<decltype(set)> && VaryingDataset<decltype(set), double> &&
                  !VaryingDataset<decltype(all.set())>);
    std::vector<std::uint64_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    const reading key{.seed = 5, .epoch = 3};
    const batch straight = read(set, order, key);
    CHECK(straight.y == all.y);

    std::vector<std::uint64_t> mixed(order.rbegin(), order.rend());
    mixed.push_back(17);
    for (const std::size_t piece : {1U, 2U, 7U, 38U})
        for (std::size_t at = 0; at < mixed.size(); at += piece) {
            const std::size_t here = std::min(piece, mixed.size() - at);
            const auto first = mixed.begin() + static_cast<std::ptrdiff_t>(at);
            const std::vector<std::uint64_t> rows(first, first + static_cast<std::ptrdiff_t>(here));
            const batch part = read(set, rows, key);
            for (std::size_t i = 0; i < here; ++i) {
                const auto same = straight.x.begin() + static_cast<std::ptrdiff_t>(rows[i] * shape::size);
                REQUIRE(std::equal(same, same + shape::size,
                                   part.x.begin() + static_cast<std::ptrdiff_t>(i * shape::size)));
                REQUIRE(part.y[i] == static_cast<std::int32_t>(rows[i]));
            }
        }

    for (const reading other : {reading{.seed = 6, .epoch = 3}, reading{.seed = 5, .epoch = 4},
                                reading{.seed = 5, .epoch = 3 + (1ULL << 32)}}) {
        const batch changed = read(set, order, other);
        std::size_t equal = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::ptrdiff_t>(i * shape::size);
            equal += std::equal(straight.x.begin() + at, straight.x.begin() + at + shape::size, changed.x.begin() + at);
        }
        CHECK(equal < 3);  // one in 81 x 2 x 1024 is equal
    }
}

TEST_CASE("data/augmented: evaluation sees the pictures as they are", "[data]") {
    const augmented set{all.set(), pad_crop{}, flip{}, cutout{}};
    CHECK(set.size() == count);
    CHECK(set.name() == all.set().name());
    CHECK(set.settings() == "pad_crop(padding=4 border=zero) flip(probability=0.5) cutout(size=8)");
    batch found{std::vector<float>(2 * shape::size), std::vector<std::int32_t>(2)};
    set.read<float>(std::array<std::uint64_t, 2>{9, 4}, {found.x.data(), 2}, found.y);
    CHECK(found.y == std::vector<std::int32_t>{9, 4});
    CHECK(std::equal(found.x.begin(), found.x.begin() + shape::size, all.x.begin() + 9 * shape::size));
    CHECK(std::equal(found.x.begin() + shape::size, found.x.end(), all.x.begin() + 4 * shape::size));
}

TEST_CASE("data/augmented: changes are made in the order in which they are written", "[data]") {
    const reading key{.seed = 2, .epoch = 1};
    const batch found = read(augmented{all.set(), pad_crop{}, flip{.probability = 1}, cutout{.size = 5}}, {8}, key);
    test::numbered<float> one{32, 32, 3};
    std::copy_n(all.x.begin() + 8 * shape::size, shape::size, one.numbers.begin());
    pad_crop{}.apply(one.view(), draws{{2, 1, 0}, 8});
    flip::mirror(one.view());
    cutout{.size = 5}.apply(one.view(), draws{{2, 1, 2}, 8});
    CHECK(found.x == one.numbers);
}

TEST_CASE("data/augmented: two changes of a kind draw apart, also in data sets around data sets", "[data]") {
    const auto mark = [](const auto& set) { return read(set, {3}, {.seed = 1, .epoch = 0}).x[0]; };
    const float first = mark(augmented{all.set(), marking{}}),
                second = mark(augmented{all.set(), marking{}, marking{}});
    CHECK(first != second);
    CHECK(mark(augmented{augmented{all.set(), marking{}}, flip{.probability = 0}}) == second);
    CHECK(mark(augmented{augmented{all.set(), marking{}, flip{.probability = 0}}, marking{}}) == first);
}

TEST_CASE("data/augmented: inside and around normalised", "[data]") {
    const channel_statistics<3> of{.mean = {1, 2, 3}, .deviation = {2, 4, 8}};
    const reading key{.seed = 1, .epoch = 7};
    const augmented outside{normalised{all.set(), of}, flip{}};
    const normalised inside{augmented{all.set(), flip{}}, of};
    static_assert(VaryingDataset<decltype(inside)> && VaryingDataset<decltype(outside)>);
    const std::vector<std::uint64_t> rows{0, 1, 2, 3, 4, 5, 6, 7};
    CHECK(read(outside, rows, key).x == read(inside, rows, key).x);  // a flip changes no number
    CHECK(read(outside, rows, key).x != read(normalised{all.set(), of}, rows, key).x);
    CHECK(outside.settings() == "normalised mean=1,2,3 deviation=2,4,8 flip(probability=0.5)");
    CHECK(inside.settings() == "flip(probability=0.5) normalised mean=1,2,3 deviation=2,4,8");
}

/// A picture in double alone.
struct in_double {
    using sample = tensor::shape<1, 2, 1>;
    using label = tensor::classes<2>;
    std::size_t size() const { return 1; }
    void read(std::span<const std::uint64_t>, tensor::batch<double, sample> x, std::span<std::int32_t>) const {
        x.sample(0)[0] = 0.1, x.sample(0)[1] = 0.2;
    }
};
/// Changes no picture of double.
struct of_float {
    static constexpr std::string_view name = "of_float";
    [[nodiscard]] std::string settings() const { return ""; }
    void apply(const picture<float>& of, const draws&) const noexcept { of.data[0] = 1; }
};

TEST_CASE("data/augmented: a data set of double", "[data]") {
    const augmented set{in_double{}, flip{.probability = 1}};
    static_assert(VaryingDataset<decltype(set), double> && !Dataset<decltype(set)>);
    std::array<double, 2> x{};
    std::array<std::int32_t, 1> y{};
    const std::array<std::uint64_t, 1> rows{0};
    set.read<double>(rows, {x.data(), 1}, y);
    CHECK(x == std::array{0.1, 0.2});
    set.read<double>(rows, {x.data(), 1}, y, {.seed = 1});
    CHECK(x == std::array{0.2, 0.1});
    // Pictures that no augmentation changes are not trained on as if it did.
    using changed_in_float = augmented<decltype(all.set()), of_float>;
    static_assert(VaryingDataset<changed_in_float> && keeps_reading<changed_in_float, float>);
    static_assert(Dataset<changed_in_float, double> && !keeps_reading<changed_in_float, double>);
    static_assert(!can_augment<in_double, of_float>);
}

TEST_CASE("data/augmented: numbers that make no sense and rows that do not exist are errors", "[data]") {
    CHECK(test::error_of([] {
              augmented{all.set(), flip{}, cutout{.size = 33}};
          }) == "lockstep: cutout{.size = 33} on pictures of 32x32; choose a size from 1 to 32");
    CHECK(test::error_of([] {
              (void)read(augmented{all.set(), flip{}}, {0, count}, {});
          }) ==
          "lockstep: data in memory (37 samples of 32x32x3): sample 37 of 37 was asked for; number samples from 0 to "
          "size() - 1");
}

}  // namespace
}  // namespace lockstep::data
