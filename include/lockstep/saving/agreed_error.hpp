// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An error that is known to all ranks before any of them throws it: no rank has to announce it.
// Tested by tests/equivalence/checkpoints.cpp.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>

#include "lockstep/comm/group.hpp"
#include "lockstep/comm/watch/abort_channel.hpp"
#include "lockstep/comm/watch/call_site.hpp"
#include "lockstep/comm/watch/wait.hpp"
#include "lockstep/comm/watch/watch.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

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

/// While it lives, ranks wait for each other up to so many times as long: one writes more than others, or to a slower
/// disk. It is made where all of them are known to have come. What a thread writes has no such place: a rank that never
/// commits it is missed that much later.
class long_waits {
public:
    static constexpr double times = 60;  ///< an hour instead of the usual minute

    explicit long_waits(const comm::group& ranks) : of_{ranks.aborts()}, usual_{of_.timeout()} {
        of_.set_timeout(usual_ * times);
    }
    long_waits(const long_waits&) = delete;
    long_waits& operator=(const long_waits&) = delete;
    ~long_waits() { of_.set_timeout(usual_); }

private:
    comm::abort_channel& of_;
    std::chrono::duration<double> usual_;
};

/// Calls f(); all ranks hear of an error in it and throw the same one, that of the first rank that has one. Where that
/// is not rank 0 and others have none, a line says where it comes from. Exceptions that are no `Caught` pass through:
/// to other ranks they are like any other. Collective.
template <class Caught = std::exception, class F>
[[gnu::cold]] void together(const comm::group& ranks, const F& f) {
    std::string mine;
    try {
        f();
    } catch (const comm::remote_failure&) {
        throw;
    } catch (const Caught& failure) {
        mine = failure.what();
        if (mine.empty()) mine = "lockstep: an exception without a text";
    }
    const auto all = ranks.gather_all(mine);
    const auto is_empty = [](const std::string& one) { return one.empty(); };
    const auto first = static_cast<std::size_t>(std::ranges::find_if_not(all, is_empty) - all.begin());
    if (first == all.size()) return;
    if (first == 0 || std::ranges::none_of(all, is_empty)) throw agreed_error{ranks, all[first]};
    comm::short_line here;
    ranks.aborts().watched_by()->describe_call_site(here);
    const auto places = ranks.gather_all(here.text());
    throw agreed_error{ranks, core::text(all[first], "\n    on rank ", first, ": ", places[first])};
}

/// Calls f(), which throws on all ranks alike or on none, when nothing is under way: after a gather of what it looks
/// at.
template <class F>
void alike(const comm::group& ranks, const F& f) {
    try {
        f();
    } catch (const comm::remote_failure&) {
        throw;
    } catch (const comm::stalled&) {
        throw;
    } catch (const core::error& failure) {
        throw agreed_error{ranks, failure.what()};
    }
}

}  // namespace lockstep::saving
