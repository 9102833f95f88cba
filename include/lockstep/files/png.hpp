// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pictures in PNG files, through libpng: the only header that includes it. Programs link lockstep::png (CMake) or
// -lpng.

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/image.hpp"

namespace lockstep::files {

namespace detail {

/// What libpng calls back: bytes to give, and what it has said at the end.
struct png_state {
    const std::byte* at;
    std::size_t left;
    std::array<char, 160> message{};
    std::array<png_color, 256> palette{};
    int colours = 0;
    bool is_transparent = false;

    /// libpng is C: no exception may pass through it.
    [[noreturn]] static void fail(png_structp png, const char* why) {
        auto& state = *static_cast<png_state*>(png_get_error_ptr(png));
        std::strncpy(state.message.data(), why, state.message.size() - 1);
        png_longjmp(png, 1);
    }
    /// Of pixels and of transparency: the file is none that was stored so. Others, as of a profile of colours, are
    /// common.
    static void warn(png_structp png, const char* why) {
        const std::string_view chunk{why};
        const bool is_of_transparency = chunk.starts_with("tRNS");
        if (is_of_transparency) static_cast<png_state*>(png_get_error_ptr(png))->is_transparent = true;
        if (is_of_transparency || chunk.starts_with("IDAT")) fail(png, why);
    }
    /// The next bytes of the file.
    static void read(png_structp png, png_bytep to, std::size_t size) {
        auto& state = *static_cast<png_state*>(png_get_io_ptr(png));
        if (size > state.left) png_error(png, "it ends too early");
        std::memcpy(to, state.at, size);
        state.at += size;
        state.left -= size;
    }
};

/// The rows of a picture; false: state.message says why not. Nothing here has a destructor: libpng leaves by longjmp.
[[nodiscard]] inline bool read_png_rows(png_state& state, std::span<const png_bytep> rows, std::size_t row_bytes) {
    // Low-level calls: the simplified interface would apply a gamma that the file names.
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_state::fail, png_state::warn);
    png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
    if (info == nullptr) {
        png_destroy_read_struct(&png, nullptr, nullptr);
        std::strcpy(state.message.data(), "no memory");
        return false;
    }
    if (setjmp(png_jmpbuf(png)) != 0) {
        png_destroy_read_struct(&png, &info, nullptr);
        return false;
    }
    png_set_read_fn(png, &state, png_state::read);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);  // also of chunks beside the pixels
    png_set_chunk_cache_max(png, 1);  // texts, which may unpack to any size, are skipped
    png_read_info(png, info);
    state.is_transparent = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
    if (state.is_transparent) png_error(png, "it has transparent pixels (tRNS)");
    if (png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE) {
        // Numbers of colours: libpng would take those outside of the palette for black.
        png_colorp colours = nullptr;
        if (png_get_PLTE(png, info, &colours, &state.colours) == 0) png_error(png, "it has no palette");
        std::memcpy(state.palette.data(), colours, static_cast<std::size_t>(state.colours) * sizeof(png_color));
        png_set_packing(png);
    } else {
        png_set_expand(png);  // 1 to 4 bits of grey to 8
    }
    (void)png_set_interlace_handling(png);
    png_read_update_info(png, info);
    // `rows` has the room that the header promised; a file whose chunks say something else is not read.
    if (png_get_rowbytes(png, info) != row_bytes || png_get_image_height(png, info) != rows.size())
        png_error(png, "its rows have another size than its header says");
    png_read_image(png, const_cast<png_bytepp>(rows.data()));
    png_read_end(png, info);
    png_destroy_read_struct(&png, &info, nullptr);
    return true;
}

inline constexpr const char* without_alpha = "remove it, as with magick in.png -alpha off out.png";

/// From the first chunk, which lies at a fixed place: 16 bytes before it, then width, height, bits and colours.
[[nodiscard]] inline image_size png_size(std::span<const std::byte> begin, const std::string& path) {
    const auto fail = [&](std::string_view problem, std::string_view remedy) {
        core::fail(core::text("\"", path, "\" ", problem), remedy);
    };
    constexpr std::string_view start{"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16};
    const std::string_view text{reinterpret_cast<const char*>(begin.data()), begin.size()};
    if (!text.starts_with(start) || text.size() < 26)
        fail(core::text("does not begin like a PNG file: \"", core::excerpt(text.substr(0, 8)), "\""),
             "look whether it is a picture of another format");
    const auto number = [&](std::size_t at) {
        std::size_t out = 0;
        for (std::size_t i = 0; i < 4; ++i) out = 256 * out + std::to_integer<std::size_t>(begin[at + i]);
        return out;
    };
    const int bits = std::to_integer<int>(begin[24]), colours = std::to_integer<int>(begin[25]);
    if (bits > 8) fail(core::text("has ", bits, " bits for each channel"), "store it with 8");
    if (colours == 4 || colours == 6) fail("has a channel of transparency (alpha)", without_alpha);
    return {number(20), number(16), colours == 0 ? 1U : 3U};
}

}  // namespace detail

/// PNG with 8 bits or less for each channel, without transparency: grey, colours or a palette of colours. Pixels are
/// the numbers in the file: a gamma there is not applied. What follows the end of the picture is not read.
[[nodiscard]] inline image_decoder png() {
    return {
        {".png"},
        [](std::span<const std::byte> begin, const std::string& path) { return detail::png_size(begin, path); },
        [](std::span<const std::byte> file, const std::string& path, image_size expected, std::span<std::uint8_t> to) {
            require_size(path, detail::png_size(file, path), expected);
            detail::png_state state{file.data(), file.size()};
            const auto fail = [&](const std::string& why) {
                core::fail(core::text("\"", path, "\" is no PNG file that can be read (", why, ")"),
                           state.is_transparent ? detail::without_alpha : "fetch or copy it again, or store it anew");
            };
            const bool has_palette = file[25] == std::byte{PNG_COLOR_TYPE_PALETTE};
            const std::size_t row_bytes = expected.columns * (has_palette ? 1 : expected.channels);
            // Numbers of colours lie at the end, and become colours from the front.
            std::uint8_t* const first = to.data() + to.size() - expected.rows * row_bytes;
            std::vector<png_bytep> rows(expected.rows);
            for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = first + row * row_bytes;
            if (!detail::read_png_rows(state, rows, row_bytes))
                fail("libpng: " + core::printable(state.message.data()));
            for (std::size_t i = 0; has_palette && i < expected.rows * expected.columns; ++i) {
                const int number = first[i];
                if (number >= state.colours)
                    fail(core::text("a pixel has colour ", number, " of a palette of ", state.colours));
                const png_color& colour = state.palette[static_cast<std::size_t>(number)];
                const std::uint8_t three[3] = {colour.red, colour.green, colour.blue};
                std::copy_n(three, 3, to.data() + 3 * i);
            }
        }};
}

}  // namespace lockstep::files
