// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Images and labels in IDX files (the format of MNIST and of its many relatives); a model of Dataset.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/concept.hpp"
#include "lockstep/data/gzip.hpp"

namespace lockstep::data {

/// An IDX file of unsigned bytes: a magic number 0x0000080D, D big-endian extents of 32 bits, then the bytes in
/// row-major order.
template <std::size_t Dimensions>
struct idx_file {
    static constexpr std::uint32_t magic = 0x00000800 + Dimensions;
    static constexpr std::size_t header = 4 + 4 * Dimensions;

    std::string path;
    std::array<std::size_t, Dimensions> extents{};
    std::vector<std::byte> bytes;  // without the header

    [[nodiscard]] std::span<const std::byte> content() const noexcept { return bytes; }
};

namespace detail {

inline constexpr std::uint32_t images_magic = idx_file<3>::magic;
inline constexpr std::uint32_t labels_magic = idx_file<1>::magic;

[[nodiscard]] inline std::uint32_t big_endian(std::span<const std::byte> bytes, std::size_t at) noexcept {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < 4; ++i) out = (out << 8) | std::to_integer<std::uint32_t>(bytes[at + i]);
    return out;
}

[[nodiscard]] std::string hexadecimal(std::uint32_t value);

[[nodiscard]] inline std::string wrong_magic_remedy(std::uint32_t found, std::uint32_t expected) {
    if (found == labels_magic && expected == images_magic)
        return "this is a file of labels: swap the paths of images and labels";
    if (found == images_magic && expected == labels_magic)
        return "this is a file of images: swap the paths of images and labels";
    if ((found >> 16) == 0x1f8b) return "the file was packed twice: unpack it once with gzip -d";
    return "pass an IDX file of unsigned bytes, plain or packed by gzip";
}

}  // namespace detail

/// Reads the header, then at most the bytes that it promises: the file has to end there. Sample extents (all but the
/// first) must be `wanted`. Throws core::error for a wrong magic number, other extents, and a file shorter or longer
/// than its header says.
template <std::size_t Dimensions>
[[nodiscard]] idx_file<Dimensions> read_idx(const std::string& path, std::array<std::size_t, Dimensions - 1> wanted) {
    using file = idx_file<Dimensions>;
    file out{path, {}, {}};
    packed_file from{path};
    const auto fail_length = [&](std::string_view how, std::string_view what, std::uint64_t expected) {
        core::fail(core::text("\"", path, "\" has ", from.length(), " bytes", how, what, expected, " bytes"),
                   "fetch or copy the file again");
    };

    std::array<std::byte, file::header> head;
    const std::size_t got = from.read(head);
    if (got < 4) fail_length(", too few: ", "its magic number alone takes ", 4);
    const std::uint32_t found = detail::big_endian(head, 0);
    if (found != file::magic)
        core::fail(core::text("\"", path, "\" starts with the magic number ", detail::hexadecimal(found), ", expected ",
                              detail::hexadecimal(file::magic),
                              file::magic == detail::labels_magic ? " (labels)" : " (images)"),
                   detail::wrong_magic_remedy(found, file::magic));
    if (got < file::header) fail_length(", too few: ", "its header alone takes ", file::header);

    for (std::size_t d = 0; d < Dimensions; ++d) out.extents[d] = detail::big_endian(head, 4 + 4 * d);
    std::string is, should;
    std::uint64_t length = out.extents[0];
    bool fits = true;  // into the numbers that count bytes
    for (std::size_t d = 1; d < Dimensions; ++d) {
        is += core::text(d == 1 ? "" : "x", out.extents[d]);
        should += core::text(d == 1 ? "" : "x", wanted[d - 1]);
        fits = fits && !__builtin_mul_overflow(length, std::uint64_t{wanted[d - 1]}, &length);
    }
    if (is != should)
        core::fail(core::text("\"", path, "\" holds images of ", is, ", the data set is declared as ", should),
                   core::text("declare the data set and the network's input as ", is, ", or pass other files"));
    std::uint64_t whole = 0;
    if (!fits || __builtin_add_overflow(length, std::uint64_t{file::header}, &whole) ||
        whole > std::numeric_limits<std::size_t>::max())
        core::fail(core::text("the header of \"", path, "\" promises ", out.extents[0], " images of ", is,
                              ", more than 64 bits can count"),
                   "fetch or copy the file again");
    if (!from.is_packed() && from.size() < whole) fail_length(", too few: ", "its header promises ", whole);
    out.bytes = from.read_up_to(length);
    if (out.bytes.size() < length) fail_length(", too few: ", "its header promises ", whole);
    if (std::byte further[1]; from.read(further) > 0) fail_length(", too many: ", "its header promises ", whole);
    return out;
}

/// Images of Rows x Columns bytes and one label each from a pair of IDX files. Copies share the bytes.
/// A pixel is read as (byte / 255 - mean) / deviation. Throws core::error at construction for whatever is wrong with
/// the files.
template <std::size_t Rows, std::size_t Columns, std::size_t Classes>
class idx {
public:
    using sample = tensor::shape<Rows, Columns, 1>;
    using label = tensor::classes<Classes>;

    float mean = 0;
    float deviation = 1;

    idx(const std::string& images, const std::string& labels)
        : images_{std::make_shared<const idx_file<3>>(read_idx<3>(images, {Rows, Columns}))},
          labels_{std::make_shared<const idx_file<1>>(read_idx<1>(labels, {}))} {
        if (images_->extents[0] != labels_->extents[0])
            core::fail(core::text("\"", images, "\" has ", images_->extents[0], " images, but \"", labels, "\" has ",
                                  labels_->extents[0], " labels"),
                       "pass two files of the same part: both of the training set, or both of the test set");
        const auto all = labels_->content();
        for (std::size_t i = 0; i < all.size(); ++i)
            if (std::to_integer<std::size_t>(all[i]) >= Classes)
                core::fail(core::text("label ", i, " of \"", labels, "\" is ", std::to_integer<int>(all[i]),
                                      ", allowed are 0 to ", Classes - 1),
                           tensor::label_remedy(std::to_integer<std::size_t>(all[i]), Classes,
                                                "declare the data set with more classes, or correct the file"));
        hash_ = core::hash(all, core::hash(images_->content()));
    }

    [[nodiscard]] std::size_t size() const noexcept { return images_->extents[0]; }
    [[nodiscard]] std::string name() const { return core::text("\"", images_->path, "\""); }
    [[nodiscard]] std::string settings() const {
        return core::text("mean=", mean, " deviation=", deviation, " bytes=", core::hexadecimal(hash_));
    }
    void check() const { check_scaling(*this, mean, deviation); }

    template <class T>
    void read(std::span<const std::uint64_t> rows, tensor::batch<T, sample> x,
              std::span<tensor::label_element<label, T>> y) const {
        require_readable(*this, rows, x, y);
        const T scale = T{1} / (T{255} * static_cast<T>(deviation));
        const T shift = static_cast<T>(mean) / static_cast<T>(deviation);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::byte* from = images_->content().data() + rows[i] * sample::size;
            T* to = x.data + i * sample::size;
            for (std::size_t p = 0; p < sample::size; ++p)
                to[p] = static_cast<T>(std::to_integer<int>(from[p])) * scale - shift;
            y[i] = std::to_integer<std::int32_t>(labels_->content()[rows[i]]);
        }
    }

private:
    std::shared_ptr<const idx_file<3>> images_;
    std::shared_ptr<const idx_file<1>> labels_;
    std::uint64_t hash_ = 0;  // of both
};

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION std::string hexadecimal(std::uint32_t value) { return "0x" + core::hexadecimal(value).substr(8); }

}  // namespace detail

#endif

}  // namespace lockstep::data
