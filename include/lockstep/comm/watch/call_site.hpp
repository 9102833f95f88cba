// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where a rank is: which call of the user, which collective, for whom it waits. Plain data, written down only when a
// rank asks.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::comm {

/// A line put together without an allocation, as signal handlers need it. What does not fit is cut.
class short_line {
public:
    static constexpr std::size_t longest = 240;

    void add(std::string_view words) noexcept { size_ += words.copy(text_.data() + size_, longest - size_); }
    void add(std::uint64_t number) noexcept;
    /// ` at file.cpp:12`, without the folder.
    void add(const std::source_location& where) noexcept;
    /// Closes the line, if need be in place of its last character.
    void end() noexcept { text_[size_ < longest ? size_++ : size_ - 1] = '\n'; }
    [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

private:
    std::array<char, longest> text_;
    std::size_t size_ = 0;
};

/// A short name in a value that is copied without an allocation.
class short_name {
public:
    short_name() = default;
    explicit short_name(std::string_view text) noexcept : size_{text.copy(text_.data(), text_.size())} {}
    [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

private:
    std::array<char, 63> text_{};
    std::size_t size_ = 0;
};

/// What messages call the elements of a type.
template <class T>
inline constexpr const char* unit_of = std::is_same_v<T, float>    ? "floats"
                                       : std::is_same_v<T, double> ? "doubles"
                                       : sizeof(T) == 1            ? "bytes"
                                       : std::is_integral_v<T>     ? "integers"
                                                                   : "elements";

/// One run of a collective. The fingerprint is that of its kind, elements and type; equal runs are equal on all ranks.
struct ticket {
    std::uint64_t group = 0;
    std::uint64_t number = 0;
    std::uint64_t run = 0;  ///< counted from 1; 0: none
    std::uint64_t fingerprint = 0;
};

/// What a rank knows of a collective that it has made.
struct collective {
    std::uint64_t group = 0;
    std::uint64_t number = 0;  ///< in its group: equal on all ranks that make their collectives in the same order
    std::uint64_t runs = 0;    ///< how often it has been started
    std::uint64_t fingerprint = 0;
    std::size_t elements = 0;
    const char* unit = "";
    short_name kind;
    short_name what;               ///< what it is for, if that was said
    std::source_location where{};  ///< of the last start

    void identify() noexcept { fingerprint = core::hash(kind.text(), core::hash(std::string_view{unit}, elements)); }
    [[nodiscard]] ticket now() const noexcept { return {group, number, runs, fingerprint}; }
};

/// What a rank knows of a group of ranks: who they are, and how far its collectives are numbered.
struct group_record {
    static constexpr std::uint64_t shared_memory = std::uint64_t{1}
                                                   << 32U;  ///< numbers of collectives without messages begin here

    std::uint64_t id = 0;
    std::vector<std::size_t> members{};  ///< numbers of its ranks in the whole; empty: all, in order
    std::uint64_t last = 0;              ///< number of the collective that was made last,
    std::uint64_t last_shared = shared_memory;
    std::uint64_t splits = 0;  ///< how often it was divided: no two groups have one id
    collective setup{};        ///< collectives of setup, number 0: one after the other

    [[nodiscard]] std::size_t rank_in_whole(std::size_t rank) const noexcept {
        return members.empty() ? rank : members[rank];
    }
};

/// The call of a public function that a rank is in.
struct call_record {
    const char* name = nullptr;
    std::source_location where{};
    const call_record* outer = nullptr;
    int exceptions = 0;  ///< that were on their way when it began
};

/// The thread that is in a call: one at a time. Any thread may ask for it.
class calling_thread {
public:
    /// Throws core::error where another thread is in one.
    void enter(const char* call) {
        std::uintptr_t in_a_call = 0;
        const auto mine = static_cast<std::uintptr_t>(::pthread_self());
        if (!in_call_.compare_exchange_strong(in_a_call, mine, std::memory_order_acquire) && in_a_call != mine)
            refuse(call);
    }
    void leave() noexcept { in_call_.store(0, std::memory_order_release); }

private:
    [[noreturn, gnu::cold]] static void refuse(const char* call);

    std::atomic<std::uintptr_t> in_call_{0};
};

/// `all-gather #17 of 'losses' in fit at train.cpp:88, 64 doubles`.
[[gnu::cold]] void describe(short_line& out, const collective& what, const call_record* call) noexcept;

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION void short_line::add(std::uint64_t number) noexcept {
    char digits[20];
    add(std::string_view{digits,
                         static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits)});
}

LOCKSTEP_FUNCTION void short_line::add(const std::source_location& where) noexcept {
    std::string_view file = where.file_name();
    if (file.empty()) return;
    file.remove_prefix(file.rfind('/') + 1);
    add(" at "), add(file), add(":"), add(where.line());
}

LOCKSTEP_FUNCTION void calling_thread::refuse(const char* call) {
    core::fail(core::text("a thread calls ", call, " while another one is in a call on the same ranks"),
               "call all trainers of these ranks from one thread at a time");
}

LOCKSTEP_FUNCTION void describe(short_line& out, const collective& what, const call_record* call) noexcept {
    out.add(what.kind.text());
    const bool counts = *what.unit != 0;
    if (counts) out.add(" #"), out.add(what.runs);
    if (!what.what.text().empty()) out.add(" of '"), out.add(what.what.text()), out.add("'");
    if (call != nullptr) {
        out.add(" in "), out.add(std::string_view{call->name});
        out.add(call->where);
    } else {
        out.add(what.where);
    }
    if (counts && what.elements > 0)
        out.add(", "), out.add(what.elements), out.add(" "), out.add(std::string_view{what.unit});
}

#endif

}  // namespace lockstep::comm
