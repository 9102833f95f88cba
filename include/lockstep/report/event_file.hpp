// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Event files as TensorBoard reads them: records of TFRecord with protobuf messages, written by hand. The fields are
// those of event.proto and summary.proto of TensorFlow.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/report/launch.hpp"

namespace lockstep::report {

/// CRC-32C (Castagnoli, RFC 3720), about 2 ns a byte.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;
/// As TFRecord stores it: rotated and moved, so that a sum over bytes that hold sums is no special case.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes) noexcept;

/// A value with its name, such as train/loss.
struct named_scalar {
    std::string_view tag;
    float value = 0;
};

/// One file of a folder of events. Not copied; moved only before it is open.
class event_file {
public:
    event_file() = default;
    event_file(event_file&& other) noexcept
        : file_{std::move(other.file_)}, buffer_{std::move(other.buffer_)}, path_{std::move(other.path_)} {}
    event_file& operator=(event_file&&) = delete;
    /// Writes what is left. Does not throw.
    ~event_file();

    /// A new file in the folder, which is made where it does not exist. Readers drop what older files of the folder say
    /// of `first_step` and later ones. `seconds`: since 1970. Throws core::error where the folder cannot be written, or
    /// where a run that has not ended writes there.
    [[gnu::cold]] void open(const std::string& folder, std::uint64_t first_step, double seconds);
    [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }
    /// Readers drop what was said of `first_step` and later ones.
    [[gnu::cold]] void restart(std::uint64_t first_step, double seconds);
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Values of one step. They stay in memory until there are 64 KiB of them, or until flush().
    void scalars(std::uint64_t step, double seconds, std::span<const named_scalar> values);
    /// A text, in Markdown.
    [[gnu::cold]] void text(std::uint64_t step, double seconds, std::string_view tag, std::string_view words);
    /// All of it has reached the system.
    [[gnu::cold]] void flush();

private:
    /// Frames one Event.
    void record(std::string_view event);

    core::output_file file_;
    std::string buffer_, event_, summary_, value_;  // kept: a step allocates nothing
    std::string path_;
};

#if LOCKSTEP_BODIES

namespace detail {

// Messages of protobuf: fields are (number, kind) and the value; kind 0 is a varint, 1 has 8 bytes, 2 a length, 5
// has 4.
LOCKSTEP_FUNCTION void append_varint(std::string& out, std::uint64_t number) {
    for (; number >= 128; number >>= 7) out += static_cast<char>(number | 128);
    out += static_cast<char>(number);
}
LOCKSTEP_FUNCTION void append_field(std::string& out, std::uint32_t field, std::uint64_t number) {
    append_varint(out, std::uint64_t{field} << 3);
    append_varint(out, number);
}
LOCKSTEP_FUNCTION void append_field(std::string& out, std::uint32_t field, std::string_view bytes) {
    append_varint(out, std::uint64_t{field} << 3 | 2);
    append_varint(out, bytes.size());
    out += bytes;
}
/// Little-endian, whatever the machine is.
template <class N>
void append_little(std::string& out, N number) {
    for (std::size_t i = 0; i < sizeof number; ++i) out += static_cast<char>(number >> 8 * i & 255);
}
LOCKSTEP_FUNCTION void append_field(std::string& out, std::uint32_t field, double number) {
    append_varint(out, std::uint64_t{field} << 3 | 1);
    append_little(out, std::bit_cast<std::uint64_t>(number));
}
LOCKSTEP_FUNCTION void append_field(std::string& out, std::uint32_t field, float number) {
    append_varint(out, std::uint64_t{field} << 3 | 5);
    append_little(out, std::bit_cast<std::uint32_t>(number));
}

/// Fields of Event: wall_time and step.
LOCKSTEP_FUNCTION void begin_event(std::string& out, std::uint64_t step, double seconds) {
    out.clear();
    append_field(out, 1, seconds);
    append_field(out, 2, step);
}

constexpr std::string_view event_prefix = "events.out.tfevents.";

/// Locks a file for as long as the descriptor is open; false where somebody else has. File systems without locks: true.
[[nodiscard]] LOCKSTEP_FUNCTION bool lock(int descriptor) noexcept {
    return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace detail

LOCKSTEP_FUNCTION std::uint32_t crc32c(std::string_view bytes) noexcept {
    static constexpr auto table = [] {
        std::array<std::uint32_t, 256> out{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t sum = i;
            for (int bit = 0; bit < 8; ++bit) sum = sum & 1 ? sum >> 1 ^ 0x82f63b78U : sum >> 1;
            out[i] = sum;
        }
        return out;
    }();
    std::uint32_t sum = ~0U;
    for (const char c : bytes) sum = table[(sum ^ static_cast<unsigned char>(c)) & 255] ^ sum >> 8;
    return ~sum;
}

LOCKSTEP_FUNCTION std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

LOCKSTEP_FUNCTION event_file::~event_file() {
    try {
        if (file_.is_open()) flush();
    } catch (const core::error&) {
        // The run ends for another reason, or flush() has said so before.
    }
}

LOCKSTEP_FUNCTION void event_file::open(const std::string& folder, std::uint64_t first_step, double seconds) {
    namespace fs = std::filesystem;
    buffer_.clear();  // what a failed write has left
    if (folder.empty()) core::fail("event files have no folder", "name one: tensorboard{\"runs/a\"}");
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (problem)
        core::fail(core::text("cannot make the folder \"", folder, "\" for event files: ", problem.message()),
                   "name a folder that may be written");
    const fs::path place{folder};
    // Readers take files in the order of their names: this one has to be the last.
    auto when = static_cast<std::uint64_t>(std::max(0.0, seconds));
    fs::directory_iterator all{place, problem};
    if (problem)
        core::fail(core::text("cannot use the folder \"", folder, "\" for event files: ", problem.message()),
                   "name a folder that may be written");
    for (const fs::directory_iterator end; all != end; all.increment(problem)) {
        const std::string name = all->path().filename().string();
        if (!name.starts_with(detail::event_prefix)) continue;
        std::uint64_t number = 0;
        const char* const begin = name.data() + detail::event_prefix.size();
        if (std::from_chars(begin, name.data() + name.size(), number).ec == std::errc{} && number < 9'999'999'999)
            when = std::max(when, number + 1);
        const int other = ::open(all->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (other < 0) continue;
        const bool is_free = detail::lock(other);
        ::close(other);
        if (!is_free)
            core::fail(core::text("another run writes event files to \"", folder, "\" now (", name, ")"),
                       "name a folder of its own for each run: their curves would be mixed");
    }
    if (problem)
        core::fail(core::text("cannot read the folder \"", folder, "\": ", problem.message()), "name another folder");
    std::string digits = core::text(when);
    digits.insert(0, digits.size() < 10 ? 10 - digits.size() : 0, '0');
    static std::atomic<int> files{0};
    std::string host = host_name();
    std::replace(host.begin(), host.end(), '/', '-');
    path_ = (place / core::text(detail::event_prefix, digits, ".", host, ".", ::getpid(), ".", files++)).string();
    file_.open(path_);  // locked, so that another run sees that the folder is taken
    buffer_.reserve(std::size_t{1} << 17);
    for (std::string* part : {&event_, &summary_, &value_}) part->reserve(4096);
    detail::begin_event(event_, 0, seconds);
    detail::append_field(event_, 3, std::string_view{"brain.Event:2"});  // the version
    record(event_);
    restart(first_step, seconds);
}

LOCKSTEP_FUNCTION void event_file::restart(std::uint64_t first_step, double seconds) {
    // The start of a session.
    detail::begin_event(event_, first_step, seconds);
    value_.clear();
    detail::append_field(value_, 1, std::uint64_t{1});
    detail::append_field(event_, 7, value_);
    record(event_);
    flush();
}

LOCKSTEP_FUNCTION void event_file::record(std::string_view event) {
    const std::size_t begin = buffer_.size();
    detail::append_little(buffer_, std::uint64_t{event.size()});
    detail::append_little(buffer_, masked_crc32c(std::string_view{buffer_}.substr(begin)));
    buffer_ += event;
    detail::append_little(buffer_, masked_crc32c(event));
    if (buffer_.size() >= std::size_t{1} << 16) flush();
}

LOCKSTEP_FUNCTION void event_file::scalars(std::uint64_t step, double seconds, std::span<const named_scalar> values) {
    summary_.clear();
    for (const auto& [tag, number] : values) {
        value_.clear();
        detail::append_field(value_, 1, tag);
        detail::append_field(value_, 2, number);
        detail::append_field(summary_, 1, value_);
    }
    detail::begin_event(event_, step, seconds);
    detail::append_field(event_, 5, summary_);
    record(event_);
}

LOCKSTEP_FUNCTION void event_file::text(std::uint64_t step, double seconds, std::string_view tag,
                                        std::string_view words) {
    // A tensor of one string, and the plugin that shows it.
    std::string tensor, plugin, metadata;
    detail::append_field(tensor, 1, std::uint64_t{7});
    detail::append_field(tensor, 2, std::string_view{});
    detail::append_field(tensor, 8, words);
    detail::append_field(plugin, 1, std::string_view{"text"});
    detail::append_field(metadata, 1, plugin);
    detail::append_field(metadata, 4, std::uint64_t{2});
    value_.clear();
    detail::append_field(value_, 1, tag);
    detail::append_field(value_, 9, metadata);
    detail::append_field(value_, 8, tensor);
    summary_.clear();
    detail::append_field(summary_, 1, value_);
    detail::begin_event(event_, step, seconds);
    detail::append_field(event_, 5, summary_);
    record(event_);
}

LOCKSTEP_FUNCTION void event_file::flush() {
    if (buffer_.empty()) return;
    file_.write(buffer_);
    buffer_.clear();
}

#endif

}  // namespace lockstep::report
