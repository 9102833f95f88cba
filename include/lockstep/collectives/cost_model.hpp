// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a schedule costs before it runs: messages over links with latency and bandwidth, additions at a rate.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::collectives {

/// Messages between two ranks: a message of n bytes is there after latency + n seconds_per_byte (Hockney 1994).
struct link {
    double latency = 0;           ///< alpha: seconds for each message
    double seconds_per_byte = 0;  ///< beta: 1 / bandwidth, in each direction at the same time
};

/// The alpha-beta-gamma model (Thakur, Rabenseifner, Gropp 2005), with links of two kinds.
struct cost_model {
    link inside;                        ///< between ranks of one host
    link between;                       ///< between hosts, while all ranks of a host send
    double seconds_per_added_byte = 0;  ///< gamma: of the sum
    std::vector<std::size_t> on{};  ///< equal numbers = one host, as from group::hosts(); none: all links are `between`

    [[nodiscard]] const link& over(std::size_t from, std::size_t to) const noexcept {
        return on.empty() || on[from] != on[to] ? between : inside;
    }
};

/// One line: "between hosts 51.2 us + 8.01 ns/B, inside 0.9 us + 0.12 ns/B, additions 0.05 ns/B".
[[nodiscard, gnu::cold]] std::string to_text(const cost_model& model);

/// Seconds of one rank's program if no rank is late: in each round the latency, the longer one of what it sends and
/// what it receives, its additions. What the catalogue of Ben-Nun, Hoefler (2019) states: doubling log2(p) (L + n G),
/// halving and doubling 2 L log2(p) + 2 n G (p-1)/p, ring 2 (p-1) (L + n G / p).
[[nodiscard, gnu::cold]] double price(const schedule& program, std::size_t rank, std::size_t element_bytes,
                                      const cost_model& model);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION double price(const schedule& program, std::size_t rank, std::size_t element_bytes,
                               const cost_model& model) {
    double sum = 0;
    for (const auto& round : program.rounds()) {
        double latency = 0, sent = 0, received = 0;
        const auto count = [&](const message& transfer, double& way) {
            const link& over = model.over(rank, transfer.peer);
            latency = std::max(latency, over.latency);
            way += static_cast<double>(transfer.what.count * element_bytes) * over.seconds_per_byte;
        };
        for (std::size_t i = round.sends.first; i < round.sends.last; ++i) count(program.sends()[i], sent);
        for (std::size_t i = round.receives.first; i < round.receives.last; ++i) count(program.receives()[i], received);
        sum += latency + std::max(sent, received);
    }
    return sum + static_cast<double>(program.added() * element_bytes) * model.seconds_per_added_byte;
}

LOCKSTEP_FUNCTION std::string to_text(const cost_model& model) {
    const auto text = [](const link& connection) {
        return core::fixed(1e6 * connection.latency, 1) + " us + " + core::fixed(1e9 * connection.seconds_per_byte, 2) +
               " ns/B";
    };
    std::size_t hosts = 0, ranks = model.on.size();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        bool first = true;
        for (std::size_t other = 0; other < rank; ++other) first = first && model.on[other] != model.on[rank];
        hosts += first;
    }
    std::string out;
    if (hosts != 1) out += "between hosts " + text(model.between) + ", ";
    if (ranks > hosts) out += "inside " + text(model.inside) + ", ";
    return out + "additions " + core::fixed(1e9 * model.seconds_per_added_byte, 2) + " ns/B";
}

#endif

}  // namespace lockstep::collectives
