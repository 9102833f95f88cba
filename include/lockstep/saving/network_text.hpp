// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Words of a network, by which files, ranks and runs know it: text_of() in names.hpp.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/window_details.hpp"

namespace lockstep::saving {

/// `[3x5 stride 2x2 padding 1x1]`: what is usual is left out, but for the kernel.
[[nodiscard, gnu::cold]] std::string details_text(const layer_api::window_details& of);

/// Whether a text in a file is that of this network. Texts of earlier versions have no details, or none of some kinds
/// of layers: such layers are compared without them. `weights_alone`: whether its weights fit this one. Then the
/// algorithms of convolutions, which decide the last bits alone, may differ, and so may what only training asks for:
/// the rate of dropout, the momentum of batch_norm.
[[nodiscard, gnu::cold]] bool is_of_network(std::string_view in_file, std::string_view network,
                                            bool weights_alone = false);

#if LOCKSTEP_BODIES

namespace detail {

inline constexpr std::string_view before_algorithms = " by";

/// A text without details, and these, each with the number of its layer from 1. They follow the number of a layer's
/// parameters; settings are in brackets of their own and may hold any character, but brackets in pairs only.
struct split_text {
    std::string words;
    std::vector<std::pair<std::size_t, std::string_view>> details;
};
[[nodiscard]] LOCKSTEP_FUNCTION split_text split(std::string_view text) {
    split_text out;
    std::size_t depth = 0, layer = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        const bool follows_number = at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9';
        const std::size_t end = c == '[' && depth == 0 && follows_number ? text.find(']', at) : text.npos;
        if (end != text.npos) {
            out.details.emplace_back(layer, text.substr(at + 1, end - at - 1));
            at = end;
            continue;
        }
        if (c == '(') ++depth;
        if (c == ')' && depth > 0) --depth;
        if (c == ' ' && depth == 0) ++layer;
        out.words += c;
    }
    return out;
}

/// What stands between `begin` and the next `end` is left out, wherever it follows a layer's numbers.
LOCKSTEP_FUNCTION void leave_out(std::string& words, std::string_view layer, std::string_view begin, char end) {
    for (std::size_t at = words.find(layer); at != words.npos; at = words.find(layer, at + 1)) {
        std::size_t from = at + layer.size();
        while (from < words.size() && std::string_view{"0123456789/<x"}.find(words[from]) != std::string_view::npos)
            ++from;
        const std::size_t to = words.find(end, from);
        if (std::string_view{words}.substr(from).starts_with(begin) && to != words.npos)
            words.erase(from + 1, to - from - 1);
    }
}

}  // namespace detail

LOCKSTEP_FUNCTION std::string details_text(const layer_api::window_details& of) {
    std::string out = "[";
    const auto add = [&](std::string_view name, std::size_t rows, std::size_t columns, std::size_t usual) {
        if (rows != usual || columns != usual) out += core::text(" ", name, rows, "x", columns);
    };
    add("", of.kernel_rows, of.kernel_columns, 0);
    add("stride ", of.stride_rows, of.stride_columns, 1);
    add("padding ", of.padding_rows, of.padding_columns, 0);
    add("dilation ", of.dilation_rows, of.dilation_columns, 1);
    if (of.groups != 1) out += core::text(" groups ", of.groups);
    add("pool ", of.pool_rows, of.pool_columns, 0);
    if (of.channels != 0) out += core::text(" channels ", of.channels);
    if (!of.algorithms[0].empty()) out += detail::before_algorithms;
    for (const std::string_view one : of.algorithms)
        if (!one.empty()) out += core::text(" ", one);
    if (out.size() > 1) out.erase(1, 1);
    return out + "]";
}

LOCKSTEP_FUNCTION bool is_of_network(std::string_view in_file, std::string_view network, bool weights_alone) {
    if (in_file == network) return true;
    const auto compared = [&](std::string_view details) {
        return weights_alone ? details.substr(0, details.find(detail::before_algorithms)) : details;
    };
    auto there = detail::split(in_file), here = detail::split(network);
    if (weights_alone)
        for (std::string* const words : {&there.words, &here.words}) {
            detail::leave_out(*words, " dropout->", "(rate=", ')');
            detail::leave_out(*words, " batch_norm->", "(momentum=", ' ');
        }
    if (there.words != here.words) return false;
    return std::ranges::all_of(there.details, [&](const auto& one) {
        return std::ranges::any_of(here.details, [&](const auto& other) {
            return one.first == other.first && compared(one.second) == compared(other.second);
        });
    });
}

#endif

}  // namespace lockstep::saving
