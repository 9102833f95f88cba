// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pictures in JPEG files, through libjpeg: the only header that includes it. Programs link lockstep::jpeg (CMake) or
// -ljpeg.

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <jpeglib.h>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/image.hpp"

namespace lockstep::files {

namespace detail {

/// What libjpeg calls back, and what it has said at the end. `base` comes first: libjpeg knows this by its address.
struct jpeg_state {
    jpeg_error_mgr base;
    std::jmp_buf back;
    std::array<char, JMSG_LENGTH_MAX> message;
    image_size size;

    [[noreturn]] static void fail(j_common_ptr jpeg) {
        auto& state = *reinterpret_cast<jpeg_state*>(jpeg->err);
        jpeg->err->format_message(jpeg, state.message.data());
        std::longjmp(state.back, 1);
    }
    /// A warning is what other programs print and forget: the pixels are not those that were stored.
    static void warn(j_common_ptr jpeg, int level) {
        if (level < 0) fail(jpeg);
    }
};

/// The size, and with `to` the pixels where the size is the expected one; false: state.message says why not. Nothing
/// here has a destructor: libjpeg leaves by longjmp.
[[nodiscard]] inline bool read_jpeg(jpeg_state& state, std::span<const std::byte> file, image_size expected,
                                    std::uint8_t* to) {
    jpeg_decompress_struct jpeg;
    jpeg.err = jpeg_std_error(&state.base);
    state.base.error_exit = jpeg_state::fail;
    state.base.emit_message = jpeg_state::warn;
    if (setjmp(state.back) != 0) {
        jpeg_destroy_decompress(&jpeg);
        return false;
    }
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
    (void)jpeg_read_header(&jpeg, TRUE);
    state.size = {jpeg.image_height, jpeg.image_width, static_cast<std::size_t>(jpeg.num_components)};
    if (to != nullptr && state.size == expected) {
        jpeg.out_color_space = jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg.dct_method = JDCT_ISLOW;  // the same bits with any vector unit
        (void)jpeg_start_decompress(&jpeg);
        while (jpeg.output_scanline < jpeg.output_height) {
            JSAMPROW row = to + jpeg.output_scanline * expected.columns * expected.channels;
            (void)jpeg_read_scanlines(&jpeg, &row, 1);
        }
        (void)jpeg_finish_decompress(&jpeg);
    }
    jpeg_destroy_decompress(&jpeg);
    return true;
}

[[nodiscard]] inline bool begins_like_jpeg(std::span<const std::byte> begin) noexcept {
    return begin.size() >= 3 && begin[0] == std::byte{0xff} && begin[1] == std::byte{0xd8} &&
           begin[2] == std::byte{0xff};
}

[[noreturn]] inline void fail_jpeg_start(std::span<const std::byte> begin, const std::string& path) {
    const std::string_view text{reinterpret_cast<const char*>(begin.data()), std::min<std::size_t>(begin.size(), 8)};
    core::fail(core::text("\"", path, "\" does not begin like a JPEG file: \"", core::excerpt(text), "\""),
               "look whether it is a picture of another format");
}

}  // namespace detail

/// JPEG, baseline or progressive, grey or in colours. Damaged files are an error, also those of which other programs
/// make a picture with a warning; but a progressive one may leave scans out. What follows the end of the picture is not
/// read.
[[nodiscard]] inline image_decoder jpeg() {
    return {
        {".jpg", ".jpeg"},
        [](std::span<const std::byte> begin, const std::string& path) {
            if (!detail::begins_like_jpeg(begin)) detail::fail_jpeg_start(begin, path);
            detail::jpeg_state state{};
            return detail::read_jpeg(state, begin, {}, nullptr) ? state.size : image_size{};  // it may lie further on
        },
        [](std::span<const std::byte> file, const std::string& path, image_size expected, std::span<std::uint8_t> to) {
            if (!detail::begins_like_jpeg(file)) detail::fail_jpeg_start(file, path);
            detail::jpeg_state state{};
            if (!detail::read_jpeg(state, file, expected, to.data()))
                core::fail(core::text("\"", path, "\" is no JPEG file that can be read (libjpeg: ",
                                      core::printable(state.message.data()), ")"),
                           "fetch or copy it again, or store it anew");
            require_size(path, state.size, expected);
        }};
}

}  // namespace lockstep::files
