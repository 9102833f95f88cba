// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/image.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span{text}); }

/// Pixels, or what is wrong.
std::string decode(const std::string& file, image_size size) {
    std::vector<std::uint8_t> out(size.rows * size.columns * size.channels);
    const std::string error = test::error_of([&] { netpbm().decode(bytes(file), "x.ppm", size, out); });
    return error.empty() ? std::string{out.begin(), out.end()} : error;
}

TEST_CASE("files/image: binary PGM and PPM", "[files]") {
    CHECK(decode("P5 3 2 255\nabcdef", {2, 3, 1}) == "abcdef");
    CHECK(decode("P6\n# a comment\n1\t2 #another\n255 abcdef", {2, 1, 3}) == "abcdef");
    CHECK(decode("P5\r3\v2\f255\n\n#cdef", {2, 3, 1}) == "\n#cdef");
    CHECK(netpbm().size(bytes("P6 640 480 255\n"), "x") == image_size{480, 640, 3});
    for (const std::string part : {"P6", "P6 ", "P6 640 ", "P6 640 480 25", "P6 # 640"})
        CHECK(netpbm().size(bytes(part), "x").rows == 0);
}

TEST_CASE("files/image: each thing that can be wrong has its message", "[files]") {
    const std::string write = "; write it as a binary PGM or PPM file", again = "; fetch or copy the file again";
    const auto expect = [](const std::string& file, const std::string& message) {
        CHECK(decode(file, {2, 3, 1}) == "lockstep: \"x.ppm\" " + message);
    };
    expect("P5 3 2 255\nabcde", "has 5 bytes of pixels, its header promises 6" + again);
    expect("P5 3 2 255\nabcdefg", "has 7 bytes of pixels, its header promises 6" + again);
    expect("P5 3 2", "ends inside of its header" + again);
    expect("P5 2 3 255\nabcdef", "is a picture of 3x2x1, expected 2x3x1; bring all pictures to one size before");
    expect("P6 3 2 255\nabcdef",
           "is a picture of 2x3x3, expected 2x3x1; store all pictures as grey (1) or all as colours (3)");
    expect("P2 3 2 255\n",
           "does not begin like a binary PGM or PPM file: \"P2 3 2 2\"; store pictures as P5 or P6 (\"magick in.png "
           "-depth 8 out.ppm\"), or name another decoder");
    const std::string expected = ", expected the width, the height and the largest value, 255" + write;
    expect("P5 x 2 255\n", "has \"x 2 255\\n\" at byte 3" + expected);
    expect("P53 2 255\n", "has \"3 2 255\\n\" at byte 2" + expected);
    expect("P5 0 2 255\n", "has \"0 2 255\\n\" at byte 3" + expected);
    expect("P5 -3 2 255\n", "has \"-3 2 255\" at byte 3" + expected);
    expect("P5 99999999999999999999 2 255\n", "has \"99999999\" at byte 3" + expected);
    expect("P5 3 2 65535\n", "has values up to 65535, expected 255; store it with 8 bits for each channel");
    expect("P5 3 2 255abcdef", "has no white space at byte 10, where its header ends; write it again");
}

}  // namespace
}  // namespace lockstep::files
