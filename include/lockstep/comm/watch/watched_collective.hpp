// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A collective that is entered at the watch of its ranks.
// Tested by tests/mpi/comm_watch.cpp.

#include <memory>
#include <utility>

#include "lockstep/comm/watch/call_site.hpp"
#include "lockstep/comm/watch/watch.hpp"
#include "lockstep/core/compiled.hpp"

namespace lockstep::comm {

/// A collective that the watch knows of as long as this lives.
class watched_collective {
public:
    [[gnu::cold]] watched_collective(std::shared_ptr<watch> by, const collective& what)
        : by_{std::move(by)}, what_{std::make_unique<collective>(what)} {
        what_->identify();
        if (by_ != nullptr) by_->add(*what_);
    }
    watched_collective(watched_collective&&) noexcept = default;
    watched_collective& operator=(watched_collective&& other) noexcept {
        std::swap(by_, other.by_);
        std::swap(what_, other.what_);
        return *this;
    }
    [[gnu::cold]] ~watched_collective();

    [[nodiscard]] collective& operator*() const noexcept { return *what_; }
    [[nodiscard]] collective* operator->() const noexcept { return what_.get(); }

private:
    std::shared_ptr<watch> by_;
    std::unique_ptr<collective> what_;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION watched_collective::~watched_collective() {
    if (what_ != nullptr && by_ != nullptr) by_->remove(*what_);
}

#endif

}  // namespace lockstep::comm
