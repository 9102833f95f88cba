// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one exception type of the library: what is wrong, with the values, and what to do about it.

#include <sys/resource.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// what() reads `lockstep: <what is wrong, with the values>; <what to do>`. Both may quote files and arguments: they
/// become printable, the problem on one line.
class error : public std::runtime_error {
public:
    /// From what is wrong, with the values, and what to do.
    error(const std::string& problem, const std::string& remedy);

    /// A whole message that another rank has already put together.
    explicit error(const std::string& message) : std::runtime_error(message) {}

    /// Adds a line to what(), once: what a caller knows of the state that the failure leaves. Later lines are dropped.
    [[gnu::cold]] void add_line(const std::string& line);

    /// The message and its last line.
    [[nodiscard]] const char* what() const noexcept override {
        return with_line_ ? with_line_->c_str() : std::runtime_error::what();
    }
    /// what() without the name of the library at its beginning, to be a part of another message.
    [[nodiscard]] std::string_view without_head() const noexcept {
        constexpr std::string_view head = "lockstep: ";
        const std::string_view all = what();
        return all.substr(all.starts_with(head) ? head.size() : 0);
    }

private:
    std::shared_ptr<const std::string> with_line_;  // shared: copies of an exception must not throw
};

/// Throws an error. Call it where a condition holds: a check that passes builds no text.
[[noreturn, gnu::cold]] void fail(std::string_view problem, std::string_view remedy);

/// Throws the error for memory that the system does not give: what it was for, and how many bytes were asked for.
[[noreturn, gnu::cold]] void fail_memory(std::string_view what, unsigned long long bytes, std::string_view remedy);

/// f(), which asks for so many bytes: where they are not there, the error of fail_memory().
template <class F>
decltype(auto) with_memory(std::string_view what, unsigned long long bytes, std::string_view remedy, F&& f) {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        fail_memory(what, bytes, remedy);
    } catch (const std::length_error&) {  // more than a container can ever hold
        fail_memory(what, bytes, remedy);
    }
}

/// Throws the exception that is being handled again; where that is std::bad_alloc, an error with what this process
/// holds.
[[noreturn, gnu::cold]] void rethrow();

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION error::error(const std::string& problem, const std::string& remedy)
    : std::runtime_error("lockstep: " + printable(problem) + "; " + printable(remedy, true)) {}

LOCKSTEP_FUNCTION void error::add_line(const std::string& line) {
    if (!with_line_) with_line_ = std::make_shared<const std::string>(core::text(what(), "\n    ", line));
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void fail(std::string_view problem, std::string_view remedy) {
    throw error{std::string{problem}, std::string{remedy}};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void fail_memory(std::string_view what, unsigned long long bytes,
                                                     std::string_view remedy) {
    throw error{text("no memory for ", what, ": ", bytes, " bytes were asked for"), std::string{remedy}};
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void rethrow() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        struct rusage used {};
        struct rlimit limit {};
        ::getrusage(RUSAGE_SELF, &used);
        ::getrlimit(RLIMIT_AS, &limit);
        // The request that failed does not say its size.
        throw error{
            text("no memory: the process has taken up to ", used.ru_maxrss, " KiB",
                 limit.rlim_cur == RLIM_INFINITY ? text() : text(", its limit is ", limit.rlim_cur / 1024, " KiB")),
            "use smaller batches, fewer ranks on this machine, or one with more memory; see ulimit -v"};
    }
}

#endif

}  // namespace lockstep::core
