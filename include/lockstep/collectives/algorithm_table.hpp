// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which algorithm sums vectors of which size, as a table that can be printed, read and overridden:
// doubling:0-8192;tree:8193-max.

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::collectives {

/// tree, doubling and hierarchical add along the lane tree: the same bits. The others exist for comparison and on
/// request.
enum class sum_algorithm : std::uint8_t { tree, doubling, hierarchical, ring, halving_doubling };

inline constexpr std::array<std::string_view, 5> sum_algorithm_names{"tree", "doubling", "hierarchical", "ring",
                                                                     "halving-doubling"};

[[nodiscard]] constexpr std::string_view name_of(sum_algorithm algorithm) noexcept {
    return sum_algorithm_names[static_cast<std::size_t>(algorithm)];
}
[[nodiscard]] constexpr bool keeps_lane_tree(sum_algorithm algorithm) noexcept {
    return algorithm <= sum_algorithm::hierarchical;
}

/// An algorithm for each size of a vector in bytes.
class algorithm_table {
public:
    static constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

    /// Sizes above the line before, up to `last`.
    struct line {
        sum_algorithm algorithm = sum_algorithm::tree;
        std::size_t last = no_limit;
        friend constexpr bool operator==(const line&, const line&) = default;
    };

    algorithm_table() : lines_{line{}} {}
    /// Lines in ascending order, the last one without a limit.
    explicit algorithm_table(std::vector<line> lines) : lines_{std::move(lines)} {}

    /// Throws core::error that names what cannot be read: an unknown algorithm, a range that is none, a gap, an end
    /// that is not max.
    [[nodiscard, gnu::cold]] static algorithm_table parse(std::string_view text);

    [[nodiscard, gnu::cold]] std::string text() const;

    [[nodiscard]] sum_algorithm at(std::size_t bytes) const noexcept {
        std::size_t i = 0;
        while (lines_[i].last < bytes) ++i;
        return lines_[i].algorithm;
    }
    /// Whether all of them add along the lane tree.
    [[nodiscard]] bool invariant() const noexcept {
        for (const line& entry : lines_)
            if (!keeps_lane_tree(entry.algorithm)) return false;
        return true;
    }
    [[nodiscard]] bool has(sum_algorithm which) const noexcept {
        for (const line& entry : lines_)
            if (entry.algorithm == which) return true;
        return false;
    }
    friend bool operator==(const algorithm_table&, const algorithm_table&) = default;

private:
    std::vector<line> lines_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION algorithm_table algorithm_table::parse(std::string_view text) {
    std::vector<line> lines;
    std::size_t next = 0;
    for (std::string_view rest = text; !rest.empty() || lines.empty();) {
        const std::string_view part = rest.substr(0, rest.find(';'));
        rest.remove_prefix(part.size() == rest.size() ? part.size() : part.size() + 1);
        const std::size_t colon = part.find(':'), dash = part.find('-', colon == part.npos ? 0 : colon);
        const auto wrong = [&](const auto&... what) {
            throw core::error{
                core::text("the all-reduce '", core::excerpt(text), "' has '", core::excerpt(part), "', ", what...),
                "write them like doubling:0-8192;tree:8193-max, in bytes of a vector; there are tree and doubling, and "
                "with collectives::all_sums hierarchical, ring and halving-doubling"};
        };
        if (rest.empty() && text.ends_with(';')) wrong("after which a ';' promises more");
        if (colon == part.npos || dash == part.npos) wrong("which is no name:first-last");
        line read;
        std::size_t which = 0;
        while (which < sum_algorithm_names.size() && sum_algorithm_names[which] != part.substr(0, colon)) ++which;
        if (which == sum_algorithm_names.size()) wrong("which names no algorithm");
        read.algorithm = static_cast<sum_algorithm>(which);
        const auto number = [&](std::string_view digits) {
            std::size_t out = 0;
            const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
            if (error != std::errc{} || end != digits.data() + digits.size())
                wrong("where '" + core::excerpt(digits) + "' is no number of bytes");
            return out;
        };
        if (const std::size_t first = number(part.substr(colon + 1, dash - colon - 1)); first != next)
            wrong("which begins at " + std::to_string(first) + " and should at " + std::to_string(next));
        read.last = part.substr(dash + 1) == "max" ? no_limit : number(part.substr(dash + 1));
        if (read.last < next) wrong("which ends at " + std::to_string(read.last) + ", before it begins");
        if ((read.last == no_limit) != rest.empty())
            wrong(rest.empty() ? "which is the last and does not end at max" : "which is not the last and ends at max");
        next = read.last + 1;
        lines.push_back(read);
    }
    return algorithm_table{std::move(lines)};
}

LOCKSTEP_FUNCTION std::string algorithm_table::text() const {
    std::string out;
    std::size_t first = 0;
    for (const line& entry : lines_) {
        out += (out.empty() ? "" : ";") + std::string{name_of(entry.algorithm)} + ":" + std::to_string(first) + "-";
        out += entry.last == no_limit ? std::string{"max"} : std::to_string(entry.last);
        first = entry.last + 1;
    }
    return out;
}

#endif

}  // namespace lockstep::collectives
