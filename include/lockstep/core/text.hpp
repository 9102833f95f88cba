// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Joins values into one string without streams: what every message of the library is written with.

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"

namespace lockstep::core {

namespace detail {

/// One value on its way into a text. Values of all types come through one function: a message costs no code of its own beyond its list.
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

/// A number with `digits` digits behind the point, for tables and progress lines.
[[nodiscard]] std::string fixed(double number, int digits);

/// A whole number in groups of three digits: 132,863,336.
[[nodiscard]] std::string grouped(unsigned long long number);

/// A name, which may be the user's, as a JSON string with its quotation marks. Control characters become blanks.
[[nodiscard, gnu::cold]] std::string json_string(std::string_view text);

#if LOCKSTEP_BODIES

namespace detail {

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
            end = std::to_chars(buffer, buffer + sizeof buffer, real_).ptr;
            break;
        case kind::longer_real:
            end = std::to_chars(buffer, buffer + sizeof buffer, longer_real_).ptr;
            break;
    }
    out.append(buffer, end);
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string grouped(unsigned long long number) {
    std::string digits = text(number);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

namespace detail {

[[gnu::noinline]] LOCKSTEP_FUNCTION std::string join(const text_part* parts, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) parts[i].append_to(out);
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string fixed(double number, int digits) {
    char buffer[352];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, digits).ptr;
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

#endif

}  // namespace lockstep::core
