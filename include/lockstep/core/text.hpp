// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Joins values into one string without streams: what every message of the library is written with.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "lockstep/core/compiled.hpp"

namespace lockstep::core {

namespace detail {

/// One value on its way into a text. Values of all types come through one function: a message costs no code of its own
/// beyond its list.
class text_part {
public:
    // No templates: conversions are looked up for every word of every message.
    text_part(std::string_view part) noexcept : kind_{kind::words}, words_{part} {}
    text_part(const std::string& part) noexcept : kind_{kind::words}, words_{part} {}
    text_part(const char* part) noexcept : kind_{kind::words}, words_{part} {}
    text_part(bool truth) noexcept : text_part{truth ? "true" : "false"} {}
    text_part(char letter) noexcept : kind_{kind::letter}, letter_{letter} {}
    text_part(int number) noexcept : kind_{kind::integer}, integer_{number} {}
    text_part(long number) noexcept : kind_{kind::integer}, integer_{number} {}
    text_part(long long number) noexcept : kind_{kind::integer}, integer_{number} {}
    text_part(unsigned number) noexcept : kind_{kind::natural}, natural_{number} {}
    text_part(unsigned long number) noexcept : kind_{kind::natural}, natural_{number} {}
    text_part(unsigned long long number) noexcept : kind_{kind::natural}, natural_{number} {}
    text_part(float number) noexcept : kind_{kind::real}, real_{number} {}
    text_part(double number) noexcept : kind_{kind::longer_real}, longer_real_{number} {}

    [[gnu::cold]] void append_to(std::string& out) const;

private:
    enum class kind { words, letter, integer, natural, real, longer_real };
    kind kind_;
    union {
        std::string_view words_;
        char letter_;
        long long integer_;
        unsigned long long natural_;
        float real_;
        double longer_real_;
    };
};

[[nodiscard, gnu::cold]] std::string join(const text_part* parts, std::size_t count);

}  // namespace detail

/// The parts one after the other; numbers in their shortest form that reads back as the same number.
template <class... Parts>
[[nodiscard, gnu::cold]] std::string text(const Parts&... parts) {
    const detail::text_part list[sizeof...(parts) + 1]{parts..., ""};
    return detail::join(list, sizeof...(parts));
}

/// A number with `digits` digits after the point, for tables and progress lines.
[[nodiscard]] std::string fixed(double number, int digits);

/// A whole number in groups of three digits: 132,863,336.
[[nodiscard]] std::string grouped(unsigned long long number);

/// A name, which may be the user's, as a JSON string with its quotation marks. Control characters become blanks.
[[nodiscard, gnu::cold]] std::string json_string(std::string_view text);

/// Foreign text, such as a file's name or content, for a message: control characters, bytes that are no UTF-8, and the
/// marks of Unicode that end a line or reverse the direction of writing become \n, \t or \x1b. What is printable stays.
/// `keep_lines`: ends of lines, too.
[[nodiscard, gnu::cold]] std::string printable(std::string_view text, bool keep_lines = false);

/// The same for a text that may be long: at most the first 80 bytes, and how many there are.
[[nodiscard, gnu::cold]] std::string excerpt(std::string_view text);

/// A decimal number that fills the text, in any locale: the nearest double, which is 0 for what lies below all of them.
/// False for other texts, and for what lies above.
[[nodiscard]] bool read_number(std::string_view digits, double& out) noexcept;

#if LOCKSTEP_BODIES

namespace detail {

/// The sign of what is no number says nothing to people.
template <class T>
[[nodiscard]] T without_sign(T number) noexcept {
    return number == number ? number : std::numeric_limits<T>::quiet_NaN();
}

LOCKSTEP_FUNCTION void text_part::append_to(std::string& out) const {
    char buffer[64];
    char* end = buffer;
    switch (kind_) {
        case kind::words:
            out += words_;
            return;
        case kind::letter:
            out += letter_;
            return;
        case kind::integer:
            end = std::to_chars(buffer, buffer + sizeof buffer, integer_).ptr;
            break;
        case kind::natural:
            end = std::to_chars(buffer, buffer + sizeof buffer, natural_).ptr;
            break;
        case kind::real:
            end = std::to_chars(buffer, buffer + sizeof buffer, without_sign(real_)).ptr;
            break;
        case kind::longer_real:
            end = std::to_chars(buffer, buffer + sizeof buffer, without_sign(longer_real_)).ptr;
            break;
    }
    out.append(buffer, end);
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string grouped(unsigned long long number) {
    std::string digits = text(number);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

namespace detail {

[[gnu::noinline]] LOCKSTEP_FUNCTION std::string join(const text_part* parts, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) parts[i].append_to(out);
    return out;
}

}  // namespace detail

namespace detail {
/// Of a number that no double holds: whether it is too small.
[[nodiscard]] LOCKSTEP_FUNCTION bool is_below_one(std::string_view digits) noexcept {
    const std::size_t mark = std::min(digits.find_first_of("eE"), digits.size());
    const std::string_view plain = digits.substr(0, mark);
    const std::size_t point = std::min(plain.find('.'), plain.size()), first = plain.find_first_of("123456789");
    if (first == plain.npos) return true;
    long long exponent = 0;
    if (mark < digits.size()) {
        std::string_view power = digits.substr(mark + 1);
        const bool is_negative = power.starts_with('-');
        if (power.starts_with('+')) power.remove_prefix(1);
        if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc{}) return is_negative;
    }
    // 10 to this power is at most the number, and no less than a tenth of it.
    const auto own = static_cast<long long>(point) - static_cast<long long>(first) - (first < point ? 1 : 0);
    return exponent < -own;
}
}  // namespace detail

LOCKSTEP_FUNCTION bool read_number(std::string_view digits, double& out) noexcept {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return false;
    if (error == std::errc{}) return true;
    if (!detail::is_below_one(digits)) return false;
    out = digits.starts_with('-') ? -0.0 : 0.0;
    return true;
}

LOCKSTEP_FUNCTION std::string fixed(double number, int digits) {
    char buffer[352];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, detail::without_sign(number), std::chars_format::fixed, digits)
            .ptr;
    return {buffer, end};
}

LOCKSTEP_FUNCTION std::string json_string(std::string_view text) {
    std::string out{'"'};
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
    return out + '"';
}

namespace detail {

/// Bytes of the UTF-8 character that the text begins with (RFC 3629), or 0 if it begins with none that a message may
/// hold.
[[nodiscard]] LOCKSTEP_FUNCTION std::size_t printable_character(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned first = byte(0);
    if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
    const std::size_t size = first >= 0xc2 && first <= 0xdf   ? 2
                             : first >= 0xe0 && first <= 0xef ? 3
                             : first >= 0xf0 && first <= 0xf4 ? 4
                                                              : 0;
    if (size == 0) return 0;
    unsigned point = first & (0x7fU >> size);
    for (std::size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
        point = (point << 6) | (byte(i) & 0x3f);
    }
    constexpr unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool exists = point >= least[size] && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
    const bool controls = point <= 0x9f || (point >= 0x200e && point <= 0x200f) ||
                          (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
                          point == 0x61c || point == 0xfeff;
    return exists && !controls ? size : 0;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string printable(std::string_view text, bool keep_lines) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    while (!text.empty()) {
        const std::size_t size = detail::printable_character(text);
        const char c = text.front();
        if (size > 0 || (c == '\n' && keep_lines)) {
            out += text.substr(0, std::max<std::size_t>(size, 1));
        } else if (c == '\n' || c == '\t' || c == '\r') {
            out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
        } else {
            const auto byte = static_cast<unsigned char>(c);
            out += "\\x";
            out += digits[byte / 16];
            out += digits[byte % 16];
        }
        text.remove_prefix(std::max<std::size_t>(size, 1));
    }
    return out;
}

LOCKSTEP_FUNCTION std::string excerpt(std::string_view words) {
    constexpr std::size_t most = 80;
    if (words.size() <= most) return printable(words);
    std::size_t end = most;  // not inside a character
    while (end > most - 4 && (static_cast<unsigned char>(words[end]) & 0xc0) == 0x80) --end;
    return text(printable(words.substr(0, end)), "... (", words.size(), " bytes)");
}

#endif

}  // namespace lockstep::core
