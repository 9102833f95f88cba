// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/mapped_npy.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "files.hpp"

namespace lockstep::data {
namespace {

using small = mapped_npy<tensor::shape<2, 3, 1>, tensor::classes<4>>;
using regression = mapped_npy<tensor::shape<3>, tensor::shape<2>>;
static_assert(Dataset<small> && Dataset<small, double> && Dataset<regression>);
using extents = std::vector<std::size_t>;

template <class T>
std::string write(const test::directory& here, const std::string& name, const extents& shape,
                  const std::vector<T>& numbers) {
    files::write_npy<T>(here / name, shape, numbers);
    return here / name;
}
template <class T>
std::vector<T> counting(std::size_t count) {
    std::vector<T> out(count);
    std::iota(out.begin(), out.end(), T{0});
    return out;
}

TEMPLATE_TEST_CASE("data/mapped_npy: rows by number, of any type", "[data]", std::uint8_t, std::int16_t, float,
                   double) {
    const test::directory here;
    const small set{write(here, "x.npy", {5, 2, 3}, counting<TestType>(30)),
                    write<std::int64_t>(here, "y.npy", {5, 1}, {3, 2, 1, 0, 3})};
    CHECK(set.size() == 5);
    CHECK(set.name() == "\"" + (here / "x.npy") + "\"");
    const std::array<std::uint64_t, 4> rows{4, 0, 4, 2};
    std::array<float, 24> x{};
    std::array<std::int32_t, 4> y{};
    set.read<float>(rows, {x.data(), 4}, y);
    for (std::size_t i = 0; i < 24; ++i) CHECK(x[i] == static_cast<float>(6 * rows[i / 6] + i % 6));
    CHECK(y == std::array<std::int32_t, 4>{3, 3, 3, 1});
}

TEST_CASE("data/mapped_npy: labels that are numbers", "[data]") {
    const test::directory here;
    const regression set{write(here, "x.npy", {2, 3}, counting<float>(6)),
                         write<double>(here, "y.npy", {2, 2}, {0.1, 2, 3, 4})};
    std::array<double, 6> x{};
    std::array<double, 4> y{};
    set.read<double>(std::array<std::uint64_t, 2>{1, 0}, {x.data(), 2}, y);
    CHECK(x == std::array{3.0, 4.0, 5.0, 0.0, 1.0, 2.0});
    CHECK(y == std::array{3.0, 4.0, 0.1, 2.0});
    CHECK(regression{write<float>(here, "x0.npy", {0, 3}, {}), write<float>(here, "y0.npy", {0, 2}, {})}.size() == 0);
}

TEST_CASE("data/mapped_npy: a copy outlives the original; ranks with other files are told apart", "[data]") {
    const test::directory here;
    const auto make = [&](std::vector<int> labels) {
        const small original{write(here, "x.npy", {3, 2, 3}, counting<float>(18)), write(here, "y.npy", {3}, labels)};
        return small{original};
    };
    const small set = make({0, 1, 2});
    std::array<float, 6> x{};
    std::array<std::int32_t, 1> y{};
    set.read<float>(std::array<std::uint64_t, 1>{2}, {x.data(), 1}, y);
    CHECK(x[5] == 17);
    CHECK(y[0] == 2);
    CHECK(set.settings() != make({0, 2, 2}).settings());
    CHECK(make({0, 2, 2}).settings() == make({0, 2, 2}).settings());
}

#if !defined(__SANITIZE_THREAD__)  // which leaves no room for such a mapping
TEST_CASE("data/mapped_npy: a file that is larger than memory", "[data]") {
    // A file with a hole: it takes no room on the disk. 2 TB, of which one row is there.
    const test::directory here;
    constexpr std::size_t rows = std::size_t{1} << 21, columns = std::size_t{1} << 20;
    const std::string head = files::npy_head(files::dtype::u8, extents{rows, columns});
    const std::string path = here.write("x.npy", head);
    std::error_code failed;
    std::filesystem::resize_file(path, head.size() + rows * columns, failed);
    if (failed) {
        WARN("no sparse files of this size here: " << failed.message());
        return;
    }
    std::FILE* const file = std::fopen(path.c_str(), "r+b");
    REQUIRE(file != nullptr);
    constexpr std::size_t last = rows - 1;
    REQUIRE(::fseeko(file, static_cast<off_t>(head.size() + last * columns), SEEK_SET) == 0);
    const std::string row(columns, '\7');
    REQUIRE(std::fwrite(row.data(), 1, columns, file) == columns);
    REQUIRE(std::fclose(file) == 0);
    const mapped_npy<tensor::shape<columns>, tensor::classes<2>> set{
        path, write(here, "y.npy", {rows}, std::vector<std::uint8_t>(rows, 1))};
    CHECK(set.size() == rows);
    std::vector<float> x(2 * columns, -1.0F);
    std::array<std::int32_t, 2> y{};
    set.read<float>(std::array<std::uint64_t, 2>{last, 77}, {x.data(), 2}, y);
    CHECK(std::count(x.begin(), x.begin() + columns, 7.0F) == columns);
    CHECK(std::count(x.begin() + columns, x.end(), 0.0F) == columns);
    CHECK(y == std::array{1, 1});
}
#endif

TEST_CASE("data/mapped_npy: each thing that can be wrong has its message", "[data]") {
    const test::directory here;
    const std::string x = write(here, "x.npy", {3, 2, 3}, counting<float>(18));
    const auto error = [&](const std::string& with_x, const std::string& with_y) {
        return test::error_of([&] { small{with_x, with_y}; });
    };
    const std::string y = write<int>(here, "y.npy", {3}, {0, 1, 2}),
                      four = write<int>(here, "four.npy", {4}, {0, 1, 2, 3});
    CHECK(error(x, y).empty());
    CHECK(error(x, four) ==
          "lockstep: \"" + x + "\" has 3 samples, but \"" + four +
              "\" has 4 labels; pass two files of the same part: both of the training set, or both of the test set");
    const std::string other = write(here, "other.npy", {3, 3, 2}, counting<float>(18));
    CHECK(error(other, y) == "lockstep: \"" + other +
                                 "\" has the shape 3x3x2, expected nx2x3x1 (samples); reshape the array, or declare "
                                 "another shape of the data set");
    const std::string one = write<float>(here, "one.npy", {}, {1});
    CHECK(error(one, y).find("has the shape one number, expected nx2x3x1") != std::string::npos);
    CHECK(error(x, x).find("has the shape 3x2x3, expected n (labels)") != std::string::npos);
    const std::string beyond = write<std::uint64_t>(here, "beyond.npy", {3}, {0, 1, 9223372036854775813U});
    CHECK(error(x, beyond).find("label 2 of \"" + beyond + "\" is 9223372036854775813, allowed are 0 to 3") !=
          std::string::npos);
    const std::string fractions = write<float>(here, "fractions.npy", {3}, {0, 1, 2});
    CHECK(error(x, fractions) == "lockstep: \"" + fractions +
                                     "\" holds F32 numbers, class labels are whole numbers; store them as "
                                     "numpy.save(path, y.astype('<i4')), or declare the label as a shape");
    const std::string large = write<int>(here, "large.npy", {3}, {0, 4, 2});
    CHECK(error(x, large) == "lockstep: label 1 of \"" + large +
                                 "\" is 4, allowed are 0 to 3; labels count from 0: subtract 1 if these count from 1, "
                                 "or declare more classes");
    CHECK(error(x, write<std::uint64_t>(here, "huge.npy", {3}, {0, std::numeric_limits<std::uint64_t>::max(), 2}))
              .find("label 1 of") != std::string::npos);
    CHECK(error(here / "missing.npy", y).find("No such file") != std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
