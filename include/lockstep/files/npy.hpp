// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arrays of NumPy (.npy, numpy.org/doc/stable/reference/generated/numpy.lib.format.html): versions 1, 2 and 3, in
// row-major order.

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/dtype.hpp"
#include "lockstep/files/mapped_file.hpp"

namespace lockstep::files {

/// What an .npy file says of itself. A shape without extents is one number.
struct npy_header {
    /// More than other libraries have.
    static constexpr std::size_t most_extents = 64;
    static constexpr std::size_t most_bytes = 65'536;

    dtype type = dtype::f32;
    std::vector<std::size_t> shape;
    std::size_t begin = 0;  ///< first byte of the numbers
    std::size_t size = 0;   ///< bytes of the numbers

    [[nodiscard]] std::size_t count() const noexcept { return size / size_of(type); }
};

/// The header of a file of `file_size` bytes, of which `begin` holds at least the header. Throws core::error for what
/// is no .npy file, types that are no numbers, big-endian numbers, column-major arrays of several extents, and a file
/// that is shorter or longer than its header says.
[[nodiscard, gnu::cold]] npy_header parse_npy(std::span<const std::byte> begin, std::uint64_t file_size,
                                              const std::string& path);

/// The bytes before the numbers, a multiple of 64 of them. Throws core::error for bf16, which NumPy does not have.
[[nodiscard, gnu::cold]] std::string npy_head(dtype type, std::span<const std::size_t> shape);

/// A file that is read, mapped: its numbers may be more than memory holds.
class npy_file {
public:
    explicit npy_file(const std::string& path)
        : file_{path}, header_{parse_npy(file_.bytes(), file_.bytes().size(), path)} {}

    [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
    [[nodiscard]] dtype type() const noexcept { return header_.type; }
    [[nodiscard]] const std::vector<std::size_t>& shape() const noexcept { return header_.shape; }
    [[nodiscard]] std::size_t count() const noexcept { return header_.count(); }
    /// The numbers as they lie in the file, at any address.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return file_.bytes().subspan(header_.begin, header_.size);
    }
    /// The numbers from `first` on, rounded to T; to an integral T from whole numbers only, as convert().
    template <class T>
    void read(std::size_t first, std::span<T> to) const {
        if (first > count() || to.size() > count() - first || (std::integral<T> && !about(type()).is_whole))
            core::fail(
                core::text("\"", path(), "\" has ", count(), " ", name_of(type()), "; asked for were ", to.size(),
                           std::integral<T> ? " whole numbers from " : " numbers from ", first, " on"),
                "read what is there, fractions into float or double");
        convert<T>(header_.type, bytes().data() + first * size_of(header_.type), to);
    }

    /// Hints for numbers that will be read soon, and for reads of rows anywhere (files/mapped_file.hpp).
    void read_ahead(std::size_t first, std::size_t count) const noexcept {
        file_.read_ahead(header_.begin + first * size_of(header_.type), count * size_of(header_.type));
    }
    void expect_random_reads() const noexcept { file_.expect_random_reads(); }

private:
    mapped_file file_;
    npy_header header_;
};

/// Writes numbers in row-major order. Throws core::error where they do not fit the shape, and where the file cannot be
/// written.
[[gnu::cold]] void write_npy(const std::string& path, dtype type, std::span<const std::size_t> shape,
                             std::span<const std::byte> numbers);
template <class T>
void write_npy(const std::string& path, std::span<const std::size_t> shape, std::span<const T> numbers) {
    write_npy(path, dtype_of<T>, shape, std::as_bytes(numbers));
}

#if LOCKSTEP_BODIES

namespace detail {

inline constexpr std::string_view npy_magic{"\x93NUMPY", 6};

/// The dictionary of Python in the header: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
class npy_parser {
public:
    npy_parser(std::string_view text, std::size_t first, const std::string& path)
        : text_{text}, first_{first}, path_{path} {}

    npy_header run() {
        npy_header out;
        bool seen[3] = {}, is_column_major = false;
        expect('{');
        while (!take('}')) {
            const std::string_view key = string();
            const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
            if (which == 3) fail(core::text("has the unknown key '", core::excerpt(key), "'"));
            if (std::exchange(seen[which], true)) fail(core::text("has the key '", key, "' twice"));
            expect(':');
            if (which == 0) out.type = type();
            if (which == 1) is_column_major = boolean();
            if (which == 2) out.shape = shape();
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        skip_space();
        if (at_ < text_.size()) fail_expected("the end of the header");
        if (!seen[0] || !seen[1] || !seen[2]) fail("has not all of 'descr', 'fortran_order' and 'shape'");
        // With one extent that is not 1, and for no numbers, both orders are the same.
        if (is_column_major && std::ranges::count(out.shape, 0) == 0 &&
            std::ranges::count_if(out.shape, [](std::size_t one) { return one != 1; }) > 1)
            core::fail(core::text("\"", path_, "\" holds ", shape_text(out.shape),
                                  " numbers in column-major order (fortran_order)"),
                       "store it in row-major order: numpy.save(path, numpy.ascontiguousarray(a))");
        return out;
    }

private:
    [[noreturn]] void fail(std::string_view problem) const {
        core::fail(core::text("the header of \"", path_, "\" ", problem),
                   "fetch or copy the file again, or write it with numpy.save");
    }
    [[noreturn]] void fail_expected(std::string_view what) const {
        const std::string_view found = text_.substr(at_, 16);
        fail(core::text("has ", found.empty() ? "no more" : core::text("\"", found, "\""), " at byte ", first_ + at_,
                        ", expected ", what));
    }
    /// As Python: blanks and ends of lines between tokens. There is no comment.
    void skip_space() noexcept {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    }
    [[nodiscard]] bool take(char letter) noexcept {
        skip_space();
        const bool found = at_ < text_.size() && text_[at_] == letter;
        at_ += found ? 1 : 0;
        return found;
    }
    void expect(char letter) {
        if (!take(letter)) fail_expected(core::text("'", letter, "'"));
    }
    /// In either quotes, as Python prints them; NumPy writes no escapes here.
    std::string_view string() {
        const char quote = take('"') ? '"' : '\'';
        if (quote == '\'') expect('\'');
        const std::size_t end = text_.find(quote, at_);
        if (end == text_.npos) fail_expected("a string that ends");
        return text_.substr(std::exchange(at_, end + 1), end - at_);
    }
    bool boolean() {
        skip_space();
        const bool out = text_.substr(at_).starts_with("True");
        if (!out && !text_.substr(at_).starts_with("False")) fail_expected("True or False");
        at_ += out ? 4 : 5;
        return out;
    }
    /// A tuple: (), (3,) or (3, 4).
    std::vector<std::size_t> shape() {
        std::vector<std::size_t> out;
        expect('(');
        while (!take(')')) {
            skip_space();
            std::size_t extent = 0;
            const char* const begin = text_.data() + at_;
            const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
            if (error != std::errc{}) fail_expected("an extent of 64 bits");
            if (out.size() == npy_header::most_extents)
                fail(core::text("has more than ", npy_header::most_extents, " extents"));
            out.push_back(extent);
            at_ += static_cast<std::size_t>(end - begin);
            const bool further = take(',');
            if (!further && out.size() == 1) fail_expected("','");  // (3) is a number of Python, no tuple
            if (further) continue;
            expect(')');
            break;
        }
        return out;
    }
    /// One letter for the order of bytes, one for the kind of number, digits for its bytes.
    dtype type() {
        skip_space();
        if (at_ < text_.size() && text_[at_] == '[')
            core::fail(core::text("\"", path_, "\" is an array of records"), "store each field in a file of its own");
        const std::string_view name = string();
        const char order = name.empty() ? ' ' : name.front();
        for (std::size_t i = 0; i < dtypes.size(); ++i) {
            if (dtypes[i].npy.empty() || name.substr(std::min<std::size_t>(1, name.size())) != dtypes[i].npy) continue;
            if (order == '<' || order == '=' || order == '|' || (order == '>' && dtypes[i].size == 1))
                return static_cast<dtype>(i);
            if (order == '>')
                core::fail(core::text("\"", path_, "\" holds big-endian numbers ('", name, "')"),
                           core::text("store them as numpy.save(path, a.astype('<", dtypes[i].npy, "'))"));
        }
        core::fail(core::text("\"", path_, "\" holds elements of type '", core::excerpt(name), "'"),
                   "store numbers: bool, whole numbers of 8 to 64 bits, or floating-point numbers of 16 to 64 bits");
    }

    std::string_view text_;
    std::size_t first_, at_ = 0;
    const std::string& path_;
};

}  // namespace detail

LOCKSTEP_FUNCTION npy_header parse_npy(std::span<const std::byte> begin, std::uint64_t file_size,
                                       const std::string& path) {
    const std::string_view text{reinterpret_cast<const char*>(begin.data()), begin.size()};
    const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(begin[i]); };
    const auto fail = [&](std::string_view problem, std::string_view remedy = "fetch or copy the file again") {
        core::fail(core::text("\"", path, "\" ", problem), remedy);
    };
    if (!text.starts_with(detail::npy_magic))
        fail(
            core::text("does not begin like an .npy file: \"", core::excerpt(text.substr(0, 8)), "\""),
            text.starts_with("PK") ? "this is an archive of arrays (.npz): unpack it with unzip" : "pass an .npy file");
    const std::size_t version = text.size() < 8 ? 0 : byte(6), prefix = version == 1 ? 10 : 12;
    if (text.size() < prefix) fail(core::text("has ", file_size, " bytes, too few for a header"));
    if (version < 1 || version > 3 || byte(7) != 0)
        fail(core::text("has the format ", version, ".", byte(7), ", known are 1.0, 2.0 and 3.0"),
             "write it with numpy.save");
    // 16 bits in version 1, 32 bits later; little-endian whatever the numbers are.
    std::size_t length = byte(8) | byte(9) << 8;
    if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
    if (length > npy_header::most_bytes)
        fail(core::text("has a header of ", length, " bytes, the most are ", npy_header::most_bytes));
    if (text.size() < prefix + length)
        fail(core::text("has ", file_size, " bytes, its header alone takes ", prefix + length));
    npy_header out = detail::npy_parser{text.substr(prefix, length), prefix, path}.run();
    out.begin = prefix + length;
    // The file has to end where its numbers do: what follows could be a second array, which nobody would read.
    std::uint64_t size = 0;
    if (!bytes_of(out.shape, out.type, size) || size != file_size - out.begin)
        fail(core::text("has ", file_size - out.begin, " bytes of numbers, its header promises ", shape_text(out.shape),
                        " numbers of ", size_of(out.type), " bytes"));
    out.size = static_cast<std::size_t>(size);
    return out;
}

LOCKSTEP_FUNCTION std::string npy_head(dtype type, std::span<const std::size_t> shape) {
    if (about(type).npy.empty())
        core::fail(core::text("NumPy has no ", name_of(type)), "convert the numbers to float, or write safetensors");
    std::string text = core::text("{'descr': '", size_of(type) == 1 ? "|" : "<", about(type).npy,
                                  "', 'fortran_order': False, 'shape': (");
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += core::text(i == 0 ? "" : " ", shape[i], i == 0 || i + 1 < shape.size() ? "," : "");
    text += "), }";
    constexpr std::size_t prefix = 10;  // at most npy_header::most_extents extents: version 1 has room
    if (shape.size() > npy_header::most_extents)
        core::fail(core::text("an array of ", shape.size(), " extents was to be written, the most are ",
                              npy_header::most_extents),
                   "use fewer extents");
    // Numbers begin at a multiple of 64 bytes, with an end of line before them, as NumPy writes.
    text.append(63 - (prefix + text.size()) % 64, ' ');
    text += '\n';
    std::string out{detail::npy_magic};
    out += {'\1', '\0', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
    return out + text;
}

LOCKSTEP_FUNCTION void write_npy(const std::string& path, dtype type, std::span<const std::size_t> shape,
                                 std::span<const std::byte> numbers) {
    std::uint64_t bytes = 0;
    if (!bytes_of(shape, type, bytes) || bytes != numbers.size())
        core::fail(
            core::text("an array of ", shape_text(shape), " ", name_of(type), " comes with ", numbers.size(), " bytes"),
            "pass as many numbers as its shape says");
    const std::string head = npy_head(type, shape);
    core::output_file out;
    out.open(path);
    out.write(head);
    out.write({reinterpret_cast<const char*>(numbers.data()), numbers.size()});
    out.close();
}

#endif

}  // namespace lockstep::files
