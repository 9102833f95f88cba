// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A window of memory that all ranks of a node can read and write.
// Tested by tests/mpi/comm_shared.cpp.

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/comm/buffer.hpp"
#include "lockstep/comm/group.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/node/shared_segment.hpp"

namespace lockstep::node {

namespace detail {

/// Whether all ranks together may use fewer cores than they are. Collective.
[[nodiscard, gnu::cold]] bool is_crowded(const comm::group& ranks);

}  // namespace detail

/// Whether all ranks of the group can share memory. Collective.
[[nodiscard, gnu::cold]] bool on_one_node(const comm::group& ranks);

/// `bytes` for each rank of the group, zero at first. Each rank's part is touched by itself first, so that it lies in
/// the memory next to it. Made collectively. Each rank destroys it when it likes: the memory goes when the last has. A
/// group of one rank needs no file. Throws core::error on all ranks alike if they are not on one node, or cannot have
/// the memory: pages are reserved before use. `room` in /dev/shm has to hold the window and a margin: 5 % and 4 MiB a
/// rank, or what segments of Open MPI may still take if that is more. Without it the job would be killed by SIGBUS when
/// they grow: Open MPI reserves nothing. Where /dev/shm has less than 5 MiB a rank (a container has 64 MiB in all),
/// even the segments of Open MPI may not fit: scripts/mpirun then keeps them in $TMPDIR or /tmp. With another launcher
/// set OMPI_MCA_btl_vader_backing_directory=/tmp, or enlarge it (docker --shm-size).
class shared_window {
public:
    [[gnu::cold]] shared_window(comm::group ranks, std::size_t bytes, std::size_t room = shared_segment::free_bytes());
    shared_window(const shared_window&) = delete;
    shared_window& operator=(const shared_window&) = delete;
    /// What MPI may still read after a failure stays mapped.
    [[gnu::cold]] ~shared_window();

    /// What so many ranks take of /dev/shm with `bytes` each, and what is to stay free beside it. `promised`: to
    /// segments of Open MPI.
    struct demand {
        std::size_t bytes = 0, spare = 0;
        [[nodiscard]] bool fits(std::size_t room) const noexcept { return room >= spare && bytes <= room - spare; }
    };
    [[nodiscard, gnu::cold]] static demand demand_of(std::size_t ranks, std::size_t bytes, std::size_t promised);

    [[nodiscard]] shared_parts& memory() noexcept { return *memory_; }
    [[nodiscard]] const shared_parts& memory() const noexcept { return *memory_; }

private:
    static constexpr std::size_t margin = std::size_t{4} << 20U;  // of each rank: the size of Open MPI's segments

    /// The same outcome on all ranks, before any of them takes memory.
    [[gnu::cold]] void check(std::size_t bytes, std::size_t room) const;
    /// Maps parts of `stride` bytes. The same outcome on all ranks.
    [[gnu::cold]] void map(std::size_t stride);
    /// Throws where a step has failed on any rank. `code`: errno.
    [[gnu::cold]] void agree(std::string_view step, int code) const;

    struct release {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };

    comm::group ranks_;
    std::unique_ptr<std::byte, release> alone_;
    shared_segment segment_;
    std::optional<shared_parts> memory_;
};

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION bool is_crowded(const comm::group& ranks) {
#if defined(__linux__)
    cpu_set_t mine;
    CPU_ZERO(&mine);
    (void)sched_getaffinity(0, sizeof mine, &mine);
    cpu_set_t all;
    CPU_ZERO(&all);
    for (const std::string& bytes :
         ranks.gather_all(std::string_view{reinterpret_cast<const char*>(&mine), sizeof mine})) {
        cpu_set_t cores;
        std::memcpy(&cores, bytes.data(), sizeof cores);
        CPU_OR(&all, &all, &cores);
    }
    // None where the system has more of them than a mask of this size: then nothing is known.
    const auto cores = static_cast<std::size_t>(CPU_COUNT(&all));
    return cores > 0 && cores < ranks.size();
#else
    (void)ranks.gather_all(ranks.size());  // also there it ends when all ranks have come
    return true;
#endif
}

}  // namespace detail

LOCKSTEP_FUNCTION bool on_one_node(const comm::group& ranks) {
    const auto hosts = ranks.hosts();
    return std::all_of(hosts.begin(), hosts.end(), [&](std::size_t host) { return host == hosts[0]; });
}

LOCKSTEP_FUNCTION shared_window::shared_window(comm::group ranks, std::size_t bytes, std::size_t room)
    : ranks_{std::move(ranks)} {
    bytes = shared_parts::footprint(core::checked_sum("bytes of a shared window", bytes == 0 ? 1 : bytes));
    check(bytes, room);
    const std::size_t page = shared_segment::page(), stride = (bytes + page - 1) / page * page;
    std::vector<std::byte*> parts(ranks_.size());
    if (ranks_.size() == 1) {
        alone_.reset(static_cast<std::byte*>(std::aligned_alloc(page, stride)));
        if (!alone_)
            core::fail_memory("what ranks of a node share", bytes,
                              "use a smaller network, or a machine with more memory");
        parts[0] = alone_.get();
    } else {
        map(stride);
        for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = segment_.data() + rank * stride;
    }
    std::memset(parts[ranks_.rank()], 0, bytes);
    if (!alone_) segment_.collapse(ranks_.rank() * stride, stride);
    const bool crowded = detail::is_crowded(ranks_);  // ends when all parts are zero
    for (std::size_t rank = 0; rank < parts.size() && !alone_; ++rank) segment_.collapse(rank * stride, stride);
    memory_.emplace(ranks_.rank(), std::move(parts), bytes, crowded, &ranks_.aborts());
    memory_->belongs_to(ranks_.record());
}

LOCKSTEP_FUNCTION shared_window::~shared_window() {
    if (memory_ && !alone_) {
        const auto own = memory_->mine(tensor::slice<std::byte>{0, memory_->bytes()});
        if (comm::abandoned_memory::takes(own)) segment_.stay();
    }
}

LOCKSTEP_FUNCTION shared_window::demand shared_window::demand_of(std::size_t ranks, std::size_t bytes,
                                                                 std::size_t promised) {
    constexpr std::string_view what = "bytes of a shared window";
    const std::size_t each = core::checked_sum(what, bytes, shared_segment::page());
    return {core::checked_product(what, ranks, each), std::max(bytes / 20 * ranks + margin * ranks, promised)};
}

LOCKSTEP_FUNCTION void shared_window::check(std::size_t bytes, std::size_t room) const {
    if (ranks_.size() == 1) return;
    struct facts {
        std::size_t bytes, room, promised;
    };
    const auto all = ranks_.gather_all(facts{bytes, room, shared_segment::promised_bytes()});
    std::size_t promised = 0;
    for (const facts& other : all) {
        if (other.bytes != all[0].bytes)
            core::fail(
                core::text("a shared window of ", all[0].bytes, " bytes on rank 0, of ", other.bytes, " on another"),
                "ask for equally many on all ranks");
        room = std::min(room, other.room);
        promised = std::max(promised, other.promised);
    }
    if (!on_one_node(ranks_))
        core::fail(core::text("a shared window for ", ranks_.size(), " ranks that are not on one node"),
                   "split the group by hosts() first");
    const demand all_of_it = demand_of(ranks_.size(), bytes, promised);
    if (!all_of_it.fits(room))
        core::fail(core::text("a shared window of ", ranks_.size(), " x ", bytes, " bytes and ", all_of_it.spare,
                              " to spare, but /dev/shm has ", room, " left"),
                   "enlarge it (mount -o remount,size=.. /dev/shm, docker --shm-size), or do without shared memory");
}

LOCKSTEP_FUNCTION void shared_window::agree(std::string_view step, int code) const {
    const auto all = ranks_.gather_all(code);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (all[rank] != 0)
            core::fail(
                core::text("rank ", rank, " cannot ", step, " shared memory in ", shared_segment::folder, ": ",
                           std::generic_category().message(all[rank])),
                "look at the free space and the rights of /dev/shm and at the memory, or do without shared memory");
}

LOCKSTEP_FUNCTION void shared_window::map(std::size_t stride) {
    const std::size_t bytes = stride * ranks_.size();
    const bool creates = ranks_.rank() == 0;
    agree("create", creates ? segment_.create(bytes) : 0);
    const std::string name = ranks_.gather_all(std::string_view{segment_.name()})[0];
    agree("open", creates ? 0 : segment_.open(name, bytes));
    agree("reserve", segment_.reserve(ranks_.rank() * stride, stride));
    agree("map", segment_.map());
    segment_.remove_name();
}

#endif

}  // namespace lockstep::node
