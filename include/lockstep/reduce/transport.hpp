// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How gradients and weights go from rank to rank.
// Tested by tests/unit/reduce/choose.cpp.

#include <cstdint>
#include <string_view>

namespace lockstep::reduce {

/// messages: over MPI. shared_memory: ranks of one node read and write each other's arrays; an error where it cannot be
/// had. automatic: shared memory where all ranks are on one node and it has room for them, else messages. With a
/// compressor all this is of the ranks that share a worker; between workers there are messages. Changes no bit.
enum class transport : std::uint8_t { automatic, messages, shared_memory };

[[nodiscard]] constexpr std::string_view name_of(transport which) noexcept {
    return which == transport::automatic ? "automatic" : which == transport::messages ? "messages" : "shared_memory";
}

}  // namespace lockstep::reduce
