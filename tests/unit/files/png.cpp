// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/png.hpp"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

// A writer of PNG, from its description: chunks with a length and a checksum, rows packed by zlib.
std::string big_endian(std::size_t value) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
    return out;
}
std::string chunk(const std::string& name, const std::string& content) {
    const std::string all = name + content;
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size()));
    return big_endian(content.size()) + all + big_endian(sum);
}
std::string png_of(std::size_t rows, std::size_t columns, int bits, int colours, const std::string& lines,
                   const std::string& further = {}) {
    std::string packed(compressBound(lines.size()), '\0');
    uLongf size = packed.size();
    REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()),
                     lines.size()) == Z_OK);
    packed.resize(size);
    std::string header = big_endian(columns) + big_endian(rows);
    header += {static_cast<char>(bits), static_cast<char>(colours), '\0', '\0', '\0'};
    return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + further + chunk("IDAT", packed) + chunk("IEND", "");
}
std::string decode(const std::string& file, image_size size) {
    std::vector<std::uint8_t> out(size.rows * size.columns * size.channels);
    // At an address of its own, so that a sanitizer sees where it ends.
    const std::vector<char> bytes(file.begin(), file.end());
    const std::string error =
        test::error_of([&] { png().decode(std::as_bytes(std::span{bytes}), "x.png", size, out); });
    return error.empty() ? std::string{out.begin(), out.end()} : error;
}
std::string bytes(std::initializer_list<int> values) {
    std::string out;
    for (const int one : values) out += static_cast<char>(one);
    return out;
}

TEST_CASE("files/png: grey, colours, palettes and filters", "[files]") {
    // Each row begins with its filter: 0 none, 1 difference to the left, 2 difference to the row above.
    CHECK(decode(png_of(2, 3, 8, 0, bytes({0, 1, 2, 250, 2, 1, 1, 10})), {2, 3, 1}) == bytes({1, 2, 250, 2, 3, 4}));
    CHECK(decode(png_of(1, 2, 8, 2, bytes({1, 1, 2, 3, 10, 10, 10})), {1, 2, 3}) == bytes({1, 2, 3, 11, 12, 13}));
    CHECK(decode(png_of(1, 3, 8, 3, bytes({0, 1, 0, 1}), chunk("PLTE", bytes({1, 2, 3, 4, 5, 6}))), {1, 3, 3}) ==
          bytes({4, 5, 6, 1, 2, 3, 4, 5, 6}));
    // Numbers of 4 bits in two rows, the last pixel of which is the last colour.
    CHECK(decode(png_of(2, 3, 4, 3, bytes({0, 0x01, 0x20, 0, 0x21, 0x20}),
                        chunk("PLTE", bytes({1, 2, 3, 4, 5, 6, 7, 8, 9}))),
                 {2, 3, 3}) == bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9, 4, 5, 6, 7, 8, 9}));
    CHECK(decode(png_of(1, 3, 1, 0, bytes({0, 0xa0})), {1, 3, 1}) == bytes({255, 0, 255}));
    // A gamma changes no number.
    CHECK(decode(png_of(1, 2, 8, 0, bytes({0, 7, 9}), chunk("gAMA", big_endian(100'000))), {1, 2, 1}) == bytes({7, 9}));
    const std::string file = png_of(480, 640, 8, 2, std::string(480 * 1921, '\0'));
    CHECK(png().size(std::as_bytes(std::span{file}), "x") == image_size{480, 640, 3});
}

TEST_CASE("files/png: each thing that can be wrong has its message", "[files]") {
    const std::string good = png_of(1, 2, 8, 0, bytes({0, 7, 9}));
    const image_size size{1, 2, 1};
    CHECK(decode(good, {2, 1, 1}) ==
          "lockstep: \"x.png\" is a picture of 1x2x1, expected 2x1x1; bring all pictures to one size before");
    CHECK(decode("P5 1 1 255\nx", size).find("does not begin like a PNG file: \"P5 1 1 2\"") != std::string::npos);
    CHECK(decode(png_of(1, 2, 16, 0, std::string(5, '\0')), size).find("has 16 bits for each channel") !=
          std::string::npos);
    CHECK(decode(png_of(1, 2, 8, 4, std::string(5, '\0')), size).find("transparency") != std::string::npos);
    CHECK(decode(png_of(1, 2, 8, 0, bytes({0, 7, 9}), chunk("tRNS", bytes({0, 7}))), size)
              .find("transparent pixels (tRNS)); remove it, as with magick ") != std::string::npos);
    CHECK(decode(png_of(1, 3, 8, 3, bytes({0, 1, 2, 0}), chunk("PLTE", bytes({1, 2, 3, 4, 5, 6}))), {1, 3, 3})
              .find("(a pixel has colour 2 of a palette of 2)") != std::string::npos);
    CHECK(decode(png_of(1, 3, 8, 3, bytes({0, 0, 0, 0})), {1, 3, 3}).starts_with("lockstep: \"x.png\" "));
    // A damaged chunk of transparency is not passed over.
    std::string damaged = png_of(1, 2, 8, 0, bytes({0, 7, 9}), chunk("tRNS", bytes({0, 7})));
    damaged[damaged.find("tRNS") + 5] = 8;
    CHECK(decode(damaged, size).starts_with("lockstep: \"x.png\" "));
    // Nor are more pixels than it has, or transparency in a wrong place; a profile of colours says nothing of the file.
    CHECK(decode(png_of(1, 2, 8, 0, bytes({0, 7, 9, 1, 1, 1})), size).find("(libpng: IDAT: ") != std::string::npos);
    std::string late = good;
    late.insert(late.size() - 12, chunk("tRNS", bytes({0, 7})));
    CHECK(decode(late, size).find("(libpng: tRNS: ") != std::string::npos);
    CHECK(decode(png_of(1, 2, 8, 0, bytes({0, 7, 9}), chunk("iCCP", "no profile")), size) == bytes({7, 9}));
    CHECK(decode(good + "more", size) == bytes({7, 9}));
    // No part of a file is a picture, nor is one with a bit changed in what has a checksum.
    for (std::size_t end = 0; end < good.size(); ++end)
        CHECK(decode(good.substr(0, end), size).starts_with("lockstep: \"x.png\" "));
    for (std::size_t bit = 8 * 16; bit < 8 * good.size(); ++bit) {
        std::string changed = good;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        const std::string found = decode(changed, size);
        if (!found.starts_with("lockstep: \"x.png\" ")) CHECK(found == bytes({7, 9}));
    }
}

}  // namespace
}  // namespace lockstep::files
