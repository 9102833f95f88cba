// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Words of a network, by which files, ranks and runs know it: text_of() in names.hpp.

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/layers/window_details.hpp"

namespace lockstep::saving {

/// `[3x5 stride 2x2 padding 1x1]`: what is usual is left out, but for the kernel.
[[nodiscard, gnu::cold]] std::string details_text(const layer_api::window_details& of);

/// Whether a text in a file is that of this network. Texts of earlier versions have no details: they are compared
/// without them.
[[nodiscard, gnu::cold]] bool is_of_network(std::string_view in_file, std::string_view network);

#if LOCKSTEP_BODIES

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
    for (const std::string_view one : of.algorithms)
        if (!one.empty()) out += core::text(" ", one);
    if (out.size() > 1) out.erase(1, 1);
    return out + "]";
}

LOCKSTEP_FUNCTION bool is_of_network(std::string_view in_file, std::string_view network) {
    if (in_file == network) return true;
    if (in_file.find('[') != in_file.npos) return false;
    std::string without;
    bool is_in_details = false;
    for (const char c : network) {
        is_in_details = is_in_details || c == '[';
        if (!is_in_details) without += c;
        is_in_details = is_in_details && c != ']';
    }
    return in_file == without;
}

#endif

}  // namespace lockstep::saving
