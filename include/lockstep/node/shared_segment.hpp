// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file in /dev/shm that the processes of a node map: its pages are reserved before use, and it has a name only while
// they open it.

#if defined(__linux__)
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/held_signals.hpp"
#include "lockstep/core/huge_pages.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::node {

/// Calls return 0 or errno. One process creates the file, the others open it by its name. Each reserves the pages of
/// its own part, so that they lie in the memory next to it. All map the file; then the creator removes its name. The
/// memory goes when the last process has unmapped it. What a crash between create() and remove_name() leaves is removed
/// by the next create() of the same user: the creator holds a lock on the file (flock) as long as it has a name.
/// MPI_Win_allocate_shared is not used: it takes pages when they are written, and a full /dev/shm then ends the job
/// by SIGBUS or leaves some ranks waiting inside MPI.
class shared_segment {
public:
    static constexpr std::string_view folder = "/dev/shm";

    shared_segment() = default;
    shared_segment(const shared_segment&) = delete;
    shared_segment& operator=(const shared_segment&) = delete;
    [[gnu::cold]] ~shared_segment();

    [[nodiscard, gnu::cold]] int create(std::size_t bytes);
    [[nodiscard, gnu::cold]] int open(const std::string& name, std::size_t bytes);
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Takes the pages: writing to them cannot fail later (a process that writes to a full /dev/shm is killed by
    /// SIGBUS).
    [[nodiscard, gnu::cold]] int reserve(std::size_t first, std::size_t bytes) noexcept;
    [[nodiscard, gnu::cold]] int map() noexcept;
    /// Of the creator; and the file is closed.
    [[gnu::cold]] void remove_name() noexcept;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    /// Is not unmapped before the end of the program.
    void stay() noexcept { space_ = nullptr; }
    /// Asks for pages of 2 MiB (MADV_COLLAPSE, Linux 6.1): once by the process that has touched the memory, then by all
    /// others. Loops over many megabytes in small pages spend most of their time on looking these up.
    [[gnu::cold]] void collapse(std::size_t first, std::size_t bytes) const noexcept;

    [[nodiscard, gnu::cold]] static std::size_t page() noexcept;
    /// What can still be reserved, as far as is known.
    [[nodiscard, gnu::cold]] static std::size_t free_bytes() noexcept;
    /// What segments of Open MPI, of all jobs, can still take without asking for room: they take their pages when they
    /// are written.
    [[nodiscard, gnu::cold]] static std::size_t promised_bytes() noexcept;

private:
    static constexpr std::string_view stem = "lockstep.";

    [[gnu::cold]] static void remove_leftovers(const std::string& prefix) noexcept;
    [[gnu::cold]] void close() noexcept;

    std::string name_;
    bool created_ = false;
    int file_ = -1;
    std::size_t bytes_ = 0;
    std::byte* data_ = nullptr;
    void* space_ = nullptr;
    std::size_t space_bytes_ = 0;
};

#if LOCKSTEP_BODIES

#if defined(__linux__)

namespace detail {

/// Calls f(folder, entry) for all files of the folder.
template <class F>
void for_each_shared_file(F&& f) noexcept {
    DIR* const all = ::opendir(shared_segment::folder.data());
    if (all == nullptr) return;
    while (const dirent* const entry = ::readdir(all)) f(::dirfd(all), entry->d_name);
    ::closedir(all);
}

}  // namespace detail

LOCKSTEP_FUNCTION shared_segment::~shared_segment() {
    remove_name();
    if (space_ != nullptr) (void)::munmap(space_, space_bytes_);
}

LOCKSTEP_FUNCTION int shared_segment::create(std::size_t bytes) {
    const std::string prefix = core::text(stem, static_cast<unsigned>(::geteuid()), ".");
    remove_leftovers(prefix);
    for (int attempt = 0; attempt < 16; ++attempt) {
        std::array<std::uint64_t, 2> number{};
        if (::getrandom(number.data(), sizeof number, 0) != static_cast<ssize_t>(sizeof number)) return errno;
        name_ = core::text(folder, "/", prefix, core::hexadecimal(number[0]), core::hexadecimal(number[1]));
        file_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (file_ < 0 && errno == EEXIST) continue;
        if (file_ < 0) return errno;
        created_ = true;
        struct stat found {};
        if (::flock(file_, LOCK_EX) != 0 || ::fstat(file_, &found) != 0) return errno;
        // Another process may have taken it for a leftover before it was locked.
        if (found.st_nlink == 0) {
            close();
            continue;
        }
        bytes_ = bytes;
        const core::held_signals beyond_the_limit;  // of file sizes is an error, not the end
        return ::ftruncate(file_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    }
    return EEXIST;
}

LOCKSTEP_FUNCTION int shared_segment::open(const std::string& name, std::size_t bytes) {
    name_ = name;
    bytes_ = bytes;
    file_ = ::open(name_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file_ < 0) return errno;
    struct stat found {};
    if (::fstat(file_, &found) != 0) return errno;
    return static_cast<std::size_t>(found.st_size) == bytes ? 0 : ESTALE;
}

LOCKSTEP_FUNCTION int shared_segment::reserve(std::size_t first, std::size_t bytes) noexcept {
    // One call refuses what is larger than all room without taking a page. A signal makes the system give back all
    // pages of a call: where one comes again and again, as from a profiler, pieces are reserved.
    const core::held_signals beyond_the_limit;
    int code = EINTR;
    for (int tries = 0; code == EINTR && tries < 4; ++tries)
        code = ::posix_fallocate(file_, static_cast<off_t>(first), static_cast<off_t>(bytes));
    constexpr std::size_t most = std::size_t{8} << 20U;
    const bool in_pieces = code == EINTR;
    for (std::size_t at = 0; in_pieces && at < bytes && (code == 0 || code == EINTR); at += code == 0 ? most : 0)
        code = ::posix_fallocate(file_, static_cast<off_t>(first + at), static_cast<off_t>(std::min(most, bytes - at)));
    return code;
}

LOCKSTEP_FUNCTION int shared_segment::map() noexcept {
    // Pages of 2 MiB need an address that fits the offset in the file.
    const std::size_t space = bytes_ + (bytes_ >= core::huge_page ? core::huge_page : 0);
    void* const reserved = ::mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return errno;
    space_ = reserved;
    space_bytes_ = space;
    const auto address = reinterpret_cast<std::uintptr_t>(reserved);
    const std::size_t skip = space > bytes_ ? -address % core::huge_page : 0;
    void* const at = static_cast<std::byte*>(reserved) + skip;
    if (::mmap(at, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0) == MAP_FAILED) return errno;
    data_ = static_cast<std::byte*>(at);
    return 0;
}

LOCKSTEP_FUNCTION void shared_segment::remove_name() noexcept {
    if (std::exchange(created_, false)) (void)::unlink(name_.c_str());
    close();
}

LOCKSTEP_FUNCTION void shared_segment::close() noexcept {
    if (file_ >= 0) (void)::close(std::exchange(file_, -1));
}

LOCKSTEP_FUNCTION void shared_segment::collapse(std::size_t first, std::size_t bytes) const noexcept {
    if (bytes < 4 * core::huge_page) return;
    const std::size_t begin = (first + core::huge_page - 1) / core::huge_page * core::huge_page;
    constexpr int madv_collapse = 25;  // not in the headers of older C libraries
    (void)::madvise(data_ + begin, (first + bytes - begin) / core::huge_page * core::huge_page, madv_collapse);
}

LOCKSTEP_FUNCTION std::size_t shared_segment::page() noexcept {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

LOCKSTEP_FUNCTION std::size_t shared_segment::free_bytes() noexcept {
    struct statvfs disk {};
    if (::statvfs(folder.data(), &disk) != 0) return 0;
    if (disk.f_blocks == 0) return static_cast<std::size_t>(-1);  // mounted without a limit
    return static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
}

LOCKSTEP_FUNCTION std::size_t shared_segment::promised_bytes() noexcept {
    std::size_t out = 0;
    detail::for_each_shared_file([&](int in, const char* name) {
        struct stat found {};
        const std::string_view kind{name};
        if (!kind.starts_with("vader_segment.") && !kind.starts_with("sm_segment.")) return;  // of versions 4 and 5
        if (::fstatat(in, name, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode)) return;
        const auto size = static_cast<std::size_t>(found.st_size),
                   held = static_cast<std::size_t>(found.st_blocks) * 512;
        out += size - std::min(size, held);
    });
    return out;
}

LOCKSTEP_FUNCTION void shared_segment::remove_leftovers(const std::string& prefix) noexcept {
    detail::for_each_shared_file([&](int in, const char* name) {
        if (!std::string_view{name}.starts_with(prefix)) return;
        const int file = ::openat(in, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (file < 0) return;
        if (::flock(file, LOCK_EX | LOCK_NB) == 0) (void)::unlinkat(in, name, 0);
        (void)::close(file);
    });
}

#else  // the ranks of a node send messages elsewhere

LOCKSTEP_FUNCTION shared_segment::~shared_segment() {}
LOCKSTEP_FUNCTION int shared_segment::create(std::size_t) { return ENOSYS; }
LOCKSTEP_FUNCTION int shared_segment::open(const std::string&, std::size_t) { return ENOSYS; }
LOCKSTEP_FUNCTION int shared_segment::reserve(std::size_t, std::size_t) noexcept { return ENOSYS; }
LOCKSTEP_FUNCTION int shared_segment::map() noexcept { return ENOSYS; }
LOCKSTEP_FUNCTION void shared_segment::remove_name() noexcept {}
LOCKSTEP_FUNCTION void shared_segment::close() noexcept {}
LOCKSTEP_FUNCTION void shared_segment::collapse(std::size_t, std::size_t) const noexcept {}
LOCKSTEP_FUNCTION std::size_t shared_segment::page() noexcept { return 4096; }
LOCKSTEP_FUNCTION std::size_t shared_segment::free_bytes() noexcept { return static_cast<std::size_t>(-1); }
LOCKSTEP_FUNCTION std::size_t shared_segment::promised_bytes() noexcept { return 0; }

#endif

#endif

}  // namespace lockstep::node
