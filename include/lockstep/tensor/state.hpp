// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What outlives a step, in words that know no rank and no bucket: who owns some of it shows it by one member,
// visit_state(visitor). Hashes, memory reports and checkpoints are visitors.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/core/hash.hpp"

namespace lockstep::tensor {

/// Of a state that is not kept for each worker.
inline constexpr std::size_t shared_by_workers = std::numeric_limits<std::size_t>::max();

/// A run of numbers of one array, in the precision of the network, or counters (std::uint64_t): visitors take both. An
/// array is named by role, slot, set, tensor, segment and worker, the same on any
/// number of ranks, for any buckets and threads; `first` counts from its start.
template <class T>
struct state_part {
    std::string_view role;   ///< weights, statistics, optimizer, compressor, ..: of letters, digits, spaces and -
    std::size_t slot = 0;    ///< of several arrays of a role
    std::size_t set = 0;     ///< of several sets of gradients
    std::size_t tensor = 0;  ///< number of the parameter tensor (of statistics: of the layer) among all of the network;
                             ///< with shards, tensor x shards + shard
    std::size_t segment = 0;  ///< where the segment begins in the tensor
    std::size_t worker = shared_by_workers;
    std::size_t first = 0;
    std::span<T> numbers{};
    /// Of the ranks that hold these numbers, which are equal there, one speaks: with the parts that speak, every number
    /// of a run is shown once over all ranks.
    bool speaks = true;
};

/// A sum over all numbers that speak, to be added over ranks: no rank needs to see what others hold. About 3 ns for
/// each number.
class state_hash {
public:
    template <class T>
    void operator()(const state_part<T>& part) noexcept {
        if (!part.speaks) return;
        std::uint64_t key = core::hash(part.role);
        for (const std::size_t one : {part.slot, part.set, part.tensor, part.segment, part.worker})
            key = core::mix(key + step) ^ one;
        key = core::mix(key + step) + part.first * step;
        for (const T& number : part.numbers) {
            sum_ += core::mix(key ^ core::hash(std::as_bytes(std::span{&number, 1})));
            key += step;
        }
    }
    /// Of this rank.
    [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }

private:
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;
    std::uint64_t sum_ = 0;
};

}  // namespace lockstep::tensor
