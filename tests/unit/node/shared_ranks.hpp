// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Threads of one process in the place of ranks that share memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/collectives/tree.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/node/shared_parts.hpp"

namespace shared_ranks {

namespace collectives = lockstep::collectives;
namespace node = lockstep::node;
namespace core = lockstep::core;

/// Memory of one process, whose threads are the ranks.
class shared_memory {
public:
    shared_memory(std::size_t ranks, std::size_t bytes, bool crowded = true)
        : ranks_{ranks},
          bytes_{node::shared_parts::footprint(bytes)},
          crowded_{crowded},
          all_(ranks * bytes_ / sizeof(line)) {}
    [[nodiscard]] node::shared_parts of(std::size_t rank) {
        std::vector<std::byte*> parts;
        for (std::size_t other = 0; other < ranks_; ++other)
            parts.push_back(reinterpret_cast<std::byte*>(all_.data()) + other * bytes_);
        return {rank, parts, bytes_, crowded_};
    }

private:
    struct alignas(node::shared_line) line {
        std::byte bytes[node::shared_line] = {};
    };
    std::size_t ranks_;
    std::size_t bytes_;
    bool crowded_;
    std::vector<line> all_;
};

template <class F>
void on_ranks(std::size_t ranks, F f) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([=] { f(rank); });
    for (auto& one : threads) one.join();
}

template <class T>
std::vector<T> values(std::size_t rank, std::size_t count, std::uint32_t step) {
    const core::random_stream numbers{11, core::purpose::user, static_cast<std::uint32_t>(rank), step};
    std::vector<T> out(count);
    for (std::size_t i = 0; i < count; ++i)
        out[i] = (static_cast<T>(numbers.uniform(i)) - T(0.5)) * (i % 5 == 0 ? T(1e4) : T(1) / 3);
    return out;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// The vectors of the rank that has the most.
inline std::size_t most_vectors(std::size_t ranks, std::size_t lanes) {
    std::size_t most = 1;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        most = std::max(most, collectives::tree_data_size(lockstep::parallel::split(lanes, ranks, rank), lanes, 1));
    return most;
}

}  // namespace shared_ranks
