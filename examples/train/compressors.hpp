// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The compressors that --compress takes, by name: a table in compressors.cpp.

#include <cstdint>
#include <string>
#include <variant>

#include "lockstep/compress/adaptive.hpp"
#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/global_top_k.hpp"
#include "lockstep/compress/half.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/none.hpp"
#include "lockstep/compress/quantize.hpp"
#include "lockstep/compress/sparse_sum.hpp"

namespace example {

/// Any compressor whose messages are indices and values.
struct lists : lockstep::compress::any {
    explicit lists(const any& compressor) : any{compressor} {}
    static constexpr bool sends_index_list = true;
};
/// deep_gradient is the optimizer.
struct with_momentum_of_workers {
    lockstep::compress::any compressor;
};
/// one_bit_adam is the optimizer.
struct with_frozen_variance {
    lockstep::compress::any compressor;
    std::uint64_t warm_up = 0;
};

// One trainer type for each: gathered messages; sums of one round; of two; a scale for all and then counts; counts
// alone.
using gathered = lockstep::compress::any;
using summed = lockstep::compress::any_reduction<lockstep::compress::algebra::ordered_sum>;
using summed_twice = lockstep::compress::any_reduction<lockstep::compress::algebra::ordered_sum,
                                                       lockstep::compress::algebra::ordered_sum>;
using scaled =
    lockstep::compress::any_reduction<lockstep::compress::algebra::max, lockstep::compress::algebra::exact_sum>;
using counted = lockstep::compress::any_reduction<lockstep::compress::algebra::exact_sum>;
using half_sums = lockstep::compress::measured<lockstep::compress::half>;
using bfloat16_sums = lockstep::compress::measured<lockstep::compress::bfloat16>;
using streamed = lockstep::compress::sparse_sum<lists, lockstep::compress::quantize>;
using chosen_compressor = std::variant<lockstep::compress::none, gathered, summed, summed_twice, scaled, counted,
                                       half_sums, bfloat16_sums, streamed, lockstep::compress::global_top_k,
                                       with_momentum_of_workers, with_frozen_variance, lockstep::compress::adaptive>;

/// From NAME, NAME:SETTING or either with :plain at its end, which leaves error feedback out; or adaptive:FILE, which
/// repeats the choices in FILE. Throws core::error. `to`: where messages are measured; it may be null. `keeps_rest`: as
/// with :plain, for a strategy that keeps what messages leave out.
[[nodiscard]] chosen_compressor choose_compressor(const std::string& text, lockstep::compress::statistics* to,
                                                  bool keeps_rest = false);

/// A line for each: name, setting, bytes of a worker for a matrix of a million numbers, what it is.
[[nodiscard]] std::string list_of_compressors();

}  // namespace example
