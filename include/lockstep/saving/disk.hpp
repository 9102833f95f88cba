// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files and folders that survive a loss of power: written at a place, flushed to the disk, renamed. For what ranks
// write together.

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/held_signals.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/replacement.hpp"
#include "lockstep/core/sort.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::saving {

/// A descriptor that is closed.
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(int open) noexcept : open_{open} {}
    descriptor(descriptor&& other) noexcept : open_{std::exchange(other.open_, -1)} {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(open_, other.open_);
        return *this;
    }
    ~descriptor() {
        if (open_ >= 0) ::close(open_);
    }
    [[nodiscard]] int get() const noexcept { return open_; }
    [[nodiscard]] int release() noexcept { return std::exchange(open_, -1); }
    [[nodiscard]] bool is_open() const noexcept { return open_ >= 0; }

private:
    int open_ = -1;
};

/// A file that several processes write or read at places of their own. Each member throws core::error that names the
/// file and the reason of the system; a limit of file sizes is an error like any other.
class placed_file {
public:
    enum class use : unsigned char { make, write, read };

    // No file is open for both: NFS would write back whole pages that it has read, over what other ranks wrote since.
    /// make: there must be none of that name. `bytes`: its size; room for it is taken now, where the file system can.
    [[gnu::cold]] placed_file(std::string path, use how, std::uint64_t bytes = 0);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t size() const;
    [[gnu::cold]] void write(std::uint64_t offset, std::span<const std::byte> bytes) const;
    /// Begins to bring to the disk what was written of this range, where the system can, and does not wait for it.
    [[gnu::cold]] void begin_flush(std::uint64_t offset, std::uint64_t bytes) const noexcept;
    /// Throws also where the file ends before.
    [[gnu::cold]] void read(std::uint64_t offset, std::span<std::byte> bytes) const;
    /// All that was written is on the disk.
    [[gnu::cold]] void flush() const;
    /// Some file systems report only now that something is lost.
    [[gnu::cold]] void close();

private:
    [[noreturn, gnu::cold]] void fail(const char* what, bool reads = false) const;

    std::string path_;
    descriptor open_;
};

/// The files of a checkpoint, with the slash before them.
inline constexpr std::string_view state_name = "/state.safetensors", manifest_name = "/manifest.json";

/// The folder and all above it. The names of new ones are on the disk, unless they will not stay. Throws core::error.
[[gnu::cold]] void make_folders(const std::string& path, bool stay = true);
/// The names in it are on the disk.
[[gnu::cold]] inline void flush_folder(const std::string& path) { core::flush_to_disk(path, path, true); }
[[gnu::cold]] void rename(const std::string& from, const std::string& to);
/// The same one after the program has gone to another folder; as it is where nothing is known of this one.
[[nodiscard, gnu::cold]] std::string absolute(const std::string& path);
/// Names in it, in no order, but for . and ..; none where there is no such folder.
[[nodiscard, gnu::cold]] std::vector<std::string> names_in(const std::string& folder);
/// Throws core::error where this user may not look.
[[nodiscard, gnu::cold]] bool exists(const std::string& path);
/// Whether a folder above it may not be looked into by this user.
[[nodiscard, gnu::cold]] bool is_hidden(const std::string& path) noexcept;
/// exists() for what another machine may just have made: a network file system answers from memory for a while, but
/// not where the folders above are opened anew. Looks for three seconds.
[[nodiscard, gnu::cold]] bool appears(const std::string& path);
/// What a checkpoint consists of, the manifest first, and then the folder if nothing else is in it. Of a link to one
/// only the link goes. What cannot be removed stays.
[[gnu::cold]] void remove_checkpoint(const std::string& folder) noexcept;

/// Whether it is a folder, and no link to one, that holds nothing but a checkpoint.
[[nodiscard, gnu::cold]] bool is_checkpoint_alone(const std::string& folder);

/// writing-TOKEN, as a run that was killed leaves it.
[[nodiscard, gnu::cold]] bool is_unfinished(std::string_view name) noexcept;
/// Such a name, which a folder on a disk of another machine does not have.
[[nodiscard, gnu::cold]] std::string unfinished_name(const std::string& folder);

/// Held by one process at a time: FOLDER/lock. Where the file system has no locks, nothing is held.
class folder_lock {
public:
    folder_lock() = default;
    /// Throws core::error where another process holds it.
    [[gnu::cold]] explicit folder_lock(const std::string& folder);

private:
    descriptor open_;
};

/// Held by one process as long as it runs with checkpoints in a folder: FOLDER/run.lock. All who hold it in this
/// process share it. Where the file system has no locks, nothing is held.
class run_lock {
public:
    run_lock() = default;
    /// Throws core::error where another process holds it, and still does after half a second.
    [[gnu::cold]] explicit run_lock(const std::string& folder);

private:
    std::shared_ptr<descriptor> open_;
};

/// CRC-32 (zlib's, ISO 3309) of a part of a file.
struct part_sum {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t sum = 0;
};

/// Of bytes that begin at `offset`, one for each block of `block` bytes of the file that they touch.
[[gnu::cold]] void add_sums(std::vector<part_sum>& to, std::uint64_t offset, std::span<const std::byte> bytes,
                            std::uint64_t block);
/// The sum of each block of a file of `size` bytes, from those of parts in any order. Throws core::error where they are
/// not the whole file.
[[nodiscard, gnu::cold]] std::vector<std::uint32_t> block_sums(std::vector<part_sum> parts, std::uint64_t size,
                                                               std::uint64_t block);

#if LOCKSTEP_BODIES

namespace detail {

[[noreturn, gnu::cold]] LOCKSTEP_FUNCTION void fail_path(std::string_view what, std::string_view path, int reason,
                                                         bool reads = false) {
    const bool is_forbidden = reason == EACCES || reason == EPERM || reason == EROFS;
    core::fail(core::text("cannot ", what, " ", path, ": ", std::generic_category().message(reason)),
               is_forbidden && reads ? "name what this user may read"
               : is_forbidden        ? "name a folder that this user may write"
               : reason == ENOTDIR   ? "name a folder, this is a file"
               : reason == EFBIG     ? "raise the limit of file sizes (ulimit -f)"
               : reason == EDQUOT    ? "delete files of this user, or ask for a larger quota"
               : reads               ? "check that it is there and that its disk can be read"
                                     : "check that the folder is there and that its disk has room");
}

/// Calls f() until no signal interrupts it.
template <class F>
auto again(const F& f) {
    auto out = f();
    while (out < 0 && errno == EINTR) out = f();
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION void placed_file::fail(const char* what, bool reads) const {
    detail::fail_path(what, path_, errno, reads);
}

LOCKSTEP_FUNCTION placed_file::placed_file(std::string path, use how, std::uint64_t bytes) : path_{std::move(path)} {
    // To open a FIFO waits for its other end.
    struct stat about {};
    if (how != use::make && ::stat(path_.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
        core::fail(core::text("cannot open ", path_, ": ", core::detail::kind_problem(about.st_mode)),
                   "name what a run has written, on a disk");
    const int flags = how == use::make ? O_WRONLY | O_CREAT | O_EXCL : how == use::write ? O_WRONLY : O_RDONLY;
    open_ = descriptor{detail::again([&] { return ::open(path_.c_str(), flags | O_CLOEXEC, 0666); })};
    if (!open_.is_open()) fail(how == use::make ? "make" : "open", how == use::read);
    if (how != use::make || bytes == 0) return;
    const core::held_signals held;
    if (detail::again([&] { return ::ftruncate(open_.get(), static_cast<off_t>(bytes)); }) != 0) fail("write");
    // A full disk shows now. What cannot be reserved is found out while it is written.
    if (::fallocate(open_.get(), 0, 0, static_cast<off_t>(bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        fail("write");
}

LOCKSTEP_FUNCTION std::uint64_t placed_file::size() const {
    struct stat about {};
    if (::fstat(open_.get(), &about) != 0) fail("read", true);
    return static_cast<std::uint64_t>(about.st_size);
}

LOCKSTEP_FUNCTION void placed_file::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    const core::held_signals held;
    while (!bytes.empty()) {
        const ssize_t done = detail::again(
            [&] { return ::pwrite(open_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
        if (done <= 0) fail("write");
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
}

LOCKSTEP_FUNCTION void placed_file::read(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t done =
            detail::again([&] { return ::pread(open_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
        if (done < 0) fail("read", true);
        if (done == 0)
            core::fail(core::text(path_, " ends at byte ", offset, " where more is expected"),
                       "it is cut off: use an earlier checkpoint");
        bytes = bytes.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
}

LOCKSTEP_FUNCTION void placed_file::begin_flush([[maybe_unused]] std::uint64_t offset,
                                                [[maybe_unused]] std::uint64_t bytes) const noexcept {
#ifdef SYNC_FILE_RANGE_WRITE
    (void)::sync_file_range(open_.get(), static_cast<off64_t>(offset), static_cast<off64_t>(bytes),
                            SYNC_FILE_RANGE_WRITE);  // flush() finds out what is wrong
#endif
}

LOCKSTEP_FUNCTION void placed_file::flush() const {
    if (detail::again([&] { return ::fsync(open_.get()); }) != 0) fail("write");
}

LOCKSTEP_FUNCTION void placed_file::close() {
    if (open_.is_open() && ::close(open_.release()) != 0 && errno != EINTR) fail("write");
}

LOCKSTEP_FUNCTION std::string absolute(const std::string& path) {
    if (path.empty() || path.front() == '/') return path;
    const std::unique_ptr<char, void (*)(void*)> here{::getcwd(nullptr, 0), &std::free};
    return here == nullptr ? path : core::text(here.get(), "/", path);
}

LOCKSTEP_FUNCTION void make_folders(const std::string& path, bool stay) {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
        const std::string one = path.substr(0, end);
        struct stat about {};
        if (!one.empty() && ::mkdir(one.c_str(), 0777) == 0) {
            const std::size_t above = one.rfind('/');
            if (stay) flush_folder(above == one.npos ? "." : above == 0 ? "/" : one.substr(0, above));
        } else if (const int reason = errno; !one.empty()) {
            if (::stat(one.c_str(), &about) != 0 && errno == ENOENT && ::lstat(one.c_str(), &about) == 0)
                core::fail(core::text("cannot make the folder ", one, ": it is a link that leads nowhere"),
                           "remove the link, or make what it points to");
            if (::stat(one.c_str(), &about) != 0 || !S_ISDIR(about.st_mode))
                detail::fail_path("make the folder", one, reason == EEXIST ? ENOTDIR : reason);
        }
        if (end == path.npos) return;
    }
}

LOCKSTEP_FUNCTION void rename(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) detail::fail_path(core::text("rename ", from, " to"), to, errno);
}

LOCKSTEP_FUNCTION std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> out;
    DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) {
        if (errno == ENOENT) return out;
        detail::fail_path("read", folder, errno, true);
    }
    errno = 0;
    while (const dirent* one = ::readdir(open)) {
        if (const std::string_view name = one->d_name; name != "." && name != "..") out.emplace_back(name);
        errno = 0;
    }
    const int reason = errno;
    ::closedir(open);
    if (reason != 0) detail::fail_path("read", folder, reason, true);
    return out;
}

LOCKSTEP_FUNCTION bool exists(const std::string& path) {
    struct stat about {};
    if (::lstat(path.c_str(), &about) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) detail::fail_path("look at", path, errno, true);
    return false;
}

LOCKSTEP_FUNCTION bool is_hidden(const std::string& path) noexcept {
    struct stat about {};
    return ::lstat(path.c_str(), &about) != 0 && errno == EACCES;
}

LOCKSTEP_FUNCTION bool appears(const std::string& path) {
    constexpr int looks = 30;
    const auto open_anew = [](const char* folder) {
        if (DIR* const one = ::opendir(folder)) ::closedir(one);
    };
    for (int look = 1; look < looks; ++look) {
        open_anew(path[0] == '/' ? "/" : ".");
        for (std::size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1))
            open_anew(path.substr(0, end).c_str());
        struct stat about {};
        if (::lstat(path.c_str(), &about) == 0) return true;
        ::usleep(100'000);
    }
    return exists(path);
}

LOCKSTEP_FUNCTION void remove_checkpoint(const std::string& folder) noexcept {
    struct stat about {};
    if (::lstat(folder.c_str(), &about) != 0) return;
    if (!S_ISDIR(about.st_mode)) {
        if (S_ISLNK(about.st_mode)) ::unlink(folder.c_str());
        return;
    }
    try {
        for (const std::string_view name : {manifest_name, state_name}) ::unlink(core::text(folder, name).c_str());
    } catch (...) {  // no memory for a name: what stays is found another time
    }
    ::rmdir(folder.c_str());
}

LOCKSTEP_FUNCTION bool is_checkpoint_alone(const std::string& folder) {
    struct stat about {};
    if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return false;
    const auto names = names_in(folder);
    return std::ranges::all_of(
        names, [](const std::string& name) { return name == state_name.substr(1) || name == manifest_name.substr(1); });
}

LOCKSTEP_FUNCTION bool is_unfinished(std::string_view name) noexcept {
    constexpr std::string_view begin = "writing-";
    return name.starts_with(begin) && name.size() == begin.size() + 16 &&
           name.find_first_not_of("0123456789abcdef", begin.size()) == name.npos;
}

LOCKSTEP_FUNCTION std::string unfinished_name(const std::string& folder) {
    std::uint64_t token = 0;
    if (::getrandom(&token, sizeof token, 0) != sizeof token)
        core::fail("the system gives no random bytes", "check /dev/urandom");
    return core::text(folder, "/writing-", core::hexadecimal(token));
}

namespace detail {

/// Makes it where there is none.
[[gnu::cold]] LOCKSTEP_FUNCTION descriptor open_lock(const std::string& path) {
    descriptor out{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
    if (out.is_open()) return out;
    const int reason = errno;
    struct stat about {};
    if (reason == EACCES && ::stat(path.c_str(), &about) == 0 && about.st_uid != ::geteuid())
        core::fail(
            core::text("cannot open ", path, ", which is another user's: ", std::generic_category().message(reason)),
            "delete it if no run writes to its folder, or let its owner permit writing");
    fail_path("open", path, reason);
}

}  // namespace detail

LOCKSTEP_FUNCTION folder_lock::folder_lock(const std::string& folder) {
    const std::string path = folder + "/lock";
    open_ = detail::open_lock(path);
    if (detail::again([&] { return ::flock(open_.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK)
        core::fail(core::text("another run, or another checkpoint of this one, is being written to ", folder),
                   "name a folder for each run, and commit() what is written behind it first");
}

LOCKSTEP_FUNCTION run_lock::run_lock(const std::string& folder) {
    struct holder {
        dev_t device;
        ino_t file;
        std::weak_ptr<descriptor> open;
    };
    static std::mutex one_at_a_time;
    static std::vector<holder> held;
    const std::string path = folder + "/run.lock";
    const std::lock_guard guard{one_at_a_time};
    std::erase_if(held, [](const holder& one) { return one.open.expired(); });
    struct stat about {};
    if (::stat(path.c_str(), &about) == 0)
        for (const holder& one : held)
            if (one.device == about.st_dev && one.file == about.st_ino) open_ = one.open.lock();
    if (open_ != nullptr) return;
    descriptor open = detail::open_lock(path);
    if (::fstat(open.get(), &about) != 0) detail::fail_path("open", path, errno);
    const auto is_held = [&] {
        return detail::again([&] { return ::flock(open.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
    };
    // A run that was killed may take a moment to go.
    bool held_elsewhere = is_held();
    for (int tries = 0; held_elsewhere && tries < 10; ++tries) {
        ::usleep(50'000);
        held_elsewhere = is_held();
    }
    if (held_elsewhere)
        core::fail(core::text("another run that is under way has its checkpoints in ", folder),
                   "name a folder for each run, or end the other one first");
    open_ = std::make_shared<descriptor>(std::move(open));
    held.push_back({about.st_dev, about.st_ino, open_});
}

LOCKSTEP_FUNCTION void add_sums(std::vector<part_sum>& to, std::uint64_t offset, std::span<const std::byte> bytes,
                                std::uint64_t block) {
    while (!bytes.empty()) {
        const std::size_t count = std::min<std::uint64_t>(bytes.size(), block - offset % block);
        std::uint64_t sum = 0;
        if (!to.empty() && to.back().offset + to.back().bytes == offset && offset % block != 0)
            sum = to.back().sum;
        else
            to.push_back({offset, 0, 0});
        // Its lengths are 32 bits wide.
        for (std::size_t done = 0; done < count;) {
            const std::size_t now = std::min<std::size_t>(count - done, std::size_t{1} << 30U);
            sum = ::crc32(sum, reinterpret_cast<const Bytef*>(bytes.data() + done), static_cast<uInt>(now));
            done += now;
        }
        to.back().sum = sum;
        to.back().bytes += count;
        offset += count;
        bytes = bytes.subspan(count);
    }
}

LOCKSTEP_FUNCTION std::vector<std::uint32_t> block_sums(std::vector<part_sum> parts, std::uint64_t size,
                                                        std::uint64_t block) {
    core::sort(parts, [](const part_sum& a, const part_sum& b) { return a.offset < b.offset; });
    std::vector<std::uint32_t> out((size + block - 1) / block);
    std::uint64_t at = 0;
    for (const part_sum& one : parts) {
        if (one.offset != at || one.bytes > block - at % block)
            core::fail(core::text("bytes ", std::min(at, one.offset), " to ", std::max(at, one.offset),
                                  " of a checkpoint were written twice or not at all"),
                       "let visit_state() show every number once over all ranks, with the parts that speak");
        std::uint32_t& sum = out[at / block];
        sum = at % block == 0
                  ? static_cast<std::uint32_t>(one.sum)
                  : static_cast<std::uint32_t>(::crc32_combine(sum, one.sum, static_cast<z_off_t>(one.bytes)));
        at += one.bytes;
    }
    if (at != size)
        core::fail(core::text("a checkpoint of ", size, " bytes was written to byte ", at, " only"),
                   "let visit_state() show every number once over all ranks, with the parts that speak");
    return out;
}

#endif

}  // namespace lockstep::saving
