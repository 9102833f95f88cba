// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a kernel may use beyond its operands: threads, and scratch memory that the caller sized beforehand.
// Tested by tests/unit/kernels/convolution/algorithm.cpp.

#include <span>

#include "lockstep/parallel/loop.hpp"

namespace lockstep::kernels {

/// `scratch` starts on a cache line and holds at least what the kernel's own `..._scratch(sizes, threads)` says, in
/// elements of T. Its content means nothing before and after the call.
template <class T>
struct resources {
    parallel::team team;
    std::span<T> scratch;
};

}  // namespace lockstep::kernels
