// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one exception type of the library: what is wrong, with the values, and what to do about it.

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// what() reads `lockstep: <what is wrong, with the values>; <what to do>`.
class error : public std::runtime_error {
public:
    error(const std::string& problem, const std::string& remedy);

    /// A whole message that another rank has already put together.
    explicit error(const std::string& message) : std::runtime_error(message) {}

    /// Adds a line to what(), once: what a caller knows of the state that the failure leaves. Later lines are dropped.
    [[gnu::cold]] void add_line(const std::string& line);

    [[nodiscard]] const char* what() const noexcept override { return with_line_ ? with_line_->c_str() : std::runtime_error::what(); }

private:
    std::shared_ptr<const std::string> with_line_;  // shared: copies of an exception must not throw
};

/// Throws an error. Behind a condition: a check that passes builds no text.
[[noreturn, gnu::cold]] void fail(std::string_view problem, std::string_view remedy);

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION error::error(const std::string& problem, const std::string& remedy)
    : std::runtime_error("lockstep: " + problem + "; " + remedy) {}

LOCKSTEP_FUNCTION void error::add_line(const std::string& line) {
    if (!with_line_) with_line_ = std::make_shared<const std::string>(core::text(what(), "\n    ", line));
}

[[gnu::noinline]] LOCKSTEP_FUNCTION void fail(std::string_view problem, std::string_view remedy) {
    throw error{std::string{problem}, std::string{remedy}};
}

#endif

}  // namespace lockstep::core
