// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/cifar10.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "files.hpp"

namespace lockstep::data {
namespace {

static_assert(Dataset<cifar10> && Dataset<cifar10, double>);

std::uint8_t byte_of(int picture, std::size_t row, std::size_t column, std::size_t channel) {
    return static_cast<std::uint8_t>(static_cast<std::size_t>(picture) * 11 + row * 7 + column * 3 + channel * 101);
}
/// One picture as in the files: the label, then planes of red, green, blue.
std::string record(int label, int picture) {
    std::string out(1, static_cast<char>(label));
    for (std::size_t channel = 0; channel < 3; ++channel)
        for (std::size_t row = 0; row < 32; ++row)
            for (std::size_t column = 0; column < 32; ++column)
                out += static_cast<char>(byte_of(picture, row, column, channel));
    return out;
}
/// Two pictures in each training batch, labels 0 .. 9; one test picture of class 7.
void write_all(const test::directory& here) {
    for (int batch = 0; batch < 5; ++batch)
        here.write(core::text("data_batch_", batch + 1, ".bin"),
                   record(2 * batch, 2 * batch) + record(2 * batch + 1, 2 * batch + 1));
    here.write("test_batch.bin", record(7, 20));
}
std::string folder_of(const test::directory& here) { return (here / "x").substr(0, (here / "x").size() - 2); }

/// The folder with the published files: $LOCKSTEP_DATA, or a folder cifar10 in it.
std::string published() {
    if (const char* folder = std::getenv("LOCKSTEP_DATA"))
        for (const std::string& root : {std::string{folder}, folder + std::string{"/cifar10"}})
            for (const std::string& inner : {root, root + "/cifar-10-batches-bin"})
                for (const std::string ending : {"", ".gz"})
                    if (std::filesystem::exists(inner + "/data_batch_1.bin" + ending)) return root;
    return {};
}

TEMPLATE_TEST_CASE("data/cifar10: pictures of five files in one order, rows x columns x channels", "[data]", float,
                   double) {
    const test::directory here;
    write_all(here);
    const cifar10 set{folder_of(here), part::training};
    REQUIRE(set.size() == 10);
    const std::vector<std::uint64_t> rows{9, 0, 3, 3, 4};
    std::vector<TestType> x(rows.size() * 3072);
    std::vector<std::int32_t> y(rows.size());
    set.read<TestType>(rows, {x.data(), rows.size()}, y);
    CHECK(y == std::vector<std::int32_t>{9, 0, 3, 3, 4});
    const std::array<double, 3> mean{0.4914, 0.4822, 0.4465}, deviation{0.2470, 0.2435, 0.2616};
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t r = 0; r < 32; ++r)
            for (std::size_t c = 0; c < 32; ++c)
                for (std::size_t k = 0; k < 3; ++k) {
                    const double expected =
                        (byte_of(static_cast<int>(rows[i]), r, c, k) / 255.0 - mean[k]) / deviation[k];
                    wrong += !(std::abs(static_cast<double>(x[i * 3072 + (r * 32 + c) * 3 + k]) - expected) <
                               2e-6);  // numbers up to 2.2
                }
    CHECK(wrong == 0);
    CHECK_THAT(set.settings(), Catch::StartsWith("mean=0.4914,0.4822,0.4465 deviation=0.247,0.2435,0.2616 bytes="));
    CHECK(set.settings() == cifar10{folder_of(here), part::training}.settings());
    CHECK(set.settings() != cifar10{folder_of(here), part::training, set.size() - 1}.settings());
}

TEST_CASE("data/cifar10: the test set, packed files, the folder around, the first pictures only", "[data]") {
    const test::directory here;
    write_all(here);
    const std::string folder = folder_of(here);
    const cifar10 test{folder, part::test};
    CHECK(test.size() == 1);
    CHECK(test.name() == "CIFAR-10 test set in \"" + folder + "\"");
    CHECK(cifar10{folder, part::training, 3}.size() == 3);
    CHECK(test::error_of([&] { cifar10(folder, part::training, 11); }) ==
          "lockstep: CIFAR-10 training set in \"" + folder +
              "\": 11 pictures were asked for, the files hold 10; ask for fewer, or leave the count away to have them "
              "all");

    const test::directory around;
    std::filesystem::create_directory(around / "cifar-10-batches-bin");
    around.write_packed("cifar-10-batches-bin/test_batch.bin.gz", record(7, 20));
    const cifar10 packed{folder_of(around), part::test};
    std::vector<float> a(3072), b(3072);
    std::array<std::int32_t, 1> y{};
    test.read<float>(std::array<std::uint64_t, 1>{0}, {a.data(), 1}, y);
    packed.read<float>(std::array<std::uint64_t, 1>{0}, {b.data(), 1}, y);
    CHECK(a == b);
    CHECK(y[0] == 7);
}

TEST_CASE("data/cifar10: files that are missing, cut off or of another kind", "[data]") {
    const test::directory here;
    const std::string folder = folder_of(here);
    const auto training = [&] { cifar10(folder, part::training); };
    const auto missing = [&](const std::string& file) {
        return "lockstep: cannot open \"" + here / file + "\" (No such file or directory) and \"" +
               here / (file + ".gz") +
               "\" (No such file or directory); unpack the binary version of CIFAR-10 (cifar-10-binary.tar.gz from "
               "www.cs.toronto.edu/~kriz/cifar.html) with tar -xzf, and pass the folder cifar-10-batches-bin";
    };
    CHECK(test::error_of(training) == missing("data_batch_1.bin"));
    CHECK(test::error_of([&] { cifar10(folder, part::test); }) == missing("test_batch.bin"));
    write_all(here);
    std::filesystem::remove(here / "data_batch_4.bin");
    CHECK(test::error_of(training) == missing("data_batch_4.bin"));

    here.write("data_batch_4.bin", record(1, 1).substr(0, 3072));
    CHECK(test::error_of(training) ==
          "lockstep: \"" + here / "data_batch_4.bin" +
              "\" has 3072 bytes, no whole number of pictures of 3073 bytes; fetch or copy the file again: the "
              "published ones have 30730000 bytes once unpacked");
    here.write("data_batch_4.bin", "");
    CHECK(test::error_of(training) == "lockstep: \"" + here / "data_batch_4.bin" +
                                          "\" has 0 bytes, no picture of 3073 bytes; fetch or copy the file again: the "
                                          "published ones have 30730000 bytes once unpacked");
    here.write("data_batch_4.bin", record(1, 1) + record(10, 2));
    CHECK(test::error_of(training) ==
          "lockstep: picture 1 of \"" + here / "data_batch_4.bin" +
              "\" has the label 10, allowed are 0 to 9; pass the binary version of CIFAR-10 (other data sets "
              "have other layouts), or correct the file");
    here.write_packed("data_batch_4.bin", std::string(400'000'000, '\1'));
    CHECK_THAT(test::error_of(training),
               Catch::Matchers::Matches(".*data_batch_4.bin\" has more than 18[0-9]{7} bytes, too many: the most are "
                                        "184380000, 60000 pictures; fetch .*"));
}

TEST_CASE("data/cifar10: the published files", "[data]") {
    const std::string folder = published();
    if (folder.empty()) {
        WARN(
            "skipped: no CIFAR-10 files; set LOCKSTEP_DATA to the folder that holds cifar-10-batches-bin, or to the "
            "one with cifar10 in "
            "it");
        return;
    }
    const cifar10 training{folder, part::training}, test{folder, part::test};
    REQUIRE(training.size() == 50'000);
    REQUIRE(test.size() == 10'000);
    for (const cifar10* set : {&training, &test}) {
        std::array<std::size_t, 10> found{};
        std::array<double, 3> sum{}, squares{};
        std::vector<float> x(100 * 3072);
        std::vector<std::int32_t> y(100);
        std::vector<std::uint64_t> rows(100);
        for (std::size_t at = 0; at < set->size(); at += rows.size()) {
            std::iota(rows.begin(), rows.end(), at);
            set->read<float>(rows, {x.data(), rows.size()}, y);
            for (const std::int32_t label : y) ++found[static_cast<std::size_t>(label)];
            for (std::size_t i = 0; i < x.size(); ++i) {
                sum[i % 3] += static_cast<double>(x[i]);
                squares[i % 3] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            }
        }
        for (const std::size_t one : found) CHECK(one == set->size() / 10);
        const double n = 1024.0 * static_cast<double>(set->size());
        // The published numbers are those of the training set; other copies of the pictures differ in the third digit.
        for (std::size_t channel = 0; channel < 3; ++channel) {
            CHECK(std::abs(sum[channel] / n) < 0.03);
            CHECK(std::abs(squares[channel] / n - 1) < 0.03);
        }
    }
}

}  // namespace
}  // namespace lockstep::data
