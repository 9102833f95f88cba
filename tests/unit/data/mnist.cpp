// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/mnist.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "files.hpp"

namespace lockstep::data {
namespace {

static_assert(Dataset<mnist> && Dataset<mnist, double>);

/// The folder with the published files: $LOCKSTEP_DATA or the folder the build knows, each with or without a folder
/// mnist in it.
std::string published() {
    std::vector<std::string> folders;
    if (const char* folder = std::getenv("LOCKSTEP_DATA")) folders.emplace_back(folder);
#if defined(LOCKSTEP_SHARED_DATA)
    folders.emplace_back(LOCKSTEP_SHARED_DATA);
#endif
    for (const std::string& folder : folders)
        for (const std::string& inner : {folder, folder + "/mnist"})
            for (const std::string ending : {"", ".gz"})
                if (std::filesystem::exists(inner + "/train-images-idx3-ubyte" + ending)) return inner;
    return {};
}

TEST_CASE("data/mnist: missing files are listed with what to do", "[data]") {
    const test::directory here;
    const std::string remedy =
        "; pass the folder and the part, as in mnist{\"data/train\"} or mnist{\"data/t10k\"}, with the files "
        "train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (plain or .gz, for example from "
        "storage.googleapis.com/cvdf-datasets/mnist) in that folder, or train on the built-in data::digits";
    const auto missing = [&](const std::string& file) {
        return "lockstep: cannot open \"" + here / file + "\" (No such file or directory) and \"" +
               here / (file + ".gz") + "\" (No such file or directory)" + remedy;
    };
    CHECK(test::error_of([&] { mnist{here / "train"}; }) == missing("train-images-idx3-ubyte"));
    here.write("train-images-idx3-ubyte", "");
    CHECK(test::error_of([&] { mnist{here / "train"}; }) == missing("train-labels-idx1-ubyte"));
}

TEST_CASE("data/mnist: plain and packed files are found by the prefix", "[data]") {
    const test::directory here;
    here.write("train-images-idx3-ubyte",
               test::idx_bytes(0x803, {2, 28, 28}, std::string(784, '\0') + std::string(784, '\xff')));
    here.write_packed("train-labels-idx1-ubyte.gz", test::idx_bytes(0x801, {2}, std::string{"\7\2", 2}));
    const mnist set{here / "train"};
    CHECK(set.size() == 2);
    std::vector<float> x(2 * 784);
    std::array<std::int32_t, 2> y{};
    set.read<float>(std::array<std::uint64_t, 2>{1, 0}, {x.data(), 2}, y);
    CHECK(y == std::array<std::int32_t, 2>{2, 7});
    CHECK(x[0] == Approx((1 - 0.1307) / 0.3081));
    CHECK(x[784] == Approx(-0.1307 / 0.3081));
}

TEST_CASE("data/mnist: the published files", "[data]") {
    const std::string folder = published();
    if (folder.empty()) {
        WARN("skipped: no MNIST files; set LOCKSTEP_DATA to the folder that holds them");
        return;
    }
    const mnist train{folder + "/train"};
    const mnist test{folder + "/t10k"};
    REQUIRE(train.size() == 60'000);
    REQUIRE(test.size() == 10'000);

    std::array<std::uint64_t, 10> first{};
    std::iota(first.begin(), first.end(), std::uint64_t{0});
    std::vector<float> x(10 * 784);
    std::array<std::int32_t, 10> y{};
    train.read<float>(first, {x.data(), 10}, y);
    CHECK(y == std::array<std::int32_t, 10>{5, 0, 4, 1, 9, 2, 1, 3, 1, 4});
    test.read<float>(first, {x.data(), 10}, y);
    CHECK(y == std::array<std::int32_t, 10>{7, 2, 1, 0, 4, 1, 4, 9, 5, 9});

    double sum = 0, squares = 0;
    for (std::uint64_t row = 0; row < train.size(); ++row) {
        train.read<float>(std::span{&row, 1}, {x.data(), 1}, std::span{y}.first(1));
        for (std::size_t p = 0; p < 784; ++p) {
            sum += static_cast<double>(x[p]);
            squares += static_cast<double>(x[p]) * static_cast<double>(x[p]);
        }
    }
    const double n = 784.0 * 60'000;
    CHECK(std::abs(sum / n) < 5e-4);  // the published mean and deviation have four digits
    CHECK(std::abs(squares / n - 1) < 5e-4);
}

}  // namespace
}  // namespace lockstep::data
