// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What compress::adaptive chooses from: a compressor or a reduction, as one type.
// Tested by tests/unit/compress/adaptive.cpp.

#include <string>
#include <type_traits>
#include <variant>

#include "lockstep/compress/any.hpp"
#include "lockstep/compress/any_reduction.hpp"
#include "lockstep/compress/concept.hpp"
#include "lockstep/compress/measured.hpp"
#include "lockstep/compress/reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::compress {

/// A compressor, or a reduction whose rounds are one sum in the order of workers, such as random_block, or two, such as
/// power_sgd. It keeps no state for each worker: one residual is around all candidates.
class candidate {
public:
    using one_sum = any_reduction<algebra::ordered_sum>;
    using two_sums = any_reduction<algebra::ordered_sum, algebra::ordered_sum>;

    template <class C>
        requires(!std::is_same_v<C, candidate> && Compressor<C>)
    candidate(const C& one) : held_{any{one}} {}  // implicit, as that of any
    template <class R>
        requires(!std::is_same_v<R, candidate> && Reduction<R>)
    candidate(const R& one) : held_{erased(one)} {}

    [[nodiscard]] std::string settings() const {
        return std::visit([](const auto& one) { return one.settings(); }, held_);
    }
    /// Throws core::error.
    [[gnu::cold]] void check() const {
        std::visit([](const auto& one) { one.check(); }, held_);
        const bool keeps = std::visit([](const auto& one) { return one.slots() > 0; }, held_);
        if (const any* one = compressor(); keeps || (one != nullptr && one->shared_slots() > 0))
            core::fail(core::text("the candidate ", settings(), " of adaptive keeps a state of its own"),
                       "leave error_feedback out: one residual is around all candidates");
        if (std::visit([](const auto& one) { return plain_steps(one) > 0; }, held_))
            core::fail(core::text("the candidate ", settings(), " of adaptive begins with all numbers"),
                       "leave warm_up out: dense is always a candidate");
        if (const any* one = compressor(); one != nullptr) {
            if (one->seals())
                core::fail(core::text("the candidate ", settings(), " of adaptive changes the sum of all workers"),
                           "leave two_sided out");
            if (!one->changes().empty())
                core::fail(core::text("the candidate ", settings(),
                                      " of adaptive has messages of other lengths in later steps"),
                           "leave warm_up out: dense is always a candidate");
            if (one->sees_whole_tensors())
                core::fail(core::text("the candidate ", settings(), " of adaptive takes whole tensors"),
                           "use compressors that take segments, or reductions");
        }
        std::visit([](const auto& one) { one.check_feedback(); }, held_);
    }

    /// The same candidate, of which what it sends is counted.
    [[nodiscard, gnu::cold]] candidate counted(statistics* to) const {
        return std::visit([&](const auto& one) { return candidate{measured{one, to}}; }, held_);
    }
    /// Null for a reduction.
    [[nodiscard]] const any* compressor() const noexcept { return std::get_if<any>(&held_); }
    /// f(reduction); not for a compressor.
    template <class F>
    void with_reduction(const F& f) const {
        std::visit(
            [&](const auto& one) {
                if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(one)>, any>) f(one);
            },
            held_);
    }

private:
    using held = std::variant<any, one_sum, two_sums>;
    template <class R>
    [[nodiscard]] static held erased(const R& one) {
        static_assert(
            std::is_constructible_v<one_sum, R> || std::is_constructible_v<two_sums, R>,
            "lockstep: a reduction that adaptive may choose has one or two rounds of ordered_sum, of numbers");
        if constexpr (std::is_constructible_v<one_sum, R>)
            return one_sum{one};
        else if constexpr (std::is_constructible_v<two_sums, R>)
            return two_sums{one};
        else
            return any{};
    }

    held held_;
};

}  // namespace lockstep::compress
