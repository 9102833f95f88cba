// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file as memory, for contents that are larger than it: pages come when they are read, and go when others need room.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::files {

/// A regular file, mapped to be read. Processes of a host share its pages. The file may not become shorter while this
/// lives: the system then ends the process with SIGBUS when a page that is gone is read, as it does when the disk
/// fails. What others write there is read. Throws core::error for what cannot be opened or mapped.
class mapped_file {
public:
    explicit mapped_file(const std::string& path);
    mapped_file(mapped_file&& other) noexcept
        : path_{std::move(other.path_)}, bytes_{std::exchange(other.bytes_, {})} {}
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;
    mapped_file& operator=(mapped_file&&) = delete;
    ~mapped_file() {
        if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

    /// The system reads these bytes soon, while the caller does something else. Cost: about 1 us.
    void read_ahead(std::size_t begin, std::size_t size) const noexcept;
    /// What is read next is anywhere: the system fetches single pages instead of runs of them.
    void expect_random_reads() const noexcept;

private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION mapped_file::mapped_file(const std::string& path) : path_{path} {
    const core::input_file file{path};
    if (file.size() == 0) return;  // nothing to map
    const auto fail = [&](const std::string& why) {
        core::fail(core::text("cannot map the ", file.size(), " bytes of \"", path, "\": ", why),
                   "check that it lies on a local disk, and the limit of addresses (ulimit -v)");
    };
    if (file.size() > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) fail("too many");
    const auto size = static_cast<std::size_t>(file.size());
    // The map stays when the descriptor is closed.
    void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (at == MAP_FAILED) fail(std::generic_category().message(errno));
    bytes_ = {static_cast<const std::byte*>(at), size};
}

LOCKSTEP_FUNCTION void mapped_file::read_ahead(std::size_t begin, std::size_t size) const noexcept {
    if (begin >= bytes_.size() || size == 0) return;
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = begin / page * page;  // madvise takes whole pages
    auto* const at = const_cast<std::byte*>(bytes_.data() + first);
    (void)::madvise(at, std::min(bytes_.size() - first, begin - first + size), MADV_WILLNEED);
}

LOCKSTEP_FUNCTION void mapped_file::expect_random_reads() const noexcept {
    if (!bytes_.empty()) (void)::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_RANDOM);
}

#endif

}  // namespace lockstep::files
