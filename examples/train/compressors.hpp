// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The compressors that --compress takes, by name: a table in compressors.cpp.

#include <string>
#include <variant>

#include "lockstep/compress/adaptive.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/none.hpp"

namespace example {

// One trainer type for each: gathered messages; sums of one round; of two; a scale for all and then counts.
using gathered = lockstep::compress::any;
using summed = lockstep::compress::any_reduction<lockstep::compress::algebra::ordered_sum>;
using summed_twice = lockstep::compress::any_reduction<lockstep::compress::algebra::ordered_sum, lockstep::compress::algebra::ordered_sum>;
using scaled = lockstep::compress::any_reduction<lockstep::compress::algebra::max, lockstep::compress::algebra::exact_sum>;
using chosen_compressor = std::variant<lockstep::compress::none, gathered, summed, summed_twice, scaled, lockstep::compress::adaptive>;

/// From NAME, NAME:SETTING or either with :plain at its end, which leaves error feedback out; or adaptive:FILE, which repeats the choices in FILE. Throws core::error. `to`: where messages are measured;
/// it may be null.
[[nodiscard]] chosen_compressor choose_compressor(const std::string& text, lockstep::compress::statistics* to);

/// A line for each: name, setting, bytes of a worker for a matrix of a million numbers, what it is.
[[nodiscard]] std::string list_of_compressors();

}  // namespace example
