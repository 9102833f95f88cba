// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One function for each reader of the library: it is given bytes as the content of a file, and ends the process where
// the reader and the oracle disagree, where another exception than core::error leaves it, where a message is not
// printable, and where it takes more than 16 MiB of memory beyond what the file holds.

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep::fuzz {

/// Each returns 1 where the bytes were taken for a valid file, 0 where they were refused.
int fuzz_gzip(std::span<const std::byte> bytes);
int fuzz_idx(
    std::span<const std::byte> bytes);  ///< 4 bytes: how long the first file is (modulo what there is); images; labels
int fuzz_mnist(std::span<const std::byte> bytes);    ///< the same
int fuzz_cifar10(std::span<const std::byte> bytes);  ///< 1 byte: how many pictures to ask for, 0: all; the file
int fuzz_algorithms(std::span<const std::byte> bytes);
int fuzz_table(std::span<const std::byte> bytes);
int fuzz_json(std::span<const std::byte> bytes);
int fuzz_safetensors(std::span<const std::byte> bytes);
int fuzz_npy(std::span<const std::byte> bytes);
int fuzz_csv(std::span<const std::byte> bytes);
int fuzz_netpbm(std::span<const std::byte> bytes);
int fuzz_arrivals(std::span<const std::byte> bytes);
int fuzz_choices(std::span<const std::byte> bytes);

/// A reader that is wrong in this way: acceptance, memory, message or exception. The driver has to see it.
int fuzz_self_test(std::string_view way);

struct reader {
    std::string_view name;
    int (*run)(std::span<const std::byte> bytes);
};
inline constexpr std::array<reader, 13> readers{{{"gzip", fuzz_gzip},
                                                 {"idx", fuzz_idx},
                                                 {"mnist", fuzz_mnist},
                                                 {"cifar10", fuzz_cifar10},
                                                 {"algorithms", fuzz_algorithms},
                                                 {"table", fuzz_table},
                                                 {"json", fuzz_json},
                                                 {"safetensors", fuzz_safetensors},
                                                 {"npy", fuzz_npy},
                                                 {"csv", fuzz_csv},
                                                 {"netpbm", fuzz_netpbm},
                                                 {"arrivals", fuzz_arrivals},
                                                 {"choices", fuzz_choices}}};

/// Calls of operator new since reset(): what was taken at most at one time, and by one call.
struct memory_use {
    std::size_t peak = 0, largest = 0;
};
void reset_memory_use() noexcept;
[[nodiscard]] memory_use memory_used() noexcept;

}  // namespace lockstep::fuzz
