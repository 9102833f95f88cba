// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One of two implementations of a reducer, chosen when it is made.
// Tested by tests/unit/reduce/factor_sum.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/comm/group.hpp"
#include "lockstep/parallel/loop.hpp"
#include "lockstep/tensor/arena.hpp"

namespace lockstep::reduce {

/// The words of a Reducer that both have. A class that derives from it makes one of the two, which then stays where it
/// is, and says the other words itself. Cost of a word: one branch.
template <class T, class First, class Second>
class either {
public:
    void bind(const tensor::arena& arena) noexcept {
        with([&](auto& one) { one.bind(arena); });
    }
    [[nodiscard]] parallel::block owned() const noexcept {
        return with([](const auto& one) { return one.owned(); });
    }
    void start(std::span<T> gradient, std::uint64_t step) {
        with([&](auto& one) { one.start(gradient, step); });
    }
    template <class F>
    void update(std::span<T> weights, const F& change) {
        with([&](auto& one) { one.update(weights, change); });
    }
    void share(std::span<T> weights) {
        with([&](auto& one) { one.share(weights); });
    }
    bool poll() {
        return with([](auto& one) { return one.poll(); });
    }
    bool progress() {
        return with([](auto& one) { return one.progress(); });
    }
    void finish() {
        with([](auto& one) { one.finish(); });
    }
    [[nodiscard]] comm::pending_operation pending() const noexcept {
        return with([](const auto& one) { return one.pending(); });
    }
    [[nodiscard]] std::span<T> sums() const noexcept {
        return with([](auto& one) { return one.sums(); });
    }
    [[nodiscard]] bool replicates() const noexcept {
        return with([](const auto& one) { return one.replicates(); });
    }
    /// Nothing outlives a step.
    template <class Visitor>
    void visit_state(Visitor&&, std::size_t) const noexcept {}
    [[nodiscard]] std::size_t bytes_per_step() const noexcept {
        return with([](const auto& one) { return one.bytes_per_step(); });
    }

protected:
    template <class F>
    decltype(auto) with(const F& f) const {
        return second_ ? f(*second_) : f(*first_);
    }

    std::unique_ptr<First> first_;  // one of the two
    std::unique_ptr<Second> second_;
};

}  // namespace lockstep::reduce
