// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pictures in files: what a decoder is, and the one without a dependency: binary PGM and PPM (Netpbm, P5 and P6).

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::files {

/// Channels: 1 is grey, 3 is red, green and blue.
struct image_size {
    std::size_t rows = 0, columns = 0, channels = 0;

    [[nodiscard]] std::string text() const { return core::text(rows, "x", columns, "x", channels); }
    friend bool operator==(const image_size&, const image_size&) = default;
};

/// Reads the pictures of one format. A value: a list of decoders says which formats a program reads.
struct image_decoder {
    std::vector<std::string_view> endings;  ///< of names of files, in small letters: ".ppm"
    /// The size, from the first bytes of a file; without rows where they do not tell it. Throws core::error for what is
    /// no such file.
    image_size (*size)(std::span<const std::byte> begin, const std::string& path);
    /// A byte for each channel of each pixel, rows x columns x channels. `to` has the room for `expected`, which is
    /// what the file must hold. Throws core::error for a file that is damaged or of another size.
    void (*decode)(std::span<const std::byte> file, const std::string& path, image_size expected,
                   std::span<std::uint8_t> to);
};

/// Throws core::error unless a file holds a picture of this size.
void require_size(const std::string& path, image_size found, image_size expected);

/// Binary PGM (P5) and PPM (P6) with 255 as the largest value: .pgm, .ppm and .pnm.
[[nodiscard]] image_decoder netpbm();

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void require_size(const std::string& path, image_size found, image_size expected) {
    if (found != expected)
        core::fail(core::text("\"", path, "\" is a picture of ", found.text(), ", expected ", expected.text()),
                   found.channels == expected.channels ? "bring all pictures to one size before"
                                                       : "store all pictures as grey (1) or all as colours (3)");
}

namespace detail {

/// The size, and where the pixels begin: at 0 where `begin` does not reach so far.
struct netpbm_header {
    image_size size;
    std::size_t begin = 0;
};

[[nodiscard]] LOCKSTEP_FUNCTION netpbm_header read_netpbm_header(std::span<const std::byte> begin,
                                                                 const std::string& path) {
    const std::string_view text{reinterpret_cast<const char*>(begin.data()), begin.size()};
    const auto fail = [&](std::string_view problem, std::string_view remedy) {
        core::fail(core::text("\"", path, "\" ", problem), remedy);
    };
    if (!text.starts_with("P5") && !text.starts_with("P6"))
        fail(core::text("does not begin like a binary PGM or PPM file: \"", core::excerpt(text.substr(0, 8)), "\""),
             "store pictures as P5 or P6 (\"magick in.png -depth 8 out.ppm\"), or name another decoder");
    constexpr std::string_view space = " \t\n\v\f\r";
    std::size_t at = 2, numbers[3] = {};
    for (std::size_t& number : numbers) {
        const std::size_t before = at;
        while (at < text.size() && (space.find(text[at]) != space.npos || text[at] == '#'))
            at = text[at] == '#' ? std::min(text.find('\n', at), text.size()) : at + 1;
        if (at == text.size()) return {};
        const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
        if (at == before || error != std::errc{} || number == 0 || number > 1U << 24)
            fail(core::text("has \"", core::excerpt(text.substr(at, 8)), "\" at byte ", at,
                            ", expected the width, the height and the largest value, 255"),
                 "write it as a binary PGM or PPM file");
        at = static_cast<std::size_t>(end - text.data());
        if (at == text.size()) return {};
    }
    if (numbers[2] != 255)
        fail(core::text("has values up to ", numbers[2], ", expected 255"), "store it with 8 bits for each channel");
    if (space.find(text[at]) == space.npos)
        fail(core::text("has no white space at byte ", at, ", where its header ends"), "write it again");
    return {{numbers[1], numbers[0], text[1] == '5' ? 1U : 3U}, at + 1};
}

}  // namespace detail

LOCKSTEP_FUNCTION image_decoder netpbm() {
    return {
        {".pgm", ".ppm", ".pnm"},
        [](std::span<const std::byte> begin, const std::string& path) {
            return detail::read_netpbm_header(begin, path).size;
        },
        [](std::span<const std::byte> file, const std::string& path, image_size expected, std::span<std::uint8_t> to) {
            const auto header = detail::read_netpbm_header(file, path);
            if (header.begin == 0)
                core::fail(core::text("\"", path, "\" ends inside of its header"), "fetch or copy the file again");
            require_size(path, header.size, expected);
            const std::size_t size = expected.rows * expected.columns * expected.channels;
            if (file.size() - header.begin != size || to.size() != size)
                core::fail(core::text("\"", path, "\" has ", file.size() - header.begin,
                                      " bytes of pixels, its header promises ", size),
                           "fetch or copy the file again");
            std::memcpy(to.data(), file.data() + header.begin, size);
        }};
}

#endif

}  // namespace lockstep::files
