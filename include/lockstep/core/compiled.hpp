// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The compiled form: what does not depend on a program's types comes from a library (src/) that the program's own build
// makes of these headers.
// Tested by tests/forms/program.cpp.

#include "lockstep/core/floating_point.hpp"

/// Without LOCKSTEP_COMPILED the library is header-only. A program that links the compiled form (lockstep::compiled)
/// defines it; the units of the library define one of the other two as well. LOCKSTEP_TEMPLATE(f<float>): an instance
/// of a function template that the library holds. LOCKSTEP_BODIES: whether definitions of functions that are no
/// templates are read here, each of them after LOCKSTEP_FUNCTION.
#if !defined(LOCKSTEP_COMPILED)
#define LOCKSTEP_TEMPLATE(...) static_assert(true)
#define LOCKSTEP_BODIES 1
#define LOCKSTEP_FUNCTION inline
#else
#if defined(LOCKSTEP_COMPILES_TEMPLATES)
#define LOCKSTEP_TEMPLATE(...) template decltype(__VA_ARGS__) __VA_ARGS__
#else
#define LOCKSTEP_TEMPLATE(...) extern template decltype(__VA_ARGS__) __VA_ARGS__
#endif
#if defined(LOCKSTEP_COMPILES_FUNCTIONS)
#define LOCKSTEP_BODIES 1
#else
#define LOCKSTEP_BODIES 0
#endif
#define LOCKSTEP_FUNCTION
#endif

namespace lockstep::core {

/// Whether a program compiles its kernels: then only what its sizes ask for. The compiled form has them for all sizes.
#if !defined(LOCKSTEP_COMPILED)
inline constexpr bool compiles_kernels = true;
#else
inline constexpr bool compiles_kernels = false;
#endif

}  // namespace lockstep::core
