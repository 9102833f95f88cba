// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/image_folder.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "files.hpp"

namespace lockstep::data {
namespace {

using small = image_folder<tensor::shape<1, 2, 3>, tensor::classes<3>>;
static_assert(Dataset<small> && Dataset<small, double>);

/// A picture of 1 x 2 pixels whose bytes are first, first + 1, ..
std::string picture(int first, const std::string& head = "P6 2 1 255\n") {
    std::string out = head;
    for (int i = 0; i < 6; ++i) out += static_cast<char>(first + i);
    return out;
}
void write(const test::directory& here, const std::string& path, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path{here / path}.parent_path());
    here.write(path, bytes);
}
void write_three_classes(const test::directory& here) {
    write(here, "cat/2.ppm", picture(10));
    write(here, "cat/10.ppm", picture(20));
    write(here, "Dog/x/a.PPM", picture(30));
    write(here, "Dog/x.ppm", picture(40));
    write(here, "ant/b.pnm", picture(50));
    write(here, "ant/.hidden", "x");
    write(here, ".git/a.ppm", "x");
    write(here, "README", "x");
}

TEST_CASE("data/image_folder: classes and files in the order of their names as bytes", "[data]") {
    const test::directory here;
    write_three_classes(here);
    small set{here / ""};
    CHECK(set.class_names() == std::vector<std::string>{"Dog", "ant", "cat"});
    REQUIRE(set.size() == 5);
    std::vector<std::uint64_t> rows(5);
    std::iota(rows.begin(), rows.end(), 0);
    std::array<double, 30> x{};
    std::array<std::int32_t, 5> y{};
    set.read<double>(rows, {x.data(), 5}, y);
    CHECK(y == std::array{0, 0, 1, 2, 2});
    const std::array<int, 5> first{40, 30, 50, 20, 10};
    for (std::size_t i = 0; i < 30; ++i)
        CHECK(x[i] == Approx((first[i / 6] + static_cast<double>(i % 6)) / 255).epsilon(1e-14));
    CHECK(set.path(1) == here / "" + "/Dog/x/a.PPM");
    set.mean = {0.1F, 0.2F, 0.3F};
    set.deviation = {0.5F, 0.25F, 2};
    set.read<double>(std::array<std::uint64_t, 2>{4, 4}, {x.data(), 2}, {y.data(), 2});
    for (std::size_t i = 0; i < 12; ++i)
        CHECK(x[i] == Approx(((10 + static_cast<double>(i % 6)) / 255 - static_cast<double>(set.mean[i % 3])) /
                             static_cast<double>(set.deviation[i % 3]))
                          .epsilon(1e-14));
}

TEST_CASE("data/image_folder: ranks with other files are told apart", "[data]") {
    const test::directory here, there;
    write_three_classes(here);
    write_three_classes(there);
    CHECK(small{here / ""}.settings() == small{there / ""}.settings());
    write(there, "cat/3.ppm", picture(1));
    CHECK(small{here / ""}.settings() != small{there / ""}.settings());
}

TEST_CASE("data/image_folder: classes with the numbers of another data set", "[data]") {
    const test::directory here, there;
    write_three_classes(here);
    write(there, "cat/1.ppm", picture(70));
    write(there, "ant/2.ppm", picture(80));
    const small training{here / ""};
    const small test{there / "", {.classes = training.class_names()}};
    CHECK(test.class_names() == training.class_names());
    REQUIRE(test.size() == 2);
    std::array<float, 12> x{};
    std::array<std::int32_t, 2> y{};
    test.read<float>(std::array<std::uint64_t, 2>{0, 1}, {x.data(), 2}, y);
    CHECK(y == std::array{1, 2});
    CHECK(x[0] == Approx(80.0 / 255));
    CHECK(test.path(1) == there / "" + "/cat/1.ppm");
    // Ranks that name them in another order have other numbers.
    const small turned{there / "", {.classes = {"cat", "ant", "Dog"}}};
    turned.read<float>(std::array<std::uint64_t, 2>{0, 1}, {x.data(), 2}, y);
    CHECK(y == std::array{0, 1});
    CHECK(turned.path(0) == there / "" + "/cat/1.ppm");
    CHECK(turned.settings() != test.settings());
    CHECK(small{here / "", {.classes = training.class_names()}}.settings() == training.settings());

    const std::string root = there / "";
    const auto error = [&](const std::vector<std::string>& classes) {
        return test::error_of([&] { small{root, {.classes = classes}}; });
    };
    CHECK(error({"Dog", "ant", "cow"}) == "lockstep: \"" + root +
                                              "/cat\" is none of the 3 classes in .classes: Dog, ant, cow; name it "
                                              "there, or remove the folder");
    CHECK(error({"ant", "cat"}) == "lockstep: \"" + root +
                                       "\" was to be read with 2 names of classes, its label has 3 classes; name each "
                                       "class of tensor::classes once");
    CHECK(error({"cat", "ant", "cat"}) == "lockstep: \"" + root +
                                              "\" was to be read with classes 0 and 2 of one name, \"cat\"; name each "
                                              "class of tensor::classes once");
    const test::directory empty;
    CHECK(test::error_of([&] {
              small{empty / "", {.classes = training.class_names()}};
          }) == "lockstep: \"" + empty / "" +
                    "\" has none of the 3 classes in .classes: Dog, ant, cat; pass a folder that has a folder of "
                    "pictures for each class");
    std::filesystem::create_directory(there / "Dog");
    CHECK(error(training.class_names()) ==
          "lockstep: \"" + root + "/Dog\" has no pictures; add some, or remove the folder");
}

TEST_CASE("data/image_folder: a size that does not stand at the beginning of a file", "[data]") {
    const test::directory here;
    write_three_classes(here);
    const auto after = [&](std::size_t bytes) {
        write(here, "cat/3.ppm", picture(1, "P6\n#" + std::string(bytes, 'x') + "\n1 2 255\n"));
        return test::error_of([&] { small{here / ""}; });
    };
    const std::string right = "lockstep: \"" + here / "" +
                              "/cat/3.ppm\" is a picture of 2x1x3, expected 1x2x3; bring all pictures to one size "
                              "before";
    for (const std::size_t bytes : {10U, 4090U, 4092U, 5000U, 16'384U, 1'000'000U}) {
        INFO(bytes);
        CHECK(after(bytes) == right);
    }
    CHECK(after(1'100'000).empty());  // from the first MiB only: found when it is read
    CHECK(test::error_of([&] {
              std::array<float, 6> x{};
              std::array<std::int32_t, 1> y{};
              small{here / ""}.read<float>(std::array<std::uint64_t, 1>{5}, {x.data(), 1}, y);
          }) == right);
    write(here, "cat/3.ppm", "P6\n#" + std::string(5000, 'x'));  // ends before: found when it is read
    CHECK(small{here / ""}.size() == 6);
}

TEST_CASE("data/image_folder: each thing that can be wrong has its message", "[data]") {
    const test::directory here;
    write_three_classes(here);
    const std::string root = here / "";
    const auto error = [&](const image_folder_options& options = {}) {
        return test::error_of([&] { small{root, options}; });
    };
    CHECK(error().empty());
    write(here, "cat/notes.txt", "x");
    CHECK(error() == "lockstep: \"" + root +
                         "/cat/notes.txt\" is no picture that this data set reads (.pgm, .ppm, .pnm); remove it, or "
                         "name a decoder of its format in .decoders");
    std::filesystem::remove(here / "cat/notes.txt");
    write(here, "cat/3.ppm", picture(1, "P6 1 2 255\n"));
    CHECK(error() == "lockstep: \"" + root +
                         "/cat/3.ppm\" is a picture of 2x1x3, expected 1x2x3; bring all pictures to one size before");
    const small unchecked{root, {.check_sizes = false}};
    std::array<float, 6> x{};
    std::array<std::int32_t, 1> y{};
    CHECK(test::error_of([&] {
              unchecked.read<float>(std::array<std::uint64_t, 1>{5}, {x.data(), 1}, y);
          }).find("3.ppm\" is a picture of 2x1x3") != std::string::npos);
    write(here, "cat/3.ppm", "P6 2 1 255\nabc");
    const small cut{root};
    CHECK(test::error_of([&] {
              cut.read<float>(std::array<std::uint64_t, 1>{5}, {x.data(), 1}, y);
          }).find("has 3 bytes of pixels") != std::string::npos);
    write(here, "cat/3.ppm", picture(1));
    std::filesystem::resize_file(here / "cat/3.ppm", 3'000'000'000);
    const small huge{root};
    CHECK(test::error_of([&] {
              huge.read<float>(std::array<std::uint64_t, 1>{5}, {x.data(), 1}, y);
          }).find("has 3000000000 bytes, too many for a picture of 1x2x3") != std::string::npos);
    std::filesystem::remove(here / "cat/3.ppm");
    std::filesystem::create_directory(here / "elk");
    CHECK(error() == "lockstep: \"" + root +
                         "\" has 4 folders of classes, the data set is declared with 3: Dog, ant, cat, elk; declare as "
                         "many classes as there are folders; for a test set that lacks some, set .classes to the "
                         "class_names() of the training set");
    CHECK(test::error_of([&] { image_folder<tensor::shape<1, 2, 3>, tensor::classes<4>>{root}; }) ==
          "lockstep: \"" + root + "/elk\" has no pictures; add some, or remove the folder");
    std::filesystem::remove(here / "elk");
    std::filesystem::create_directory_symlink(".", here / "cat/loop");
    CHECK(error().find("folders deep, the most; look for a link that leads back") != std::string::npos);
    CHECK(test::error_of([&] {
              small{here / "missing"};
          }).find("missing\": No such file or directory; pass a folder") != std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
