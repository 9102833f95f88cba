// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What --report writes of a run: one function for all networks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compress/measured.hpp"
#include "lockstep/partition/grid.hpp"
#include "lockstep/report/events.hpp"
#include "options.hpp"

namespace example {

struct layer_facts {
    std::string name, output;
    std::size_t parameters = 0;
    double flops = 0;  // forward, of a sample
    bool is_sharded = false;
};

/// What the report says of a trainer.
struct report_facts {
    lockstep::partition::grid grid;
    std::size_t threads = 0;
    std::string input, transport;
    std::vector<layer_facts> layers;
    std::size_t parameters = 0;
    double forward_flops = 0, training_flops = 0;  // of a sample
    std::size_t averaging_bytes = 0, between_layers = 0, memory_bytes = 0;
    lockstep::report::memory_by_kind memory;
    lockstep::report::totals totals;
    std::uint64_t sent = 0;  // bytes, the most of a rank
    std::string hash;        // of the weights
    std::vector<std::pair<std::string, lockstep::compress::tensor_statistics>> messages{};  // of tensors that sent any
};

/// As JSON.
[[nodiscard]] std::string report_text(const report_facts& facts, const options& of);

}  // namespace example
