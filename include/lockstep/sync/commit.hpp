// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The moment of a step from which weights change, agreed over all ranks; and what the weights of this rank are after a
// failure.
// Tested by tests/equivalence/same_bits.cpp.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/node/shared_gate.hpp"
#include "lockstep/node/shared_parts.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::sync {

/// What the weights on a rank are.
struct weights_state {
    std::uint64_t steps = 0;   ///< they are those after so many steps,
    bool loaded = false;       ///< or those that load_weights() was given after them,
    bool is_torn = false;      ///< or partly those after one more step, or partly loaded,
    bool is_unfinite = false;  ///< or infinite or NaN in places: looked for after a failure

    [[nodiscard]] bool is_usable() const noexcept { return !is_torn && !is_unfinite; }
    /// One sentence for an error. `rank`: this one. `part`: what it has of the network; empty: all.
    [[nodiscard, gnu::cold]] std::string text(std::size_t rank, const std::string& part = {}) const;
};

/// Every rank agrees when it has done all that can fail on it, then meets the others. Where ranks share memory, others
/// write into its weights: there a rank that gives up withdraws first, so either all ranks change their weights or none
/// does. Over messages the agreement of a late rank may arrive after the others gave up: the rank looks for their
/// failure before it changes anything, and each error says what the weights of its rank are.
class commit {
public:
    /// Bytes in shared memory.
    static constexpr std::size_t shared_bytes = sizeof(node::shared_signal);

    [[gnu::cold]] commit(const comm::group& all, node::shared_parts* memory, tensor::arena& arena) : all_{all} {
        if (memory != nullptr) gate_ = {*memory, arena.reserve_shared<node::shared_signal>(1)};
    }

    /// This rank has done all that can fail. Agrees, calls start(), and waits until progress() is true: then all ranks
    /// have agreed, and other ranks may change the weights. `others()` is called meanwhile. Throws remote_failure, and
    /// core::error where this rank gives up.
    template <class Start, class Progress, class Others>
    void agree(comm::pending_operation what, const Start& start, const Progress& progress, const Others& others) {
        struct agreement {
            commit& self;
            const Progress& progress;
        } mine{*this, progress};
        what.withdraw = [](void* of) {
            auto& [self, has_come] = *static_cast<agreement*>(of);
            return self.gate_.is_shared() ? self.gate_.withdraw() : !has_come();
        };
        what.agreement = &mine;
        // All ranks have agreed, so what they sent arrives. Others may have refused the step alike, as this rank then
        // does.
        const auto is_decided = [&] {
            if (!gate_.is_shared() || gate_.withdraw()) return false;
            changing_ = true;
            return comm::comes_still(what, progress);
        };
        try {
            if (!gate_.agree()) [[unlikely]]
                wait_for_abort();
            start();
            for (comm::backoff waiting{what}; !progress(); waiting.wait(all_.aborts())) others();
            // Through shared memory all have agreed, or they would have sent nothing. Over messages a rank that gave up
            // may have sent before.
            if (!gate_.is_shared() && all_.size() > 1) all_.check();
        } catch (const comm::remote_failure&) {
            if (!is_decided()) throw;
        } catch (const comm::stalled&) {
            if (!is_decided()) throw;
        } catch (...) {
            changing_ = gate_.is_shared() && !gate_.withdraw();
            throw;
        }
        changing_ = gate_.is_shared();
    }
    /// All ranks refuse the change alike: no weight changes.
    void call_off() noexcept { changing_ = false; }

    /// This rank changes weights from now on.
    void begin() noexcept { changing_ = true; }
    /// What ends from now on is a part of the step: release() ends all of it.
    void hold() noexcept { is_held_ = true; }
    void release(std::uint64_t steps) noexcept {
        is_held_ = false;
        end(steps);
    }
    /// All weights are those after so many steps.
    void end(std::uint64_t steps) noexcept {
        if (is_held_) return;
        changing_ = false;
        state_.steps = steps;
        state_.loaded = state_.is_unfinite = false;
    }
    /// All weights are those that were loaded.
    void loaded() noexcept {
        changing_ = false;
        state_.loaded = true;
        state_.is_unfinite = false;
    }
    /// After a failure: whether the weights of this rank are finite.
    void found(bool finite) noexcept { state_.is_unfinite = !finite; }

    [[nodiscard]] weights_state state() const noexcept {
        weights_state out = state_;
        out.is_torn = changing_;
        return out;
    }

private:
    /// A rank that has withdrawn says why.
    [[noreturn, gnu::cold, gnu::noinline]] void wait_for_abort() {
        for (comm::backoff waiting;;) waiting.wait(all_.aborts());
    }

    comm::group all_;
    node::shared_gate gate_;
    weights_state state_;
    bool changing_ = false;
    bool is_held_ = false;
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION std::string weights_state::text(std::size_t rank, const std::string& part) const {
    const std::string which =
        core::text("the weights ", part.empty() ? "" : "of " + part + " ", "on rank ", rank, " are ");
    if (is_torn)
        return core::text(which, "unusable: partly those after step ", steps, ", partly newer; make a new trainer");
    if (is_unfinite)
        return core::text(which, "unusable: some are not finite after step ", steps, "; make a new trainer");
    if (loaded) return core::text(which, "those that load_weights() was given after step ", steps);
    return steps == 0 ? core::text(which, "those before the first step")
                      : core::text(which, "those after step ", steps);
}

#endif

}  // namespace lockstep::sync
