// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one exception type of the library: what is wrong, with the values, and what to do about it.

#include <stdexcept>
#include <string>

#include "lockstep/core/text.hpp"

namespace lockstep::core {

/// what() reads `lockstep: <what is wrong, with the values>; <what to do>`.
class error : public std::runtime_error {
public:
    error(const std::string& problem, const std::string& remedy) : std::runtime_error("lockstep: " + problem + "; " + remedy) {}

    /// A whole message that another rank has already put together.
    explicit error(const std::string& message) : std::runtime_error(message) {}
};

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void fail(const std::string& problem, const std::string& remedy) {
    throw error{problem, remedy};
}

/// Apart from the code that checks, and compiled for size: messages are built once in a run at most.
template <class Problem, class Remedy>
[[noreturn, gnu::cold, gnu::noinline]] void fail_with(Problem& problem, Remedy& remedy) {
    fail(problem(), remedy());
}
}  // namespace detail

/// Throws unless the condition holds. The texts are callables, so a check that passes builds no string.
template <class Problem, class Remedy>
void require(bool condition, Problem&& problem, Remedy&& remedy) {
    if (!condition) [[unlikely]]
        detail::fail_with(problem, remedy);
}

}  // namespace lockstep::core
