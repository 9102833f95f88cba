// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which compressor each layer has from which step on, as a value and as a text.
// Tested by tests/unit/compress/adaptive.cpp.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// From this step on (the first one is 0) the layer, and those that share its choice after it, have this candidate: 0
/// is dense, k is number k of the list.
struct compressor_choice {
    std::uint64_t step = 0;
    std::uint64_t layer = 0;
    std::uint64_t candidate = 0;
    friend bool operator==(const compressor_choice&, const compressor_choice&) = default;
};

/// What compress::adaptive has chosen, or is to choose. Layers begin dense. As text a line for each choice, in
/// ascending order of steps: step, layer, candidate. A line that begins with '#' is a comment.
struct choice_list {
    std::vector<compressor_choice> entries{};
    friend bool operator==(const choice_list&, const choice_list&) = default;

    [[nodiscard]] static choice_list of(std::vector<compressor_choice> all) { return {std::move(all)}; }
    [[nodiscard, gnu::cold]] std::string text() const {
        std::string out;
        for (const auto& one : entries) out += core::text(one.step, " ", one.layer, " ", one.candidate, "\n");
        return out;
    }
    /// Throws core::error, with the name, for what is no such text.
    [[nodiscard, gnu::cold]] static choice_list parse(std::string_view text,
                                                      std::string_view name = "a list of compressor choices") {
        choice_list out;
        for (std::size_t line = 1; !text.empty(); ++line) {
            const std::size_t end = std::min(text.find('\n'), text.size());
            std::string_view words = text.substr(0, end);
            text.remove_prefix(std::min(end + 1, text.size()));
            if (words.ends_with('\r')) words.remove_suffix(1);
            const std::string_view whole = words;
            if (words.empty() || words.front() == '#') continue;
            compressor_choice one;
            if (!take(words, one.step, ' ') || !take(words, one.layer, ' ') || !take(words, one.candidate, 0) ||
                !words.empty())
                core::fail(core::text("line ", line, " of ", name, " is \"", core::excerpt(whole),
                                      "\", no step, layer and candidate"),
                           "write three numbers with a space between them, such as 50 3 1");
            out.entries.push_back(one);
        }
        out.check();
        return out;
    }
    /// parse() of a file.
    [[nodiscard, gnu::cold]] static choice_list read(const std::string& path) {
        core::input_file from{path};
        std::string all(from.size(), '\0');
        all.resize(from.read(std::as_writable_bytes(std::span{all})));
        return parse(all, path);
    }
    [[gnu::cold]] void write(const std::string& path) const {
        core::output_file to;
        to.open(path);
        to.write("# step, layer, candidate (0: dense)\n" + text());
        to.close();
    }
    /// Throws core::error where steps descend, or a layer has two choices in one step.
    [[gnu::cold]] void check() const {
        std::set<std::uint64_t> layers;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const compressor_choice& one = entries[i];
            if (i > 0 && one.step < entries[i - 1].step)
                core::fail(
                    core::text("a list of compressor choices has step ", one.step, " after step ", entries[i - 1].step),
                    "write its lines in ascending order of steps");
            if (i > 0 && one.step > entries[i - 1].step) layers.clear();
            if (!layers.insert(one.layer).second)
                core::fail(
                    core::text("a list of compressor choices has layer ", one.layer, " twice in step ", one.step),
                    "leave one of the lines out");
        }
    }

private:
    /// The number that the words begin with, and what has to stand after it; 0: nothing.
    [[nodiscard, gnu::cold]] static bool take(std::string_view& words, std::uint64_t& number, char after) {
        const auto [end, problem] = std::from_chars(words.data(), words.data() + words.size(), number);
        if (problem != std::errc{}) return false;
        words.remove_prefix(static_cast<std::size_t>(end - words.data()));
        if (after == 0) return true;
        if (!words.starts_with(after)) return false;
        words.remove_prefix(1);
        return true;
    }
};

}  // namespace lockstep::compress
