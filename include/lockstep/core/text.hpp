// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Joins values into one string without streams: what every message of the library is written with.

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace lockstep::core {

namespace detail {

inline void append(std::string& out, std::string_view part) { out += part; }
inline void append(std::string& out, char part) { out += part; }

template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
void append(std::string& out, Number number) {
    // Not an overload: a string literal would rather become a bool than a string_view.
    if constexpr (std::same_as<Number, bool>) {
        out += number ? "true" : "false";
    } else {
        char buffer[64];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
        out.append(buffer, end);
    }
}

}  // namespace detail

/// The parts one after the other; numbers in their shortest form that reads back as the same number.
template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
    std::string out;
    (detail::append(out, parts), ...);
    return out;
}

/// A number with `digits` digits behind the point, for tables and progress lines.
[[nodiscard]] inline std::string fixed(double number, int digits) {
    char buffer[352];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, digits).ptr;
    return {buffer, end};
}

/// A whole number in groups of three digits: 132,863,336.
[[nodiscard]] inline std::string grouped(unsigned long long number) {
    std::string digits = text(number);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

}  // namespace lockstep::core
