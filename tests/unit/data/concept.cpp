// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/concept.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "files.hpp"

namespace lockstep::data {
namespace {

struct nameless {
    using sample = tensor::shape<2>;
    using label = tensor::shape<1>;
    std::size_t size() const { return 5; }
    template <class T>
    void read(std::span<const std::uint64_t>, tensor::batch<T, sample>, std::span<T>) const {}
};
struct squares {
    using sample = tensor::shape<2>;
    using label = tensor::shape<1>;
    std::size_t size() const { return 5; }
    std::string name() const { return "squares"; }
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x, std::span<T> y) const {
        require_readable(*this, rows, x, y);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            x.sample(i)[0] = x.sample(i)[1] = static_cast<T>(rows[i]);
            y[i] = static_cast<T>(rows[i] * rows[i]);
        }
    }
};
struct float_only {
    using sample = tensor::shape<2>;
    using label = tensor::classes<3>;
    std::size_t size() const { return 1; }
    void read(std::span<const std::uint64_t>, tensor::batch<float, sample>, std::span<std::int32_t>) const {}
};
struct nameless_label {
    using sample = tensor::shape<2>;
    std::size_t size() const { return 1; }
};
struct backwards {
    void order(std::uint64_t n, std::uint64_t, std::uint64_t, std::span<std::uint64_t> out) const {
        for (std::uint64_t i = 0; i < n; ++i) out[i] = n - 1 - i;
    }
};

struct keyed : squares {
    using squares::read;
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x, std::span<T> y,
              const reading& key) const {
        read(rows, x, y);
        for (T& one : x.all()) one += static_cast<T>(100 * key.epoch);
    }
};
struct keyed_in_double : squares {
    using squares::read;
    void read(std::span<const std::uint64_t> rows, tensor::batch<double, sample> x, std::span<double> y,
              const reading&) const {
        read(rows, x, y);
    }
};
struct keyed_if_it_changes : squares {
    using squares::read;
    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x, std::span<T> y, const reading&) {
        squares::read(rows, x, y);
    }
};
struct painter {
    static constexpr std::string_view name = "painter";
    std::string settings() const { return {}; }
    void apply(picture<float> of, const draws&) const noexcept { of.data[0] = 1; }
};

static_assert(VaryingDataset<keyed> && VaryingDataset<keyed, double> && !VaryingDataset<squares>);
static_assert(keeps_reading<keyed, float> && keeps_reading<keyed, double> && keeps_some_reading<keyed>);
static_assert(keeps_reading<squares, float> && keeps_some_reading<squares>);
static_assert(keeps_reading<keyed_in_double, double> && !keeps_reading<keyed_in_double, float>);
static_assert(keeps_some_reading<keyed_in_double> && !keeps_some_reading<keyed_if_it_changes>);
static_assert(AnyDataset<squares> && AnyDataset<float_only> && AnyDataset<keyed_in_double> && !AnyDataset<painter>);
static_assert(Augmentation<painter> && !Augmentation<painter, double> && !Augmentation<squares>);
static_assert(Dataset<squares> && Dataset<squares, double> && Dataset<nameless>);
static_assert(Dataset<float_only> && !Dataset<float_only, double>);
static_assert(!Dataset<nameless_label> && !Dataset<int>);
static_assert(Sampler<backwards> && !Sampler<squares>);

TEST_CASE("data/concept: the name of a data set", "[data]") {
    CHECK(name_of(nameless{}) == "data set");
    CHECK(name_of(squares{}) == "squares");
}

TEST_CASE("data/concept: a read outside the data set or into buffers of another length is an error", "[data]") {
    std::array<double, 6> x{};
    std::array<double, 3> y{};
    const std::array<std::uint64_t, 3> good{4, 0, 4}, beyond{0, 5, 1};
    squares{}.read<double>(good, {x.data(), 3}, y);
    CHECK(y == std::array{16.0, 0.0, 16.0});

    CHECK(test::error_of([&] {
              squares{}.read<double>(beyond, {x.data(), 3}, y);
          }) == "lockstep: squares: sample 5 of 5 was asked for; number samples from 0 to size() - 1");
    CHECK(test::error_of([&] {
              squares{}.read<double>(good, {x.data(), 2}, y);
          }) ==
          "lockstep: squares: 3 samples were asked for, with room for 2 samples and 3 label elements; "
          "pass x with 3 rows and y with 3 elements");
    CHECK(test::error_of([&] {
              squares{}.read<double>(good, {x.data(), 3}, std::span{y}.first(1));
          }) ==
          "lockstep: squares: 3 samples were asked for, with room for 3 samples and 1 label elements; "
          "pass x with 3 rows and y with 3 elements");
}

TEST_CASE("data/concept: training reads what the epoch has, where it has something of its own", "[data]") {
    std::array<double, 2> x{};
    std::array<double, 1> y{};
    const std::array<std::uint64_t, 1> rows{3};
    read_for_training<keyed, double>(keyed{}, rows, {x.data(), 1}, y, {.seed = 1, .epoch = 2});
    CHECK(x[0] == 203);
    read_for_training<squares, double>(squares{}, rows, {x.data(), 1}, y, {.seed = 1, .epoch = 2});
    CHECK(x[0] == 3);
}

TEST_CASE("data/concept: draws are those of the sample, and do not depend on how many are asked for", "[data]") {
    const core::random_stream stream{9, core::purpose::augmentation, 0, 4};
    const draws one{{.seed = 9, .epoch = 4}, 1000};
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(one.word(i) == stream.word(4000 + i));
    CHECK(one.word(6) == stream.block(1000 + (1ULL << 40))[2]);
    CHECK(one.uniform(1) == core::random_stream::to_uniform(one.word(1)));
    std::array<std::size_t, 7> found{};
    for (std::uint64_t sample = 0; sample < 7000; ++sample) ++found[draws{{.seed = 9, .epoch = 4}, sample}.below(7, 2)];
    for (const std::size_t count : found)
        CHECK(std::abs(static_cast<double>(count) - 1000) < 3.9 * 29.3);  // once in a thousand seeds
    for (const reading& other : {reading{8, 4, 0}, reading{9, 5, 0}, reading{9, 4, 1}, reading{9, 4 + (1ULL << 32), 0}})
        CHECK(draws{other, 1000}.word(0) != one.word(0));
}

}  // namespace
}  // namespace lockstep::data
