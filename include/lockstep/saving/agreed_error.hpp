// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An error that is known to all ranks before any of them throws it: no rank has to announce it.
// Tested by tests/equivalence/checkpoints.cpp.

#include <exception>
#include <string>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::saving {

/// An error that all ranks of a group throw alike, after which nothing is under way.
class agreed_error : public core::error {
public:
    agreed_error(const comm::group& ranks, const std::string& message)
        : core::error{message}, group_{&ranks.record()} {}

    /// An error of other ranks is like any other: to them it is unknown.
    [[nodiscard]] bool is_of(const comm::group& ranks) const noexcept { return group_ == &ranks.record(); }

private:
    const comm::group_record* group_;  // not read: it may be gone
};

/// Calls f(); all ranks hear of an error in it and throw the same one, that of the first rank that has one. Collective.
template <class F>
[[gnu::cold]] void together(const comm::group& ranks, const F& f) {
    std::string mine;
    try {
        f();
    } catch (const comm::remote_failure&) {
        throw;
    } catch (const std::exception& failure) {
        mine = failure.what();
        if (mine.empty()) mine = "lockstep: an exception without a text";
    }
    for (const std::string& one : ranks.gather_all(mine))
        if (!one.empty()) throw agreed_error{ranks, one};
}

}  // namespace lockstep::saving
