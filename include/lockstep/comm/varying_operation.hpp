// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a schedule over elements whose lengths are known only when they are sent.
// Tested by tests/mpi/reduce_sparse_sum.cpp.

#include <cstddef>
#include <source_location>
#include <span>
#include <utility>

#include "lockstep/collectives/schedule.hpp"
#include "lockstep/comm/executor.hpp"
#include "lockstep/comm/group.hpp"

namespace lockstep::comm {

/// As comm::operation, over elements that each begin with their length in bytes (64 bits) and have room for `room`
/// bytes, a multiple of 16 (the type of their sizes is std::byte). An addition of the schedule is merge(how, to, from,
/// scratch): to = to + from, with `room` bytes of scratch. The schedule says which element goes where and is added
/// when; lengths travel in the elements. Each element is a message of its own. Messages of a round are under way
/// together, so lengths cost no time of their own but where an element has several pieces: the second one is received
/// after the first.
class varying_operation {
public:
    using merge_function = void (*)(const void* how, std::byte* to, const std::byte* from, std::byte* scratch) noexcept;

    /// What `how` points to outlives the operation.
    [[gnu::cold]] varying_operation(group ranks, collectives::schedule program, std::size_t room, merge_function merge,
                                    const void* how, urgency soon = {})
        : room_{room},
          run_{std::move(ranks),
               std::move(program),
               {},
               flow::usual_piece,
               soon,
               {.size = room, .unit = "streams", .merge = merge, .how = how}} {}

    /// Elements of data, and of scratch.
    [[nodiscard]] std::size_t data_size() const noexcept { return run_.program().data_size(); }
    [[nodiscard]] std::size_t work_size() const noexcept { return run_.program().work_size() + 1; }

    /// `data` and `work` hold data_size() and work_size() elements; the rest as for comm::operation.
    void start(std::span<std::byte> data, std::span<std::byte> work,
               const std::source_location& where = std::source_location::current()) {
        run_.start(data.data(), data.size() / room_, work.data(), work.size() / room_, where);
    }
    bool poll() { return run_.poll(); }
    bool progress() { return run_.progress(); }
    void finish() { run_.finish(); }
    [[nodiscard]] comm::pending_operation pending() const noexcept { return run_.pending(); }
    [[nodiscard]] const collectives::schedule& program() const noexcept { return run_.program(); }
    /// Messages and bytes handed to MPI by this rank since construction.
    [[nodiscard]] std::size_t sent_messages() const noexcept { return run_.under_way().sent_messages(); }
    [[nodiscard]] std::size_t sent_bytes() const noexcept { return run_.under_way().sent_bytes(); }

private:
    std::size_t room_;
    detail::untyped_operation run_;
};

}  // namespace lockstep::comm
