// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/jpeg.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/image_folder.hpp"
#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

/// A picture whose blocks of 8 x 8 pixels have one colour each: with a table of ones, JPEG loses nothing of grey.
std::vector<std::uint8_t> blocks(image_size size) {
    std::vector<std::uint8_t> out;
    for (std::size_t r = 0; r < size.rows; ++r)
        for (std::size_t c = 0; c < size.columns; ++c)
            for (std::size_t k = 0; k < size.channels; ++k)
                out.push_back(static_cast<std::uint8_t>(20 + 31 * (r / 8) + 50 * (c / 8) + 7 * k));
    return out;
}
std::string jpeg_of(image_size size, bool progressive = false) {
    auto pixels = blocks(size);
    jpeg_compress_struct to;
    jpeg_error_mgr errors;
    to.err = jpeg_std_error(&errors);
    jpeg_create_compress(&to);
    unsigned char* bytes = nullptr;
    unsigned long length = 0;
    jpeg_mem_dest(&to, &bytes, &length);
    to.image_height = static_cast<JDIMENSION>(size.rows);
    to.image_width = static_cast<JDIMENSION>(size.columns);
    to.input_components = static_cast<int>(size.channels);
    to.in_color_space = size.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&to);
    jpeg_set_quality(&to, 100, TRUE);
    to.comp_info[0].h_samp_factor = to.comp_info[0].v_samp_factor = 1;  // a colour for each pixel
    if (progressive) jpeg_simple_progression(&to);
    jpeg_start_compress(&to, TRUE);
    while (to.next_scanline < to.image_height) {
        JSAMPROW row = pixels.data() + to.next_scanline * size.columns * size.channels;
        (void)jpeg_write_scanlines(&to, &row, 1);
    }
    jpeg_finish_compress(&to);
    std::string out{reinterpret_cast<const char*>(bytes), length};
    jpeg_destroy_compress(&to);
    std::free(bytes);
    return out;
}
std::string decode(const std::string& file, image_size size, std::vector<std::uint8_t>& out) {
    out.assign(size.rows * size.columns * size.channels, 0);
    const std::vector<char> bytes(file.begin(), file.end());  // a sanitizer sees where it ends
    return test::error_of([&] { jpeg().decode(std::as_bytes(std::span{bytes}), "x.jpg", size, out); });
}

TEST_CASE("files/jpeg: grey and colours, baseline and progressive", "[files]") {
    std::vector<std::uint8_t> found;
    for (const bool progressive : {false, true}) {
        const image_size grey{19, 21, 1}, colours{24, 40, 3};
        CHECK(decode(jpeg_of(grey, progressive), grey, found).empty());
        CHECK(found == blocks(grey));
        CHECK(decode(jpeg_of(colours, progressive), colours, found).empty());
        const auto right = blocks(colours);
        // Y, Cb and Cr are rounded, then what is made of them: 1/2 (1 + 1.772) + 1/2 at most.
        int wrong = 0;
        for (std::size_t i = 0; i < right.size(); ++i) wrong += std::abs(found[i] - right[i]) > 1;
        CHECK(wrong == 0);
    }
    const std::string file = jpeg_of({48, 64, 3});
    CHECK(jpeg().size(std::as_bytes(std::span{file}), "x") == image_size{48, 64, 3});
    CHECK(jpeg().size(std::as_bytes(std::span{file}.first(20)), "x") == image_size{});
}

TEST_CASE("files/jpeg: the size after a profile or a preview", "[files]") {
    std::string file = jpeg_of({48, 64, 3});
    const std::string segment = std::string{"\xff\xe2\xff\xff"} + std::string(65'533, 'x');  // APP2, the longest
    for (int i = 0; i < 3; ++i) file.insert(2, segment);
    CHECK(jpeg().size(std::as_bytes(std::span{file}.first(4096)), "x") == image_size{});
    CHECK(jpeg().size(std::as_bytes(std::span{file}.first(3 * segment.size())), "x") == image_size{});
    CHECK(jpeg().size(std::as_bytes(std::span{file}.first(file.size() / 256 * 256)), "x") == image_size{48, 64, 3});

    const test::directory here;
    std::filesystem::create_directory(here / "cat");
    here.write("cat/1.jpg", file);
    const auto error = [&]<std::size_t Rows>(tensor::shape<Rows, 64, 3>) {
        return test::error_of([&] {
            data::image_folder<tensor::shape<Rows, 64, 3>, tensor::classes<1>>{here / "", {.decoders = {jpeg()}}};
        });
    };
    CHECK(error(tensor::shape<48, 64, 3>{}).empty());
    CHECK(error(tensor::shape<40, 64, 3>{}) ==
          "lockstep: \"" + here / "" +
              "/cat/1.jpg\" is a picture of 48x64x3, expected 40x64x3; bring all pictures to one size before");
}

TEST_CASE("files/jpeg: each thing that can be wrong has its message", "[files]") {
    const image_size size{16, 16, 1};
    const std::string good = jpeg_of(size);
    std::vector<std::uint8_t> found;
    CHECK(decode(good, {16, 8, 1}, found) ==
          "lockstep: \"x.jpg\" is a picture of 16x16x1, expected 16x8x1; bring all pictures to one size before");
    CHECK(decode("GIF89a..", size, found).find("does not begin like a JPEG file: \"GIF89a..\"") != std::string::npos);
    CHECK(test::error_of([] { (void)jpeg().size({}, "x.jpg"); }).find("does not begin like a JPEG file: \"\"") !=
          std::string::npos);
    for (std::size_t end = 0; end + 2 < good.size(); ++end) {
        INFO(end);
        CHECK(decode(good.substr(0, end), size, found).starts_with("lockstep: \"x.jpg\" "));
    }
    for (std::size_t bit = 24; bit < 8 * good.size(); ++bit) {  // any picture, or an error of ours
        std::string changed = good;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        const std::string error = decode(changed, size, found);
        CHECK((error.empty() || error.starts_with("lockstep: \"x.jpg\" ")));
    }
}

}  // namespace
}  // namespace lockstep::files
