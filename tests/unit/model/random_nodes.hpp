// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random lists of nodes for the plan of a step's memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/model/memory_plan.hpp"

namespace support {

namespace ls = lockstep;
using ls::model::memory_node;
using ls::model::the_samples;

/// Whole numbers below a bound, one after the other.
struct dice {
    ls::core::random_stream random;
    std::uint64_t at = 0;
    explicit dice(std::uint32_t series) : random{17, ls::core::purpose::user, series} {}
    std::size_t operator()(std::size_t below) { return random.word(at++) % below; }
};

/// A random network: plain stretches, values with several readers, views, sums, concatenations, and any flags.
struct random_network {
    std::vector<std::vector<std::size_t>> reads;
    std::vector<memory_node> nodes;

    explicit random_network(std::uint32_t series, bool with_blocks = false) {
        dice roll{series};
        const std::size_t n = 1 + roll(14);
        const auto some = [&] { return 1 + roll(4 * ls::simd::alignment); };  // bytes
        std::vector<bool> read(n);
        reads.resize(n);
        nodes.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
            const auto any = [&] { return i == 0 || roll(8) == 0 ? the_samples : roll(2) == 0 ? i - 1 : roll(i); };
            auto& node = nodes[i];
            node.output = some();
            reads[i] = {i == 0 ? the_samples : roll(3) == 0 ? any() : i - 1};
            const std::size_t kind = roll(6);
            const auto size_of = [&](std::size_t value) {
                return value == the_samples ? std::size_t{128} : nodes[value].value;
            };
            if (kind == 0) {
                node.traits.is_view = true;
            } else if (kind < 3) {
                for (std::size_t more = 1 + roll(2); more > 0; --more) reads[i].push_back(any());
                node.traits.passes_gradient = kind == 1;
                node.traits.needs_x = kind == 2 && roll(2) == 0;
                node.traits.needs_y = kind == 2 && roll(2) == 0;
                node.traits.in_place = kind == 1 || roll(2) == 0;
                if (kind == 2) {
                    node.saved = roll(2) * some();
                    node.scratch = roll(2) * some();
                    node.partials = roll(2) * some();
                }
                if (kind == 1)  // a sum is of values of one size
                    for (auto& value : reads[i])
                        if (size_of(value) != size_of(reads[i][0])) value = reads[i][0];
            } else {
                node.traits.needs_x = roll(2) == 0;
                node.traits.needs_y = roll(2) == 0;
                node.traits.in_place = roll(2) == 0;
                node.saved = roll(2) * some();
                node.scratch = roll(2) * some();
                node.partials = roll(2) * some();
                node.traits.sums_gradient = roll(2) == 0;
                node.observed = roll(2) * some();
                node.observed_again = node.observed + roll(2) * some();
                // A second value of the size of the output.
                const std::size_t addend = any();
                if (roll(4) == 0 && addend != reads[i][0]) {
                    reads[i].push_back(addend);
                    node.traits.has_addend = true;
                    node.output = size_of(addend);
                }
            }
            // A concatenation is as large as its parts, and some other joins are as the first of them.
            if (kind == 2) {
                node.output = 0;
                for (const std::size_t value : reads[i]) node.output += size_of(value);
                if (roll(2) == 0) node.output = size_of(reads[i][0]);
            }
            const std::size_t from = size_of(reads[i][0]);
            if (node.traits.is_view || node.traits.passes_gradient ||
                (node.traits.in_place && !node.traits.has_addend && roll(2) == 0))
                node.output = from;
            if (node.traits.has_addend && from != node.output) node.traits.in_place = false;
            node.redistributes_before = reads[i].size() == 1 && roll(8) == 0;
            node.redistributes_after = !node.traits.has_addend && roll(8) == 0;
            node.redistribution = node.redistributes_before || node.redistributes_after ? some() : 0;
            node.input = node.redistributes_before ? some() : from;
            if (node.traits.is_view) node.output = node.input;
            node.value = node.redistributes_after ? some() : node.output;
            node.learns = kind > 3 && roll(3) == 0;
            for (const std::size_t value : reads[i]) {
                if (value == the_samples) continue;
                read[value] = true;
                node.learns = node.learns || nodes[value].learns;
            }
        }
        // Values that are never read are no values of a network: the last node reads all of them.
        auto& last = nodes[n - 1];
        if (std::count(read.begin(), read.end() - 1, false) > 0) {
            last = {.reads = {}, .traits = {.needs_x = false, .needs_y = false}};
            for (std::size_t i = 0; i + 1 < n; ++i)
                if (!read[i]) reads[n - 1].push_back(i);
            for (const std::size_t value : reads[n - 1]) last.output += value == the_samples ? 128 : nodes[value].value;
            last.value = last.output;
            last.input = reads[n - 1][0] == the_samples ? 128 : nodes[reads[n - 1][0]].value;
            for (const std::size_t value : reads[n - 1])
                last.learns = last.learns || (value != the_samples && nodes[value].learns);
        }
        for (std::size_t i = 0; i < n; ++i) nodes[i].reads = reads[i];
        std::size_t count = 0;
        for (std::size_t first = 0; with_blocks && first < n; ++first)
            for (std::size_t end = n; end > first; --end) {
                if (!is_block(first, end) || roll(3) == 0) continue;
                for (++count; first < end; ++first) nodes[first].block = count;
                run_again(end, roll);
                break;
            }
    }

private:
    /// Nodes first .. end - 1 read one value of others at most, and others read the value of the last one at most.
    [[nodiscard]] bool is_block(std::size_t first, std::size_t end) const {
        std::vector<std::size_t> outside;
        for (std::size_t i = 0; i < nodes.size(); ++i)
            for (const std::size_t value : reads[i]) {
                const bool reader = i >= first && i < end,
                           inside = value != the_samples && value >= first && value < end;
                if (reader && !inside && std::count(outside.begin(), outside.end(), value) == 0)
                    outside.push_back(value);
                if (!reader && inside && value + 1 != end) return false;
            }
        return outside.size() <= 1;
    }
    /// Those of the block before `end` that backward needs, and some more.
    void run_again(std::size_t end, dice& roll) {
        const auto block = nodes[end - 1].block;
        for (std::size_t i = end; i-- > 0 && nodes[i].block == block;) {
            auto& node = nodes[i];
            const bool keeps = node.learns && !node.traits.is_view;
            node.runs_again = node.runs_again || (keeps && (node.traits.needs_y || node.saved > 0)) ||
                              (!node.traits.is_view && roll(8) == 0);
            if (node.runs_again || (keeps && node.traits.needs_x))
                for (std::size_t k = 0; k < (node.runs_again || !node.traits.has_addend ? reads[i].size() : 1); ++k)
                    if (const std::size_t value = reads[i][k]; value != the_samples && nodes[value].block == block)
                        nodes[value].runs_again = true;
        }
    }
};

}  // namespace support
