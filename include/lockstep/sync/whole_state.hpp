// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An array of all parameters as the state of a run.
// Tested by tests/equivalence/outer_steps.cpp.

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/tensor/state.hpp"

namespace lockstep::sync {

/// Shows a visitor an array of all parameters, tensor by tensor, that every rank keeps alike; one of them speaks.
template <class Network, class T, class Visitor>
void visit_whole(Visitor&& visit, std::string_view role, std::size_t slot, std::span<T> all, bool speaks) {
    std::size_t number = 0;
    for (std::size_t layer = 0; layer < Network::size; ++layer) {
        std::size_t at = Network::offset(layer);
        for (const auto& one : Network::facts[layer].tensors) {
            visit(tensor::state_part<T>{.role = role,
                                        .slot = slot,
                                        .tensor = number++,
                                        .numbers = all.subspan(at, one.size()),
                                        .speaks = speaks});
            at += one.size();
        }
    }
}

}  // namespace lockstep::sync
