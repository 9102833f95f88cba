// SPDX-License-Identifier: BSD-3-Clause
#include "other_unit.hpp"

#include "lockstep/core/hash.hpp"
#include "lockstep/simd/batch.hpp"

facts other_unit() {
    return {lockstep::core::hash("lockstep", 1), &lockstep::core::hash, lockstep::simd::width<float>};
}
