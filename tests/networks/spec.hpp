// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The source text of a network, an optimizer or a loss as a tree: name<options..>{items..}. The naive walk reads the
// text that the compiler reads, and nothing that the library makes of it.

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace networks {

/// conv<6, 3, conv_options{.stride = 2}>{}, dropout{.rate = 0.25}, bias::none or 3.
struct item {
    std::string name{};           ///< without its namespace; empty for a number and for a pair {3, 5}
    std::vector<item> options{};  ///< between < and >
    std::vector<item> inside{};   ///< between { and }
    std::string field{};          ///< of a named member: .field = ..
    std::string number{};

    [[nodiscard]] double value() const {
        return name == "true" ? 1 : name == "false" ? 0 : std::strtod(number.c_str(), nullptr);
    }
    [[nodiscard]] std::size_t count() const {
        return static_cast<std::size_t>(std::strtoull(number.c_str(), nullptr, 10));
    }
    /// Option `index`, or what holds without it.
    [[nodiscard]] std::size_t option(std::size_t index, std::size_t otherwise) const {
        return index < options.size() ? options[index].count() : otherwise;
    }
    [[nodiscard]] const item* find(std::string_view wanted) const {
        for (const item& one : inside)
            if (one.field == wanted) return &one;
        return nullptr;
    }
    [[nodiscard]] double member(std::string_view wanted, double otherwise) const {
        const item* found = find(wanted);
        return found ? found->value() : otherwise;
    }
    [[nodiscard]] bool mentions(std::string_view option_name) const {
        for (const item& one : options)
            if (one.name == option_name) return true;
        return false;
    }
    /// The aggregate of named options, such as conv_options{..}; null without one.
    [[nodiscard]] const item* named_options() const {
        for (const item& one : options)
            if (one.name.ends_with("_options")) return &one;
        return nullptr;
    }
};

namespace detail {

class reader {
public:
    explicit reader(std::string_view text) : text_{text} {}

    item all() {
        item out = one();
        skip();
        if (!text_.empty()) fail("nothing");
        return out;
    }

private:
    [[noreturn]] void fail(const char* wanted) const {
        throw std::runtime_error("the text of a network has '" + std::string{text_.substr(0, 30)} + "' instead of " +
                                 wanted);
    }
    void skip() {
        // Lines of a macro end with a backslash.
        while (!text_.empty() && (std::isspace(static_cast<unsigned char>(text_.front())) || text_.front() == '\\'))
            text_.remove_prefix(1);
    }
    bool take(std::string_view what) {
        skip();
        if (!text_.starts_with(what)) return false;
        text_.remove_prefix(what.size());
        return true;
    }
    std::string word(bool (*belongs)(char)) {
        skip();
        std::string out;
        for (; !text_.empty() && belongs(text_.front()); text_.remove_prefix(1)) out += text_.front();
        return out;
    }
    static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
    static bool in_number(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-'; }

    std::vector<item> list(std::string_view end) {
        std::vector<item> out;
        while (!take(end)) {
            if (!out.empty() && !take(",")) fail("a comma");
            out.push_back(one());
        }
        return out;
    }
    item one() {
        item out;
        if (take(".")) {
            out.field = word(in_name);
            if (!take("=")) fail("=");
        }
        skip();
        if (text_.empty()) fail("an item");
        if (std::isdigit(static_cast<unsigned char>(text_.front())) || text_.front() == '-') {
            out.number = word(in_number);
            return out;
        }
        do out.name = word(in_name);
        while (take("::"));
        if (out.name.empty() && !text_.starts_with("{")) fail("an item");
        if (take("<")) out.options = list(">");
        if (take("{")) out.inside = list("}");
        return out;
    }

    std::string_view text_;
};

}  // namespace detail

[[nodiscard]] inline item parse(std::string_view text) { return detail::reader{text}.all(); }

}  // namespace networks
