// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A window of memory that all ranks of a node can read and write (MPI_Win_allocate_shared, MPI 3.1 section 11.2.3).

#if defined(__linux__)
#include <sched.h>
#include <sys/statvfs.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/large_pages.hpp"
#include "lockstep/comm/shared_parts.hpp"
#include "lockstep/comm/transport.hpp"
#include "lockstep/core/checked.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

namespace detail {

/// Whether all ranks together may use fewer cores than they are. Collective.
[[nodiscard, gnu::cold]] bool is_crowded(const group& ranks);

/// Bytes that shared memory can still hold here, as far as is known.
[[nodiscard, gnu::cold]] inline std::size_t free_shared_bytes() {
#if defined(__linux__)
    struct statvfs disk {};
    if (::statvfs("/dev/shm", &disk) == 0) return static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
#endif
    return static_cast<std::size_t>(-1);
}

}  // namespace detail

/// Whether all ranks of the group can share memory. Collective.
[[nodiscard, gnu::cold]] bool on_one_node(const group& ranks);

/// `bytes` for each rank of the group, zero at first, each rank's part touched by itself first, so that it lies in the memory next to it.
/// Made collectively. Each rank destroys it when it likes: the memory goes when the last has. (Where a process cannot have a second view of
/// shared memory, MPI's window stays, and the destructor is collective unless a rank has failed.)
/// Throws core::error on all ranks if they are not on one node, or if /dev/shm has less than `room` for all. A group of one rank needs no
/// MPI.
class shared_window {
public:
    [[gnu::cold]] shared_window(group ranks, std::size_t bytes, std::size_t room = detail::free_shared_bytes());
    shared_window(const shared_window&) = delete;
    shared_window& operator=(const shared_window&) = delete;

    [[gnu::cold]] ~shared_window();

    [[nodiscard]] shared_parts& memory() noexcept { return *memory_; }
    [[nodiscard]] const shared_parts& memory() const noexcept { return *memory_; }

private:
    static constexpr std::size_t page = 4096;

    /// The same outcome on all ranks: who is alone in MPI's own call waits there for ever.
    void check(std::size_t bytes, std::size_t room) const;

    void allocate(std::size_t bytes, std::vector<std::byte*>& parts);

    /// Collective, and nobody waits in it for a rank that fails: all have just met.
    void free() noexcept {
        MPI_Win_unlock_all(window_);
        MPI_Win_free(&window_);
        window_ = MPI_WIN_NULL;
    }

    struct release {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };

    group ranks_;
    int exceptions_ = std::uncaught_exceptions();
    MPI_Win window_ = MPI_WIN_NULL;
    std::unique_ptr<std::byte, release> alone_;
    std::vector<large_page_view> views_;
    std::optional<shared_parts> memory_;
};

#if LOCKSTEP_BODIES

namespace detail {

LOCKSTEP_FUNCTION bool is_crowded(const group& ranks) {
#if defined(__linux__)
    cpu_set_t mine;
    CPU_ZERO(&mine);
    (void)sched_getaffinity(0, sizeof mine, &mine);
    cpu_set_t all;
    CPU_ZERO(&all);
    for (const std::string& bytes : ranks.gather_all(std::string_view{reinterpret_cast<const char*>(&mine), sizeof mine})) {
        cpu_set_t one;
        std::memcpy(&one, bytes.data(), sizeof one);
        CPU_OR(&all, &all, &one);
    }
    return static_cast<std::size_t>(CPU_COUNT(&all)) < ranks.size();
#else
    (void)ranks.gather_all(ranks.size());  // also there it ends when all ranks have come
    return true;
#endif
}

}  // namespace detail

LOCKSTEP_FUNCTION bool on_one_node(const group& ranks) {
    const auto hosts = ranks.hosts();
    return std::all_of(hosts.begin(), hosts.end(), [&](std::size_t one) { return one == hosts[0]; });
}

LOCKSTEP_FUNCTION shared_window::shared_window(group ranks, std::size_t bytes, std::size_t room) : ranks_{std::move(ranks)} {
    bytes = shared_parts::footprint(core::checked_sum("bytes of a shared window", bytes == 0 ? 1 : bytes));
    check(bytes, room);
    std::vector<std::byte*> parts(ranks_.size());
    if (ranks_.size() == 1) {
        alone_.reset(static_cast<std::byte*>(std::aligned_alloc(page, (bytes + page - 1) / page * page)));
        if (!alone_) core::fail_memory("what ranks of a node share", bytes, "use a smaller network, or a machine with more memory");
        parts[0] = alone_.get();
    } else {
        allocate(bytes, parts);
    }
    // The same memory, where large pages can be had, and the window is not needed any more.
    bool separate = true;
    views_.reserve(parts.size());
    for (std::byte*& part : parts) {
        part = views_.emplace_back(part, ranks_.size() == 1 ? 0 : bytes).data();
        separate = separate && views_.back().separate();
    }
    for (const std::size_t one : ranks_.gather_all(std::size_t{separate})) separate = separate && one == 1;
    if (separate) free();
    std::memset(parts[ranks_.rank()], 0, bytes);
    views_[ranks_.rank()].collapse();
    const bool crowded = detail::is_crowded(ranks_);  // ends when all parts are zero
    for (const large_page_view& view : views_) view.collapse();
    memory_.emplace(ranks_.rank(), std::move(parts), bytes, crowded, &ranks_.notices());
    memory_->belongs_to(ranks_.record());
}

LOCKSTEP_FUNCTION shared_window::~shared_window() {
    if (window_ == MPI_WIN_NULL || ranks_.notices().failed() || std::uncaught_exceptions() > exceptions_) return;
    if (is_over()) return;
    try {
        (void)ranks_.gather_all(ranks_.size());  // nobody waits in MPI for a rank that has failed
    } catch (...) {
        return;
    }
    views_.clear();
    free();
}

LOCKSTEP_FUNCTION void shared_window::check(std::size_t bytes, std::size_t room) const {
    if (ranks_.size() == 1) return;
    const auto all = ranks_.gather_all(bytes);
    for (const std::size_t one : all)
        if (one != all[0])
            core::fail(core::text("a shared window of ", all[0], " bytes on rank 0, of ", one, " on another"),
                       "ask for equally many on all ranks");
    if (!on_one_node(ranks_))
        core::fail(core::text("a shared window for ", ranks_.size(), " ranks that are not on one node"),
                   "split the group by hosts() first");
    for (const std::size_t one : ranks_.gather_all(room)) room = one < room ? one : room;
    if (bytes + page > room / ranks_.size())
        core::fail(core::text("a shared window of ", ranks_.size(), " x ", bytes, " bytes, but /dev/shm has ", room, " left"),
                   "enlarge it (mount -o remount,size=.. /dev/shm, docker --shm-size), or do without shared memory");
}

LOCKSTEP_FUNCTION void shared_window::allocate(std::size_t bytes, std::vector<std::byte*>& parts) {
    const MPI_Comm over = ranks_.over().communicator();
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(over, &before);
    MPI_Comm_set_errhandler(over, MPI_ERRORS_RETURN);
    void* base = nullptr;
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes + page), 1, info, over, static_cast<void*>(&base), &window_);
    MPI_Comm_set_errhandler(over, before);
    MPI_Errhandler_free(&before);
    MPI_Info_free(&info);
    bool well = true;
    for (const std::size_t one : ranks_.gather_all(std::size_t{code == MPI_SUCCESS})) well = well && one == 1;
    if (!well) window_ = MPI_WIN_NULL;
    if (!well)
        core::fail(core::text("MPI cannot allocate a shared window of ", ranks_.size(), " x ", bytes, " bytes"),
                   "look at the free space of /dev/shm and of the memory, or do without shared memory");
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        MPI_Aint size = 0;
        int unit = 0;
        void* part = nullptr;
        MPI_Win_shared_query(window_, static_cast<int>(rank), &size, &unit, static_cast<void*>(&part));
        // MPI promises no alignment, but pages are pages in every process.
        const auto place = reinterpret_cast<std::uintptr_t>(part);
        parts[rank] = static_cast<std::byte*>(part) + ((place + page - 1) / page * page - place);
    }
}

#endif

}  // namespace lockstep::comm
