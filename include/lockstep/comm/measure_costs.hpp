// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The cost model of a group of ranks, measured in a few milliseconds: exchanges of pairs of ranks, and additions.
// Tested by tests/mpi/comm_executor.cpp.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/collectives/cost_model.hpp"
#include "lockstep/collectives/schedule.hpp"
#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/sort.hpp"

namespace lockstep::comm {

namespace detail {

/// Seconds for `bytes` each way with the peer, after one exchange that warms up: the mean of `samples` without the
/// slowest third, so what others do to this machine meanwhile counts little. Those together: a link that has let one
/// pass at once makes the next one wait. Nothing for a rank without a peer (itself).
[[nodiscard, gnu::cold]] double exchange_seconds(const group& ranks, std::size_t peer, std::size_t bytes,
                                                 std::size_t samples);

/// Every rank with its peer at once; the figures are those of rank 0's host.
[[nodiscard, gnu::cold]] inline collectives::link measure_link(const group& ranks, std::size_t peer, std::size_t who) {
    const auto agreed = [&](std::size_t bytes, std::size_t samples) {
        return ranks.gather_all(exchange_seconds(ranks, peer, bytes, samples))[who];
    };
    collectives::link out{agreed(64, 15), 0};
    // What idle links and buffers take at once says nothing about the bandwidth.
    (void)agreed(std::size_t{1} << 18U, 1);
    // Long enough to see it.
    for (std::size_t bytes = std::size_t{1} << 16U;; bytes *= 4) {
        const double seconds = agreed(bytes, 5);
        out.seconds_per_byte = std::max(0.0, seconds - out.latency) / static_cast<double>(bytes);
        if (seconds > 2e-4 || bytes >= std::size_t{1} << 18U) return out;
    }
}

}  // namespace detail

/// Collective. Neighbours on a host exchange with each other, then ranks of neighbouring hosts, all of them at once, so
/// that ranks share their links as in a step. What rank 0 has seen counts for all: the model is the same on every rank.
/// One rank measures nothing. Cost: some 30 messages each way of 64 bytes to 256 KiB and a few short all-gathers: 1 ms
/// on a host, 10 ms over 1 Gbit/s, 80 ms over 100 Mbit/s.
[[nodiscard, gnu::cold]] collectives::cost_model measure_costs(const group& ranks);

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION double exchange_seconds(const group& ranks, std::size_t peer, std::size_t bytes,
                                          std::size_t samples) {
    collectives::schedule swap{"exchange", true, bytes};
    if (peer != ranks.rank()) {
        swap.send(peer, collectives::in_data(0, bytes));
        swap.receive(peer, collectives::in_work(0, bytes));
        swap.end_round();
    }
    buffer<std::byte> out(bytes), in(bytes);
    operation<std::byte> run{ranks, swap};
    std::vector<double> took;
    for (std::size_t sample = 0; sample <= samples; ++sample) {
        const auto begin = std::chrono::steady_clock::now();
        run.run(out, in);
        took.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    took.erase(took.begin());
    core::sort(took, [](double a, double b) { return a < b; });
    took.resize(samples - samples / 3);
    return std::accumulate(took.begin(), took.end(), 0.0) / static_cast<double>(took.size());
}

}  // namespace detail

LOCKSTEP_FUNCTION collectives::cost_model measure_costs(const group& ranks) {
    collectives::cost_model out;
    if (ranks.size() == 1) return out;
    out.on = ranks.hosts();
    const std::size_t size = ranks.size(), rank = ranks.rank();
    // Which of the ranks of its host, and which host: hosts in the order of their lowest rank.
    std::vector<std::size_t> local(size), host(size);
    std::size_t hosts = 0, twin = size;
    for (std::size_t r = 0; r < size; ++r) {
        host[r] = out.on[r] == r ? hosts++ : host[out.on[r]];
        for (std::size_t other = 0; other < r; ++other) local[r] += out.on[other] == out.on[r];
        if (local[r] == 1 && twin == size) twin = r;
    }
    const auto find = [&](std::size_t wanted_host, std::size_t number) {
        for (std::size_t r = 0; r < size; ++r)
            if (host[r] == wanted_host && local[r] == number) return r;
        return rank;
    };
    if (twin < size) out.inside = detail::measure_link(ranks, find(host[rank], local[rank] ^ 1U), out.on[twin]);
    out.between = hosts > 1 ? detail::measure_link(ranks, find(host[rank] ^ 1U, local[rank]), 0) : out.inside;
    std::vector<float> sum(std::size_t{1} << 15U), from(sum.size());
    double best = 1;
    for (int sample = 0; sample < 5; ++sample) {
        const auto begin = std::chrono::steady_clock::now();
        add({}, sum.data(), from.data(), sum.size());
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    out.seconds_per_added_byte = ranks.gather_all(best)[0] / static_cast<double>(sum.size() * sizeof(float));
    return out;
}

#endif

}  // namespace lockstep::comm
