// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the ranks of a job: keeps beside the folder $LOCKSTEP_DISK what of it would be on the disk if the
// power were lost now, for losing_disk.py. In the folder $LOCKSTEP_DISK.shadow:
//   changes     a line for each change of a name, in order: `make KEY path`, `folder - path`, `rename from path`,
//               `remove - path`; and `flush - path` for a folder whose names were flushed. Fields are cut by tabs
//   KEY         the content of a file, as it was when it was last flushed
//   inode-N     the key of the file with this number
// Lines begin and end with a line break, so that one which a kill has cut stands alone. A content goes when the removal
// of its file is on the disk. Without ranks: tests/unit/saving/power_off.cpp.
// LOCKSTEP_DISK_LIES: no flush is noted, and `stopping` has to fail.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

template <class F>
F* real(const char* name) {
    return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int open_really(const std::string& path, int flags) {
    static const auto call = real<int(const char*, int, ...)>("open");
    return call(path.c_str(), flags | O_CLOEXEC, 0666);
}

[[noreturn]] void give_up(const std::string& path) {
    std::perror(("losing_disk: " + path).c_str());
    std::abort();
}

const std::string& folder() {
    static const std::string value = std::getenv("LOCKSTEP_DISK") != nullptr ? std::getenv("LOCKSTEP_DISK") : "";
    return value;
}
std::string shadow(const std::string& name) { return folder() + ".shadow/" + name; }
bool is_in(std::string_view path) {
    return !folder().empty() && path.starts_with(folder()) &&
           (path.size() == folder().size() || path[folder().size()] == '/');
}

/// Changes of names by this process, and what it has removed.
struct {
    std::mutex one_at_a_time;
    std::size_t count = 0;
    std::map<std::string, std::size_t> last_in;                ///< of each folder
    std::vector<std::pair<std::size_t, std::string>> removed;  ///< change, key
} changes;

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// One write for each line, which no other process can cut.
void note(const std::string& what, const std::string& how, const std::string& path) {
    const std::string line = '\n' + what + '\t' + how + '\t' + path + '\n', file = shadow("changes");
    const int to = open_really(file, O_WRONLY | O_APPEND | O_CREAT);
    if (to < 0 || ::write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) give_up(file);
    ::close(to);
    if (what == "flush") return;
    const std::lock_guard guard{changes.one_at_a_time};
    ++changes.count;
    changes.last_in[folder_of(path)] = changes.count;
    if (what == "rename") changes.last_in[folder_of(how)] = changes.count;
}

void write_whole(const std::string& path, const std::string& bytes) {
    const int to = open_really(path + ".new", O_WRONLY | O_CREAT | O_TRUNC);
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t done = to < 0 ? -1 : ::write(to, bytes.data() + at, bytes.size() - at);
        if (done <= 0) give_up(path);
        at += static_cast<std::size_t>(done);
    }
    ::close(to);
    static const auto rename_really = real<int(const char*, const char*)>("rename");
    if (rename_really((path + ".new").c_str(), path.c_str()) != 0) give_up(path);
}

std::string read_whole(const std::string& path) {
    std::string out;
    char part[1 << 16];
    const int from = open_really(path, O_RDONLY);
    for (ssize_t done = 1; done > 0; out.append(part, static_cast<std::size_t>(done)))
        if (from < 0 || (done = ::read(from, part, sizeof part)) < 0) give_up(path);
    ::close(from);
    return out;
}

std::string key_file(const struct stat& about) { return shadow("inode-" + std::to_string(about.st_ino)); }

/// What was removed before the last change in this folder will not come back.
void forget_removed(const std::string& flushed) {
    const std::lock_guard guard{changes.one_at_a_time};
    std::erase_if(changes.removed, [&](const auto& one) {
        const bool is_durable = one.first < changes.last_in[flushed];
        if (is_durable) ::unlink(shadow(one.second).c_str());  // not in the folder: not noted
        return is_durable;
    });
}

void note_flush(int file) {
    if (folder().empty() || std::getenv("LOCKSTEP_DISK_LIES") != nullptr) return;
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096];
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    if (length <= 0 || !is_in({path, static_cast<std::size_t>(length)})) return;
    const std::string name{path, static_cast<std::size_t>(length)};
    struct stat about {};
    if (::fstat(file, &about) != 0) give_up("fstat");
    if (about.st_nlink == 0) return;
    if (S_ISDIR(about.st_mode)) {
        note("flush", "-", name);
        return forget_removed(name);
    }
    // Several ranks flush one file: one copies it at a time. What they wrote since the flush may be in the copy, as on
    // a disk.
    const int lock = open_really(shadow("lock"), O_RDWR | O_CREAT);
    while (lock >= 0 && ::flock(lock, LOCK_EX) != 0)
        if (errno != EINTR) give_up("lock");
    write_whole(shadow(read_whole(key_file(about))), read_whole(name));
    ::close(lock);
}

template <class F>
int open_and_note(const F& call, const char* path, int flags, mode_t mode) {
    const bool is_new = (flags & O_CREAT) != 0 && is_in(path) && ::access(path, F_OK) != 0;
    const int out = call(path, flags, mode);
    if (out < 0 || !is_new) return out;
    std::uint64_t token = 0;
    if (::getrandom(&token, sizeof token, 0) != sizeof token) give_up("getrandom");
    const std::string key = "file-" + std::to_string(token);
    struct stat about {};
    if (::fstat(out, &about) != 0) give_up("fstat");
    write_whole(key_file(about), key);
    note("make", key, path);
    return out;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    static const auto call = real<int(const char*, int, ...)>("open");
    return open_and_note(call, path, flags, mode);
}
int fsync(int file) {
    static const auto call = real<int(int)>("fsync");
    const int out = call(file);
    if (out == 0) note_flush(file);
    return out;
}
int mkdir(const char* path, mode_t mode) noexcept {
    static const auto call = real<int(const char*, mode_t)>("mkdir");
    const int out = call(path, mode);
    if (out == 0 && is_in(path)) note("folder", "-", path);
    return out;
}
int rename(const char* from, const char* to) noexcept {
    static const auto call = real<int(const char*, const char*)>("rename");
    const int out = call(from, to);
    if (out == 0 && is_in(to)) note("rename", from, to);
    return out;
}
int unlink(const char* path) noexcept {
    static const auto call = real<int(const char*)>("unlink");
    struct stat about {};
    const bool is_noted = is_in(path) && ::lstat(path, &about) == 0 && ::access(key_file(about).c_str(), R_OK) == 0;
    const std::string key = is_noted ? read_whole(key_file(about)) : "";
    const int out = call(path);
    if (out != 0 || !is_in(path)) return out;
    note("remove", "-", path);
    const std::lock_guard guard{changes.one_at_a_time};
    if (is_noted) changes.removed.emplace_back(changes.count, key);
    return out;
}
int rmdir(const char* path) noexcept {
    static const auto call = real<int(const char*)>("rmdir");
    const int out = call(path);
    if (out == 0 && is_in(path)) note("remove", "-", path);
    return out;
}
}
