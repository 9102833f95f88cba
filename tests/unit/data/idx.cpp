// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/idx.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "files.hpp"

namespace lockstep::data {
namespace {

using small = idx<2, 3, 4>;
static_assert(Dataset<small> && Dataset<small, double>);

constexpr std::uint32_t images = 0x803;
constexpr std::uint32_t labels = 0x801;

/// Three images of 2x3 pixels: 0..5, 100..105, 250..255.
std::string three_images() {
    std::string pixels;
    for (const int first : {0, 100, 250})
        for (int i = 0; i < 6; ++i) pixels += static_cast<char>(first + i);
    return test::idx_bytes(images, {3, 2, 3}, pixels);
}
std::string three_labels() { return test::idx_bytes(labels, {3}, std::string{"\3\0\1", 3}); }

void check_content(const small& set) {
    REQUIRE(set.size() == 3);
    const std::array<std::uint64_t, 4> rows{2, 0, 2, 1};
    std::array<double, 24> x{};
    std::array<std::int32_t, 4> y{};
    set.read<double>(rows, {x.data(), 4}, y);
    CHECK(y == std::array<std::int32_t, 4>{1, 3, 1, 0});
    for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t p = 0; p < 6; ++p) {
            const double byte = std::array{0.0, 100.0, 250.0}[rows[i]] + static_cast<double>(p);
            CHECK(x[i * 6 + p] ==
                  Approx((byte / 255 - static_cast<double>(set.mean)) / static_cast<double>(set.deviation))
                      .epsilon(1e-12));
        }
}

TEST_CASE("data/idx: plain and packed files", "[data]") {
    const test::directory here;
    small plain{here.write("images", three_images()), here.write("labels", three_labels())};
    check_content(plain);
    plain.mean = 0.25F;
    plain.deviation = 0.5F;
    check_content(plain);
    check_content(
        small{here.write_packed("images.gz", three_images()), here.write_packed("labels.gz", three_labels())});
    CHECK(name_of(plain) == "\"" + here / "images" + "\"");
}

TEST_CASE("data/idx: a mean or a deviation that makes no sense is refused", "[data]") {
    const test::directory here;
    small set{here.write("images", three_images()), here.write("labels", three_labels())};
    CHECK_NOTHROW(set.check());
    constexpr float none = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
    for (const auto& [mean, deviation] : {std::pair{0.0F, 0.0F}, {0.0F, infinite}, {0.0F, none}, {infinite, 1.0F}}) {
        set.mean = mean;
        set.deviation = deviation;
        CHECK(test::error_of([&] { set.check(); }) ==
              core::text("lockstep: ", set.name(), " has the mean ", mean, " and the deviation ", deviation,
                         "; give it a finite mean, and a finite deviation above 0: 0 and 1 change nothing"));
    }
}

TEST_CASE("data/idx: ranks with other bytes are told apart", "[data]") {
    const test::directory here;
    const std::string pictures = here.write("images", three_images()), classes = here.write("labels", three_labels());
    std::string other_images = three_images(), other_labels = three_labels();
    other_images[16 + 9] ^= 1;
    other_labels[8 + 1] ^= 1;
    const std::string mine = small{pictures, classes}.settings();
    CHECK(mine == small{here.write_packed("images.gz", three_images()), classes}.settings());
    CHECK(mine != small{here.write("other_images", other_images), classes}.settings());
    CHECK(mine != small{pictures, here.write("other_labels", other_labels)}.settings());
}

TEST_CASE("data/idx: a copy outlives the original and reads the same", "[data]") {
    const auto make = [] {
        const test::directory here;
        const small original{here.write("images", three_images()), here.write("labels", three_labels())};
        return small{original};
    };
    check_content(make());
}

TEST_CASE("data/idx: no samples are a data set, too", "[data]") {
    const test::directory here;
    const small none{here.write("images", test::idx_bytes(images, {0, 2, 3}, "")),
                     here.write("labels", test::idx_bytes(labels, {0}, ""))};
    CHECK(none.size() == 0);
}

TEST_CASE("data/idx: each thing that can be wrong with the files has its message", "[data]") {
    const test::directory here;
    const auto expect = [&](const std::string& image_bytes, const std::string& label_bytes, const std::string& text) {
        const std::string i = here.write("images", image_bytes);
        const std::string l = here.write("labels", label_bytes);
        std::string wanted = "lockstep: " + text;
        for (const auto& [mark, path] : {std::pair{"<i>", i}, std::pair{"<l>", l}})
            if (const auto at = wanted.find(mark); at != std::string::npos) wanted.replace(at, 3, "\"" + path + "\"");
        CHECK(test::error_of([&] { small{i, l}; }) == wanted);
    };

    expect(three_labels(), three_images(),
           "<i> starts with the magic number 0x00000801, expected 0x00000803 (images); this is a file of labels: swap "
           "the paths of images "
           "and labels");
    expect(three_images(), three_images(),
           "<l> starts with the magic number 0x00000803, expected 0x00000801 (labels); this is a file of images: swap "
           "the paths of images "
           "and labels");
    expect(test::idx_bytes(0xd803, {3, 2, 3}, ""), three_labels(),
           "<i> starts with the magic number 0x0000d803, expected 0x00000803 (images); pass an IDX file of unsigned "
           "bytes, plain or packed "
           "by gzip");
    expect(test::idx_bytes(images, {3, 28, 28}, std::string(3 * 784, 'x')), three_labels(),
           "<i> holds images of 28x28, the data set is declared as 2x3; declare the data set and the network's input "
           "as 28x28, or pass other "
           "files");

    expect("", three_labels(),
           "<i> has 0 bytes, too few: its magic number alone takes 4 bytes; fetch or copy the file again");
    expect(three_images().substr(0, 15), three_labels(),
           "<i> has 15 bytes, too few: its header alone takes 16 bytes; fetch or copy the file again");
    expect(three_images().substr(0, 33), three_labels(),
           "<i> has 33 bytes, too few: its header promises 34 bytes; fetch or copy the file again");
    expect(three_images() + "xy", three_labels(),
           "<i> has 36 bytes, too many: its header promises 34 bytes; fetch or copy the file again");
    expect(three_images(), three_labels() + "x",
           "<l> has 12 bytes, too many: its header promises 11 bytes; fetch or copy the file again");
    expect(three_images(), test::idx_bytes(labels, {0xffffffff}, "abc"),
           "<l> has 11 bytes, too few: its header promises 4294967303 bytes; fetch or copy the file again");

    expect(three_images(), test::idx_bytes(labels, {2}, std::string{"\0\1", 2}),
           "<i> has 3 images, but <l> has 2 labels; pass two files of the same part: both of the training set, or both "
           "of the test set");
    expect(three_images(), test::idx_bytes(labels, {3}, std::string{"\0\4\1", 3}),
           "label 1 of <l> is 4, allowed are 0 to 3; labels count from 0: subtract 1 if these count from 1, or declare "
           "more classes");
    expect(three_images(), test::idx_bytes(labels, {3}, std::string{"\0\1\xff", 3}),
           "label 2 of <l> is 255, allowed are 0 to 3; declare the data set with more classes, or correct the file");
}

TEST_CASE("data/idx: a packed file is unpacked as far as its header promises", "[data]") {
    const test::directory here;
    const std::string l = here.write("labels", three_labels());
    const auto message = [&](const std::string& path) { return test::error_of([&] { small{path, l}; }); };
    CHECK_THAT(message(here.write_packed("images", three_images() + "xy")),
               Catch::Matchers::EndsWith(
                   "\" has 36 bytes, too many: its header promises 34 bytes; fetch or copy the file again"));
    CHECK_THAT(message(here.write_packed("images", three_images().substr(0, 33))),
               Catch::Matchers::EndsWith(
                   "\" has 33 bytes, too few: its header promises 34 bytes; fetch or copy the file again"));
    const std::string many(50'000'000, '\0');
    CHECK_THAT(
        message(here.write_packed("images", three_images() + many)),
        Catch::Matchers::Matches(".*has more than 10[0-9]{5} bytes, too many: its header promises 34 bytes; .*"));
    CHECK_THAT(message(here.write_packed("images", test::idx_bytes(images, {0xffffffff, 2, 3}, "abc"))),
               Catch::Matchers::EndsWith(
                   "\" has 19 bytes, too few: its header promises 25769803786 bytes; fetch or copy the file again"));
}

TEST_CASE("data/idx: the members of a packed file are one content", "[data]") {
    const test::directory here;
    const auto packed = [&](const std::string& bytes) { return test::contents(here.write_packed("member", bytes)); };
    const std::string all = three_images();
    check_content(
        small{here.write("images", packed(all.substr(0, 5)) + packed(all.substr(5, 20)) + packed(all.substr(25))),
              here.write("labels", three_labels())});
    const std::string path = here.write("images", packed(all) + "more");
    CHECK_THAT(test::error_of([&] {
                   small{path, here.write("labels", three_labels())};
               }),
               Catch::Matchers::StartsWith("lockstep: \"" + path +
                                           "\" has 4 bytes after its packed content that are no further member; "));
}

TEST_CASE("data/idx: sizes that no number holds are an error", "[data]") {
    const test::directory here;
    const std::string path =
        here.write("huge", test::idx_bytes(0x804, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, ""));
    CHECK(test::error_of([&] {
              (void)read_idx<4>(path, {0xffffffff, 0xffffffff, 0xffffffff});
          }) == "lockstep: the header of \"" + path +
                    "\" promises 4294967295 images of 4294967295x4294967295x4294967295, more than 64 bits can count; "
                    "fetch or copy the file again");
}

TEST_CASE("data/idx: a file that was packed twice", "[data]") {
    const test::directory here;
    std::ifstream once{here.write_packed("once.gz", three_images()), std::ios::binary};
    const std::string twice = here.write_packed("twice.gz", {std::istreambuf_iterator<char>{once}, {}});
    CHECK_THAT(test::error_of([&] {
                   small{twice, here.write("labels", three_labels())};
               }),
               Catch::Matchers::EndsWith("; the file was packed twice: unpack it once with gzip -d"));
}

}  // namespace
}  // namespace lockstep::data
