// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that may be compressed by gzip, read piece by piece and never further than asked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::data {

using core::why_unreadable;

/// The content of a regular file, unpacked where it begins like gzip (its name does not matter). As gzip does, it reads
/// all members one after the other and leaves out zeros after the last one; other bytes there, which gzip drops with a
/// warning, are an error. Throws core::error for a file that is missing, unreadable, cut off or corrupt. A checksum is
/// known to be right only at the end.
class packed_file {
public:
    explicit packed_file(const std::string& path);

    [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
    [[nodiscard]] bool is_packed() const noexcept { return inflating_ != nullptr; }
    /// Bytes of the file as it lies on the disk.
    [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
    /// Bytes of content that have been read.
    [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

    /// Fills `to`; fewer bytes than that only at the end.
    [[nodiscard, gnu::cold]] std::size_t read(std::span<std::byte> to);

    /// The next `most` bytes, fewer at the end. Memory is taken for what has come, not for what is promised: what is
    /// packed comes in pieces of at most 1 MiB, which are then put together.
    [[nodiscard, gnu::cold]] std::vector<std::byte> read_up_to(std::uint64_t most);

    /// How long the whole content is, for messages: what is packed is unpacked by a further 1 MiB at most, else this is
    /// "more than" that.
    [[nodiscard, gnu::cold]] std::string length();

private:
    struct end_inflating {
        void operator()(z_stream* stream) const noexcept {
            (void)inflateEnd(stream);
            delete stream;
        }
    };

    /// Whether there is a packed byte to come.
    bool refill();
    [[nodiscard]] std::size_t inflate_into(std::span<std::byte> to);
    /// At the end of a member: whether another one follows.
    [[nodiscard]] bool begin_next_member();
    [[noreturn]] void fail_damaged(std::string_view how, std::string_view reason) const;
    template <class F>
    void take_memory(std::uint64_t bytes, F&& take) const {
        core::with_memory(core::text("the content of \"", path(), "\""), bytes,
                          "use a machine with more memory, or a smaller file", take);
    }
    [[nodiscard]] std::vector<std::byte> allocate(std::uint64_t bytes) const;

    core::input_file file_;
    std::vector<std::byte> packed_;
    std::unique_ptr<z_stream, end_inflating> inflating_;
    bool ended_ = false;
    std::uint64_t position_ = 0;
};

/// The file `<prefix><suffix>`, or else `<prefix><suffix>.gz`. Throws core::error with both paths and `remedy` when
/// neither can be read.
[[nodiscard]] std::string find_packed(const std::string& prefix, std::string_view suffix, const std::string& remedy);

/// The whole content of a file. Throws core::error also where it is longer than `most` bytes.
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path, std::uint64_t most);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string find_packed(const std::string& prefix, std::string_view suffix,
                                          const std::string& remedy) {
    std::string tried;
    for (const std::string& path : {core::text(prefix, suffix), core::text(prefix, suffix, ".gz")}) {
        const std::string reason = why_unreadable(path);
        if (reason.empty()) return path;
        tried += core::text(tried.empty() ? "" : " and ", "\"", path, "\" (", reason, ")");
    }
    throw core::error{core::text("cannot open ", tried), remedy};
}

LOCKSTEP_FUNCTION packed_file::packed_file(const std::string& path) : file_{path} {
    constexpr std::byte sign[2] = {std::byte{0x1f}, std::byte{0x8b}};
    packed_.resize(2);
    packed_.resize(file_.read(packed_));
    if (!std::ranges::equal(packed_, sign)) return;
    constexpr std::size_t buffer = std::size_t{1} << 16;
    core::with_memory("reading a packed file", buffer, "free some memory", [&] {
        packed_.resize(buffer);
        inflating_.reset(new z_stream{});
    });
    inflating_->next_in = reinterpret_cast<Bytef*>(packed_.data());
    inflating_->avail_in = 2;
    constexpr int largest_window = 15, gzip_only = 16;
    if (inflateInit2(inflating_.get(), largest_window + gzip_only) != Z_OK)
        core::fail_memory("zlib, to unpack a file", sizeof(z_stream), "free some memory");
}

LOCKSTEP_FUNCTION void packed_file::fail_damaged(std::string_view how, std::string_view reason) const {
    core::fail(core::text("\"", path(), "\" is ", how, " after ", position_, " unpacked bytes (zlib: ", reason, ")"),
               "fetch or copy the file again, and test it with gzip -t");
}

LOCKSTEP_FUNCTION bool packed_file::refill() {
    if (inflating_->avail_in > 0) return true;
    const std::size_t got = file_.read(packed_);
    inflating_->next_in = reinterpret_cast<Bytef*>(packed_.data());
    inflating_->avail_in = static_cast<uInt>(got);
    return got > 0;
}

LOCKSTEP_FUNCTION bool packed_file::begin_next_member() {
    const auto fail_garbage = [&](std::uint64_t left) {
        core::fail(
            core::text("\"", path(), "\" has ", left, " bytes after its packed content that are no further member"),
            "fetch or copy the file again, or remove them: gzip would drop them with a warning (trailing garbage)");
    };
    if (!refill()) return false;
    const auto left = [&] { return file_.size() - std::min(file_.size(), file_.position()) + inflating_->avail_in; };
    const std::uint64_t rest = left();
    const auto next = [&] { return *inflating_->next_in; };
    if (next() == 0) {  // padding up to a whole block of a tape
        while (refill() && next() == 0) ++inflating_->next_in, --inflating_->avail_in;
        if (inflating_->avail_in > 0) fail_garbage(rest);
        return false;
    }
    // zlib looks at the rest of the header, and says what is wrong there.
    if (next() != 0x1f) fail_garbage(rest);
    if (inflating_->avail_in == 1) {
        packed_.front() = std::byte{0x1f};
        inflating_->avail_in += static_cast<uInt>(file_.read(std::span{packed_}.subspan(1)));
        inflating_->next_in = reinterpret_cast<Bytef*>(packed_.data());
    }
    if (inflating_->avail_in == 1 || inflating_->next_in[1] != 0x8b) fail_garbage(rest);
    (void)inflateReset(inflating_.get());
    return true;
}

LOCKSTEP_FUNCTION std::size_t packed_file::inflate_into(std::span<std::byte> to) {
    std::size_t out = 0;
    while (out < to.size() && !ended_) {
        const bool more = refill();
        const std::size_t room = std::min<std::size_t>(to.size() - out, std::numeric_limits<uInt>::max());
        inflating_->next_out = reinterpret_cast<Bytef*>(to.data() + out);
        inflating_->avail_out = static_cast<uInt>(room);
        const int state = inflate(inflating_.get(), Z_NO_FLUSH);
        const std::size_t got = room - inflating_->avail_out;
        out += got;
        position_ += got;
        if (state == Z_STREAM_END)
            ended_ = !begin_next_member();
        else if (state == Z_MEM_ERROR)
            core::fail_memory("zlib, to unpack a file", std::size_t{1} << 15, "free some memory");
        else if (state != Z_OK && state != Z_BUF_ERROR)
            fail_damaged("corrupt", inflating_->msg != nullptr ? inflating_->msg : "no gzip file");
        else if (!more && got == 0)
            fail_damaged("cut off", "unexpected end of file");
    }
    return out;
}

LOCKSTEP_FUNCTION std::size_t packed_file::read(std::span<std::byte> to) {
    if (is_packed()) return inflate_into(to);
    // The two bytes that told what the file is come first.
    std::size_t out = 0;
    for (; position_ < packed_.size() && out < to.size(); ++out)
        to[out] = packed_[static_cast<std::size_t>(position_++)];
    const std::size_t got = file_.read(to.subspan(out));
    position_ += got;
    return out + got;
}

LOCKSTEP_FUNCTION std::vector<std::byte> packed_file::allocate(std::uint64_t bytes) const {
    std::vector<std::byte> out;
    take_memory(bytes, [&] { out.resize(static_cast<std::size_t>(bytes)); });
    return out;
}

LOCKSTEP_FUNCTION std::vector<std::byte> packed_file::read_up_to(std::uint64_t most) {
    if (!is_packed()) {
        auto out = allocate(std::min(most, file_.size() - std::min(file_.size(), position_)));
        out.resize(read(out));
        return out;
    }
    constexpr std::uint64_t longest = std::uint64_t{1} << 20;
    std::vector<std::vector<std::byte>> pieces;
    std::uint64_t size = 0;
    for (std::uint64_t next = std::min<std::uint64_t>(most, longest / 16); next > 0;
         next = std::min(most - size, longest)) {
        auto piece = allocate(next);
        const std::size_t got = read(piece);
        piece.resize(got);
        size += got;
        pieces.push_back(std::move(piece));
        if (got < next) break;
    }
    if (pieces.size() == 1) {
        pieces.front().shrink_to_fit();
        return std::move(pieces.front());
    }
    // Pages are touched one by one while pieces are given back: the content is never there twice.
    std::vector<std::byte> out;
    take_memory(size, [&] { out.reserve(static_cast<std::size_t>(size)); });
    for (auto& piece : pieces) {
        out.insert(out.end(), piece.begin(), piece.end());
        std::vector<std::byte>{}.swap(piece);
    }
    return out;
}

LOCKSTEP_FUNCTION std::string packed_file::length() {
    if (!is_packed()) return core::text(std::max(file_.size(), position_));
    const std::uint64_t last = position_ + (std::uint64_t{1} << 20);
    for (std::byte part[4096]; read(part) > 0;)
        if (position_ >= last) return core::text("more than ", position_);
    return core::text(position_);
}

LOCKSTEP_FUNCTION std::vector<std::byte> read_file(const std::string& path, std::uint64_t most) {
    packed_file file{path};
    auto out = file.read_up_to(most);
    std::byte further[1];
    if (file.read(further) > 0)
        core::fail(core::text("\"", path, "\" has ", file.length(), " bytes", file.is_packed() ? " once unpacked" : "",
                              ", too many: the most are ", most),
                   "pass the right file");
    return out;
}

#endif

}  // namespace lockstep::data
