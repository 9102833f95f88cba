// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An error that is known to all ranks before any of them throws it: no rank has to announce it.
// Tested by tests/equivalence/checkpoints.cpp.

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

}  // namespace lockstep::saving
