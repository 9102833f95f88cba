// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The default of plan::factors: the gradients of all layers travel as such.
// Tested by tests/unit/train/checks.cpp.

#include <array>
#include <string>
#include <string_view>

#include "lockstep/reduce/choose.hpp"

namespace lockstep::sync {

/// No layer sends factors: see sync/factors.hpp for what does.
struct no_factors {
    static constexpr std::string_view name = "never";
    static constexpr bool are_used = false;

    [[nodiscard]] std::string settings() const { return {}; }

    template <class T, class Compressor>
    using method = reduce::method<T, Compressor>;

    /// Of no layer.
    template <class Types, class Setup, class Groups>
    [[nodiscard]] static constexpr std::array<bool, 0> choose(const Setup&, const Groups&) noexcept {
        return {};
    }
};

}  // namespace lockstep::sync
