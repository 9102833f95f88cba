// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What JSON, safetensors, .npy, CSV and PGM files say, worked out a second time from the formats' descriptions.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle.hpp"

namespace lockstep::fuzz {

[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A decimal number that is not above all doubles.
[[nodiscard]] inline std::optional<double> real(const std::string& digits) {
    const double value = std::strtod(digits.c_str(), nullptr);
    return std::isfinite(value) ? std::optional{value} : std::nullopt;
}

/// A tree of JSON. Of scalars `text`: the characters of a string, the digits of a number.
struct node {
    char kind = ' ';  // { [ " 0 t f n
    std::string text;
    std::vector<std::pair<std::string, node>> members;  // of an array without names

    /// One text for equal trees.
    [[nodiscard]] std::string canonical() const {
        std::string out{kind};
        if (kind == '"') out += std::to_string(text.size()) + ":" + text;
        if (kind == '0') {
            const double value = *real(text);
            out.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        for (const auto& [name, value] : members)
            out += "," + std::to_string(name.size()) + ":" + name + value.canonical();
        return out + ";";
    }
};

/// Grammar of RFC 8259, by the rules of its appendix; nothing where a rule is broken.
class json_oracle {
public:
    explicit json_oracle(std::string_view text) : rest_{text} {}

    std::optional<node> run() {
        node out;
        space();
        if (!value(out, 0)) return {};
        space();
        if (!rest_.empty()) return {};
        return out;
    }

private:
    void space() {
        while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n' || rest_[0] == '\r'))
            rest_.remove_prefix(1);
    }
    bool eat(std::string_view word) {
        if (rest_.substr(0, word.size()) != word) return false;
        rest_.remove_prefix(word.size());
        return true;
    }
    bool value(node& out, int depth) {
        if (rest_.empty()) return false;
        for (const std::string_view word : {"true", "false", "null"})
            if (eat(word)) return out.kind = word[0], true;
        if (rest_[0] == '"') return out.kind = '"', string(out.text);
        if (rest_[0] == '{' || rest_[0] == '[') return depth < 64 && container(out, depth + 1);
        out.kind = '0';
        return number(out.text);
    }
    bool container(node& out, int depth) {
        out.kind = rest_[0];
        const std::string_view end = out.kind == '{' ? "}" : "]";
        rest_.remove_prefix(1);
        space();
        if (eat(end)) return true;
        do {
            auto& [name, member] = out.members.emplace_back();
            space();
            if (out.kind == '{') {
                if (!string(name)) return false;
                space();
                if (!eat(":")) return false;
                space();
            }
            if (!value(member, depth)) return false;
            space();
        } while (eat(","));
        return eat(end);
    }
    bool number(std::string& out) {
        const auto digits = [&] {
            std::size_t n = 0;
            for (; !rest_.empty() && is_digit(rest_[0]); ++n) out += rest_[0], rest_.remove_prefix(1);
            return n;
        };
        if (eat("-")) out += '-';
        if (eat("0"))
            out += '0';
        else if (digits() == 0)
            return false;
        if (eat(".") && (out += '.', digits() == 0)) return false;
        if (eat("e") || eat("E")) {
            out += 'e';
            if (eat("-"))
                out += '-';
            else
                (void)eat("+");
            if (digits() == 0) return false;
        }
        return real(out).has_value();
    }
    bool unit(std::uint32_t& out) {
        if (rest_.size() < 4) return false;
        out = 0;
        for (int i = 0; i < 4; ++i) {
            const std::size_t digit = std::string_view{"0123456789abcdefABCDEF"}.find(rest_[0]);
            if (digit == std::string_view::npos) return false;
            out = 16 * out + static_cast<std::uint32_t>(digit < 16 ? digit : digit - 6);
            rest_.remove_prefix(1);
        }
        return true;
    }
    static void encode(std::uint32_t point, std::string& out) {
        const auto byte = [&](std::uint32_t value) { out += static_cast<char>(static_cast<unsigned char>(value)); };
        if (point < 0x80) return byte(point);
        if (point < 0x800) return byte(0xc0 + point / 64), byte(0x80 + point % 64);
        if (point < 0x10000) return byte(0xe0 + point / 4096), byte(0x80 + point / 64 % 64), byte(0x80 + point % 64);
        byte(0xf0 + point / 262'144), byte(0x80 + point / 4096 % 64), byte(0x80 + point / 64 % 64);
        byte(0x80 + point % 64);
    }
    bool string(std::string& out) {
        if (!eat("\"")) return false;
        while (!rest_.empty()) {
            if (eat("\"")) return true;
            if (eat("\\")) {
                const std::size_t which = rest_.empty() ? 8 : std::string_view{"\"\\/bfnrt"}.find(rest_[0]);
                if (!rest_.empty() && which < 8) {
                    out += "\"\\/\b\f\n\r\t"[which];
                    rest_.remove_prefix(1);
                    continue;
                }
                std::uint32_t high = 0, low = 0;
                if (!eat("u") || !unit(high) || (high >= 0xdc00 && high < 0xe000)) return false;
                if (high >= 0xd800 && high < 0xdc00) {
                    if (!eat("\\u") || !unit(low) || low < 0xdc00 || low > 0xdfff) return false;
                    high = 0x10000 + 1024 * (high - 0xd800) + low - 0xdc00;
                }
                encode(high, out);
                continue;
            }
            // A character of UTF-8 is what encodes to the same bytes.
            const auto byte = [&](std::size_t i) {
                return i < rest_.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(rest_[i])) : 0U;
            };
            const std::uint32_t first = byte(0);
            if (first < 0x20) return false;
            const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
            std::uint32_t point = size == 1 ? first : first & (0x7fU >> size);
            for (std::size_t i = 1; i < size; ++i) point = 64 * point + (byte(i) & 63);
            std::string again;
            if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
            encode(point, again);
            if (rest_.substr(0, size) != again) return false;
            out += again;
            rest_.remove_prefix(size);
        }
        return false;
    }

    std::string_view rest_;
};

/// A whole number from 0 on.
[[nodiscard]] inline std::optional<std::uint64_t> natural(const node& of) {
    return of.kind == '0' ? decimal(of.text, UINT64_MAX) : std::nullopt;
}

/// Bytes of an array, if 63 bits hold them.
[[nodiscard]] inline std::optional<std::uint64_t> array_bytes(const std::vector<std::uint64_t>& shape,
                                                              std::uint64_t size) {
    for (const std::uint64_t extent : shape)
        if (extent == 0) return 0;
    for (const std::uint64_t extent : shape) {
        if (extent > (std::uint64_t{1} << 63) / size) return {};
        size *= extent;
    }
    if (size > INT64_MAX) return {};
    return size;
}

/// Name, type and bytes of each array, in any order; nothing where the file is not valid.
[[nodiscard]] inline std::optional<std::map<std::string, std::pair<std::string, std::string>>> right_safetensors(
    std::string_view file) {
    if (file.size() < 8) return {};
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = 256 * length + static_cast<unsigned char>(file[i]);
    if (length > 100'000'000 || length > file.size() - 8 || length == 0 || file[8] != '{') return {};
    const std::string_view data = file.substr(8 + length);
    const auto tree = json_oracle{file.substr(8, length)}.run();
    if (!tree) return {};
    static const std::map<std::string, std::uint64_t> sizes{{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                            {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},
                                                            {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
    std::map<std::string, std::pair<std::string, std::string>> out;
    std::vector<int> owners(data.size());  // arrays that have this byte
    std::set<std::uint64_t> bounds{0, data.size()}, empty;
    bool has_texts = false;
    for (const auto& [name, entry] : tree->members) {
        if (entry.kind != '{') return {};
        if (name == "__metadata__") {
            if (std::exchange(has_texts, true)) return {};
            for (const auto& [key, value] : entry.members)
                if (value.kind != '"') return {};
            continue;
        }
        std::map<std::string, node> members{entry.members.begin(), entry.members.end()};
        if (entry.members.size() != 3 || members.size() != 3 || !members.contains("dtype") ||
            !members.contains("shape") || !members.contains("data_offsets"))
            return {};
        const node &type = members["dtype"], &shape = members["shape"], &range = members["data_offsets"];
        if (type.kind != '"' || !sizes.contains(type.text) || shape.kind != '[' || shape.members.size() > 64 ||
            range.kind != '[' || range.members.size() != 2)
            return {};
        std::vector<std::uint64_t> extents;
        for (const auto& [unused, extent] : shape.members) {
            const auto number = natural(extent);
            if (!number) return {};
            extents.push_back(*number);
        }
        const auto begin = natural(range.members[0].second), end = natural(range.members[1].second);
        const auto bytes = array_bytes(extents, sizes.at(type.text));
        if (!begin || !end || !bytes || *end < *begin || *end - *begin != *bytes || *end > data.size()) return {};
        for (std::uint64_t i = *begin; i < *end; ++i) ++owners[i];
        (*begin == *end ? empty : bounds).insert({*begin, *end});
        if (!out.emplace(name, std::pair{type.text, std::string{data.substr(*begin, *bytes)}}).second) return {};
    }
    for (const int one : owners)
        if (one != 1) return {};
    for (const std::uint64_t one : empty)
        if (!bounds.contains(one)) return {};
    return out;
}

/// Type, shape and bytes of an array; nothing where the file is not valid.
struct npy_array {
    std::string type;
    std::vector<std::uint64_t> shape;
    std::string bytes;
};
[[nodiscard]] inline std::optional<npy_array> right_npy(std::string_view file) {
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(file[i])); };
    if (file.size() < 10 || file.substr(0, 6) != "\x93NUMPY" || byte(7) != 0 || byte(6) < 1 || byte(6) > 3) return {};
    std::size_t prefix = 10, length = byte(8) + 256 * byte(9);
    if (byte(6) > 1) {
        if (file.size() < 12) return {};
        prefix = 12, length += 65'536 * (byte(10) + 256 * byte(11));
    }
    if (length > 65'536 || file.size() < prefix + length) return {};
    // Tokens: strings with a ', numbers with a 0, words with a w, other characters.
    std::vector<std::string> tokens;
    std::string_view text = file.substr(prefix, length);
    while (!text.empty()) {
        const char c = text[0];
        std::size_t size = 1;
        if (c == '\'' || c == '"') {
            const std::size_t end = text.find(c, 1);
            if (end == text.npos) return {};
            tokens.push_back("'" + std::string{text.substr(1, end - 1)});
            size = end + 1;
        } else if (is_digit(c)) {
            while (size < text.size() && is_digit(text[size])) ++size;
            tokens.push_back("0" + std::string{text.substr(0, size)});
        } else if (text.substr(0, 4) == "True" || text.substr(0, 5) == "False") {
            size = c == 'T' ? 4 : 5;
            tokens.push_back("w" + std::string{text.substr(0, size)});
        } else if (c != ' ' && c != '\n' && c != '\t') {
            tokens.emplace_back(1, c);
        }
        text.remove_prefix(size);
    }
    std::size_t at = 0;
    const auto token = [&] { return at < tokens.size() ? tokens[at] : std::string{"end"}; };
    const auto eat = [&](const std::string& wanted) { return token() == wanted && (++at, true); };
    npy_array out;
    std::set<std::string> keys;
    bool by_columns = false;
    if (!eat("{")) return {};
    while (!eat("}")) {
        const std::string key = token();
        if (!keys.insert(key).second) return {};
        ++at;
        if (!eat(":")) return {};
        if (key == "'descr") {
            if (token()[0] != '\'') return {};
            out.type = tokens[at++].substr(1);
        } else if (key == "'fortran_order") {
            if (token()[0] != 'w') return {};
            by_columns = tokens[at++] == "wTrue";
        } else if (key == "'shape") {
            if (!eat("(")) return {};
            bool closed = eat(")");
            while (!closed) {
                const auto extent = token()[0] == '0' ? decimal(token().substr(1), UINT64_MAX) : std::nullopt;
                if (!extent) return {};
                out.shape.push_back(*extent);
                ++at;
                const bool comma = eat(",");
                closed = eat(")");
                if (!comma && (!closed || out.shape.size() == 1)) return {};
            }
        } else {
            return {};
        }
        if (eat(",")) continue;
        if (!eat("}")) return {};
        break;
    }
    if (at != tokens.size() || keys.size() != 3 || out.shape.size() > 64) return {};
    static const std::set<std::string> known{"b1", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"};
    const std::string name = out.type.size() == 3 ? out.type.substr(1) : "";
    if (!known.contains(name) || std::string{"<=|>"}.find(out.type[0]) == std::string::npos) return {};
    const auto size = static_cast<std::uint64_t>(name[1] - '0');
    if (out.type[0] == '>' && size > 1) return {};
    std::size_t wide = 0;
    for (const std::uint64_t extent : out.shape) wide += extent != 1;
    if (by_columns && wide > 1) return {};
    const auto bytes = array_bytes(out.shape, size);
    out.bytes = file.substr(prefix + length);
    if (!bytes || *bytes != out.bytes.size()) return {};
    out.type = name;
    return out;
}

/// A number of a CSV file.
[[nodiscard]] inline std::optional<double> csv_value(std::string field) {
    std::size_t at = 0;
    if (field.starts_with('+'))
        field.erase(0, 1);
    else if (field.starts_with('-'))
        at = 1;
    std::size_t digits = 0;
    for (; at < field.size() && is_digit(field[at]); ++at) ++digits;
    if (at < field.size() && field[at] == '.')
        for (++at; at < field.size() && is_digit(field[at]); ++at) ++digits;
    if (digits == 0) return {};
    if (at < field.size() && (field[at] == 'e' || field[at] == 'E')) {
        if (++at; at < field.size() && (field[at] == '+' || field[at] == '-')) ++at;
        const std::size_t begin = at;
        while (at < field.size() && is_digit(field[at])) ++at;
        if (at == begin) return {};
    }
    if (at != field.size()) return {};
    return real(field);
}

/// What stands for a value that is missing or not finite, in any case.
[[nodiscard]] inline bool is_no_name(std::string field) {
    for (char& c : field)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    static const std::set<std::string> words{"", "na", "n/a", "#n/a", "<na>", "null", "none", "?", "-"};
    if (words.contains(field)) return true;
    if (field.starts_with('-') || field.starts_with('+')) field.erase(0, 1);
    if (field == "inf" || field == "infinity" || field == "nan") return true;
    return field.starts_with("nan(") && field.ends_with(')') &&
           std::all_of(field.begin() + 4, field.end() - 1,
                       [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_'; });
}
/// 1,5 or 1,234.5
[[nodiscard]] inline bool is_for_people(const std::string& field) {
    return field.find(',') != field.npos && std::any_of(field.begin(), field.end(), is_digit) &&
           field.find_first_not_of("0123456789+-.,eE") == field.npos;
}

/// Lines of three to `most` words with a space between two, without comments; nothing where there are other lines.
[[nodiscard]] inline std::optional<std::vector<std::vector<std::string>>> right_triples(std::string_view text,
                                                                                        std::size_t most = 3) {
    std::vector<std::vector<std::string>> out;
    for (std::string line : split(text, "\n", false)) {
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty() || line.starts_with('#')) continue;
        out.push_back(split(line, " ", false));
        if (out.back().size() < 3 || out.back().size() > most) return {};
    }
    return out;
}

/// Rows of two numbers and a class below 3, after a line of names, which are no numbers and missing ones alone; nothing
/// where the file is not valid.
[[nodiscard]] inline std::optional<std::vector<std::array<double, 3>>> right_csv(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    std::vector<std::vector<std::string>> lines;
    while (!text.empty()) {
        auto& line = lines.emplace_back();
        for (bool more = true; more;) {
            std::string field;
            if (text.starts_with('"')) {
                for (text.remove_prefix(1);;) {
                    const std::size_t quote = text.find('"');
                    if (quote == text.npos) return {};
                    field += text.substr(0, quote);
                    text.remove_prefix(quote + 1);
                    if (!text.starts_with('"')) break;
                    field += '"';
                    text.remove_prefix(1);
                }
            } else {
                const std::size_t end = std::min(text.find_first_of(",\r\n"), text.size());
                field = text.substr(0, end);
                if (field.find('"') != field.npos) return {};
                text.remove_prefix(end);
            }
            if (field.size() > 65'536 && line.size() < 3) return {};
            const std::size_t begin = field.find_first_not_of(" \t");
            line.push_back(begin == field.npos ? "" : field.substr(begin, field.find_last_not_of(" \t") + 1 - begin));
            more = text.starts_with(',');
            const bool at_end = text.empty() || text.starts_with('\n') || text.starts_with("\r\n");
            if (!more && !at_end) return {};
            text.remove_prefix(std::min<std::size_t>(text.starts_with('\r') ? 2 : 1, text.size()));
        }
    }
    while (lines.size() > 1 && lines.back() == std::vector<std::string>{""}) lines.pop_back();
    if (lines.empty()) return {};
    std::vector<std::array<double, 3>> out;
    for (std::size_t l = 0; l < lines.size(); ++l) {
        if (lines[l].size() != 3) return {};
        std::array<double, 3> row{};
        std::size_t numbers = 0;
        for (std::size_t i = 0; i < 3; ++i)
            if (const auto value = csv_value(lines[l][i])) row[i] = *value, ++numbers;
        if (l == 0)
            numbers += static_cast<std::size_t>(std::count_if(lines[l].begin(), lines[l].end(), &is_for_people));
        const auto words = std::count_if(lines[l].begin(), lines[l].end(), &is_no_name);
        if (l == 0 ? numbers > 0 && numbers + static_cast<std::size_t>(words) == 3 : numbers != 3) return {};
        if (l == 0) continue;
        if (row[2] != 0 && row[2] != 1 && row[2] != 2) return {};
        out.push_back(row);
    }
    return out;
}

/// The bytes of a picture of 3 x 2 grey pixels; nothing where the file is no such picture.
[[nodiscard]] inline std::optional<std::string> right_pgm(std::string_view text) {
    if (!text.starts_with("P5")) return {};
    text.remove_prefix(2);
    for (const std::uint64_t wanted : {2U, 3U, 255U}) {
        bool space = false;
        for (; !text.empty() && (text[0] == '#' || std::string_view{" \t\n\v\f\r"}.find(text[0]) != text.npos);
             space = true)
            text.remove_prefix(text[0] == '#' ? std::min(text.find('\n'), text.size()) : 1);
        std::size_t digits = 0;
        while (digits < text.size() && is_digit(text[digits])) ++digits;
        if (!space || decimal(text.substr(0, digits), 1000) != wanted) return {};
        text.remove_prefix(digits);
    }
    if (text.size() != 7 || std::string_view{" \t\n\v\f\r"}.find(text[0]) == text.npos) return {};
    return std::string{text.substr(1)};
}

}  // namespace lockstep::fuzz
