// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// JSON (RFC 8259), read value by value without a tree, and written: headers of weight files and manifests.

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::files {

/// What a value can be, without whole numbers of their own: JSON has one kind of number.
enum class json_kind { null, boolean, number, string, array, object };

/// Reads one text from its beginning to its end: the caller asks for the value that it expects next.
///
///     json_reader in{text, path};
///     in.object([&](const std::string& key) { key == "step" ? void(step = in.natural()) : in.skip(); });
///     in.end();
///
/// Strict: no comments, no trailing commas, valid UTF-8, nothing after the value. Members come as they stand in the
/// text: a name that comes twice is for the caller to refuse. Views the text. Throws core::error with the byte where it
/// happens; `first` is that of the beginning. Cost: about 2 ns a byte, and no memory but for strings.
class json_reader {
public:
    /// Objects and arrays inside each other.
    static constexpr std::size_t most_levels = 64;

    /// `remedy`: of what is no JSON.
    json_reader(std::string_view text, std::string source, std::size_t first = 0,
                std::string_view remedy = "correct the text there, or fetch or write the file again")
        : text_{text}, source_{std::move(source)}, first_{first}, remedy_{remedy} {}

    /// What comes next; nothing is read.
    [[nodiscard]] json_kind kind();

    /// f(name) for each member, in which f reads the value or skips it.
    template <class F>
    void object(F&& f) {
        open('{');
        for (bool is_first = true; more('}', is_first); is_first = false) f(member_name());
    }
    /// f() for each element, which f reads or skips.
    template <class F>
    void array(F&& f) {
        open('[');
        for (bool is_first = true; more(']', is_first); is_first = false) f();
    }
    [[nodiscard]] std::string string();
    [[nodiscard]] bool boolean();
    void null();
    /// A whole number without fraction and exponent, exactly.
    [[nodiscard]] std::uint64_t natural();
    [[nodiscard]] std::int64_t integer();
    /// The nearest double. A number that no double holds (1e999) is an error.
    [[nodiscard]] double real();
    /// Any value, checked as if it were read.
    void skip();
    /// Nothing may follow but white space.
    void end();

    /// The byte that comes next, for messages of the caller.
    [[nodiscard]] std::size_t position() const noexcept { return first_ + at_; }
    /// Throws: "<source>, byte 12: <problem>".
    [[noreturn, gnu::cold]] void fail(std::string_view problem, std::string_view remedy) const;

private:
    /// Throws with what was found instead.
    [[noreturn, gnu::cold]] void fail_expected(std::string_view what) const;
    [[nodiscard]] bool is_next(char character) const noexcept { return at_ < text_.size() && text_[at_] == character; }
    void skip_space() noexcept;
    /// White space, then exactly these letters.
    void word(std::string_view letters, std::string_view what);
    void open(char bracket);
    /// Whether an element follows; otherwise the closing bracket has been read.
    [[nodiscard]] bool more(char bracket, bool is_first);
    [[nodiscard]] std::string member_name();
    /// Parts of a string: the digits of \\u, what follows a backslash, one character.
    [[nodiscard]] std::uint32_t four_digits();
    void escape(std::string& out);
    void character(std::string& out);
    /// The digits of the number that comes next, which is checked and stays there.
    [[nodiscard]] std::string_view number(std::string_view what);
    template <class N>
    [[nodiscard]] N whole(std::string_view what);

    std::string_view text_;
    std::string source_;
    std::size_t first_ = 0, at_ = 0, levels_ = 0;
    std::string_view remedy_;
};

/// Writes one text: `json_writer{}.begin_object().key("step").value(7).end_object().text()` is {"step":7}. Numbers read
/// back as the same numbers. Throws core::error for what JSON cannot hold: numbers that are not finite, strings that
/// are no UTF-8; for brackets that do not match, for names without a value and values in an object without a name.
class json_writer {
public:
    json_writer& begin_object() { return begin('{'); }
    json_writer& end_object() { return finish('}'); }
    json_writer& begin_array() { return begin('['); }
    json_writer& end_array() { return finish(']'); }
    json_writer& key(std::string_view name);
    json_writer& value(std::string_view string);
    json_writer& value(const char* string) { return value(std::string_view{string}); }
    json_writer& value(bool truth) { return add(truth ? "true" : "false"); }
    json_writer& value(char character) = delete;  ///< a number or a string? std::string_view{&character, 1} is one
    template <std::integral N>
    json_writer& value(N number) {
        return add(core::text(number));
    }
    json_writer& value(double number);
    json_writer& null() { return add("null"); }

    /// The whole text.
    [[nodiscard]] const std::string& text() const;

private:
    json_writer& begin(char bracket);
    json_writer& finish(char bracket);
    json_writer& add(std::string_view value);
    void separate();

    std::string out_;
    std::string open_;  // brackets that wait for their end
};

#if LOCKSTEP_BODIES

namespace detail {

/// Bytes of the character that the text begins with (RFC 3629); 0: it is no UTF-8.
[[nodiscard]] LOCKSTEP_FUNCTION std::size_t utf8_length(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) return 1;
    const std::size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    for (std::size_t i = 1; i < size; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Longer than needed, a half of a pair of UTF-16, beyond the last character.
    const bool refused = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                         (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
    return refused ? 0 : size;
}

LOCKSTEP_FUNCTION void append_utf8(std::string& out, std::uint32_t point) {
    const int further = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    constexpr std::uint32_t marks[] = {0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(marks[further] | point >> 6 * further);
    for (int i = further; i-- > 0;) out += static_cast<char>(0x80 | (point >> 6 * i & 63));
}

/// A string as JSON writes it.
[[nodiscard]] LOCKSTEP_FUNCTION std::string quoted(std::string_view string) {
    // Only what must be escaped is: other readers show the rest as it is.
    std::string quoted{'"'};
    for (std::string_view rest = string; !rest.empty();) {
        const std::size_t size = detail::utf8_length(rest);
        const char character = rest.front();
        if (size == 0)
            core::fail(core::text("JSON holds no string that is no UTF-8: \"", core::excerpt(string), "\""),
                       "use another name");
        if (character == '"' || character == '\\')
            (quoted += '\\') += character;
        else if (static_cast<unsigned char>(character) < 0x20)
            (quoted += "\\u00") += {"0123456789abcdef"[character / 16], "0123456789abcdef"[character % 16]};
        else
            quoted += rest.substr(0, size);
        rest.remove_prefix(size);
    }
    return quoted += '"';
}

}  // namespace detail

LOCKSTEP_FUNCTION void json_reader::fail(std::string_view problem, std::string_view remedy) const {
    core::fail(core::text(source_, ", byte ", position(), ": ", problem), remedy);
}

LOCKSTEP_FUNCTION void json_reader::fail_expected(std::string_view what) const {
    const std::string_view found = text_.substr(at_, 16);
    fail(core::text(what, " expected, found ", found.empty() ? "the end" : core::text("\"", found, "\"")), remedy_);
}

LOCKSTEP_FUNCTION void json_reader::skip_space() noexcept {
    while (at_ < text_.size() && std::string_view{" \t\n\r"}.find(text_[at_]) != std::string_view::npos) ++at_;
}

LOCKSTEP_FUNCTION void json_reader::word(std::string_view letters, std::string_view what) {
    skip_space();
    if (!text_.substr(at_).starts_with(letters)) fail_expected(what);
    at_ += letters.size();
}

LOCKSTEP_FUNCTION json_kind json_reader::kind() {
    skip_space();
    // The first character tells: null, true, false, a number, and the three that follow in json_kind.
    constexpr std::string_view signs = "ntf-0123456789\"[{";
    const std::size_t which = at_ < text_.size() ? signs.find(text_[at_]) : signs.npos;
    if (which == signs.npos) fail_expected("a value");
    return which == 0   ? json_kind::null
           : which < 3  ? json_kind::boolean
           : which < 14 ? json_kind::number
                        : static_cast<json_kind>(which - 14 + static_cast<std::size_t>(json_kind::string));
}

LOCKSTEP_FUNCTION void json_reader::open(char bracket) {
    word({&bracket, 1}, bracket == '{' ? "an object" : "an array");
    if (++levels_ > most_levels)
        fail(core::text("more than ", most_levels, " objects and arrays inside each other"), "write a flatter text");
}

LOCKSTEP_FUNCTION bool json_reader::more(char bracket, bool is_first) {
    skip_space();
    if (is_next(bracket)) {
        ++at_;
        --levels_;
        return false;
    }
    // After a comma an element has to come: the caller reads it, and finds a bracket there to be none.
    if (!is_first) word(",", bracket == '}' ? "\",\" or \"}\"" : "\",\" or \"]\"");
    return true;
}

LOCKSTEP_FUNCTION std::string json_reader::member_name() {
    std::string out = string();
    word(":", "\":\"");
    return out;
}

LOCKSTEP_FUNCTION std::uint32_t json_reader::four_digits() {
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
        const char digit = at_ < text_.size() ? text_[at_] : '\0';
        const bool small = digit >= 'a' && digit <= 'f', large = digit >= 'A' && digit <= 'F';
        if (!small && !large && (digit < '0' || digit > '9')) fail_expected("four hexadecimal digits");
        out = 16 * out + static_cast<std::uint32_t>(small ? digit - 'a' + 10 : large ? digit - 'A' + 10 : digit - '0');
    }
    return out;
}

LOCKSTEP_FUNCTION void json_reader::escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrtu", meanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = at_ < text_.size() ? letters.find(text_[at_]) : letters.npos;
    if (which == letters.npos) fail_expected("one of \"\\/bfnrtu");
    ++at_;
    if (which < meanings.size()) {
        out += meanings[which];
        return;
    }
    std::uint32_t point = four_digits();
    if (point >= 0xd800 && point <= 0xdfff) {  // beyond 16 bits: two halves
        const bool is_pair = point < 0xdc00 && text_.substr(at_).starts_with("\\u");
        if (is_pair) at_ += 2;
        const std::uint32_t low = is_pair ? four_digits() : 0;
        if (low < 0xdc00 || low > 0xdfff)
            fail("a half of a pair of \\u without the other", "write the character in UTF-8");
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    detail::append_utf8(out, point);
}

LOCKSTEP_FUNCTION void json_reader::character(std::string& out) {
    const std::string_view rest = text_.substr(at_);
    if (rest.empty()) fail_expected("the end of a string");
    if (static_cast<unsigned char>(rest.front()) < 0x20)
        fail("a control character in a string", "write it as \\n, \\t or \\u00XX");
    const std::size_t size = detail::utf8_length(rest);
    if (size == 0) fail("a string that is no UTF-8", "write the file in UTF-8");
    if (rest.front() != '\\') {
        out += rest.substr(0, size);
        at_ += size;
        return;
    }
    ++at_;
    escape(out);
}

LOCKSTEP_FUNCTION std::string json_reader::string() {
    // Character by character: names are short, and what is no UTF-8 must not get into a message or a file name.
    word("\"", "a string");
    std::string out;
    while (!is_next('"')) character(out);
    ++at_;
    return out;
}

LOCKSTEP_FUNCTION bool json_reader::boolean() {
    skip_space();
    const bool out = is_next('t');
    word(out ? "true" : "false", "true or false");
    return out;
}

LOCKSTEP_FUNCTION void json_reader::null() { word("null", "null"); }

LOCKSTEP_FUNCTION std::string_view json_reader::number(std::string_view what) {
    // -? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)?: std::from_chars would take more than JSON allows.
    skip_space();
    std::size_t end = at_;
    const auto character = [&] { return end < text_.size() ? text_[end] : '\0'; };
    const auto digits = [&] {
        const std::size_t begin = end;
        while (character() >= '0' && character() <= '9') ++end;
        return end > begin;
    };
    if (character() == '-') ++end;
    const bool leading_zero = character() == '0';
    const std::size_t begin = end;
    bool valid = digits() && (!leading_zero || end == begin + 1);
    if (character() == '.') valid = (++end, digits()) && valid;
    if (character() == 'e' || character() == 'E') {
        ++end;
        if (character() == '+' || character() == '-') ++end;
        valid = digits() && valid;
    }
    if (!valid) fail_expected(what);
    return text_.substr(at_, end - at_);
}

template <class N>
N json_reader::whole(std::string_view what) {
    // 1.0 and 1e3 stop at a character that is no digit: they are numbers, but not whole ones as files count things.
    const std::string_view digits = number(what);
    N out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error == std::errc::result_out_of_range)
        fail(core::text(core::excerpt(digits), " is more than 64 bits hold"), "use a smaller number");
    if (error != std::errc{} || end != digits.data() + digits.size()) fail_expected(what);
    at_ += digits.size();
    return out;
}

LOCKSTEP_FUNCTION std::uint64_t json_reader::natural() { return whole<std::uint64_t>("a whole number from 0 on"); }
LOCKSTEP_FUNCTION std::int64_t json_reader::integer() { return whole<std::int64_t>("a whole number"); }

LOCKSTEP_FUNCTION double json_reader::real() {
    const std::string_view digits = number("a number");
    double out = 0;
    if (!core::read_number(digits, out))
        fail(core::text("no double holds ", core::excerpt(digits)), "use a number of at most 1.7e308");
    at_ += digits.size();
    return out;
}

LOCKSTEP_FUNCTION void json_reader::skip() {
    // By the functions that read, so that what is skipped is as valid as what is not.
    const json_kind what = kind();
    if (what == json_kind::null) null();
    if (what == json_kind::boolean) (void)boolean();
    if (what == json_kind::number) at_ += number("a number").size();
    if (what == json_kind::string) (void)string();
    if (what == json_kind::array) array([this] { skip(); });
    if (what == json_kind::object) object([this](const std::string&) { skip(); });
}

LOCKSTEP_FUNCTION void json_reader::end() {
    skip_space();
    if (at_ < text_.size()) fail_expected("the end");
}

LOCKSTEP_FUNCTION void json_writer::separate() {
    // After a bracket or the name of a member a value is the first one.
    if (!out_.empty() && std::string_view{"{[:"}.find(out_.back()) == std::string_view::npos) {
        if (open_.empty()) core::fail("a JSON text has a second value", "put both into an array or an object");
        out_ += ',';
    }
}

LOCKSTEP_FUNCTION json_writer& json_writer::add(std::string_view value) {
    if (!open_.empty() && open_.back() == '{' && out_.back() != ':')
        core::fail(core::text("a JSON text gets the value ", core::excerpt(value), " without a name in an object"),
                   "call key() before it");
    separate();
    out_ += value;
    return *this;
}

LOCKSTEP_FUNCTION json_writer& json_writer::begin(char bracket) {
    add({&bracket, 1});
    open_ += bracket;
    return *this;
}

LOCKSTEP_FUNCTION json_writer& json_writer::finish(char bracket) {
    if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[') || out_.back() == ':')
        core::fail(core::text("a JSON text gets a ", bracket, " that closes nothing"), "close what was opened last");
    open_.pop_back();
    out_ += bracket;
    return *this;
}

LOCKSTEP_FUNCTION json_writer& json_writer::key(std::string_view name) {
    if (open_.empty() || open_.back() != '{')
        core::fail(core::text("a JSON text gets the name \"", name, "\" outside of an object"),
                   "call begin_object() first");
    if (out_.back() == ':')
        core::fail(core::text("a JSON text gets the name \"", core::excerpt(name), "\" where a value is expected"),
                   "call value() after key()");
    const std::string quoted = detail::quoted(name);
    separate();
    out_ += quoted + ':';
    return *this;
}

LOCKSTEP_FUNCTION json_writer& json_writer::value(std::string_view string) { return add(detail::quoted(string)); }

LOCKSTEP_FUNCTION json_writer& json_writer::value(double number) {
    if (!std::isfinite(number)) core::fail(core::text("JSON holds no ", number), "write it as a string");
    return add(core::text(number));
}

LOCKSTEP_FUNCTION const std::string& json_writer::text() const {
    // Half a text would be a file that nobody can read.
    if (!open_.empty() || out_.empty())
        core::fail(core::text("a JSON text ends inside ", open_.size(), " objects and arrays"), "close them first");
    return out_;
}

#endif

}  // namespace lockstep::files
