// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Named arrays in one file (safetensors, huggingface.co/docs/safetensors): 8 bytes with the length of the header,
// little-endian, the header as JSON, then the numbers. The layout is known before anything is written.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/dtype.hpp"
#include "lockstep/files/json.hpp"
#include "lockstep/files/mapped_file.hpp"

namespace lockstep::files {

/// One array in row-major order. A shape without extents is one number.
struct tensor_entry {
    std::string name;
    dtype type = dtype::f32;
    std::vector<std::size_t> shape;
    std::uint64_t begin = 0;  ///< its first byte in the file
    std::uint64_t size = 0;   ///< bytes
};

/// Texts that a file holds beside its arrays, by name.
using text_pairs = std::vector<std::pair<std::string, std::string>>;

/// What a file holds and where: arrays in the order of their bytes.
struct safetensors_layout {
    /// Of the format.
    static constexpr std::size_t most_header_bytes = 100'000'000;
    /// More than other libraries have.
    static constexpr std::size_t most_extents = 64;

    std::vector<tensor_entry> tensors;
    text_pairs metadata;
    std::uint64_t file_size = 0;
    std::string head;  ///< the bytes that the file begins with, of a layout to be written

    /// Nothing where there is no such array. Cost: one comparison for each array.
    [[nodiscard]] const tensor_entry* find(std::string_view name) const noexcept;
};

/// Where these arrays will lie (`begin` and `size` are set here): larger types first, so that all are aligned, and in
/// the given order otherwise. `head` is a multiple of 8 bytes. A pure function: every rank may work it out and write
/// its own ranges. Throws core::error for a name that comes twice, "__metadata__" as a name, names that are no UTF-8,
/// and a header beyond the limits.
[[nodiscard, gnu::cold]] safetensors_layout lay_out_safetensors(std::vector<tensor_entry> tensors,
                                                                text_pairs metadata = {});

/// The layout of a file of `file_size` bytes, of which `begin` holds at least the header. All of it is checked: known
/// types, shapes that fit their ranges, ranges one after the other without a hole from the header to the end of the
/// file. Throws core::error with the file, the array and the remedy.
[[nodiscard, gnu::cold]] safetensors_layout parse_safetensors(std::span<const std::byte> begin, std::uint64_t file_size,
                                                              const std::string& path);

/// A file that is read, mapped: its arrays may be larger than memory.
class safetensors_file {
public:
    explicit safetensors_file(const std::string& path)
        : file_{path}, layout_{parse_safetensors(file_.bytes(), file_.bytes().size(), path)} {}

    [[nodiscard]] const safetensors_layout& layout() const noexcept { return layout_; }
    /// Throws core::error with the names that there are.
    [[nodiscard]] const tensor_entry& at(std::string_view name) const;
    /// The numbers of an array as they lie in the file, at any address.
    [[nodiscard]] std::span<const std::byte> bytes(const tensor_entry& tensor) const noexcept {
        return file_.bytes().subspan(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.size));
    }
    /// Copies an array of this shape and of type T. Throws core::error where it has another shape or type.
    template <class T>
    void read(std::string_view name, std::span<const std::size_t> shape, std::span<T> to) const {
        const auto from = bytes(require(name, dtype_of<T>, shape, to.size()));
        if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    }

private:
    [[nodiscard, gnu::cold]] const tensor_entry& require(std::string_view name, dtype type,
                                                         std::span<const std::size_t> shape, std::size_t room) const;

    mapped_file file_;
    safetensors_layout layout_;
};

/// An array to be written: name, type and shape of `entry`, and its numbers.
struct tensor_bytes {
    tensor_entry entry;
    std::span<const std::byte> bytes;
};
template <class T>
[[nodiscard]] tensor_bytes tensor_of(std::string name, std::vector<std::size_t> shape, std::span<const T> numbers) {
    return {{std::move(name), dtype_of<T>, std::move(shape)}, std::as_bytes(numbers)};
}

/// Writes all of it. Throws core::error where numbers do not fit their shape, and where the file cannot be written.
[[gnu::cold]] void write_safetensors(const std::string& path, const std::vector<tensor_bytes>& tensors,
                                     text_pairs metadata = {});

#if LOCKSTEP_BODIES

namespace detail {

/// Members of the header, in the order of the file.
class safetensors_parser {
public:
    safetensors_parser(std::string_view header, std::uint64_t data_size, const std::string& path)
        : in_{header, core::text("the header of \"", path, "\""), prefix},
          data_begin_{prefix + header.size()},
          data_size_{data_size},
          path_{path} {}

    safetensors_layout run() {
        safetensors_layout out;
        bool has_metadata = false;
        in_.object([&](const std::string& name) {
            if (name != "__metadata__") return read_tensor(out.tensors.emplace_back(), name);
            if (std::exchange(has_metadata, true)) fail("has __metadata__ twice");
            in_.object([&](const std::string& key) { out.metadata.emplace_back(key, in_.string()); });
        });
        in_.end();
        check(out.tensors);
        out.file_size = data_begin_ + data_size_;
        return out;
    }

    static constexpr std::size_t prefix = 8;

private:
    [[noreturn]] void fail(std::string_view problem) const {
        core::fail(core::text("\"", path_, "\" ", problem), "fetch, copy or write the file again");
    }
    [[noreturn]] void fail(const tensor_entry& tensor, std::string_view problem) const {
        fail(core::text("has a tensor \"", core::excerpt(tensor.name), "\" ", problem));
    }

    /// A name that is not known is a newer type: that of a file which may be right.
    void read_type(tensor_entry& out) {
        const std::string name = in_.string();
        for (std::size_t i = 0; i < dtypes.size(); ++i)
            if (dtypes[i].safetensors == name) return void(out.type = static_cast<dtype>(i));
        std::string known;
        for (const auto& one : dtypes) known += core::text(known.empty() ? "" : ", ", one.safetensors);
        core::fail(core::text("\"", path_, "\" has a tensor \"", core::excerpt(out.name), "\" of type ",
                              core::excerpt(name), "; known are ", known),
                   "convert it to one of these types");
    }
    /// {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, members in any order, each once.
    void read_tensor(tensor_entry& out, const std::string& name) {
        out.name = name;
        std::uint64_t range[2] = {}, bytes = 0;
        std::size_t numbers = 0;
        bool seen[3] = {};
        in_.object([&](const std::string& key) {
            const int which = key == "dtype" ? 0 : key == "shape" ? 1 : key == "data_offsets" ? 2 : 3;
            if (which == 3 || std::exchange(seen[which], true))
                fail(out, core::text(which == 3 ? "with a member \"" : "with two members \"", core::excerpt(key),
                                     "\", which the format does not have"));
            if (which == 0) read_type(out);
            if (which == 1)
                in_.array([&] {
                    if (out.shape.size() == safetensors_layout::most_extents)
                        fail(out, core::text("of more than ", safetensors_layout::most_extents, " extents"));
                    out.shape.push_back(in_.natural());
                });
            if (which == 2)
                in_.array([&] {
                    if (numbers == 2) fail(out, "whose data_offsets are more than two numbers");
                    range[numbers++] = in_.natural();
                });
        });
        if (!seen[0] || !seen[1] || numbers != 2) fail(out, "without all of dtype, shape and two data_offsets");
        // What a header says of one array: its range has the bytes of its shape, and lies in the file.
        const bool fits = bytes_of(out.shape, out.type, bytes);
        if (!fits || range[1] < range[0] || range[1] - range[0] != bytes)
            fail(out, core::text("of ", shape_text(out.shape), " ", name_of(out.type), ", ",
                                 fits ? core::text(bytes) : "more than 2^63", " bytes, in the range from ", range[0],
                                 " to ", range[1]));
        if (range[1] > data_size_)
            fail(out, core::text("in the range from ", range[0], " to ", range[1], ", but holds ", data_size_,
                                 " bytes of data"));
        out.begin = data_begin_ + range[0];
        out.size = bytes;
    }
    /// What it says of all together: names differ, and ranges cover the data, each byte once.
    void check(std::vector<tensor_entry>& tensors) const {
        core::sort(tensors, [](const tensor_entry& a, const tensor_entry& b) { return a.name < b.name; });
        for (std::size_t i = 1; i < tensors.size(); ++i)
            if (tensors[i].name == tensors[i - 1].name) fail(tensors[i], "twice");
        // Arrays of no bytes lie before the one that begins there; the name decides between equals.
        core::sort(tensors, [](const tensor_entry& a, const tensor_entry& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.size != b.size ? a.size < b.size : a.name < b.name;
        });
        std::uint64_t next = data_begin_;
        for (const tensor_entry& one : tensors) {
            if (one.begin != next)
                fail(one, core::text("that begins at byte ", one.begin, " of the file, where ",
                                     one.begin < next ? "another one lies" : "a hole ends", ": expected ", next));
            next += one.size;
        }
        if (const std::uint64_t more = data_begin_ + data_size_ - next; more > 0)
            fail(core::text("has ", more, more == 1 ? " byte" : " bytes", " after its last tensor, which ends at byte ",
                            next));
    }

    json_reader in_;
    std::uint64_t data_begin_, data_size_;
    const std::string& path_;
};

}  // namespace detail

LOCKSTEP_FUNCTION const tensor_entry* safetensors_layout::find(std::string_view name) const noexcept {
    const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const auto& one) { return one.name == name; });
    return at == tensors.end() ? nullptr : &*at;
}

LOCKSTEP_FUNCTION safetensors_layout lay_out_safetensors(std::vector<tensor_entry> tensors, text_pairs metadata) {
    const auto fail = [](const tensor_entry& one, std::string_view problem, std::string_view remedy) {
        core::fail(core::text("a safetensors file was to hold a tensor \"", core::excerpt(one.name), "\" ", problem),
                   remedy);
    };
    safetensors_layout out;
    // Each size is a multiple of the next one: after whole numbers of 8 bytes those of 4 are aligned, and so on.
    for (const std::size_t size : {8U, 4U, 2U, 1U})
        for (tensor_entry& one : tensors)
            if (size_of(one.type) == size) out.tensors.push_back(std::move(one));
    std::vector<const tensor_entry*> by_name;
    json_writer header;
    header.begin_object();
    if (!metadata.empty()) {
        header.key("__metadata__").begin_object();
        for (const auto& [key, value] : metadata) header.key(key).value(value);
        header.end_object();
    }
    std::uint64_t end = 0;
    for (tensor_entry& one : out.tensors) {
        if (one.name == "__metadata__") fail(one, ", a name that the format keeps for texts", "use another name");
        one.begin = end;
        if (!bytes_of(one.shape, one.type, one.size) || __builtin_add_overflow(end, one.size, &end) || end > INT64_MAX)
            fail(one, core::text("of ", shape_text(one.shape), ", which ends beyond 2^63 bytes"), "use smaller shapes");
        if (one.shape.size() > safetensors_layout::most_extents)
            fail(one, core::text("of ", one.shape.size(), " extents"), "use fewer");
        header.key(one.name).begin_object().key("dtype").value(name_of(one.type)).key("shape").begin_array();
        for (const std::size_t extent : one.shape) header.value(extent);
        header.end_array().key("data_offsets").begin_array().value(one.begin).value(end).end_array().end_object();
        by_name.push_back(&one);
    }
    header.end_object();
    core::sort(by_name, [](const auto* a, const auto* b) { return a->name < b->name; });
    for (std::size_t i = 1; i < by_name.size(); ++i)
        if (by_name[i]->name == by_name[i - 1]->name) fail(*by_name[i], "twice", "give each tensor a name of its own");

    // The format allows blanks at the end of the header, so that the first array is aligned.
    std::string text = header.text();
    text.append((8 - text.size() % 8) % 8, ' ');
    if (text.size() > safetensors_layout::most_header_bytes)
        core::fail(core::text("the header of a safetensors file with ", out.tensors.size(), " tensors takes ",
                              text.size(), " bytes, the format allows ", safetensors_layout::most_header_bytes),
                   "use fewer tensors or shorter names");
    for (int shift = 0; shift < 64; shift += 8)
        out.head += static_cast<char>(std::uint64_t{text.size()} >> shift & 255);
    out.head += text;
    for (tensor_entry& one : out.tensors) one.begin += out.head.size();
    out.file_size = out.head.size() + end;
    out.metadata = std::move(metadata);
    return out;
}

LOCKSTEP_FUNCTION safetensors_layout parse_safetensors(std::span<const std::byte> begin, std::uint64_t file_size,
                                                       const std::string& path) {
    constexpr std::size_t prefix = detail::safetensors_parser::prefix;
    const auto fail = [&](std::string_view problem) {
        core::fail(core::text("\"", path, "\" ", problem), "pass a .safetensors file, or fetch or copy it again");
    };
    // Nothing is believed before it is compared with the bytes that are there.
    std::uint64_t length = 0;
    if (begin.size() < prefix) fail(core::text("has ", file_size, " bytes, the length of its header alone takes 8"));
    std::memcpy(&length, begin.data(), prefix);
    if (length > safetensors_layout::most_header_bytes)
        fail(core::text("has a header of ", length, " bytes, the format allows ",
                        safetensors_layout::most_header_bytes));
    if (length > file_size - prefix || length > begin.size() - prefix)
        fail(core::text("has ", file_size, " bytes, its header alone takes 8 + ", length));
    const std::string_view header{reinterpret_cast<const char*>(begin.data()) + prefix,
                                  static_cast<std::size_t>(length)};
    if (!header.starts_with('{'))
        fail(core::text("has a header that does not begin with {: \"", core::excerpt(header.substr(0, 16)), "\""));
    return detail::safetensors_parser{header, file_size - prefix - length, path}.run();
}

LOCKSTEP_FUNCTION const tensor_entry& safetensors_file::at(std::string_view name) const {
    if (const tensor_entry* const found = layout_.find(name)) return *found;
    std::string names;
    for (std::size_t i = 0; i < layout_.tensors.size() && names.size() < 1000; ++i)
        names += core::text(i == 0 ? "" : ", ", layout_.tensors[i].name);
    core::fail(core::text("\"", file_.path(), "\" has no tensor \"", name, "\""),
               core::text("it has ", layout_.tensors.size(), ": ", names));
}

LOCKSTEP_FUNCTION const tensor_entry& safetensors_file::require(std::string_view name, dtype type,
                                                                std::span<const std::size_t> shape,
                                                                std::size_t room) const {
    const tensor_entry& found = at(name);
    if (found.type != type || !std::ranges::equal(found.shape, shape) || found.size != room * size_of(type))
        core::fail(core::text("tensor \"", name, "\" of \"", file_.path(), "\" is ", shape_text(found.shape), " ",
                              name_of(found.type), ", asked for was ", shape_text(shape), " ", name_of(type),
                              " with room for ", room, " numbers"),
                   found.type != type && found.type != dtype::f32 && found.type != dtype::f64
                       ? "convert it to F32 or F64, as with .float() in PyTorch"
                   : found.type != type && std::ranges::equal(found.shape, shape)
                       ? "read it in the precision of the file (predictor<Net, double>, .precision = real<double>{}), "
                         "or write it again in the other one"
                       : "read it into another network or array, or write the file again");
    return found;
}

LOCKSTEP_FUNCTION void write_safetensors(const std::string& path, const std::vector<tensor_bytes>& tensors,
                                         text_pairs metadata) {
    std::vector<tensor_entry> entries;
    for (const tensor_bytes& one : tensors) {
        std::uint64_t bytes = 0;
        if (!bytes_of(one.entry.shape, one.entry.type, bytes) || bytes != one.bytes.size())
            core::fail(core::text("tensor \"", one.entry.name, "\" of ", shape_text(one.entry.shape), " ",
                                  name_of(one.entry.type), " comes with ", one.bytes.size(), " bytes"),
                       "pass as many numbers as its shape says");
        entries.push_back(one.entry);
    }
    // The layout has another order than the caller: each array is looked up by its name, which is its own by now.
    const safetensors_layout layout = lay_out_safetensors(std::move(entries), std::move(metadata));
    core::output_file out;
    out.open(path);
    out.write(layout.head);
    for (const tensor_entry& next : layout.tensors)
        for (const tensor_bytes& one : tensors)
            if (one.entry.name == next.name)
                out.write({reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size()});
    out.close();
}

#endif

}  // namespace lockstep::files
